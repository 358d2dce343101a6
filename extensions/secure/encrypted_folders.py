"""Encrypted runs: how one begins, and how runs, searches and exports that are there are encrypted or decrypted. Imports no TensorFlow."""

import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from extensions.secure.encryption import (
    MARKER,
    Encrypted,
    begins_encrypted,
    decrypted,
    encrypt,
    marker,
    require_fitting,
    require_key,
    stays_plain,
)
from pipelines.base.errors import ConfigError
from pipelines.base.files import whole_folder, write_whole
from pipelines.base.inside import held, refuse_links
from pipelines.base.storage import opened as open_stored
from pipelines.runs.folder import RunFolder

_TELLING = ("checkpoints/*", "model/*", "report/*", "trials/*/log.txt")  # files that are encrypted in any run or search that is


def check_begin(folder: Path, *, begun: bool, wanted: bool) -> None:
    """Of a run or a search that is to be trained: the key of an encrypted one must be here; changes nothing.

    Raises:
        ConfigError: it was begun without, or encrypting or decrypting it was interrupted.
        Encrypted: there is no key, or another one; or its files are encrypted, and it does not say so.
    """
    if require_fitting(folder):
        unmarked = next((run for run in runs_of_search(folder) if not (run / MARKER).is_file()), None)
        if unmarked is not None:
            raise ConfigError(f"{unmarked}: is not encrypted, and its search is: quartet encrypt or decrypt was interrupted; give it again "
                              f"for {folder}")
        return
    if any(begins_encrypted(file) for pattern in _TELLING for file in folder.glob(pattern)):
        raise Encrypted(f"{folder}: its files are encrypted, and {MARKER} is missing; going on would write plain ones. Put it back")
    if wanted and begun:
        raise ConfigError(f"{folder}: was begun without --encrypt; encrypt what is there first: quartet encrypt")


def begin(folder: Path, *, wanted: bool) -> None:
    """Marks a new run or search as encrypted, where that is wanted, or its search is. Raises Encrypted where there is no key."""
    if (folder / MARKER).is_file():
        return
    if wanted or any((above / MARKER).is_file() for above in folder.absolute().parents):
        write_whole(folder / MARKER, marker(require_key("what is new")), plain=True)


def encrypt_folder(path: Path) -> int:
    """Encrypts a run, a search with its runs or an exported model where it lies, each file whole; begun again after a kill, it ends what
    is left.

    Also TensorBoard's files, in which examples may be shown. Returns the number of files.

    Raises:
        Encrypted: there is no key, or it is encrypted to another one.
    """
    key = require_key(f"{path} is to be")
    refuse_links(path)
    with _locked(path):
        if (RunFolder(path).begun or _is_search(path)) and not require_fitting(path):
            write_whole(path / MARKER, marker(key))
        count = sum(encrypt_folder(run) for run in runs_of_search(path))
        plain = [file for file in _own_files(path) if not begins_encrypted(file)
                 and ((inside := file.relative_to(path)).parts[0] == "tensorboard" or not stays_plain(inside))]
        for file in plain:
            with open(file, "rb") as content:
                write_whole(file, lambda target, content=content: encrypt(  # type: ignore[misc]
                    lambda to: shutil.copyfileobj(content, to), key, target), plain=True)
    return count + len(plain)


def decrypt_folder(path: Path, target: Path | None = None) -> int:
    """Decrypts a run, a search with its runs or an exported model where it lies, or into a new folder.

    Returns the number of files that were encrypted.

    Raises:
        Encrypted: there is no key, another one, or a file was changed; what is there stays.
        ConfigError: the new folder exists, or nothing is encrypted.
    """
    refuse_links(path)
    files = [file for file in _files(path) if begins_encrypted(file)]
    if not files and not (path / MARKER).is_file():
        raise ConfigError(f"{path}: nothing in it is encrypted")
    if target is not None:
        if target.exists():
            raise ConfigError(f"--output: {target} is there already; give another name, or remove it")
        with whole_folder(target) as staging:
            for file in _files(path):
                if file.name in (MARKER, ".lock"):
                    continue
                copy = staging / file.relative_to(path)
                copy.parent.mkdir(parents=True, exist_ok=True)
                with open(file, "rb") as opened, open_stored(opened, file) as plain, open(copy, "xb") as written:
                    shutil.copyfileobj(plain, written, 1 << 20)
        return len(files)
    _decrypt_here(path)
    return len(files)


def runs_of_search(path: Path) -> list[Path]:
    """The runs in a search's folder: its trials, and the best and the start trained anew. Empty for anything else."""
    places = (path, path / "trials") if _is_search(path) else ()
    return sorted(one for place in places if place.is_dir() for one in place.iterdir() if RunFolder(one).begun)


def _decrypt_here(path: Path) -> None:
    with _locked(path):
        for run in runs_of_search(path):
            _decrypt_here(run)
        for file in filter(begins_encrypted, _own_files(path)):
            with open(file, "rb") as opened, decrypted(opened, file) as plain:
                write_whole(file, lambda to, plain=plain: shutil.copyfileobj(plain, to, 1 << 20), plain=True)  # type: ignore[misc]
        (path / MARKER).unlink(missing_ok=True)


def _is_search(path: Path) -> bool:
    return (path / "search.yaml").is_file()


def _locked(path: Path) -> AbstractContextManager[None]:
    """Of a run or a search, its lock."""
    run = RunFolder(path)
    return run.locked() if run.begun or _is_search(path) else held(path)


def _files(path: Path) -> list[Path]:
    """All files below a folder."""
    return sorted(Path(place) / name for place, _, names in os.walk(path) for name in names)


def _own_files(path: Path) -> list[Path]:
    """The same without those of a search's runs."""
    runs = set(runs_of_search(path))
    return [file for file in _files(path) if runs.isdisjoint(file.parents)]
