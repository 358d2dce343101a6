"""One search on several machines: Keras Tuner's chief, which asks its oracle, and workers, which train.

Every machine gives the same command with Keras Tuner's three variables, and sees the same folder of runs:
  KERASTUNER_ORACLE_IP, KERASTUNER_ORACLE_PORT   where the chief listens
  KERASTUNER_TUNER_ID                            `chief` on one machine, another name on each of the others
The chief keeps the journal and trains nothing itself unless --workers says so. What a trial is and what came of it stand in the
folder of runs; Keras Tuner's messages (gRPC, not encrypted: for a private network) carry the trial's number alone.
"""

import json
import os
import signal
import time
from concurrent import futures
from pathlib import Path
from typing import Any

from pipelines.errors import ConfigError, TrainingError
from pipelines.tuning.folder import SearchFolder
from pipelines.tuning.nursery import Nursery

_IDLE_SECONDS = 1.0  # between questions while there is nothing to do
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
    """Answers workers from a search. What Keras Tuner's servicer calls `oracle`."""

    def __init__(self, search: Any):
        """`search`: has `take() -> trial, "wait" or "stop"`, `ready(trial) -> bool`, `came(trial)` and `lock`."""
        import grpc
        from keras_tuner.src import protos
        from keras_tuner.src.distribute.oracle_chief import OracleServicer

        self.search = search
        self.held: dict[str, Any] = {}  # worker -> the trial that it has
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
        protos.get_service_grpc().add_OracleServicer_to_server(OracleServicer(self), self._server)
        address = f"{os.environ['KERASTUNER_ORACLE_IP']}:{os.environ['KERASTUNER_ORACLE_PORT']}"
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError:
            bound = 0
        if not bound:
            raise ConfigError(f"the chief cannot listen on {address}; is another one there?")
        self._server.start()

    def create_trial(self, tuner_id: str) -> Any:
        """A worker's next trial; one that asks again after a crash gets the trial that it had."""
        with self.search.lock:
            while True:
                trial = self.held.get(tuner_id) or self.search.take()
                if isinstance(trial, str):
                    return _message("", "IDLE" if trial == "wait" else "STOPPED")
                if self.search.ready(trial):
                    self.held[tuner_id] = trial
                    return _message(str(trial.number), "RUNNING")
                self.held.pop(tuner_id, None)

    def end_trial(self, message: Any) -> None:
        with self.search.lock:
            for worker, trial in list(self.held.items()):
                if str(trial.number) == message.trial_id:
                    del self.held[worker]
                    self.search.came(trial)

    def close(self) -> None:
        self._server.stop(grace=5.0).wait()


def work(folder: SearchFolder, domain: str, say: Any) -> None:
    """A worker: trains what the chief asks for, until the chief has no more.

    Raises:
        TrainingError: the chief does not answer, or the folder of runs is not the chief's.
    """
    import grpc
    from keras_tuner.src.distribute.oracle_client import OracleClient

    name = os.environ["KERASTUNER_TUNER_ID"]
    client = OracleClient(None)
    stopped: list[int] = []
    previous = {number: signal.signal(number, lambda got, _: stopped.append(got)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Nursery(domain) as nursery:
            since = time.monotonic()
            while not stopped:
                try:
                    trial = client.create_trial(name)
                    if trial.status == "STOPPED":
                        return
                    if trial.status == "RUNNING":
                        say(f"trial {trial.trial_id}")
                        if _trained(nursery, folder, trial.trial_id, stopped):
                            trial.status = "COMPLETED"
                            client.end_trial(trial)
                    else:
                        time.sleep(_IDLE_SECONDS)
                    since = time.monotonic()
                except grpc.RpcError as error:
                    if time.monotonic() - since > _PATIENCE:
                        raise TrainingError(f"the chief does not answer: {error}") from None
                    time.sleep(_IDLE_SECONDS)
            from pipelines.tuning.trials import Stopped

            raise Stopped(stopped[0])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _trained(nursery: Nursery, folder: SearchFolder, number: str, stopped: list[int]) -> bool:
    """Runs a trial to its end; False where a signal came before."""
    order = _found(folder, f"*/{number}.order.json")
    nursery.start(number, [str(order)], log=str(order.parent / "log.txt"))
    told = False
    while not (ended := nursery.ended(0.5)):
        if stopped and not told:
            nursery.signal(signal.SIGTERM)
            told = True
    result = order.with_name(f"{number}.result.json")
    if not result.exists():
        if stopped:
            return False
        from pipelines.tuning.trials import why_ended

        result.write_text(json.dumps({"status": "failed", "reason": why_ended(ended[0][1], order.parent / "log.txt")}), encoding="utf-8")
    return True


def _found(folder: SearchFolder, pattern: str, patience: float = 60.0) -> Path:
    """A file that the chief has written; a network's file system may show it late."""
    until = time.monotonic() + patience
    while True:
        found = next(iter(folder.trials.glob(pattern)), None)
        if found is not None:
            return found
        if time.monotonic() > until:
            raise TrainingError(f"{folder.trials}: the chief's trial is not there; chief and workers need one folder of runs (--runs)")
        time.sleep(0.5)


def _message(trial_id: str, status: str) -> Any:
    import keras_tuner
    from keras_tuner.engine.trial import Trial

    return Trial(keras_tuner.HyperParameters(), trial_id=trial_id, status=status)
