"""What a command writes, to a path of this machine or to an address: whole, or not at all."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from pipelines.base.errors import ConfigError
from pipelines.base.files import write_whole
from pipelines.stores.address import address_of
from pipelines.stores.objects import objects_of


def refuse_existing(output: Path | None, replace: bool) -> None:
    """Raises ConfigError where something is there that may not be replaced."""
    address = address_of(output) if output is not None else None
    there = bool(objects_of(address).entries(address.key)) if address else output is not None and output.exists()
    if there and not replace:
        raise ConfigError(f"--output: {address or output} is there already; --replace writes over it")


@contextlib.contextmanager
def file_for(output: Path) -> Iterator[Path]:
    """A file to write: the output itself, or one of this machine that is sent to its address once it is whole."""
    address = address_of(output)
    if address is None:
        yield output
        return
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / address.name
        yield file
        objects_of(address).put(address.key, file)


def write_output(output: Path, content: Callable[[BinaryIO], None]) -> None:
    """`write_whole`, also to an address."""
    with file_for(output) as file:
        write_whole(file, content)


@contextlib.contextmanager
def folder_for(output: Path) -> Iterator[Path]:
    """A folder to make: the output itself, or one of this machine that is sent to its address at the end; what names the other files
    (prepared.json) goes last.

    Raises:
        ConfigError: something is at the address already.
    """
    address = address_of(output)
    if address is None:
        yield output
        return
    objects = objects_of(address)
    if objects.entries(address.key):
        raise ConfigError(f"{address}: is there already; remove it, or name another")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / address.name
        yield folder
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for path in sorted(files, key=lambda path: path.suffix == ".json"):
            objects.put((address / path.relative_to(folder).as_posix()).key, path)
