"""Tables that name recordings - CSV, TSV, JSON lines, Parquet, and LJSpeech's metadata.csv - and the sound files that arguments name:
paths, folders (searched recursively), globs, and such tables.
"""

import csv
import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.base.inside import check_regular
from pipelines.config.messages import listed
from pipelines.data.dialect import JSON_LINES
from pipelines.data.label_sets import labels_in_table
from pipelines.data.number_columns import NumberColumns
from pipelines.data.opened import Opened, check_skipped
from pipelines.data.tables import LeftOut, absent_files, column, read_table, row, split_names, values_of
from pipelines.data.walk import files_of
from pipelines.stores.remote import local
from speech.data import audio
from speech.data.audio import SUFFIXES, UNREAD
from speech.data.recording_files import Part, file_lengths, files_fingerprint, files_loader, files_stamp, recordings
from speech.data.recordings import Facts, Recordings
from speech.settings import AUDIO_COLUMNS, SpeechData, TranscriptData

LJ = "metadata.csv"  # LJSpeech: id|text|normalized text, no header, recordings in wavs/


def is_lj(path: Path) -> bool:
    """Whether a table is LJSpeech's, which has no header and `|` between its columns."""
    if path.name != LJ:
        return False
    check_regular(path)
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.readline().count("|") >= 1
    except (OSError, UnicodeDecodeError):
        return False


@dataclass(frozen=True)
class BadRow:
    """A row that names no recording: `file:line`, and why."""

    where: str
    why: str


def open_table(data: SpeechData, texts: bool, numbers: NumberColumns | None = None) -> Opened[Recordings]:
    """A table's rows as recordings, paths from the table's folder; `numbers` stand in the place of labels, as texts. Raises DataError that
    names the row."""
    path = local(data.path or "", folder=True)
    if texts and is_lj(path):
        rows = list(lj_rows(path))
        return _named_files(path, [file for file, _ in rows], [text for _, text in rows], ["all"] * len(rows), None, data, texts=True)
    what = data.text_key if texts and isinstance(data, TranscriptData) else data.label_key
    setting = "data.text_key" if texts else "data.label_key"
    keys = [what] if isinstance(what, str) else []
    lost = LeftOut()
    table = read_table(path, text=[name for name in (data.audio_key, *AUDIO_COLUMNS, *keys, data.split_key, data.speaker_key) if name],
                       names=data.columns, left_out=lost if data.on_bad_example == "skip" else None, delimiter=data.delimiter,
                       encoding=data.encoding, quote=data.quote)
    files = []
    for part in named_parts(table, path, data):
        if isinstance(part, BadRow):
            raise DataError(f"{part.where}: {part.why}")
        files.append(part)
    if texts:
        values = []
        for number, value in enumerate(column(table, str(what), path, setting).to_pylist()):
            if value is None:
                raise DataError(f"{row(path, number)}: no value in column {what} ({setting})")
            values.append(" ".join(str(value).split()))
    elif numbers:
        values = [" ".join(map(repr, cells)) for cells in numbers.in_table(table, path).tolist()]
    else:
        values = labels_in_table(table, data, path)
    splits = split_names(values_of(table, data.split_key, path, "data.split_key"), data) if data.split_key else ["all"] * len(values)
    speakers = values_of(table, data.speaker_key, path, "data.speaker_key") if data.speaker_key in table.column_names else None
    return _named_files(path, files, values, splits, speakers, data, texts, lost.reasons)


def named_parts(table: Any, path: Path, data: SpeechData) -> Iterator[Part | BadRow]:
    """For each row the recording that it names, or what is wrong with the row. Raises DataError where no column names recordings."""
    there = table.column_names
    sound = data.audio_key or next((name for name in AUDIO_COLUMNS if name in there), None)
    if sound is None:
        raise DataError(f"{path} has no column {listed(AUDIO_COLUMNS)}; there are {listed(there, 'and')}. Name the one with the files in "
                        "data.audio_key")
    start = data.start_key if data.start_key in there else "offset" if "offset" in there else None
    duration = data.duration_key if data.duration_key in there else None
    starts, durations = (table[name].to_pylist() if name else [None] * table.num_rows for name in (start, duration))
    for number, value in enumerate(column(table, sound, path, "data.audio_key").to_pylist()):
        try:
            if isinstance(value, int) and data.file_pattern:
                value = str(value)
            if not isinstance(value, str) or not value.strip():
                raise DataError(f"no file named in column {sound} (data.audio_key)")
            file = data.file_pattern.replace("{}", value.strip()) if data.file_pattern else value.strip()
            yield (path.parent / file.replace("\\", "/"), _seconds(starts[number], f"{start} (data.start_key)") or 0.0,
                   _seconds(durations[number], f"{duration} (data.duration_key)"))
        except DataError as error:
            yield BadRow(row(path, number), str(error))


def _named_files(path: Path, files: list[Part], values: list[str], splits: list[str], speakers: list[str] | None,
                 data: SpeechData, texts: bool, lost: Sequence[str] = ()) -> Opened[Recordings]:
    absent = absent_files([file for file, _, _ in files], path, skip=data.on_bad_example == "skip")

    def load(split: str) -> Recordings:
        rows = [number for number, part in enumerate(splits) if part == split and number not in absent]
        own = [files[number] for number in rows]
        names = [str(file) + (f"#t={start:g}" + (f",{start + duration:g}" if duration else "") if start or duration else "")
                 for file, start, duration in own]
        what = [values[number] for number in rows]
        facts = Facts(names, [os.path.relpath(file, path.parent) for file, _, _ in own], None if texts else what, what if texts else None,
                      [speakers[number] for number in rows] if speakers else None, file_lengths(own, data))
        return recordings(files_loader(own, data), facts, files_fingerprint(own, path.parent, data), data, files_stamp(own))

    skipped = [*lost, *absent.values()]
    check_skipped(skipped, len(files) + len(lost), data, str(path))
    return Opened(str(path), sorted(set(splits)), load, skipped=skipped)


def _seconds(value: Any, place: str) -> float | None:
    """A cell of a table as seconds; None where it is empty. `place` is the column, with its setting."""
    try:
        seconds = None if value is None or value == "" else float(value)
    except (TypeError, ValueError):
        raise DataError(f"{value!r} in column {place} is not a number of seconds") from None
    if seconds is not None and not 0 <= seconds < float("inf"):
        raise DataError(f"{seconds:g} s in column {place}")
    return seconds


def lj_rows(path: Path) -> Iterator[tuple[Part, str]]:
    """(recording, transcript) of `id|text|normalized text` without a header, recordings in wavs/ beside it; the last column is
    the transcript. Raises DataError that names the line."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            for number, cells in enumerate(csv.reader(file, delimiter="|", quoting=csv.QUOTE_NONE), 1):
                if not cells:
                    continue
                if len(cells) < 2:
                    raise DataError(f"{path}:{number}: one column where id|text is needed")
                base = path.parent / "wavs" / cells[0].strip()
                yield ((base if base.suffix.lower() in audio.SUFFIXES else base.with_name(f"{base.name}.wav"), 0.0, None),
                       " ".join(cells[-1].split()))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None


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
