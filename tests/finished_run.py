"""One small run, trained once through the command line in a process of its own, for all tests that use a finished run."""

import atexit
import fcntl
import functools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests import processes
from tests.processes import ROOT as ROOT
from tests.processes import environment as environment

SETTINGS = ("train.epochs=3", "train.precision=float32", "train.devices=cpu", "evaluate.bootstrap=100")


def quartet(*arguments: str, module: str = "quartet", cwd: Path | None = None, anew: bool = False) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own; `anew` as in tests/processes.py."""
    return processes.run("-m", module, *arguments, cwd=cwd or Path.cwd(), anew=anew)


@functools.cache
def finished() -> tuple[Path, subprocess.CompletedProcess[str]]:
    """(the folder of runs, how the training ended); the run in it is vision/digits/small. The processes of one call of pytest share it."""
    place = Path(tempfile.gettempdir()) / f"quartet-tests-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    place.mkdir(mode=0o700, exist_ok=True)
    runs, ended = place / "runs", place / "ended.json"
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (place / f"{os.getpid()}.user").touch()
        if not ended.exists():
            shutil.rmtree(runs, ignore_errors=True)
            runs.mkdir()
            done = quartet(*SETTINGS, "--runs", str(runs), "--name", "small", module="vision.train", cwd=runs, anew=True)
            if done.returncode:
                raise AssertionError(done.stdout + done.stderr)
            ended.write_text(json.dumps([done.args, done.stdout, done.stderr]), encoding="utf-8")
    atexit.register(leave, place, os.getpid())
    arguments, out, errors = json.loads(ended.read_text(encoding="utf-8"))
    return runs, subprocess.CompletedProcess(arguments, 0, out, errors)


def leave(place: Path, process: int) -> None:
    """The last process that used the run removes it."""
    if process != os.getpid():  # a fork of a test's
        return
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (place / f"{process}.user").unlink(missing_ok=True)
        if not list(place.glob("*.user")):
            shutil.rmtree(place, ignore_errors=True)


def run() -> Path:
    """The finished run's folder. Tests leave it as it is, and work on `copy`."""
    return finished()[0] / "vision" / "digits" / "small"


def copy(target: Path) -> Path:
    """A run of one's own, in a folder of runs of its own."""
    folder = target / "runs" / "vision" / "digits" / "small"
    shutil.copytree(run(), folder)
    return folder
