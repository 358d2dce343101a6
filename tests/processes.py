"""Processes of Python for tests, forked from one that has TensorFlow and this project imported, so that none waits seconds for imports.

Each is a process of its own, with its own devices, that can be signalled and killed. What only a new Python shows - how it starts, that
nothing depends on the order of its hashes - takes `anew`.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_POLL_SECONDS = 0.01
_turn = threading.Lock()


def environment() -> dict[str, str]:
    """Of this process, without what changes what a command prints; no GPU, and this project on the path."""
    kept = {name: value for name, value in os.environ.items() if name not in ("TF_CPP_MIN_LOG_LEVEL", "COLUMNS", "FORCE_COLOR")}
    return {**kept, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}


class Process:
    """A running process; as much of subprocess.Popen as tests need. What it prints goes into files."""

    def __init__(self, arguments: list[str], *, cwd: Path, env: Mapping[str, str], anew: bool = False,
                 pipes: Mapping[str, str] | None = None):
        self.args = arguments
        self._anew: subprocess.Popen | None = None
        self.returncode: int | None = None
        self._files = [tempfile.NamedTemporaryFile(prefix=name) for name in ("out", "err")]  # noqa: SIM115
        out, errors = self._files
        if anew:
            self._anew = subprocess.Popen([sys.executable, *arguments], cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                          stderr=errors)
            self.pid = self._anew.pid
        else:
            self.pid = _ask({"arguments": arguments, "cwd": str(cwd), "env": dict(env), "in": os.devnull, "out": out.name,
                             "errors": errors.name, **(pipes or {})})

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._anew.poll() if self._anew else _ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float = 600) -> int:
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(_POLL_SECONDS)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        """(all that it printed, its errors), once it has ended."""
        self.wait(timeout)
        return self.printed()

    def printed(self) -> tuple[str, str]:
        """What it has printed so far, and its errors."""
        out, errors = (Path(file.name).read_text(encoding="utf-8") for file in self._files)
        return out, errors

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Piped(Process):
    """A fork in the place of a subprocess.Popen with pipes for stdin and stdout."""

    def __init__(self, command: list[str], *, env: Mapping[str, str], **_: object):
        self._folder = tempfile.TemporaryDirectory()
        pipes = {name: f"{self._folder.name}/{name}" for name in ("in", "out")}
        for pipe in pipes.values():
            os.mkfifo(pipe)
        super().__init__(command[1:], cwd=Path.cwd(), env=env, pipes=pipes)
        self.stdin, self.stdout = open(pipes["in"], "wb"), open(pipes["out"], "rb")  # noqa: SIM115


def start(*arguments: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None, anew: bool = False) -> Process:
    """Starts Python with arguments of its own: `-m MODULE ...` or `-c CODE ...`.

    Args:
        env: the whole environment; default: `environment()`.
        anew: a new Python that imports everything itself, in place of a fork.
    """
    return Process([str(one) for one in arguments], cwd=cwd, env=environment() if env is None else env, anew=anew)


def run(*arguments: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None, anew: bool = False,
        check: bool = False, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """The same, waited for; after `timeout` seconds it is killed. With `check` it is an error if it fails."""
    process = start(*arguments, cwd=cwd, env=env, anew=anew)
    try:
        out, errors = process.communicate(timeout)
    finally:
        process.kill()
    assert not (check and process.wait()), f"status {process.wait()}\n{out[-1000:]}{errors[-3000:]}"
    return subprocess.CompletedProcess(process.args, process.wait(), out, errors)


def asked(request: Any, name: str) -> set[Any]:
    """The values of a parameter in those tests of a fixture's module that are to run: what a fixture for all of them has to make."""
    return {item.callspec.params[name] for item in request.session.items
            if item.module is request.module and name in getattr(item, "callspec", types.SimpleNamespace(params={})).params}


@functools.cache
def _server() -> subprocess.Popen:
    """The process of this test process that forks; it ends with it, and with it what still runs."""
    started = subprocess.Popen([sys.executable, "-m", "tests.processes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env={**environment(), "TF_CPP_MIN_LOG_LEVEL": "3"})
    assert started.stdin
    atexit.register(started.stdin.close)
    return started


def _ask(order: dict[str, Any]) -> Any:
    there = _server()
    assert there.stdin and there.stdout
    with _turn:
        print(json.dumps(order), file=there.stdin, flush=True)
        reply = there.stdout.readline()
    assert reply, f"the process that forks has ended with status {there.wait(10)}"
    return json.loads(reply)


def serve() -> list[str]:
    """Forks as it is asked to, until its stdin ends; returns only in the forks, with the arguments that each has."""
    from pipelines.config.registry import task_class, tasks
    from pipelines.machine.startup import start_tensorflow
    from tests import undrawn

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no reply
    start_tensorflow(devices=False)
    undrawn.in_this_process()
    gc.set_threshold(10_000, 10, 10)  # as in conftest.py
    for name in ("pipelines.commands.main", "pipelines.runs.launch", "pipelines.serving.export", "pipelines.serving.predict",
                 "pipelines.serving.evaluate", "matplotlib.figure", "sklearn.metrics"):
        importlib.import_module(name)
    for task in tasks():
        task_class(task)
    running: dict[int, int | None] = {}
    rest = b""
    while data := os.read(0, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        for order in map(json.loads, lines):
            if "poll" in order:
                pid = order["poll"]
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    del running[pid]
                print(json.dumps(os.waitstatus_to_exitcode(status) if done else None), file=replies, flush=True)
                continue
            pid = os.fork()
            if not pid:
                replies.close()
                _become(order)
                return order["arguments"]
            running[pid] = None
            print(json.dumps(pid), file=replies, flush=True)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    raise SystemExit


def _become(order: dict[str, Any]) -> None:
    """Files, folder, environment and signals of a process that has just been started."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, (name, how) in enumerate(((order["in"], os.O_RDONLY), (order["out"], os.O_WRONLY), (order["errors"], os.O_WRONLY))):
        opened = os.open(name, how | os.O_APPEND if number else how)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])


def execute(arguments: list[str]) -> None:
    """What `python ARGUMENTS` would do."""
    how, what, *others = arguments
    sys.argv = [how, *others]
    sys.path.insert(0, os.getcwd() if how == "-m" else "")
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), vars(main))


def end(arguments: list[str]) -> None:
    """Executes, and ends as Python would, but for freeing a million imported objects, which takes longer than most commands."""
    status = 0
    try:
        execute(arguments)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if status and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # as Python: ends the idle threads of concurrent.futures, and waits for all that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    end(serve())
