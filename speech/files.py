"""The sound files that a person means: paths, folders (searched through), globs, and manifests that name them."""

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.data.tables import JSON_LINES, read_table
from pipelines.errors import DataError
from speech.audio import SUFFIXES
from speech.manifests import AUDIO_COLUMNS

MANIFESTS = (".csv", ".tsv", ".parquet", *JSON_LINES)
Part = tuple[Path, float, float | None]  # path, start and duration in s


def find_recordings(inputs: Sequence[str]) -> Iterator[Part]:
    """Files in the order given, folders and globs sorted; a named file comes whatever its ending, even when it is not there.

    Raises:
        DataError: a manifest that cannot be read or names no files.
    """
    for text in inputs:
        path = Path(text)
        if path.is_dir():
            for found in sorted(path.rglob("*")):
                if found.suffix.lower() in SUFFIXES and not found.name.startswith("."):
                    yield found, 0.0, None
        elif path.suffix.lower() in MANIFESTS and path.is_file():
            yield from _manifest(path)
        elif not path.exists() and glob.has_magic(text):
            for name in sorted(glob.glob(text, recursive=True)):
                if Path(name).is_file():
                    yield Path(name), 0.0, None
        else:
            yield path, 0.0, None


def _manifest(path: Path) -> Iterator[Part]:
    table = read_table(path)
    name = next((name for name in AUDIO_COLUMNS if name in table.column_names), None)
    if name is None:
        raise DataError(f"{path} names no recordings: it has no column {', '.join(AUDIO_COLUMNS)}")
    rows = table.to_pylist()
    for row in rows:
        start, duration = row.get("start", row.get("offset")), row.get("duration")
        yield path.parent / str(row[name]), float(start or 0.0), None if duration in (None, "") else float(duration)
