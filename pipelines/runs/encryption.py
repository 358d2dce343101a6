"""Encrypted runs: how one begins, and how runs and exports that are there are encrypted or decrypted. Imports no TensorFlow."""

import os
import shutil
from contextlib import nullcontext
from pathlib import Path

from pipelines.base import encryption
from pipelines.base.encryption import MARKER, PLAIN, Encrypted, begins_encrypted, open_decrypted, require_key
from pipelines.base.errors import ConfigError
from pipelines.base.files import whole_folder, write_whole
from pipelines.base.inside import held, refuse_links
from pipelines.runs.folder import RunFolder


def begin(folder: RunFolder, encrypt: bool) -> None:
    """Of a run that is claimed: marks a new one as encrypted, where it is to be; the key of one that is must be here.

    Raises:
        ConfigError: it was begun without.
        Encrypted: there is no key, or another one; or its files are encrypted, and it does not say so.
    """
    if encryption.require_fitting(folder.path):
        return
    if any(begins_encrypted(file) for part in (folder.checkpoints, folder.model) for file in part.glob("*")):
        raise Encrypted(f"{folder.path}: its files are encrypted, and {MARKER} is missing; going on would write plain ones. Put it back")
    if encrypt:
        if folder.trained:
            raise ConfigError(f"{folder.path}: this run was begun without --encrypt; encrypt what is there first: quartet encrypt")
        write_whole(folder.path / MARKER, encryption.marker(require_key("the new run")))


def encrypt_folder(path: Path) -> int:
    """Encrypts a run or an exported model where it lies, each file whole; begun again after a kill, it ends what is left.

    Also TensorBoard's files, in which examples may be shown. Returns the number of files.

    Raises:
        Encrypted: there is no key, or it is encrypted to another one.
    """
    key = require_key(f"{path} is to be")
    refuse_links(path)
    run = RunFolder(path)
    with run.locked() if run.begun else held(path):
        if run.begun and not encryption.require_fitting(path):
            write_whole(path / MARKER, encryption.marker(key))
        plain = [file for file in _files(path, leave=PLAIN - {"tensorboard"}) if not begins_encrypted(file)]
        for file in plain:
            with open(file, "rb") as content:
                write_whole(file, lambda target, content=content: encryption.encrypt(  # type: ignore[misc]
                    lambda to: shutil.copyfileobj(content, to), key, target), plain=True)
    return len(plain)


def decrypt_folder(path: Path, target: Path | None = None) -> int:
    """Decrypts a run or an exported model where it lies, or into a new folder. Returns the number of files that were encrypted.

    Raises:
        Encrypted: there is no key, another one, or a file was changed; what is there stays.
        ConfigError: the new folder exists, or nothing is encrypted.
    """
    refuse_links(path)
    files = [file for file in _files(path, leave=frozenset()) if begins_encrypted(file)]
    if not files and not (path / MARKER).is_file():
        raise ConfigError(f"{path}: nothing in it is encrypted")
    if target is not None:
        if target.exists():
            raise ConfigError(f"--output: {target} is there already; give another name, or remove it")
        with whole_folder(target) as staging:
            for file in _files(path, leave=frozenset({MARKER, ".lock"})):
                copy = staging / file.relative_to(path)
                copy.parent.mkdir(parents=True, exist_ok=True)
                with open(file, "rb") as opened, open_decrypted(opened, file) as plain, open(copy, "xb") as written:
                    shutil.copyfileobj(plain, written, 1 << 20)
        return len(files)
    run = RunFolder(path)
    with run.locked() if run.begun else nullcontext(), held(path):
        for file in files:
            with open(file, "rb") as opened, open_decrypted(opened, file) as plain:
                write_whole(file, lambda to, plain=plain: shutil.copyfileobj(plain, to, 1 << 20), plain=True)  # type: ignore[misc]
        (path / MARKER).unlink(missing_ok=True)
    return len(files)


def _files(path: Path, *, leave: frozenset[str]) -> list[Path]:
    """All files below a folder, save those whose first name in it is in `leave`."""
    found = [Path(place) / name for place, _, names in os.walk(path) for name in names]
    return sorted(file for file in found if file.relative_to(path).parts[0] not in leave)
