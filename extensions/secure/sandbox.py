"""`--sandbox`: from here on this process cannot open a connection, nor write outside of what its command needs. Linux 6.2 or later.

Landlock (https://docs.kernel.org/userspace-api/landlock.html) bounds what is written, a seccomp filter refuses sockets; neither needs root,
and neither can be taken back, by native code of a decoder either. The work is done by a child process; this one waits for it, and removes
its temporary files, caches included. What may be read is not bounded. Imports no TensorFlow.
"""

import ctypes
import errno
import os
import platform
import shutil
import signal
import struct
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pipelines.base.errors import ConfigError

_ABI = 3  # of Landlock: the first that bounds truncation
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
# to write, remove and make files, folders, links and special files, and to move them between folders
_WRITES = _WRITE_FILE | sum(1 << bit for bit in range(4, 14)) | _TRUNCATE
_CONNECTIONS, _SCOPES = 0b11, 0b11  # bind and connect TCP (ABI 4); abstract sockets of, and signals to, other processes (ABI 6)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # of prctl
_DEVICES = ("null", "tty", "nvidia*", "dri/*", "kfd")


class _Calls(NamedTuple):
    """Numbers of system calls, and of the architecture in seccomp."""

    architecture: int
    socket: int
    io_uring_setup: int


_MACHINES = {"x86_64": _Calls(0xC000003E, 41, 425), "aarch64": _Calls(0xC00000B7, 198, 425)}


def enter(writable: Iterable[Path], why: str = "--sandbox") -> None:
    """Returns in a child process that is confined; the calling one ends with the child's status.

    Args:
        writable: files and folders that may be written, with what is below; those that are missing are made, as folders.

    Raises:
        ConfigError: the system cannot do it, or it is too late: TensorFlow's threads run already.
    """
    if "tensorflow" in sys.modules:
        raise ConfigError(f"{why}: TensorFlow is imported already, and its threads would stay free; leave out --use, or what imported it")
    require(why)
    places = [Path(place).absolute() for place in writable]
    for place in places:
        if not place.exists():
            place.mkdir(parents=True)
    temporary = Path(tempfile.mkdtemp(prefix="quartet-sandbox-"))
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        raise SystemExit(_waited(child, temporary))
    for name in ("TMPDIR", "XDG_CACHE_HOME", "MPLCONFIGDIR", "NUMBA_CACHE_DIR"):
        os.environ[name] = str(temporary)
    tempfile.tempdir = None
    confine([*places, temporary])


def require(why: str = "--sandbox") -> None:
    """Raises ConfigError where this system cannot confine a process."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        raise ConfigError(f"{why}: needs Linux on x86_64 or aarch64, and this is {sys.platform} on {platform.machine()}; use a container "
                          "without network")
    abi = _abi()
    if abi < _ABI:
        have = f"version {abi} is here" if abi > 0 else "none is here, or a container forbids it"
        raise ConfigError(f"{why}: needs Landlock version {_ABI} (Linux 6.2 or later, with it among the security modules), and {have}; use "
                          "a container without network")


def confine(writable: Iterable[Path]) -> None:
    """Confines this thread, and what it starts, for good. Raises ConfigError where the system refuses."""
    calls, libc = _MACHINES[platform.machine()], ctypes.CDLL(None, use_errno=True)
    abi = _abi()
    attributes = struct.pack("QQQ", _WRITES, _CONNECTIONS if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _checked(libc.syscall(_CREATE_RULESET, attributes, size, 0))
    devices = [one for name in _DEVICES for one in Path("/dev").glob(name)]
    for place in (*writable, *devices):
        try:
            opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # a device that is not there
            continue
        allowed = _WRITES if place.is_dir() else _WRITE_FILE | _TRUNCATE
        _checked(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, opened), 0))
        os.close(opened)
    _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    instructions = _filter(calls)
    held = ctypes.create_string_buffer(instructions, len(instructions))
    program = struct.pack("HP", len(instructions) // 8, ctypes.addressof(held))
    _checked(libc.prctl(_SECCOMP, _FILTER, program, 0, 0))


def _filter(calls: _Calls) -> bytes:
    """Classic BPF: `socket` and io_uring, by which one could be made, are refused as not permitted; other architectures' calls end the
    process."""
    load, jump_if_equal, jump_if_at_least, answer = 0x20, 0x15, 0x35, 0x06
    allow, refuse, end = 0x7FFF0000, 0x00050000 | errno.EACCES, 0x80000000
    steps = [(load, 0, 0, 4), (jump_if_equal, 1, 0, calls.architecture), (answer, 0, 0, end),
             (load, 0, 0, 0), (jump_if_at_least, 3, 0, 0x40000000),  # x32, whose numbers are others
             (jump_if_equal, 2, 0, calls.socket), (jump_if_equal, 1, 0, calls.io_uring_setup), (answer, 0, 0, allow),
             (answer, 0, 0, refuse)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _abi() -> int:
    """The version of Landlock; negative where there is none."""
    return int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, 0, 1))


def _checked(answer: int) -> int:
    if answer < 0:
        raise ConfigError(f"--sandbox: the system refuses it: {os.strerror(ctypes.get_errno())}; use a container without network")
    return answer


def _waited(child: int, temporary: Path) -> int:
    """The child's status as a shell has it, once it has ended; signals go on to it."""
    def forward(number: int, _: object) -> None:
        os.kill(child, number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        shutil.rmtree(temporary, ignore_errors=True)
    return status if status >= 0 else 128 - status
