"""Encrypted files as a storage: whoever writes below a folder that says so writes encrypted files, and who reads reads what they hold."""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from extensions.secure import options
from extensions.secure.encrypted_folders import begin, check_begin
from extensions.secure.encryption import (
    MAGIC,
    MARKER,
    PLAIN,
    Encrypted,
    anonymous,
    decrypted,
    encrypt,
    leave_memory,
    memory_folder,
    require_fitting,
    require_key,
    stays_plain,
)
from pipelines.base.storage import Storage, Write


class AgeStorage(Storage):
    """Below a folder with encrypted.json; whatever of it lies elsewhere, such as an export, is read all the same."""

    marker, option = MARKER, "--encrypt"

    def check_begin(self, folder: Path, *, begun: bool) -> None:
        check_begin(folder, begun=begun, wanted=options.encrypting())

    def begin(self, folder: Path) -> None:
        begin(folder, wanted=options.encrypting())

    def takes(self, inside: Path) -> bool:
        return not stays_plain(inside)

    def check(self, folder: Path) -> None:
        require_fitting(folder)

    def holds(self, start: bytes) -> bool:
        return start.startswith(MAGIC)

    def write(self, write: Write, target: BinaryIO) -> None:
        encrypt(write, require_key("what is written"), target)

    def read(self, file: BinaryIO, path: Path) -> BinaryIO:
        return decrypted(file, path)

    def refuse_plain(self, path: Path) -> None:
        path = Path(os.path.abspath(path))
        folder = self.folder_of(path)
        if folder is not None and not stays_plain(inside := path.relative_to(folder)) and inside.name not in PLAIN:  # those of an export
            raise Encrypted(f"{path}: is not encrypted, and {folder} is: somebody has put it there, or `quartet encrypt` was interrupted; "
                            "take the file from a copy of the run, or if you trust it, give quartet encrypt again")

    def workplace(self) -> AbstractContextManager[Path]:
        return memory_folder()

    def scratch(self) -> BinaryIO:
        return anonymous()

    def leave(self) -> None:
        leave_memory()
