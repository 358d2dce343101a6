"""Keys of age made here, commands with them, and a search for plain weights on a disk."""

import functools
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from pipelines.commands.main import app

PIECE = 48  # bytes of an array that are looked for


@functools.cache
def age_key(name: str = "own") -> Path:
    """A key file of somebody, as age-keygen writes it."""
    import pyrage

    identity = pyrage.x25519.Identity.generate()
    file = Path(tempfile.mkdtemp(prefix=f"quartet-age-{name}-")) / "key.txt"
    file.write_text(f"# created: today\n# public key: {identity.to_public()}\n{identity}\n", encoding="utf-8")
    return file


def command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def keyed(*arguments):
    """The same with the key; it has to succeed."""
    done = command(*arguments, "--age-key", age_key())
    assert done.exit_code == 0, done.output
    return done


def pieces(arrays: Iterable[np.ndarray]) -> list[bytes]:
    """Bytes out of each array that no other file holds by chance: not all the same, and of many values."""
    found = []
    for array in arrays:
        content = np.ascontiguousarray(array).tobytes()
        middle = content[len(content) // 2 // 8 * 8:][:PIECE]
        if len(middle) == PIECE and len(set(middle)) > PIECE // 3:
            found.append(middle)
    return found


def files_with(folder: Path, wanted: list[bytes]) -> list[str]:
    """The files below a folder that hold one of them."""
    held = []
    for place, _, names in os.walk(folder):
        for name in names:
            content = (Path(place) / name).read_bytes()
            if any(piece in content for piece in wanted):
                held.append(str((Path(place) / name).relative_to(folder)))
    return sorted(held)
