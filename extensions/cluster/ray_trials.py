"""Trials of a search on a Ray cluster: a worker is an actor with its processors and GPUs, and forks a process for each trial there.

A trial whose worker is lost is started again on another, a stated number of times, and resumes from its checkpoint in the folder of runs,
which all nodes have. Imports no TensorFlow, and Ray only when there is a cluster.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extensions.cluster.ray_cluster import LATE, nodes, share
from pipelines.base.errors import TrainingError
from pipelines.config import extensions
from pipelines.config.schema import Experiment, device_count
from pipelines.machine.memory import WORKERS
from pipelines.tuning.trial_processes import Nursery

RESTARTS = 3  # of a trial whose workers were lost
FAILURES = 10  # workers lost one after the other without an answer
_POLL = 0.5  # s


class TrialWorker:
    """The work of an actor; every call is short."""

    def __init__(self, domain: str, environment: Mapping[str, str]):
        for name in ("TF_USE_LEGACY_KERAS", "OMP_NUM_THREADS"):
            os.environ.pop(name, None)
        self._nursery = Nursery(domain, environment)

    def start(self, order: str, log: str, environment: Mapping[str, str]) -> str | None:
        """Begins a trial. Returns why that cannot be, None where it runs."""
        if not appears(Path(order)):
            return f"{order} is not on {os.uname().nodename}: all nodes need the folder of runs under one name, as on a network disk"
        self._nursery.start("trial", [order], log=log, environment=environment)
        return None

    def ended(self, seconds: float) -> int | None:
        """The exit status of the trial, negative for a signal; None while it runs. Waits so long for its end."""
        return next((status for _, status in self._nursery.ended(seconds)), None)

    def signal(self, number: int) -> None:
        self._nursery.signal(number)


@dataclass
class _Order:
    key: str
    order: str
    log: str
    lost: int = 0


@dataclass
class _Worker:
    """An actor, what it was asked last, and its trial."""

    actor: Any
    asked: Any = None
    trial: _Order | None = None


class RayTrials:
    """The search's end; takes the place of `Nursery`."""

    def __init__(self, experiment: Experiment, workers: int, say: Callable[[str], None]):
        """
        Args:
            workers: trials at a time, at most: as many as the cluster has room for.
            say: what there is to say, such as of a worker that is lost.
        """
        there = nodes()
        gpus = 0 if experiment.train.devices == "cpu" or not any(node.get("GPU") for node in there) else device_count(experiment.train) or 1
        self._share, self._say = share(there, workers, gpus), say
        sharing = max(min(self._share.on(node), workers) for node in there)
        self._variables = {"TF_NUM_INTRAOP_THREADS": str(self._share.cpus), WORKERS: str(max(1, sharing))}
        self._given = experiment.task.partition(".")[0], extensions.environment(experiment)
        self._waiting: deque[_Order] = deque()
        self._over: list[tuple[str, int]] = []
        self._stopping, self._failures = False, 0
        self._workers = [self._new() for _ in range(workers)]

    def start(self, key: str, arguments: list[str], *, log: str, environment: Mapping[str, str] | None = None) -> None:
        """As `Nursery.start`, once a worker is free. `environment` is this machine's and left out: which devices a trial has is Ray's
        to say."""
        self._waiting.append(_Order(key, os.path.abspath(arguments[0]), os.path.abspath(log)))

    def signal(self, number: int) -> None:
        """Sends a signal to every trial that runs; those that wait do not begin."""
        self._stopping = True
        self._over += [(order.key, -number) for order in self._waiting]
        self._waiting.clear()
        for worker in self._workers:
            if worker.trial is not None:
                worker.actor.signal.remote(number)

    def ended(self, seconds: float) -> list[tuple[str, int]]:
        """(key, exit status, negative for a signal) of trials that have ended; waits at most so long for one.

        Raises:
            TrainingError: a node does not have the folder of runs.
        """
        import ray

        until = time.monotonic() + seconds
        while True:
            self._hand_out()
            asked = {worker.asked: worker for worker in self._workers if worker.asked is not None}
            if not asked:
                time.sleep(_POLL)
            if self._over or (left := until - time.monotonic()) <= 0:
                over, self._over = self._over, []
                return over
            for answer in ray.wait(list(asked), timeout=min(left, _POLL))[0] if asked else []:
                worker = asked[answer]
                worker.asked = None
                try:
                    self._heard(worker, ray.get(answer))
                except ray.exceptions.RayError as error:
                    self._lost(worker, error)

    def _hand_out(self) -> None:
        """Gives a trial to each worker that is there and has none."""
        for worker in self._workers:
            if worker.asked is None and worker.trial is None and self._waiting:
                worker.trial = self._waiting.popleft()
                worker.asked = worker.actor.start.remote(worker.trial.order, worker.trial.log, self._variables)

    def _heard(self, worker: _Worker, answer: Any) -> None:
        self._failures = 0
        if worker.trial is None:  # it is there
            return
        if isinstance(answer, str):
            raise TrainingError(answer)
        if answer is None:
            worker.asked = worker.actor.ended.remote(_POLL)
            return
        order, worker.trial = worker.trial, None
        if answer == 0:
            appears(Path(order.order.replace("order.json", "result.json")))
        self._over.append((order.key, answer))

    def _lost(self, worker: _Worker, error: Exception) -> None:
        import ray

        ray.kill(worker.actor)
        order = worker.trial
        fresh = self._new()
        worker.actor, worker.asked, worker.trial = fresh.actor, fresh.asked, None
        self._failures += 1
        if self._failures > FAILURES:
            raise TrainingError(f"{self._failures} workers in a row were lost; the last: {error}")
        if order is None:
            return
        order.lost += 1
        if self._stopping or order.lost > RESTARTS:
            self._over.append((order.key, -signal.SIGKILL))
            return
        self._say(f"the worker of {order.key} is lost ({str(error).strip().splitlines()[0][:100]}); another one takes it over")
        self._waiting.appendleft(order)

    def _new(self) -> _Worker:
        import ray

        actor: Any = ray.remote(TrialWorker).options(num_cpus=self._share.cpus, num_gpus=self._share.gpus).remote(*self._given)
        return _Worker(actor, actor.ended.remote(0.0))  # answered once the actor is placed and there

    def close(self) -> None:
        """Ends all workers, and with them what still runs."""
        import ray

        for worker in self._workers:
            ray.kill(worker.actor)

    def __enter__(self) -> "RayTrials":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def appears(file: Path, patience: float = LATE) -> bool:
    """Waits for a file that another machine has written."""
    until = time.monotonic() + patience
    while not file.exists():
        if time.monotonic() > until:
            return False
        time.sleep(_POLL)
    return True
