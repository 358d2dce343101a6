"""One search on several machines: Keras Tuner's chief, which asks its oracle, and workers, which train.

Every machine gives the same command with Keras Tuner's three variables, and sees the same folder of runs:
  KERASTUNER_ORACLE_IP, KERASTUNER_ORACLE_PORT   where the chief listens
  KERASTUNER_TUNER_ID                            `chief` on one machine, another name on each of the others
The chief keeps the journal and trains nothing itself unless --workers says so. What a trial is and what came of it stand in the
folder of runs; Keras Tuner's messages (gRPC, not encrypted: for a private network) carry the trial's number alone.
"""

import os
import signal
import time
from collections.abc import Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

from pipelines.base.errors import ConfigError, TrainingError
from pipelines.base.files import write_json
from pipelines.base.inside import refuse_links
from pipelines.base.signals import handling
from pipelines.config.schema import Experiment
from pipelines.tuning.search_folder import SearchFolder
from pipelines.tuning.trial_processes import Nursery

_IDLE_SECONDS = 1.0  # between questions while there is nothing to do
_ANSWER_SECONDS = 120.0  # that a chief may take: another worker's result may come late through a network's file system
_FAREWELL_SECONDS = 5.0  # that a chief which is done waits for workers to ask once more
_PATIENCE = 900.0  # seconds that a worker waits for a chief that is gone


def role() -> str | None:
    """ "chief", a worker's name, or None for a search on this machine alone.

    Raises:
        ConfigError: only some of the variables are set.
    """
    names = ("KERASTUNER_ORACLE_IP", "KERASTUNER_ORACLE_PORT", "KERASTUNER_TUNER_ID")
    missing = [name for name in names if not os.environ.get(name)]
    if len(missing) == len(names):
        return None
    if missing:
        raise ConfigError(f"a search on several machines needs {' and '.join(missing)}, too (docs/tuning.md)")
    return os.environ["KERASTUNER_TUNER_ID"]


class Chief:
    """Answers workers from a search. What Keras Tuner's servicer calls `oracle`. A failure is the search's to raise: here it would end
    in the thread that answers, unseen."""

    def __init__(self, search: Any):
        """`search`: has `take() -> trial, "wait" or "stop"`, `ready(trial) -> bool`, `hold(trial, worker)`, `came(trial)`, `lock`,
        `held`: worker -> the trial that it had when the search was killed, and `failure`, which is set here."""
        import grpc
        from keras_tuner.src import protos
        from keras_tuner.src.distribute.oracle_chief import OracleServicer

        self.search = search
        self.held: dict[str, Any] = dict(search.held)
        self.asking: set[str] = set()  # workers that do not know yet that there is no more
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
        protos.get_service_grpc().add_OracleServicer_to_server(OracleServicer(self), self._server)
        address = _address()
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError:
            bound = 0
        if not bound:
            raise ConfigError(f"the chief cannot listen on {address}; is another one there?")
        self._server.start()

    def create_trial(self, tuner_id: str) -> Any:
        """A worker's next trial; one that asks again after a crash, its own or the chief's, gets the trial that it had."""
        with self.search.lock:
            self.asking.add(tuner_id)
            try:
                trial = self._next(tuner_id)
            except Exception as error:
                self.search.failure, trial = error, "stop"
            if trial == "stop":
                self.asking.discard(tuner_id)
        if isinstance(trial, str):
            return _message("", "IDLE" if trial == "wait" else "STOPPED")
        return _message(str(trial.number), "RUNNING")

    def _next(self, worker: str) -> Any:
        while True:
            trial = self.held.get(worker)
            if trial is None:
                trial = self.search.take()
                if isinstance(trial, str):
                    return trial
            if self.search.ready(trial):
                if worker not in self.held:
                    self.search.hold(trial, worker)
                    self.held[worker] = trial
                return trial
            self.held.pop(worker, None)

    def end_trial(self, message: Any) -> None:
        with self.search.lock:
            for worker, trial in list(self.held.items()):
                if str(trial.number) == message.trial_id:
                    del self.held[worker]
                    try:
                        self.search.came(trial)
                    except Exception as error:
                        self.search.failure = error

    def close(self, wait: bool) -> None:
        """`wait`: for workers that are about to ask, so that they hear that there is no more."""
        until = time.monotonic() + (_FAREWELL_SECONDS if wait else 0.0)
        while self.asking and time.monotonic() < until:
            time.sleep(0.05)
        self._server.stop(grace=5.0).wait()


class _Line:
    """A worker's line to its chief. Keras Tuner's own client waits for a chief for an hour, deaf to signals."""

    def __init__(self, worker: str, stopped: Sequence[int]):
        """`stopped`: the signals that have come; then an answer is no longer waited for."""
        import grpc
        from keras_tuner.src import protos

        self.worker, self.stopped, self.messages = worker, stopped, protos.get_service()
        self.channel = grpc.insecure_channel(_address(), options=[("grpc.max_reconnect_backoff_ms", 5000)])
        self.chief = protos.get_service_grpc().OracleStub(self.channel)

    def ask(self) -> Any:
        """The next trial; None where a signal came first. Raises grpc.RpcError where no chief answers."""
        from keras_tuner.engine.trial import Trial

        call = self.chief.CreateTrial.future(self.messages.CreateTrialRequest(tuner_id=self.worker), timeout=_ANSWER_SECONDS)
        while not call.done():
            if self.stopped:
                call.cancel()
                return None
            time.sleep(0.02)
        return Trial.from_proto(call.result().trial)

    def tell(self, trial: Any) -> None:
        """Says that a trial has ended. Raises grpc.RpcError where no chief answers: it will see so when this worker asks again."""
        self.chief.EndTrial(self.messages.EndTrialRequest(trial=trial.to_proto()), timeout=_ANSWER_SECONDS)

    def close(self) -> None:
        self.channel.close()


def work(folder: SearchFolder, experiment: Experiment, say: Any) -> None:
    """A worker: trains what the chief asks for, until the chief has no more.

    Raises:
        TrainingError: the chief does not answer, or the folder of runs is not the chief's.
    """
    import grpc

    from pipelines.tuning.trials import Stopped

    stopped: list[int] = []

    def on_signal(number: int, frame: Any) -> None:
        if stopped:  # asked twice
            raise KeyboardInterrupt
        stopped.append(number)

    line = _Line(os.environ["KERASTUNER_TUNER_ID"], stopped)
    try:
        with handling(on_signal), Nursery(experiment) as nursery:
            alone_since: float | None = None
            while not stopped:
                try:
                    trial = line.ask()
                    alone_since = None
                    if trial is None:
                        break
                    if trial.status == "STOPPED":
                        return
                    if trial.status == "RUNNING":
                        say(f"trial {trial.trial_id}")
                        if _trained(nursery, folder, trial.trial_id, stopped):
                            trial.status = "COMPLETED"
                            line.tell(trial)
                    else:
                        time.sleep(_IDLE_SECONDS)
                except grpc.RpcError as error:
                    if alone_since is None:
                        alone_since = time.monotonic()
                        say(f"no chief answers at {_address()}; waiting for one")
                    elif time.monotonic() - alone_since > _PATIENCE:
                        raise TrainingError(f"the chief does not answer: {error}") from None
                    time.sleep(_IDLE_SECONDS)
            raise Stopped(stopped[0])
    finally:
        line.close()


def _trained(nursery: Nursery, folder: SearchFolder, number: str, stopped: list[int]) -> bool:
    """Runs a trial to its end; False where a signal came before."""
    order = _appeared(folder, f"*/{number}.order.json")
    refuse_links(order.parent)
    nursery.start(number, [str(order)], log=str(order.parent / "log.txt"))
    announced = False
    while not (ended := nursery.ended(0.5)):
        if stopped and not announced:
            nursery.signal(signal.SIGTERM)
            announced = True
    result = order.with_name(f"{number}.result.json")
    if not result.exists():
        if stopped:
            return False
        from pipelines.tuning.trials import why_ended

        write_json(result, {"status": "failed", "reason": why_ended(ended[0][1], order.parent / "log.txt")})
    return True


def _appeared(folder: SearchFolder, pattern: str, patience: float = 60.0) -> Path:
    """A file that the chief has written; a network's file system may show it late."""
    until = time.monotonic() + patience
    while True:
        path = next(iter(folder.trials.glob(pattern)), None)
        if path is not None:
            return path
        if time.monotonic() > until:
            raise TrainingError(f"{folder.trials}: the chief's trial is not there; chief and workers need one folder of runs (--runs)")
        time.sleep(0.5)


def _address() -> str:
    return f"{os.environ['KERASTUNER_ORACLE_IP']}:{os.environ['KERASTUNER_ORACLE_PORT']}"


def _message(trial_id: str, status: str) -> Any:
    import keras_tuner
    from keras_tuner.engine.trial import Trial

    return Trial(keras_tuner.HyperParameters(), trial_id=trial_id, status=status)
