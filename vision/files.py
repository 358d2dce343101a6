"""The image files that a person means: paths, folders (searched through), globs."""

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp"}


def find_images(inputs: Sequence[str]) -> Iterator[Path]:
    """Paths in the order given, folders and globs sorted; a named file comes whatever its ending, even when it is not there."""
    for text in inputs:
        path = Path(text)
        if path.is_dir():
            yield from sorted(found for found in path.rglob("*") if found.suffix.lower() in SUFFIXES and not found.name.startswith("."))
        elif not path.exists() and glob.has_magic(text):
            yield from sorted(Path(found) for found in glob.glob(text, recursive=True) if Path(found).is_file())
        else:
            yield path
