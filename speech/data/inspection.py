"""What lies in a folder or table of recordings: files, transcripts or classes, speakers, splits. Imports no TensorFlow.

Files are listed and a sample of their headers is read. What is not understood is refused with what to do instead.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.config.draft import Asked
from pipelines.config.messages import listed
from pipelines.data.columns import by_name, role_in, role_of
from pipelines.data.dialect import SUFFIXES, ending
from pipelines.data.frame import (
    Frame,
    file_column,
    files_there,
    in_both,
    label_column,
    label_values,
    missing_files,
    open_frame,
    split_column,
    tables_for,
)
from pipelines.data.kinds import not_used
from pipelines.data.names import groups_in_names, some, suspected_folders, suspected_groups, suspected_labels
from pipelines.data.tables import file_paths
from pipelines.data.walk import PassedOver, files_of, folders_in, other_folders, sampled
from speech.data import audio
from speech.data.manifests import is_lj
from speech.settings import MAX_SECONDS

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")  # named in messages
ROLES = ("file", "files", "text", "label", "split", "group")
VOICES = 3  # speakers that names must suggest: fewer cannot be divided into train, validation and test, and are something else
NOHASH = "/([0-9a-f]+)_nohash_"  # speakers in the names of Google's Speech Commands


@dataclass
class Seen:
    """What the data hold.

    Attributes:
        source: folder or table.
        files: a recording each.
        texts: transcripts, or None where there are classes.
        classes: class -> recordings.
        columns: settings that name columns.
        splits: the data's own splits by role.
        speakers: whether speakers are known; a pattern where they stand in the names.
        group: what keeps its examples together, where it is not the speaker: folder, or a column such as the file that they were cut from.
        apart: each speaker or group is known to be in one of the data's own splits alone.
        path: the table, where it lies in the folder that was named.
        label: the column of the classes, where there is a table.
        notes: further remarks, a line each.
    """

    source: str
    files: list[Path]
    texts: list[str] | None = None
    classes: Counter[str] = field(default_factory=Counter)
    columns: dict[str, Any] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)
    speakers: bool = False
    pattern: str | None = None
    group: str | None = None
    apart: bool = False
    path: Path | None = None
    label: str | list[str] | None = None
    notes: list[str] = field(default_factory=list)


def look(path: Path, asked: Asked) -> Seen:
    """Raises DataError for anything but a folder of class folders, a folder of recordings with .txt files, or a table."""
    if not path.is_dir():
        return _table(path, asked)
    seen = _folder(path, asked)
    if seen.source == "folder" and (seen.pattern or seen.group):
        held = [file for name in seen.splits.values() for file in _recordings(path / name)]
        seen.apart = set(_groups(seen, path, seen.files)).isdisjoint(_groups(seen, path, held))
    return seen


def _groups(seen: Seen, path: Path, files: list[Path]) -> list[str]:
    """The speaker or group of each recording of a folder, where its name or its folder has one."""
    if seen.pattern is None:
        return [file.parent.name for file in files]
    found = (re.search(seen.pattern, file.relative_to(path).as_posix()) for file in files)
    return [match[1] for match in found if match]


def _folder(path: Path, asked: Asked) -> Seen:
    if (path / "metadata.csv").is_file() and is_lj(path / "metadata.csv"):
        return _table(path / "metadata.csv", asked)
    manifest = find_manifest(path, asked)
    if manifest is not None:
        return _table(manifest, asked)
    tops = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith((".", "_")))
    splits = {role: entry for entry in tops if (role := role_of(entry.name))}
    root = splits.get("train", path)
    own = {role: entry.name for role, entry in splits.items() if role != "train"} if "train" in splits else {}
    rest = other_folders(path, list(splits.values()), lambda folder: len(_recordings(folder))) if "train" in splits else []
    files = _recordings(root)
    if not files:
        raise DataError(f"{path}: there are no recordings ({', '.join(audio.SUFFIXES)}) in it")
    names = [file.relative_to(path).as_posix() for file in files]
    beside = [file for file in files if file.with_suffix(".txt").is_file()]
    if asked.task == "transcription" and not beside:
        raise DataError(f"{path}: no recording has its transcript beside it, such as {files[0].with_suffix('.txt').name}")
    if len(beside) > len(files) / 2 and asked.task not in ("classification", "verification"):
        missing = next((file for file in files if file not in set(beside)), None)
        if missing:
            raise DataError(f"{missing}: has no transcript beside it ({missing.with_suffix('.txt').name}), as the others have")
        texts = [file.with_suffix(".txt").read_text(encoding="utf-8-sig", errors="replace") for file in files]
        return _with_speakers(Seen("folder", files, texts, splits=own, notes=rest), names, None)
    classes = {entry.name: _recordings(entry) for entry in folders_in(root, PassedOver()) if not entry.name.startswith("_")}
    classes = {name: hint for name, hint in classes.items() if hint}
    loose = [file for file in files if file.parent == root]
    if not classes and (hint := suspected_labels(names)):
        labels = groups_in_names(names, hint.pattern)
        seen = Seen("folder", files, None, Counter(labels), {"label_pattern": hint.pattern}, own, notes=rest)
        seen.notes.append(f"There are no class folders: the class is taken from the names ({some(hint.values)}, such as in {names[0]}).")
        return _with_speakers(seen, names, labels)
    if len(classes) < 2 or loose:
        raise DataError(f"{path}: needs a folder of recordings for each class, or a .txt with the transcript beside each recording; tables "
                        f"({listed(TABLES)}) may name both" + (f"; {loose[0].name} lies in no class folder" if classes and loose else ""))
    files = [file for hint in classes.values() for file in hint]
    labels = [name for name, hint in classes.items() for _ in hint]
    return _with_speakers(Seen("folder", files, None, Counter(labels), splits=own, notes=rest),
                          [file.relative_to(path).as_posix() for file in files], labels)


def _recordings(folder: Path) -> list[Path]:
    return files_of(folder, audio.SUFFIXES)


def _with_speakers(seen: Seen, names: list[str], labels: list[str] | None) -> Seen:
    """With the speakers that the names of the recordings, or their folders, seem to hold."""
    if all(re.search(NOHASH, name) for name in names):
        seen.speakers, seen.pattern = True, NOHASH
        return seen
    folders = suspected_folders(names, labels) if labels is not None and seen.source == "folder" else ()
    hint = suspected_groups(names, labels)
    if max(len(folders), len(hint.values) if hint else 0) < VOICES:
        return seen
    if folders:
        seen.group = "folder"
        seen.notes.append(f"Each class has the same folders in it ({some(folders)}): they are taken for speakers or places.")
    elif hint:
        seen.speakers, seen.pattern = True, hint.pattern
        seen.notes.append(f"The names hold what seems to be the speaker ({some(hint.values)}, such as in {names[0]}).")
    return seen


def find_manifest(folder: Path, asked: Asked) -> Path | None:
    """A table in a folder that names recordings in it; None where there is none."""
    tables = tables_for(folder)
    for table in tables:
        try:
            frame = open_frame(table)
            sound, pattern = file_column(frame, asked, audio.SUFFIXES, unread=audio.UNREAD, by_name_alone=True)
        except DataError:
            continue
        if sound is not None and len(frame.names) > 1 and (
                files_there(frame, sound, pattern) or (len(tables) == 1 and table.parent == folder)):
            return table
    return None


def _table(path: Path, asked: Asked) -> Seen:
    if path.suffix.lower() in audio.SUFFIXES:
        raise DataError(f"{path}: is one recording; name the folder, or a table that names recordings")
    if ending(path) not in SUFFIXES:
        raise DataError(f"{path}: not understood; give a folder or a table ({listed(TABLES)})")
    if is_lj(path):
        rows = [line.split("|") for line in path.read_text(encoding="utf-8-sig", errors="replace").splitlines() if line]
        return Seen("table", [path.parent / "wavs" / f"{row[0]}.wav" for row in rows], [row[-1] for row in rows], path=path)
    frame = open_frame(path)
    sound, pattern = file_column(frame, asked, audio.SUFFIXES, unread=audio.UNREAD, by_name_alone=True)
    if sound is None:
        raise DataError(f"{path}: no column names the recordings; name it with --file (its columns are {listed(frame.names, 'and')})")
    rest = [name for name in frame.names if name != sound]
    given = asked.roles(rest, path, ("text", "split", "group"))
    labels = asked.several("label", rest, path)
    split, parts = split_column({name: frame.values[name] for name in rest if name not in (labels or ())}, given.get("split"), path, asked)
    assigned = {role: name for role, name in {**given, "split": split}.items() if name} | ({"label": labels[0]} if labels else {})
    labelled = asked.task in ("classification", "regression", "verification") or labels
    wanted = ["text"] if asked.task == "transcription" or given.get("text") else ["label"] if labelled else ["text", "label"]
    by_role = by_name(rest, [*("transcript" if role == "text" else role for role in wanted), "speaker", "start"],
                    {("transcript" if role == "text" else "speaker" if role == "group" else role): name for role, name in assigned.items()})
    speaker = None if asked.absent("group") else by_role.get("speaker")
    text = by_role.get("transcript") if "text" in wanted else None
    taken = (split, speaker, text, by_role.get("start"))
    group = None if speaker or asked.absent("group") else group_column(frame, [name for name in rest if name not in taken])
    free = {name: frame.facts[name] for name in rest if name not in (*taken, group)}
    if text is None and "text" in wanted and "label" not in by_role:  # a column of many texts holds transcripts
        text = next((name for name, one in free.items()
                     if one.kind == "text" and one.words >= 2 and one.distinct > 0.3 * one.present), None)
    if text is None and wanted == ["text"]:
        raise DataError(f"{path}: which column holds the text is not clear; name it with --text ({listed(frame.names, 'and')})")
    label: str | list[str] | None = None
    if asked.task == "verification":
        label = speaker = assigned.get("label") or speaker or group
        if speaker is None:
            raise DataError(f"{path}: no column says who speaks; name it with --label ({listed(frame.names, 'and')})")
        group = None
    elif text is None:
        try:
            label = labels if labels and len(labels) > 1 else label_column(path, free, frame.values, most=1 / 3, what="class", asked=asked)
        except DataError as error:
            more = "" if asked.task == "classification" else "; name a column of transcripts with --text"
            raise DataError(f"{error}{more}") from None
    stored = [role_in(parts, value) for value in frame.values[split]] if split else ["train"] * frame.rows
    train = [number for number, part in enumerate(stored) if part == "train"]
    files = file_paths([frame.values[sound][number] for number in train], path, pattern, f"{sound} (--file)")
    if files and not any(file.is_file() for file in files[:: max(1, len(files) // 50)]):
        raise missing_files(path, sound, files[0])
    one = label if isinstance(label, str) else None
    keys, names = frame.named({"file": sound, "text": text, "label": one, "speaker": speaker or group, "split": split})
    columns: dict[str, Any] = {key: keys[role] for key, role, usual in (
        ("audio_key", "file", None), ("text_key", "text", "text"), ("label_key", "label", "label"),
        ("speaker_key", "speaker", "speaker"), ("split_key", "split", None)) if role in keys and keys[role] != usual}
    columns |= {"label_key": label} if isinstance(label, list) else {}
    columns |= frame.settings | ({"columns": names} if names else {}) | ({"file_pattern": pattern} if pattern else {})
    columns |= {"on_bad_example": "skip"} if frame.lost.count else {}
    own = {role: value for role, value in parts.items() if role != "train" and value is not None}
    values = [str(value or "") for value in frame.values[text]] if text else label_values(frame, label or "")
    values = [values[number] for number in train]
    seen = Seen("table", files, values if text else None, Counter() if text else Counter(values), columns, own, speaker is not None,
                group=keys["speaker"] if group else None, path=path)
    seen.label = label
    used = (sound, text, speaker, group, split, by_role.get("start"), "duration", *([label] if isinstance(label, str) else label or ()))
    seen.notes += not_used(frame.names, used)
    if line := frame.passed_over():
        seen.notes.append(line)
    together = speaker or group
    if not together and not own and not asked.absent("group"):
        _with_speakers(seen, [str(frame.values[sound][number]) for number in train], None if text else values)
    elif together and own and not (both := in_both(frame.values[together], stored)):
        seen.apart = True
    elif together and own:
        seen.notes.append(f"{both:,} speakers of train are also in another of the data's own splits: expect lower scores for new voices."
                          if speaker else f"{both:,} values of column {group} are in more than one of the data's own splits: expect lower "
                          "scores for new ones.")
    return seen


def group_column(frame: Frame, names: list[str]) -> str | None:
    """The column whose name says that recordings with the same value belong together, such as those cut from one file."""
    name = by_name(names, ["group"]).get("group")
    facts = frame.facts[name] if name else None
    return name if facts and facts.kind in ("number", "text") and VOICES <= facts.distinct < facts.present else None


def headers_of(files: list[Path]) -> tuple[list[audio.Header], bool]:
    """(headers, whether of a sample only: of at most 20,000 recordings, and as many as are read in two seconds, spread evenly).

    Raises DataError where not one can be read."""
    problems: list[DataError] = []

    def read(file: Path) -> audio.Header | None:
        try:
            header = audio.header(file)
            audio.check_header(header, MAX_SECONDS)
            return header
        except DataError as error:
            problems.append(DataError(f"{file}: {error}"))
            return None

    headers, partly = sampled(files, read)
    if not headers:
        raise problems[0] if problems else DataError("no recordings")
    return headers, partly
