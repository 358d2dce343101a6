"""`--sandbox`: a write outside and a connection fail, in native code and in child processes too, and the commands work."""

import json
import socket
import sys

import pytest

from extensions.secure import sandbox
from pipelines.base.errors import ConfigError
from tests import finished_run, processes

needs_landlock = pytest.mark.skipif(sys.platform != "linux" or sandbox._abi() < sandbox._ABI, reason="needs Landlock of Linux 6.2 or later")

TRIES = """
import ctypes, json, os, socket, sys, tempfile
from pathlib import Path

PARENT = os.getpid()

def tries(place, port):
    libc = ctypes.CDLL(None, use_errno=True)
    def native(call, *arguments):
        if getattr(libc, call)(*arguments) < 0:
            raise OSError(ctypes.get_errno(), call)
    every = {
        "a file": lambda: (place / "new").write_text("x"), "changed": lambda: open(place / "there", "r+"),
        "cut": lambda: os.truncate(place / "there", 0), "removed": lambda: os.remove(place / "there"),
        "moved": lambda: os.rename(place / "there", place / "inside" / "there"), "a folder": lambda: os.mkdir(place / "folder"),
        "a link": lambda: os.symlink("/", place / "link"), "moved out": lambda: os.rename(place / "inside" / "a", place / "a"),
        "by C": lambda: native("creat", os.fsencode(place / "new"), 0o600),
        "by a child": lambda: int(os.popen(f"(echo x > {place}/new) 2> /dev/null && echo 1 || echo fail").read()),
        "a connection": lambda: socket.create_connection(("127.0.0.1", port), 5),
        "a datagram": lambda: socket.socket(type=socket.SOCK_DGRAM),
        "a local socket": lambda: socket.socket(socket.AF_UNIX), "io_uring": lambda: native("syscall", 425, 8, bytes(120)),
        "a signal": lambda: os.kill(PARENT, 0),
        "inside": lambda: (place / "inside" / "b").write_text("x"), "temporary": lambda: tempfile.TemporaryFile().write(b"x"),
        "read": lambda: (place / "there").read_text(), "nothing": lambda: open("/dev/null", "w").write("x"), "a pair": socket.socketpair,
    }
    worked = []
    for name, one in every.items():
        try:
            one()
            worked.append(name)
        except (OSError, ValueError):
            pass
    return worked
"""
ALONE = TRIES + """
from extensions.secure import sandbox
place = Path(sys.argv[1])
sandbox.enter([place / "inside", place / "made"])
(place / "inside" / "a").write_text("x")
(place / "made" / "c").write_text("x")
print(json.dumps(tries(place, int(sys.argv[2]))))
sys.exit(7)
"""
# runs in the command's own process, at the moment at which TensorFlow is imported
LATER = TRIES + """
def watch(event, arguments):
    if event == "import" and arguments[0] == "tensorflow" and not os.path.exists(os.environ["TRIED"]):
        Path(os.environ["TRIED"]).write_text(json.dumps(tries(Path(os.environ["PLACE"]), int(os.environ["PORT"]))))
sys.addaudithook(watch)
"""
FREE = {"inside", "temporary", "read", "nothing", "a pair"} | ({"a signal"} if sandbox._abi() < 6 else set())


@pytest.fixture
def place(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "there").write_text("x")
    return tmp_path


@pytest.fixture
def port():
    """Where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@needs_landlock
def test_what_a_confined_process_can_do(place, port):
    free = processes.run("-c", f"{TRIES}\nprint(len(tries(Path(sys.argv[1]), int(sys.argv[2]))))", place, port, anew=True, check=True)
    assert int(free.stdout) >= 16  # where nothing is confined, they work
    for name in ("new", "folder", "link", "inside/there"):
        (place / name).rmdir() if name == "folder" else (place / name).unlink(missing_ok=True)
    (place / "there").write_text("x")
    done = processes.run("-c", ALONE, place, port, anew=True)
    assert done.returncode == 7, done.stderr
    assert set(json.loads(done.stdout)) == FREE
    assert sorted(file.name for file in place.rglob("*")) == ["a", "b", "c", "inside", "made", "there"]


@needs_landlock
@pytest.mark.slow(seconds=15)
def test_a_command_answers_and_can_do_no_more(place, port, judged):
    """Its own process tries, between the beginning of the command and TensorFlow."""
    folder = finished_run.copy(place)
    (place / "digit.png").write_bytes(judged[0][0])
    (place / "site").mkdir()
    (place / "site" / "sitecustomize.py").write_text(LATER)
    results = place / "inside"
    env = {**processes.environment(), "PLACE": str(place), "PORT": str(port), "TRIED": str(results / "tried"),
           "PYTHONPATH": f"{place / 'site'}:{processes.ROOT}"}
    done = processes.run("-m", "quartet", "predict", folder, place / "digit.png", "--output", results / "answers.jsonl", "--sandbox",
                         env=env, anew=True, check=True)
    assert "1 of 1 answered" in done.stderr
    assert json.loads((results / "answers.jsonl").read_text())["label"] == str(judged[2][0].argmax())
    assert set(json.loads((results / "tried").read_text())) == FREE
    assert not (place / "new").exists()


def test_where_the_system_cannot_it_says_so(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="TensorFlow is imported already"):
        monkeypatch.setitem(sys.modules, "tensorflow", sys)
        sandbox.enter([tmp_path])
    monkeypatch.delitem(sys.modules, "tensorflow")
    for abi, said in ((-1, "none is here"), (2, "version 2 is here")):
        monkeypatch.setattr(sandbox, "_abi", lambda abi=abi: abi)
        with pytest.raises(ConfigError, match=said):
            sandbox.enter([tmp_path / "x"])
    monkeypatch.setattr(sandbox.platform, "machine", lambda: "riscv64")
    with pytest.raises(ConfigError, match="on riscv64; use a container"):
        sandbox.enter([tmp_path / "x"])
    assert not list(tmp_path.iterdir())
