"""Encryption at rest: files in the age format (https://age-encryption.org/v1), decrypted in memory alone. Needs the extra `trust`.

A folder that holds `encrypted.json` is encrypted: `write_whole` and `whole_folder` encrypt what is written below it, whoever writes, except
for what `stays_plain`. What is read through `open_decrypted` and `readable` is decrypted where it begins as an age file does; a plain file
that should be encrypted is refused, since somebody has put it there. Anybody can encrypt to the public key in `encrypted.json`: only a
signature tells the run's own files from such. The key is that of --age-key or QUARTET_AGE_KEY. No plain byte of such files is given to a
disk: what libraries read and write by path lies in a private folder of a file system in memory, and so do their temporary files. Imports no
TensorFlow.
"""

import atexit
import contextlib
import ctypes
import io
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pipelines.base.errors import ConfigError
from pipelines.base.json_text import parse_json
from pipelines.base.regular import check_regular, read_small
from pipelines.base.staging import remove, stage_folder, sweep

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


class Encrypted(ConfigError):
    """Something is encrypted, and there is no key, or another one."""


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


@contextlib.contextmanager
def using(file: Path | None) -> Iterator[None]:
    """Inside, the key in `file` is this process' and its children's; None changes nothing. Raises ConfigError where it is none."""
    if file is None:
        yield
        return
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(Path(file).expanduser().absolute())
    try:
        check_regular(file, "--age-key", ConfigError)
        given_key()
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


def key_for(path: Path | str) -> Key | None:
    """The key that a file or folder is written with; None where it stays plain.

    Raises:
        Encrypted: it is to be encrypted, and the key is missing, or another one than that of its folder.
    """
    path = Path(os.path.abspath(path))
    folder = _marked(path)
    return None if folder is None or stays_plain(path.relative_to(folder)) else _fitting(folder)


def refuse_plain(path: Path | str) -> None:
    """Raises Encrypted for a plain file that should be encrypted, as it lies in an encrypted folder."""
    path = Path(os.path.abspath(path))
    folder = _marked(path)
    if folder is not None and not stays_plain(inside := path.relative_to(folder)) and inside.name not in PLAIN:  # those of an export
        raise Encrypted(f"{path}: is not encrypted, and {folder} is: somebody has put it there, or `quartet encrypt` was interrupted; take "
                        "the file from a copy of the run, or if you trust it, give quartet encrypt again")


def _marked(path: Path) -> Path | None:
    """The nearest encrypted folder above."""
    return next((folder for folder in path.parents if (folder / MARKER).is_file()), None)


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


def encrypt(content: bytes | str | Callable[[BinaryIO], None], key: Key, target: BinaryIO) -> None:
    """Writes content to an open file, encrypted; what a function writes is held in memory meanwhile."""
    if callable(content):
        plain: BinaryIO = io.BytesIO()
        content(plain)
        plain.seek(0)
    else:
        plain = io.BytesIO(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)
    age = _age()
    age.encrypt_io(plain, target, [age.x25519.Recipient.from_str(key.recipient)])


def encrypt_files(plain: Path, target: Path, key: Key) -> None:
    """Every file of a folder in memory, encrypted into a folder on the disk that is there."""
    for place, folders, files in os.walk(plain):
        inside = Path(place).relative_to(plain)
        for name in folders:
            (target / inside / name).mkdir()
        for name in files:
            with open(Path(place) / name, "rb") as file, open(target / inside / name, "xb") as written:
                if (inside / name).parts[0] in PLAIN:
                    shutil.copyfileobj(file, written)
                else:
                    encrypt(lambda to, file=file: shutil.copyfileobj(file, to), key, written)  # type: ignore[misc]


def begins_encrypted(path: Path | str) -> bool:
    """Whether a regular file begins as an age file does; False for anything else and where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode) and os.read(descriptor, len(MAGIC)) == MAGIC
    finally:
        os.close(descriptor)


def open_decrypted(file: BinaryIO, path: Path | str) -> BinaryIO:
    """An open file as it is, or where it is encrypted, its content in anonymous memory.

    Raises:
        Encrypted: there is no key, it is another one, or the file was changed, or replaced by a plain one.
        OSError: the file cannot be read.
    """
    start = file.read(len(MAGIC))
    file.seek(0)
    if start != MAGIC:
        refuse_plain(path)
        return file
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


@contextlib.contextmanager
def readable(path: Path) -> Iterator[Path]:
    """A file or folder for a library that reads by path: as it is, or where something in it is encrypted, a plain copy in memory.

    Raises:
        Encrypted: as `open_decrypted`, or no file system in memory is there.
    """
    files = [Path(place) / name for place, _, names in os.walk(path) for name in names] if path.is_dir() else [path]
    if not any(begins_encrypted(file) for file in files):
        for file in files:
            refuse_plain(file)
        yield path
        return
    with memory_folder() as place:
        copy = place / path.absolute().name
        for file in files:
            target = copy / file.relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "rb") as opened, open_decrypted(opened, file) as plain, open(target, "xb") as written:
                shutil.copyfileobj(plain, written, 1 << 20)
        yield copy


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


@contextlib.contextmanager
def temporary_folder(beside: Path) -> Iterator[Path]:
    """A new private folder for what is made of a run; of an encrypted one, in memory. Raises Encrypted as `memory_folder`."""
    if (beside / MARKER).is_file():
        with memory_folder() as place:
            yield place
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)


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
