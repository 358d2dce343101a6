"""Encryption at rest: files in the age format (https://age-encryption.org/v1), decrypted in memory alone. Needs the extra `trust`.

A folder that holds `encrypted.json` is encrypted: what is written below it is encrypted, whoever writes, except for what `stays_plain`;
what is read is decrypted where it begins as an age file does (age_storage.py). A plain file that should be encrypted is refused, since
somebody has put it there. Anybody can encrypt to the public key in `encrypted.json`: only a signature tells the run's own files from such.
The key is that of --age-key or QUARTET_AGE_KEY. No plain byte of such files is given to a disk: what libraries read and write by path lies
in a private folder of a file system in memory, and so do their temporary files. Imports no TensorFlow.
"""

import atexit
import contextlib
import ctypes
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pipelines.base.errors import ConfigError
from pipelines.base.inside import read_small
from pipelines.base.json_text import parse_json
from pipelines.base.staging import remove, stage_folder, sweep
from pipelines.base.storage import Closed, Write, holder

VARIABLE = "QUARTET_AGE_KEY"  # the path of a key file, or what such a file holds
MARKER = "encrypted.json"
MAGIC = b"age-encryption.org/v1\n"
# of an encrypted folder: settings, versions, the scores of each epoch and trial, a tracker's id, and what others check
PLAIN = frozenset({MARKER, "experiment.yaml", "environment.json", "metrics.jsonl", "tensorboard", ".lock", "model.sig", "provenance.json",
                   "sbom.json", "tracking.json", "search.yaml", "journal.jsonl", "best.yaml"})
_PLAIN_NAMES = frozenset({MARKER, "experiment.yaml"})  # at any depth: of a search's runs, which are marked after they are claimed
_PLAIN_ENDINGS = (".order.json", ".order.yaml", ".result.json")  # a search's orders and what came of them, as its journal has them
MEMORY = Path("/dev/shm")
_TMPFS, _RAMFS = 0x01021994, 0x858458F6  # statfs(2)
_LARGEST = 100_000  # bytes of a key file or a marker


class Encrypted(Closed):
    """Something is encrypted, and there is no key, or another one."""

    state = "encrypted"


@dataclass(frozen=True)
class Key:
    """An identity of age (X25519): it decrypts what is encrypted to its recipient.

    Attributes:
        recipient: the public half, `age1...`.
        identity: pyrage's.
    """

    recipient: str
    identity: Any = field(repr=False)

    @classmethod
    def parse(cls, text: str, place: str) -> "Key":
        """Raises ConfigError where the text, which comes from `place`, holds no such identity, or several."""
        age = _age()
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        try:
            if len(lines) != 1:
                raise ValueError(f"{len(lines)} keys are in it")
            identity = age.x25519.Identity.from_str(lines[0])
        except (ValueError, age.IdentityError) as error:
            said = str(error) if isinstance(error, ValueError) else "not one that begins with AGE-SECRET-KEY-1"
            raise ConfigError(f"{place}: is no key of age ({said}); make one: age-keygen -o key.txt") from None
        return cls(str(identity.to_public()), identity)


def given_key() -> Key | None:
    """The key of this process: that of --age-key or QUARTET_AGE_KEY. Raises ConfigError where it cannot be read."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text or text.startswith("AGE-SECRET-KEY-"):
        return Key.parse(text, VARIABLE) if text else None
    path = Path(text).expanduser()
    try:
        return Key.parse(read_small(path, _LARGEST).decode("utf-8", "replace"), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: the key cannot be read: {error.strerror or error}") from None


def require_key(what: Path | str) -> Key:
    """The key of this process. Raises Encrypted where there is none; `what` is encrypted."""
    key = given_key()
    if key is None:
        raise Encrypted(f"{what}: is encrypted; give its key: --age-key FILE, or {VARIABLE}")
    return key


def decrypted(file: BinaryIO, path: Path) -> BinaryIO:
    """The content of an encrypted file in anonymous memory; closes the file.

    Raises:
        Encrypted: there is no key, it is another one, or the file was changed.
        OSError: the file cannot be read.
    """
    with file:
        key, age = require_key(path), _age()
        memory = anonymous()
        try:
            age.decrypt_io(file, memory, [key.identity])
        except (age.DecryptError, OSError) as error:
            memory.close()
            if getattr(error, "errno", None) is not None:  # of the disk, or of no memory
                raise
            raise Encrypted(f"{path}: cannot be decrypted: {_why(error, key)}") from None
        except BaseException:
            memory.close()
            raise
    memory.seek(0)
    return memory


def begins_encrypted(path: Path) -> bool:
    """Whether a regular file begins as an age file does; False for anything else and where it cannot be read."""
    found = holder(path)
    return found is not None and found.marker == MARKER


def stays_plain(inside: Path) -> bool:
    """Whether a file at that place in an encrypted folder is not encrypted: settings, versions, scores."""
    return inside.parts[0] in PLAIN or inside.name in _PLAIN_NAMES or inside.name.endswith(_PLAIN_ENDINGS)


def require_fitting(folder: Path) -> bool:
    """Whether a folder is encrypted. Raises Encrypted where it is, and the key is missing or another one."""
    if not (folder / MARKER).is_file():
        return False
    _fitting(folder)
    return True


def marker(key: Key) -> str:
    """What `encrypted.json` holds."""
    return json.dumps({"format": "age", "recipient": key.recipient}) + "\n"


def _fitting(folder: Path) -> Key:
    key = require_key(folder)
    try:
        recipient = parse_json(read_small(folder / MARKER, _LARGEST))["recipient"]
    except (OSError, ValueError, KeyError, TypeError):
        raise Encrypted(f"{folder / MARKER}: cannot be read; the file is damaged") from None
    if recipient != key.recipient:
        raise Encrypted(f"{folder}: is encrypted to {str(recipient)[:80]}, and the key given is that of {key.recipient}")
    return key


def encrypt(write: Write, key: Key, target: BinaryIO) -> None:
    """Writes what a function writes to an open file, encrypted; it is held in memory meanwhile."""
    plain, age = io.BytesIO(), _age()
    write(plain)
    plain.seek(0)
    age.encrypt_io(plain, target, [age.x25519.Recipient.from_str(key.recipient)])


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A new private folder in memory, removed at the end. Inside, temporary files of this process are in memory, too.

    Raises:
        Encrypted: the system has no file system in memory.
    """
    memory = _Memory.place()
    place = Path(tempfile.mkdtemp(dir=memory))
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(memory)
    try:
        yield place
    finally:
        tempfile.tempdir = before[0]
        if before[1] is None:
            os.environ.pop("TMPDIR", None)
        else:
            os.environ["TMPDIR"] = before[1]
        shutil.rmtree(place, ignore_errors=True)


class _Memory:
    """This process' folder in memory. It is locked while the process lives, and removed by the next one where it was killed."""

    _owner, _path, _folder = 0, Path(), -1

    @classmethod
    def place(cls) -> Path:
        if cls._owner != os.getpid():  # the first, or a forked process
            cls._owner, cls._path = os.getpid(), cls._made()
        return cls._path

    @classmethod
    def leave(cls) -> None:
        if cls._owner == os.getpid():
            cls._owner = 0
            remove(cls._folder, cls._path.name)

    @classmethod
    def _made(cls) -> Path:
        if not in_memory(MEMORY):
            raise Encrypted(f"{MEMORY}: is no file system in memory (tmpfs), and what is encrypted is never written plain to a disk; mount "
                            "one there, or give a container --shm-size")
        folder = os.open(MEMORY, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        sweep(folder, "quartet")
        descriptor, name = stage_folder(folder, "quartet")  # the descriptor holds the lock
        os.fchmod(descriptor, 0o700)
        cls._folder = folder
        atexit.register(cls.leave)
        return MEMORY / name


def leave_memory() -> None:
    """Removes this process' folder in memory, if it has one; for a process that ends without what is registered for its end."""
    _Memory.leave()


def in_memory(place: Path) -> bool:
    """Whether a folder is on a file system that lives in memory (Linux: tmpfs or ramfs)."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "statfs", None)
    answer = (ctypes.c_long * 64)()
    return call is not None and call(os.fsencode(place), answer) == 0 and answer[0] in (_TMPFS, _RAMFS)


def anonymous() -> BinaryIO:
    """A new file in memory that has no name. Raises Encrypted where the system has none."""
    if not hasattr(os, "memfd_create"):
        raise Encrypted("encrypted files are decrypted in anonymous memory, which only Linux has")
    return os.fdopen(os.memfd_create("quartet", os.MFD_CLOEXEC), "w+b")


def _why(error: Exception, key: Key) -> str:
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"it is encrypted to another key than that of {key.recipient}" if "No matching keys" in said else f"it was changed ({said})"


def _age() -> Any:
    try:
        import pyrage
    except ImportError as error:
        raise ConfigError(f"encryption needs the extra: pip install 'keras-quartet[trust]' ({error})") from error
    return pyrage
