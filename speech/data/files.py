"""The sound files that arguments name: paths, folders (searched recursively), globs, and manifests."""

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.data.dialect import JSON_LINES
from pipelines.data.tables import read_table
from pipelines.data.walk import files_of
from speech.data.audio import SUFFIXES, UNREAD
from speech.data.ljspeech import is_lj
from speech.data.manifests import BadRow, lj_rows, named_parts
from speech.data.recording_files import Part
from speech.settings import AUDIO_COLUMNS, SpeechData

MANIFESTS = (".csv", ".tsv", ".parquet", *JSON_LINES)


def find_recordings(inputs: Sequence[str], data: SpeechData) -> Iterator[Part | BadRow]:
    """Files in the order given, folders and globs sorted; a named file is yielded whatever its ending, even if it does not exist.

    Args:
        data: how manifests name their columns; where they have no such columns, the usual names count.

    Yields:
        Recordings and parts of them, also unreadable ones (M4A), and rows of a manifest that name none.

    Raises:
        DataError: a manifest that cannot be read or names no files.
    """
    for text in inputs:
        path = Path(text)
        if path.is_dir():
            for file in files_of(path, (*SUFFIXES, *UNREAD)):
                yield file, 0.0, None
        elif path.suffix.lower() in MANIFESTS and path.is_file():
            yield from _manifest(path, data)
        elif not path.exists() and glob.has_magic(text):
            for name in sorted(glob.glob(text, recursive=True)):
                if Path(name).is_file():
                    yield Path(name), 0.0, None
        else:
            yield path, 0.0, None


def _manifest(path: Path, data: SpeechData) -> Iterator[Part | BadRow]:
    if is_lj(path):
        yield from (part for part, _ in lj_rows(path))
        return
    table = read_table(path, text=[name for name in (data.audio_key, *AUDIO_COLUMNS) if name])
    # the run may have been trained on data of another form: a column that is not there falls back to its usual name
    usual = {name: type(data).model_fields[name].default for name in ("audio_key", "start_key", "duration_key")
             if getattr(data, name) not in table.column_names}
    yield from named_parts(table, path, data.model_copy(update=usual))
