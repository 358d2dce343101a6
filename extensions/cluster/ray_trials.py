"""Trials of a search on a Ray cluster: a worker is an actor with its processors and GPUs, and forks a process for each trial there.

A trial whose worker is lost is started again on another, a stated number of times, and resumes from its checkpoint in the folder of runs,
which all nodes have. Imports no TensorFlow, and Ray only when there is a cluster.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from extensions.cluster.ray_cluster import LATE, gpus_wanted, nodes, share
from extensions.cluster.ray_pool import Pool
from pipelines.base.errors import ConfigError
from pipelines.config import extensions
from pipelines.config.schema import Experiment
from pipelines.tuning.trial_processes import Nursery

_POLL = 0.5  # s


class Order(NamedTuple):
    """A trial: its key, and the absolute paths of its order and of the file that it prints to."""

    key: str
    order: str
    log: str


class TrialWorker:
    """The work of an actor."""

    def __init__(self, domain: str, environment: Mapping[str, str], own: Mapping[str, str]):
        """
        Args:
            environment: of the process that forks, by which it knows what is in use.
            own: of each trial.
        """
        for name in ("TF_USE_LEGACY_KERAS", "OMP_NUM_THREADS"):
            os.environ.pop(name, None)
        self._nursery, self._own = Nursery(domain, environment), own

    def there(self) -> None:
        """Answered once the actor is placed."""

    def run(self, trial: Order) -> int:
        """The exit status of a trial, negative for a signal. Raises ConfigError where its order is not on this node."""
        if not appears(Path(trial.order)):
            raise ConfigError(f"{trial.order} is not on {os.uname().nodename}: all nodes need the folder of runs under one name, as on a "
                              "network disk")
        self._nursery.start("trial", [trial.order], log=trial.log, environment=self._own)
        while True:
            for _, status in self._nursery.ended(_POLL):
                return status

    def signal(self, number: int) -> None:
        self._nursery.signal(number)


class RayTrials:
    """The search's end; takes the place of `Nursery`."""

    def __init__(self, experiment: Experiment, workers: int, say: Callable[[str], None]):
        """
        Args:
            workers: trials at a time, at most: as many as the cluster has room for.
            say: what there is to say, such as of a worker that is lost.
        """
        there = nodes()
        gpus = gpus_wanted(experiment.train, there)
        own = share(there, workers, 1 if gpus is None else gpus)
        self._over: list[tuple[str, int]] = []
        self._stopping = False
        self._pool = Pool[Order](
            TrialWorker, (experiment.task.partition(".")[0], extensions.environment(experiment), own.environment(there, workers)),
            lambda actor, trial: actor.run.remote(trial), own, workers, calls=2, name=lambda trial: trial.key, say=say,
            given_up=lambda trial: -signal.SIGKILL)

    def start(self, key: str, arguments: list[str], *, log: str, environment: Mapping[str, str] | None = None) -> None:
        """As `Nursery.start`, once a worker is free. `environment` is this machine's and left out: which devices a trial has is Ray's
        to say."""
        self._pool.waiting.append(Order(key, os.path.abspath(arguments[0]), os.path.abspath(log)))

    def signal(self, number: int) -> None:
        """Sends a signal to every trial that runs; those that wait do not begin."""
        self._stopping = True
        for actor in self._pool.working():
            actor.signal.remote(number)

    def ended(self, seconds: float) -> list[tuple[str, int]]:
        """(key, exit status, negative for a signal) of trials that have ended; waits at most so long for one.

        Raises:
            HostLost: there is no room for any worker.
            ConfigError: a node does not have the folder of runs.
        """
        stopped: list[tuple[str, int]] = []
        if self._stopping:  # those that wait, and those whose worker was lost meanwhile
            stopped = [(trial.key, -signal.SIGTERM) for trial in self._pool.waiting]
            self._pool.waiting.clear()
        over = self._pool.done(0.0 if stopped else seconds)
        for trial, status in over:
            if status == 0:
                appears(Path(trial.order.replace("order.json", "result.json")))
        return [*stopped, *((trial.key, status) for trial, status in over)]

    def __enter__(self) -> "RayTrials":
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.__exit__(*exception)


def appears(file: Path, patience: float = LATE) -> bool:
    """Waits for a file that another machine has written."""
    until = time.monotonic() + patience
    while not file.exists():
        if time.monotonic() > until:
            return False
        time.sleep(_POLL)
    return True
