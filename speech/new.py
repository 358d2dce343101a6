"""A speech experiment for somebody's data: task, lengths, rate, model and training chosen from what is there. Imports no TensorFlow."""

import re
import time
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pipelines.base.errors import DataError
from pipelines.config.draft import Asked, Draft, Entry, section
from pipelines.config.messages import listed
from pipelines.data.columns import by_name, role_in, role_of
from pipelines.data.dialect import ending
from pipelines.data.frame import COMMENTS, Frame, in_both, label_column, label_values, open_frame, split_column
from pipelines.data.names import groups_in_names, suspected_folders, suspected_groups, suspected_labels
from pipelines.data.tables import SUFFIXES, file_paths, is_table
from pipelines.data.walk import PassedOver, files_of, folders_in, pattern_of_files, spread
from speech.data import audio
from speech.data.enough import too_little
from speech.data.ljspeech import is_lj
from speech.settings import MAX_SECONDS

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")  # named in messages
ROLES = ("file", "text", "label", "split", "group")
TASKS = ("commands", "transcription")
MOST, SECONDS = 20_000, 2.0  # headers looked at, and the time after which no more are
FEWEST = 10
VOICES = 3  # speakers that names must suggest: fewer cannot be divided into train, validation and test, and are something else
LARGE = 5000  # recordings from which little is augmented, and validation chooses
TEST, VALIDATION = 0.2, 0.1  # held out: a share of all, and one of the rest
COMMAND_STEPS, TEXT_STEPS = 3000, 1500  # updates, at least
HEARD = 100  # recordings of which the loud part is looked at
RATES = (8000, 16_000)  # Hz, for the model: more tells little of speech
NOHASH = "/([0-9a-f]+)_nohash_"  # speakers in the names of Google's Speech Commands


@dataclass
class Seen:
    """What was found.

    Attributes:
        source: folder or table.
        files: a recording each.
        texts: transcripts, or None where there are classes.
        classes: class -> recordings.
        columns: settings that name columns.
        splits: the data's own splits by role.
        speakers: whether speakers are known; a pattern where they stand in the names.
        group: what keeps its examples together, where it is not the speaker: folder.
        path: the table, where it lies in the folder that was named.
        notes: what else was found, a line each.
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
    path: Path | None = None
    notes: list[str] = field(default_factory=list)


def draft(path: Path, asked: Asked) -> Draft:
    """Looks at a folder of class folders, a folder of recordings with .txt files, or a table. Raises DataError for what it does not
    understand."""
    seen = _folder(path, asked) if path.is_dir() else _table(path, asked)
    path = seen.path or path
    if len(seen.files) < FEWEST:
        raise DataError(f"{path}: {len(seen.files)} recordings are too few to train on and to judge by; give {FEWEST} or more")
    headers, sampled = headers_of(seen.files)
    stored = Counter(header.rate for header in headers).most_common(1)[0][0]
    rate = max([one for one in RATES if one <= stored], default=RATES[0])
    seconds = sorted(header.seconds for header in headers)
    rates = Counter(header.rate for header in headers)
    found = (f"Found: {len(seen.files):,} recordings of {seconds[0]:.2f} to {seconds[-1]:.2f} s (median {median(seconds):.2f}), "
             f"{'all' if len(rates) == 1 else 'mostly'} {stored:,} Hz{f', in a sample of {len(headers):,}' if sampled else ''}"
             f"{_said(seen)}.",
             *seen.notes)
    if seen.texts is not None and (note := too_little(seen.texts, sum(seconds) / len(seconds) * len(seen.files))):
        found = (*found, f"Warning: {note}.")
    body = _transcription(path, seen, rate, seconds) if seen.texts is not None else _commands(path, seen, rate, seconds)
    what = "Speech to text" if seen.texts is not None else f"Spoken commands: {len(seen.classes)} classes"
    compared = ("the transcript of the most similar training recording" if seen.texts is not None else
                "a kernel classifier on statistics of cepstra, fitted in the run")
    return Draft(f"{what}, of {path.name}.", found, body, compared)


def _said(seen: Seen) -> str:
    if seen.texts is None:
        names = list(seen.classes)
        return f"; {', '.join(names[:8])}" + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
    return f"; {len({word for text in seen.texts for word in text.lower().split()}):,} different words"


def _data(path: Path, seen: Seen, rate: int, task: list[Entry]) -> list[Entry]:
    entries: list[Entry] = [("source", seen.source, ""), ("path", str(path), "" if path.is_absolute() else "from the current directory"),
                            ("rate", rate, "Hz; recordings of another are resampled"), *task]
    entries += [(key, name, COMMENTS.get(key, "")) for key, name in seen.columns.items()]
    if seen.pattern:
        entries.append(("speaker_pattern", seen.pattern, "finds the speaker in a name"))
    if seen.speakers and "test" not in seen.splits:
        entries.append(("group_by", "speaker", "no voice on two sides of a split; null to divide recording by recording"))
    elif seen.group and "test" not in seen.splits:
        entries.append(("group_by", seen.group, "all recordings of one stay on one side of the splits; null to divide one by one"))
    for name, share, meaning in (("validation", VALIDATION, "share of train"), ("test", TEST, "share of all; judged once, at the end")):
        entries.append((name, seen.splits.get(name, share), "the data's own" if name in seen.splits else meaning))
    return entries


def _commands(path: Path, seen: Seen, rate: int, seconds: list[float]) -> str:
    count, most = len(seen.files), max(seen.classes.values()) / min(seen.classes.values())
    window = _window(seen.files, seconds)
    small = count < LARGE
    batch = 16 if count < 1000 else 32 if small else 128
    augment: list[Entry] = [("shift", 0.1, "s"), ("speed", 0.2 if small else 0.1, "share"),
                            ("noise", 0.3, "share; noise_folder takes noise of your own"), ("frequency_masks", 2, "")]
    if small:  # few voices become more: see configs/speech/spoken_digit_new_speaker.yaml
        augment += [("warp", 0.1, "longer and shorter throats"), ("time_masks", 1, ""), ("time_width", 0.1, "s")]
    sections = [
        "task: speech.commands",
        section("data", _data(path, seen, rate, [("seconds", window, "what the model hears: the loudest part of longer recordings")])),
        section("frontend", [("normalize", "recording", "takes the microphone's and the voice's colour off")]),
        section("model", [("name", "ds_cnn" if small else "broadcast", "or broadcast" if small else "or ds_cnn, which is faster")]),
        section("augment", augment),
        section("train", _train(_kept(seen), batch, COMMAND_STEPS, most=300, peak=0.004, ema=0.995)),
    ]
    if most >= 5:
        why = f"the largest class has {most:.0f} times the smallest; balanced finds more of the small ones, and costs accuracy"
        sections.append(section("loss", [("class_weights", "none", why)]))
    return "\n".join(sections)


def _kept(seen: Seen) -> float:
    """Recordings that train has beside what is held out of them."""
    return len(seen.files) * (1.0 if "test" in seen.splits else 1 - TEST) * (1.0 if "validation" in seen.splits else 1 - VALIDATION)


def _train(count: float, batch: int, steps: int, *, most: int, peak: float, ema: float) -> list[Entry]:
    """Epochs by steps: few recordings are heard more often. Where validation is small it chooses nothing."""
    each = max(1, round(count / batch))
    epochs = min(most, max(30, round(steps / each)))
    entries: list[Entry] = [
        ("epochs", epochs, f"some {epochs * each:,} steps; new voices need long training"),
        ("batch_size", batch, ""),
        ("learning_rate", {"peak": peak, "schedule": "cosine", "warmup": 0.1}, ""),
        ("ema", ema, "the average of the weights is judged and saved"),
    ]
    if epochs > 40:
        entries.append(("validate_every", epochs // 30, "epochs"))
    if count < LARGE:
        entries.append(("keep", "last", "validation is too small to choose an epoch by"))
    return entries


def _window(files: list[Path], seconds: list[float]) -> float:
    """Seconds that hold what is said in nearly all recordings, of a sample; at most what nearly all last."""
    whole = seconds[int(0.98 * (len(seconds) - 1))] + 0.1
    spans = []
    for file in files[:: max(1, -(-len(files) // HEARD))]:
        try:
            spans.append(audio.loud_span(file))
        except DataError:
            continue
    said = sorted(spans)[int(0.95 * (len(spans) - 1))] + 0.3 if spans else whole
    return min(3.0, max(0.5, round(min(said, whole), 1)))


def _transcription(path: Path, seen: Seen, rate: int, seconds: list[float]) -> str:
    words = {word for text in seen.texts or () for word in text.lower().split()}
    unit = "words" if len(words) <= 30 else "characters" if len(seen.files) < 20_000 else "subwords"
    long = median(seconds) > 8
    count = len(seen.files)
    batch = 6 if count < 300 else 8 if count < 1000 else 16 if count < 20_000 else 32
    composed = {sign for text in seen.texts or () for sign in unicodedata.normalize("NFC", text)}
    # punctuation and symbols; marks that combine with letters, as of Hindi, are parts of words
    signs = "".join(sorted(sign for sign in composed if unicodedata.category(sign)[0] in "PS" and sign not in "'-"))
    tokens: list[Entry] = [("unit", unit, "characters, subwords or words")]
    if signs:
        tokens.append(("remove", signs, "neither learned nor judged"))
    name = "conformer" if long and count >= 1000 else "quartz"
    model: list[Entry] = [("name", name, "quartz is faster, conformer better on long sentences")]
    augment: list[Entry] = [("speed", 0.1, ""), ("frequency_masks", 2, ""), ("time_masks", 2, "")]
    if unit == "words" and count < 1000:  # a word lasts 0.3 s: a network that sees longer learns phrases by heart
        model += [("width", 64, ""), ("kernels", [5, 7], "frames"), ("stride", 4, "frames")]
        augment += [("time_width", 0.06, "s; longer ones would hide whole words"), ("noise", 0.5, "share")]
    sections = [
        "task: speech.transcription",
        section("data", _data(path, seen, rate, [])),
        section("frontend", [("mels", 40 if rate == 8000 else 80, ""), ("normalize", "recording", "")]),
        section("model", model),
        section("tokens", tokens),
        section("augment", augment),
        section("train", [*_train(_kept(seen), batch, TEXT_STEPS, most=120, peak=0.001 if name == "conformer" else 0.004, ema=0.98),
                          ("clip", {"global_norm": 5.0}, "")]),
    ]
    return "\n".join(sections)


def _sounds(folder: Path) -> list[Path]:
    return files_of(folder, audio.SUFFIXES)


def _folder(path: Path, asked: Asked) -> Seen:
    if (path / "metadata.csv").is_file() and is_lj(path / "metadata.csv"):
        raise DataError(f"{path}: holds a table; did you mean {path / 'metadata.csv'}?")
    manifest = find_manifest(path, asked)
    if manifest is not None:
        return _table(manifest, asked)
    tops = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith((".", "_")))
    splits = {role: entry for entry in tops if (role := role_of(entry.name))}
    root = splits.get("train", path)
    own = {role: entry.name for role, entry in splits.items() if role != "train"} if "train" in splits else {}
    files = _sounds(root)
    if not files:
        raise DataError(f"{path}: there are no recordings ({', '.join(audio.SUFFIXES)}) in it")
    names = [file.relative_to(path).as_posix() for file in files]
    beside = [file for file in files if file.with_suffix(".txt").is_file()]
    if asked.task == "transcription" and not beside:
        raise DataError(f"{path}: no recording has its transcript beside it, such as {files[0].with_suffix('.txt').name}")
    if len(beside) > len(files) / 2 and asked.task != "commands":
        missing = next((file for file in files if file not in set(beside)), None)
        if missing:
            raise DataError(f"{missing}: has no transcript beside it ({missing.with_suffix('.txt').name}), as the others have")
        texts = [file.with_suffix(".txt").read_text(encoding="utf-8-sig", errors="replace") for file in files]
        return _with_speakers(Seen("folder", files, texts, splits=own), names, None)
    classes = {entry.name: _sounds(entry) for entry in folders_in(root, PassedOver()) if not entry.name.startswith("_")}
    classes = {name: found for name, found in classes.items() if found}
    loose = [file for file in files if file.parent == root]
    if not classes and (found := suspected_labels(names)):
        labels = groups_in_names(names, found.pattern)
        seen = Seen("folder", files, None, Counter(labels), {"label_pattern": found.pattern}, own)
        seen.notes.append(f"There are no class folders: the class is taken from the names ({_some(found.values)}, such as in {names[0]}).")
        return _with_speakers(seen, names, labels)
    if len(classes) < 2 or loose:
        raise DataError(f"{path}: needs a folder of recordings for each class, or a .txt with the transcript beside each recording; tables "
                        f"({listed(TABLES)}) may name both" + (f"; {loose[0].name} lies in no class folder" if classes and loose else ""))
    files = [file for found in classes.values() for file in found]
    labels = [name for name, found in classes.items() for _ in found]
    return _with_speakers(Seen("folder", files, None, Counter(labels), splits=own), [file.relative_to(path).as_posix() for file in files],
                          labels)


def _with_speakers(seen: Seen, names: list[str], labels: list[str] | None) -> Seen:
    """With the speakers that the names of the recordings, or their folders, seem to hold."""
    if all(re.search(NOHASH, name) for name in names):
        seen.speakers, seen.pattern = True, NOHASH
        return seen
    folders = suspected_folders(names, labels) if labels is not None and seen.source == "folder" else ()
    found = suspected_groups(names, labels)
    if max(len(folders), len(found.values) if found else 0) < VOICES:
        return seen
    if folders:
        seen.group = "folder"
        seen.notes.append(f"Each class has the same folders in it ({_some(folders)}): they are taken for speakers or places.")
    elif found:
        seen.speakers, seen.pattern = True, found.pattern
        seen.notes.append(f"The names hold what seems to be the speaker ({_some(found.values)}, such as in {names[0]}).")
    return seen


def _some(values: Sequence[str]) -> str:
    return ", ".join(values[:5]) + (f", ...: {len(values):,} in all" if len(values) > 5 else "")


def find_manifest(folder: Path, asked: Asked) -> Path | None:
    """A table in a folder that names recordings in it; None where there is none."""
    tables = [entry for entry in sorted(folder.iterdir()) if entry.is_file() and is_table(entry) and not entry.name.startswith(".")]
    for table in sorted(tables, key=lambda entry: role_of(entry.stem.partition("_")[0]) != "train"):
        try:
            frame = open_frame(table)
            sound, pattern = _sound_column(frame, asked)
        except DataError:
            continue
        if sound is not None and len(frame.names) > 1 and (_there(frame, sound, pattern) or len(tables) == 1):
            return table
    return None


def _there(frame: Frame, sound: str, pattern: str | None) -> bool:
    values = [str(value) for value in frame.values[sound][:50]]
    return sum((frame.path.parent / (pattern or "{}").replace("{}", value)).is_file() for value in values) * 2 >= len(values)


def _table(path: Path, asked: Asked) -> Seen:
    if path.suffix.lower() in audio.SUFFIXES:
        raise DataError(f"{path}: is one recording; name the folder, or a table that names recordings")
    if ending(path) not in SUFFIXES:
        raise DataError(f"{path}: not understood; give a folder or a table ({listed(TABLES)})")
    if is_lj(path):
        rows = [line.split("|") for line in path.read_text(encoding="utf-8-sig", errors="replace").splitlines() if line]
        return Seen("table", [path.parent / "wavs" / f"{row[0]}.wav" for row in rows], [row[-1] for row in rows])
    frame = open_frame(path)
    there = frame.names
    sound, pattern = _sound_column(frame, asked)
    if sound is None:
        raise DataError(f"{path}: no column names the recordings; name it with --file (its columns are {listed(there, 'and')})")
    rest = [name for name in there if name != sound]
    given = asked.roles(rest, path, ("text", "split", "group"))
    marked = asked.several("label", rest, path)
    split, parts = split_column({name: frame.values[name] for name in rest if name not in (marked or ())}, given.get("split"), path, asked)
    taken = {role: name for role, name in {**given, "split": split}.items() if name} | ({"label": marked[0]} if marked else {})
    wanted = ["text"] if asked.task == "transcription" or given.get("text") else ["label"] if asked.task == "commands" or marked else [
        "text", "label"]
    found = by_name(rest, [*("transcript" if role == "text" else role for role in wanted), "speaker", "start"],
                    {("transcript" if role == "text" else "speaker" if role == "group" else role): name for role, name in taken.items()})
    speaker = None if asked.absent("group") else found.get("speaker")
    text = found.get("transcript") if "text" in wanted else None
    free = {name: frame.facts[name] for name in rest if name not in (split, speaker, text, found.get("start"))}
    if text is None and "text" in wanted and "label" not in found:  # a column of many texts is what is said
        text = next((name for name, one in free.items()
                     if one.kind == "text" and one.words >= 2 and one.distinct > 0.3 * one.present), None)
    if text is None and wanted == ["text"]:
        raise DataError(f"{path}: which column holds the text is not clear; name it with --text ({listed(there, 'and')})")
    label: str | list[str] | None = None
    if text is None:
        try:
            label = marked if marked and len(marked) > 1 else label_column(path, free, frame.values, most=1 / 3, what="class", asked=asked)
        except DataError as error:
            more = "" if asked.task == "commands" else "; a column with what is said is named with --text"
            raise DataError(f"{error}{more}") from None
    stored = [role_in(parts, value) for value in frame.values[split]] if split else ["train"] * frame.rows
    train = [number for number, part in enumerate(stored) if part == "train"]
    files = file_paths([frame.values[sound][number] for number in train], path, pattern, f"{sound} (--file)")
    one = label if isinstance(label, str) else None
    keys, names = frame.named({"file": sound, "text": text, "label": one, "speaker": speaker, "split": split})
    columns: dict[str, Any] = {key: keys[role] for key, role, usual in (
        ("audio_key", "file", None), ("text_key", "text", "text"), ("label_key", "label", "label"),
        ("speaker_key", "speaker", "speaker"), ("split_key", "split", None)) if role in keys and keys[role] != usual}
    columns |= {"label_key": label} if isinstance(label, list) else {}
    columns |= frame.settings | ({"columns": names} if names else {}) | ({"file_pattern": pattern} if pattern else {})
    columns |= {"on_bad_example": "skip"} if frame.lost.count else {}
    own = {role: value for role, value in parts.items() if role != "train" and value is not None}
    said = [str(value or "") for value in frame.values[text]] if text else label_values(frame, label or "")
    said = [said[number] for number in train]
    seen = Seen("table", files, said if text else None, Counter() if text else Counter(said), columns, own, speaker is not None, path=path)
    if line := frame.passed_over():
        seen.notes.append(line)
    if not speaker and not own and not asked.absent("group"):
        _with_speakers(seen, [str(frame.values[sound][number]) for number in train], None if text else said)
    elif speaker and own and (both := in_both(frame.values[speaker], stored)):
        seen.notes.append(f"{both:,} speakers of train are in another part of the data's own division, too: expect less for new voices.")
    return seen


def _sound_column(frame: Frame, asked: Asked) -> tuple[str | None, str | None]:
    """(the column that names recordings, data.file_pattern where they lie in a folder beside the table or lack their ending)."""
    own = asked.column("file", frame.names, frame.path)
    some = {name: [str(value).strip() for value in frame.values[name][:: max(1, frame.rows // 50)] if value is not None]
            for name in ([own] if own else frame.names)}
    endings = (*audio.SUFFIXES, *audio.UNREAD)
    best = max(some, key=lambda name: sum(value.lower().endswith(endings) for value in some[name]), default=None)
    if best is None:
        return None, None
    known = sum(value.lower().endswith(endings) for value in some[best]) > 0.5 * len(some[best])
    if not known and own is None:
        best = by_name(frame.names, ["file"]).get("file") or frame.names[0]
    if known and sum((frame.path.parent / value.replace("\\", "/")).is_file() for value in some[best]) * 2 >= len(some[best]):
        return best, None
    pattern = pattern_of_files(frame.path.parent, some[best], ("", *audio.SUFFIXES))
    named = by_name(frame.names, ["file"]).get("file")
    return (best, pattern) if pattern or known or own or best == named else (None, None)


def headers_of(files: list[Path]) -> tuple[list[audio.Header], bool]:
    """(headers, whether of a sample only: of at most 20,000 recordings, and as many as are read in two seconds, spread evenly).

    Raises DataError where not one can be read."""
    found = []
    problem: DataError | None = None
    looked, until = 0, time.monotonic() + SECONDS
    for turn in spread(len(files), MOST):
        for number in turn:
            looked += 1
            try:
                there = audio.header(files[number])
                audio.check_header(there, MAX_SECONDS)
                found.append(there)
            except DataError as error:
                problem = problem or DataError(f"{files[number]}: {error}")
        if time.monotonic() > until:
            break
    if not found:
        raise problem or DataError("no recordings")
    return found, looked < len(files)
