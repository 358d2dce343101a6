"""Processes for trials: a small server that has TensorFlow imported and forks itself for each, so that none waits for the import.

Run as a program it takes orders on stdin and reports on stdout, a line of JSON each. It computes nothing itself, so that no
device and no thread pool of TensorFlow stands when it forks. When the search ends, however it ends, server and trials are
killed with it. Where forking is not safe (macOS, Windows) each trial is a new Python.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any, BinaryIO

from pipelines.base import storage, stored
from pipelines.base.errors import TrainingError
from pipelines.base.files import WriteError, open_to_append, write_whole
from pipelines.config.registry import import_extensions
from pipelines.config.schema import Experiment
from pipelines.machine.child import die_with_parent
from pipelines.machine.startup import has_nvidia

FORKS = sys.platform == "linux"
_POLL_SECONDS = 0.05


class Nursery:
    """The search's end: starts processes and says which have ended."""

    def __init__(self, domain: str, environment: Mapping[str, str]):
        """
        Args:
            domain: its tasks are imported before the first fork.
            environment: by which the processes know what is in use here (pipelines.config.extensions.environment).
        """
        self._server = subprocess.Popen([sys.executable, "-m", "pipelines.tuning.trial_processes", domain], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, start_new_session=True,
                                        env={**os.environ, **environment})  # a Ctrl-C is the search's to handle
        self._rest = b""

    def start(self, key: str, arguments: list[str], *, log: str, environment: Mapping[str, str] | None = None) -> None:
        """Runs `pipelines.tuning.trial` with these arguments; what it prints goes into the file `log`, at its end where a
        storage owns that."""
        self._order({"run": key, "arguments": arguments, "log": log, "environment": dict(environment or {})})

    def signal(self, number: int) -> None:
        """Sends a signal to every process that runs."""
        self._order({"signal": number})

    def ended(self, seconds: float) -> list[tuple[str, int]]:
        """(key, exit status, negative for a signal) of processes that have ended; waits at most so long for one.

        Raises:
            TrainingError: the server is gone.
        """
        assert self._server.stdout is not None
        events: list[tuple[str, int]] = []
        until = time.monotonic() + seconds
        while not events and (left := until - time.monotonic()) > 0:
            if not select.select([self._server.stdout], [], [], left)[0]:
                break
            data = os.read(self._server.stdout.fileno(), 1 << 16)
            if not data:
                raise TrainingError(f"the process that starts trials has ended with status {self._server.wait()}; "
                                    "the same command resumes the search")
            *lines, self._rest = (self._rest + data).split(b"\n")
            events += [(event["ended"], event["status"]) for event in map(json.loads, lines)]
        return events

    def close(self) -> None:
        """Ends the server, and with it whatever still runs."""
        assert self._server.stdin is not None and self._server.stdout is not None
        with contextlib.suppress(OSError):
            self._server.stdin.close()
        try:
            self._server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server.stdout.close()

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _order(self, order: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        try:
            self._server.stdin.write(json.dumps(order).encode() + b"\n")
            self._server.stdin.flush()
        except OSError:
            raise TrainingError(f"the process that starts trials has ended with status {self._server.wait()}; "
                                "the same command resumes the search") from None


def serve(domain: str) -> None:
    """The server's work, until its stdin ends."""
    die_with_parent()
    import_extensions()  # whose storages own logs
    reports = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what anything prints must not be read as a report
    if FORKS:
        _import(domain)
    running: dict[int, tuple[str, Any, BinaryIO, str]] = {}
    rest, open_ = b"", True
    while open_:
        if select.select([0], [], [], _POLL_SECONDS)[0]:
            data = os.read(0, 1 << 16)
            open_ = bool(data)
            *lines, rest = (rest + data).split(b"\n")
            for order in map(json.loads, lines):
                if "signal" in order:
                    for pid in running:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, order["signal"])
                else:
                    log = open_log(order["log"])
                    pid, process = _fork(order, reports, log) if FORKS else _new(order, log)
                    running[pid] = order["run"], process, log, order["log"]
        for pid, status in _over(running):
            key, _, log, place = running.pop(pid)
            close_log(log, place)
            reports.write(json.dumps({"ended": key, "status": status}).encode() + b"\n")
    for pid, (_, _, log, place) in running.items():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        close_log(log, place)


def open_log(place: str) -> BinaryIO:
    """Where a process prints to: the end of that file, or where a storage owns it, a file of that."""
    owner = storage.owner(place)
    return open_to_append(place) if owner is None else owner.scratch()


def close_log(log: BinaryIO, place: str) -> None:
    """What a storage's file has is added to the file at that place, in its form."""
    with log:
        if not log.readable():
            return
        log.seek(0)
        with contextlib.suppress(WriteError):  # a full disk, which ends the trials themselves
            write_whole(place, (stored.read_bytes(place) if os.path.exists(place) else b"") + log.read())


def _import(domain: str) -> None:
    """What a trial needs, without a device being touched."""
    from pipelines.machine.startup import LEVEL, start_tensorflow

    if os.environ.get(LEVEL) == "2":  # as the search has set it for itself; here, too, the chatter has to be sifted
        del os.environ[LEVEL]
    start_tensorflow(devices=False)
    import importlib

    from pipelines.config.extensions import use_environment
    from pipelines.config.registry import task_class, tasks

    use_environment()

    for name in ("pipelines.runs.launch", "pipelines.tuning.trial", "matplotlib.figure"):
        importlib.import_module(name)
    for task in tasks(domain):
        task_class(task)


def _over(running: Mapping[int, tuple[str, Any, BinaryIO, str]]) -> list[tuple[int, int]]:
    over = []
    for pid, (_, process, *_) in list(running.items()):
        if process is not None:
            if process.poll() is not None:
                over.append((pid, process.returncode))
            continue
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            over.append((pid, os.waitstatus_to_exitcode(status)))
    return over


def _new(order: Mapping[str, Any], log: BinaryIO) -> tuple[int, Any]:
    process = subprocess.Popen([sys.executable, "-m", "pipelines.tuning.trial", *order["arguments"]], stdin=subprocess.DEVNULL,
                               stdout=log, stderr=log, env={**os.environ, **order["environment"]})
    return process.pid, process


def _fork(order: Mapping[str, Any], reports: Any, log: BinaryIO) -> tuple[int, None]:
    server = os.getpid()
    pid = os.fork()
    if pid:
        return pid, None
    status = 1
    try:
        die_with_parent(server)
        reports.close()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, target in ((nothing, 0), (log.fileno(), 1), (log.fileno(), 2)):
            os.dup2(number, target)
        os.environ.update(order["environment"])
        sys.argv = ["pipelines.tuning.trial", *order["arguments"]]
        from pipelines.tuning.trial import main

        status = main(order["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)  # what the server has registered to happen at its end is not this process's to do


if __name__ == "__main__":
    from pipelines.machine.startup import current_folder_last

    current_folder_last()
    serve(sys.argv[1])


def worker_devices(worker: int, workers: int, experiment: Experiment) -> dict[str, str]:
    """Environment of a worker's trials: as many GPUs as a training takes, shared with others only where there are too few.

    Devices that the experiment names are left alone: a process that sees fewer GPUs numbers them anew, and the names would mean others.

    Args:
        worker: from 0.
        workers: on this machine; a single one has them all.
    """
    wanted = experiment.train.devices
    if workers == 1 or wanted == "cpu" or isinstance(wanted, list) or not has_nvidia():
        return {}
    there = visible_gpus()
    return {"CUDA_VISIBLE_DEVICES": ",".join(share(there, worker, wanted))} if there else {}


def share(there: list[str], worker: int, wanted: str | int) -> list[str]:
    """Of the GPUs that are there, those of a worker: as many as `wanted` says, one for auto."""
    each = wanted if isinstance(wanted, int) else 1
    return [there[(worker * each + place) % len(there)] for place in range(min(each, len(there)))]


def visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES may name here."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    try:
        listing = subprocess.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, timeout=20,
                                 check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listing.stdout.split() if listing.returncode == 0 else []
