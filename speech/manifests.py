"""Tables that name recordings: CSV, TSV, JSON lines, Parquet, and LJSpeech's metadata.csv."""

import csv
import os
from pathlib import Path
from typing import Any

from pipelines.config.wording import listed
from pipelines.data.tables import column, read_table, row, values_of
from pipelines.errors import DataError
from speech import audio
from speech.recorded import file_lengths, files_fingerprint, files_loader, recordings
from speech.settings import SpeechData, TranscriptData
from speech.sources import Facts, Opened, Recordings

AUDIO_COLUMNS = ("audio", "speech", "path", "file", "filename", "audio_filepath", "wav")
LJ = "metadata.csv"  # LJSpeech: id|text|normalized text, no header, recordings in wavs/


def open_table(data: SpeechData, texts: bool) -> Opened:
    """A table's rows as recordings, paths from the table's folder. Raises DataError that names the row."""
    path = Path(data.path or "")
    if texts and path.name == LJ and _is_lj(path):
        return _ljspeech(path, data)
    what = data.text_key if texts and isinstance(data, TranscriptData) else data.label_key
    setting = "data.text_key" if texts else "data.label_key"
    table = read_table(path, text=[name for name in (data.audio_key, *AUDIO_COLUMNS, what, data.split_key, data.speaker_key) if name])
    there = table.column_names
    sound = data.audio_key or next((name for name in AUDIO_COLUMNS if name in there), None)
    if sound is None:
        raise DataError(f"{path} has no column {listed(AUDIO_COLUMNS)}; there are {listed(there, 'and')}. Name the one with the files in "
                        "data.audio_key")
    if texts:
        said = []
        for number, value in enumerate(column(table, what, path, setting).to_pylist()):
            if value is None:
                raise DataError(f"{row(path, number)}: no value in column {what} ({setting})")
            said.append(" ".join(str(value).split()))
    else:
        said = values_of(table, what, path, setting)
    splits = values_of(table, data.split_key, path, "data.split_key") if data.split_key else ["all"] * len(said)
    speakers = values_of(table, data.speaker_key, path, "data.speaker_key") if data.speaker_key in there else None
    start_key = data.start_key if data.start_key in there else "offset" if "offset" in there else None
    starts = _seconds(table, start_key, path, "data.start_key")
    durations = _seconds(table, data.duration_key if data.duration_key in there else None, path, "data.duration_key")
    files: list[tuple[Path, float, float | None]] = []
    for number, value in enumerate(column(table, sound, path, "data.audio_key").to_pylist()):
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{row(path, number)}: no file named in column {sound} (data.audio_key)")
        files.append((path.parent / value.strip().replace("\\", "/"), starts[number] or 0.0, durations[number]))
    return _named_files(path, files, said, splits, speakers, data, texts)


def _named_files(path: Path, files: list[tuple[Path, float, float | None]], said: list[str], splits: list[str], speakers: list[str] | None,
                 data: SpeechData, texts: bool) -> Opened:
    opened = Opened(str(path), sorted(set(splits)), lambda _: None)  # type: ignore[arg-type, return-value]
    missing = [number for number, (file, _, _) in enumerate(files) if not file.is_file()]
    if missing and data.on_bad_example == "stop":
        more = f" ({len(missing) - 1:,} more rows name missing files)" if len(missing) > 1 else ""
        raise DataError(f"{row(path, missing[0])}: {files[missing[0]][0]} is not there{more}; relative paths start at the table's folder, "
                        f"{path.parent.resolve()}. Mend the row, or set data.on_bad_example: skip")
    opened.skipped = [f"{files[number][0]}: not there ({path.name}, row {number + 1})" for number in missing]
    gone = set(missing)

    def load(split: str) -> Recordings:
        rows = [number for number, part in enumerate(splits) if part == split and number not in gone]
        own = [files[number] for number in rows]
        names = [str(file) + (f"#t={start:g}" + (f",{start + duration:g}" if duration else "") if start or duration else "")
                 for file, start, duration in own]
        what = [said[number] for number in rows]
        facts = Facts(names, [os.path.relpath(file, path.parent) for file, _, _ in own], None if texts else what, what if texts else None,
                      [speakers[number] for number in rows] if speakers else None, file_lengths(own, data.rate))
        return recordings(files_loader(own, data), facts, files_fingerprint(own, path.parent, data), data)

    opened.load = load
    return opened


def _seconds(table: Any, name: str | None, path: Path, setting: str) -> list[float | None]:
    if name is None:
        return [None] * table.num_rows
    found: list[float | None] = []
    for number, value in enumerate(table[name].to_pylist()):
        try:
            seconds = None if value is None or value == "" else float(value)
        except (TypeError, ValueError):
            raise DataError(f"{row(path, number)}: {value!r} in column {name} ({setting}) is no number of seconds") from None
        if seconds is not None and not 0 <= seconds < float("inf"):
            raise DataError(f"{row(path, number)}: {seconds:g} s in column {name} ({setting})")
        found.append(seconds)
    return found


def _is_lj(path: Path) -> bool:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.readline().count("|") >= 1
    except (OSError, UnicodeDecodeError):
        return False


def _ljspeech(path: Path, data: SpeechData) -> Opened:
    """`id|text|normalized text` without a header, recordings in wavs/ beside it; the last column is what is said."""
    files: list[tuple[Path, float, float | None]] = []
    said = []
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            for number, cells in enumerate(csv.reader(file, delimiter="|", quoting=csv.QUOTE_NONE), 1):
                if not cells:
                    continue
                if len(cells) < 2:
                    raise DataError(f"{path}:{number}: one column where id|text is needed")
                name = cells[0].strip()
                base = path.parent / "wavs" / name
                files.append((base if base.suffix.lower() in audio.SUFFIXES else base.with_name(f"{base.name}.wav"), 0.0, None))
                said.append(" ".join(cells[-1].split()))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
    return _named_files(path, files, said, ["all"] * len(said), None, data, texts=True)
