"""A speech experiment for somebody's data: task, lengths, rate, model and training chosen from what is there. Imports no TensorFlow."""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from pipelines.config.new import Draft, Entry, section
from pipelines.config.wording import listed
from pipelines.data.divide import ALIASES
from pipelines.data.walk import PassedOver, files_of, folders_in
from pipelines.errors import DataError
from speech import audio
from speech.settings import MAX_SECONDS

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
PATHS = ("audio", "path", "file", "filename", "audio_filepath", "wav")
TEXTS, LABELS = ("text", "transcript", "sentence", "transcription"), ("label", "class", "word", "command")
SPEAKERS = ("speaker", "speaker_id", "client_id", "user")
SAMPLE = 200  # headers looked at
FEWEST = 10
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
    """

    source: str
    files: list[Path]
    texts: list[str] | None = None
    classes: Counter[str] = field(default_factory=Counter)
    columns: dict[str, str] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)
    speakers: bool = False
    pattern: str | None = None


def draft(path: Path) -> Draft:
    """Looks at a folder of class folders, a folder of recordings with .txt files, or a table. Raises DataError for what it does not
    understand."""
    seen = _folder(path) if path.is_dir() else _table(path)
    if len(seen.files) < FEWEST:
        raise DataError(f"{path}: {len(seen.files)} recordings are too few to train on and to judge by; give {FEWEST} or more")
    headers = _headers(seen.files)
    stored = Counter(header.rate for header in headers).most_common(1)[0][0]
    rate = max([one for one in RATES if one <= stored], default=RATES[0])
    seconds = sorted(header.seconds for header in headers)
    found = (f"Found: {len(seen.files):,} recordings of {seconds[0]:.1f} to {seconds[-1]:.1f} s (median {median(seconds):.1f}), mostly "
             f"{stored:,} Hz{_said(seen)}.",)
    body = _transcription(path, seen, rate, seconds) if seen.texts is not None else _commands(path, seen, rate, seconds)
    what = "Speech to text" if seen.texts is not None else f"Spoken commands: {len(seen.classes)} classes"
    return Draft(f"{what}, of {path.name}.", found, body)


def _said(seen: Seen) -> str:
    if seen.texts is None:
        names = list(seen.classes)
        return f"; {', '.join(names[:8])}" + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
    return f"; {len({word for text in seen.texts for word in text.lower().split()}):,} different words"


def _data(path: Path, seen: Seen, rate: int, task: list[Entry]) -> list[Entry]:
    entries: list[Entry] = [("source", seen.source, ""), ("path", str(path), "" if path.is_absolute() else "from the current directory"),
                            ("rate", rate, "Hz; recordings of another are resampled"), *task]
    entries += [(key, name, "") for key, name in seen.columns.items()]
    if seen.pattern:
        entries.append(("speaker_pattern", seen.pattern, "finds the speaker in a name"))
    if seen.speakers and "test" not in seen.splits:
        entries.append(("group_by", "speaker", "no voice on two sides of a split; null to divide recording by recording"))
    for name, share, meaning in (("validation", 0.1, "share of train"), ("test", 0.2, "share of all; judged once, at the end")):
        entries.append((name, seen.splits.get(name, share), "the data's own" if name in seen.splits else meaning))
    return entries


def _commands(path: Path, seen: Seen, rate: int, seconds: list[float]) -> str:
    most = max(seen.classes.values()) / min(seen.classes.values())
    window = min(3.0, max(0.5, round(seconds[int(0.98 * (len(seconds) - 1))] + 0.1, 1)))
    small = len(seen.files) < 5000
    voices = seen.speakers and small  # little data, and new voices are asked for: see configs/speech/spoken_digit_new_speaker.yaml
    augment: list[Entry] = [("shift", 0.1, "s"), ("speed", 0.2 if voices else 0.1, ""),
                            ("noise", 0.5, "noise_folder takes noise of your own")]
    if voices:
        augment += [("warp", 0.1, "longer and shorter throats"), ("frequency_masks", 2, ""), ("time_masks", 1, ""),
                    ("time_width", 0.1, "s")]
    sections = [
        "task: speech.commands",
        section("data", _data(path, seen, rate, [("seconds", window, "what the model hears; holds nearly all recordings")])),
        *([section("frontend", [("normalize", "recording", "takes the microphone's and the voice's colour off")])] if voices else []),
        section("model", [("name", "ds_cnn" if small else "broadcast", "or broadcast" if small else "or ds_cnn, which is faster")]),
        section("augment", augment),
        section("train", [("epochs", 60 if voices else 40 if small else 30, "new voices need longer training" if voices else ""),
                          ("batch_size", 32 if small else 128, ""),
                          ("learning_rate", {"peak": 0.004, "schedule": "cosine", "warmup": 0.1}, "")]),
    ]
    if most >= 5:
        sections.append(section("loss", [("class_weights", "balanced", f"the largest class has {most:.0f} times the smallest")]))
    return "\n".join(sections)


def _transcription(path: Path, seen: Seen, rate: int, seconds: list[float]) -> str:
    words = {word for text in seen.texts or () for word in text.lower().split()}
    unit = "words" if len(words) <= 30 else "characters" if len(seen.files) < 20_000 else "subwords"
    long = median(seconds) > 8
    composed = {sign for text in seen.texts or () for sign in unicodedata.normalize("NFC", text)}
    # punctuation and symbols; marks that combine with letters, as of Hindi, are parts of words
    signs = "".join(sorted(sign for sign in composed if unicodedata.category(sign)[0] in "PS" and sign not in "'-"))
    tokens: list[Entry] = [("unit", unit, "characters, subwords or words")]
    if signs:
        tokens.append(("remove", signs, "neither learned nor judged"))
    sections = [
        "task: speech.transcription",
        section("data", _data(path, seen, rate, [])),
        section("frontend", [("mels", 40 if rate == 8000 else 80, ""), ("normalize", "recording", "")]),
        section("model", [("name", "conformer" if long else "quartz", "quartz is faster, conformer better on long sentences")]),
        section("tokens", tokens),
        section("augment", [("speed", 0.1, ""), ("frequency_masks", 2, ""), ("time_masks", 2, "")]),
        section("train", [("epochs", 40, ""), ("batch_size", 16, ""), ("clip", {"global_norm": 5.0}, ""),
                           ("learning_rate", {"peak": 0.001 if long else 0.003, "schedule": "cosine", "warmup": 0.1}, "")]),
    ]
    return "\n".join(sections)


def _sounds(folder: Path) -> list[Path]:
    return files_of(folder, audio.SUFFIXES)


def _role(name: str) -> str | None:
    return next((role for role, names in ALIASES.items() if name.lower() in names), None)


def _folder(path: Path) -> Seen:
    if (path / "metadata.csv").is_file():
        raise DataError(f"{path}: holds a table; did you mean {path / 'metadata.csv'}?")
    tops = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith((".", "_")))
    splits = {role: entry for entry in tops if (role := _role(entry.name))}
    root = splits.get("train", path)
    own = {role: entry.name for role, entry in splits.items() if role != "train"} if "train" in splits else {}
    files = _sounds(root)
    if not files:
        raise DataError(f"{path}: there are no recordings ({', '.join(audio.SUFFIXES)}) in it")
    beside = [file for file in files if file.with_suffix(".txt").is_file()]
    if len(beside) > len(files) / 2:
        missing = next((file for file in files if file not in set(beside)), None)
        if missing:
            raise DataError(f"{missing}: has no transcript beside it ({missing.with_suffix('.txt').name}), as the others have")
        texts = [file.with_suffix(".txt").read_text(encoding="utf-8-sig", errors="replace") for file in files]
        return Seen("folder", files, texts, splits=own)
    classes = {entry.name: _sounds(entry) for entry in folders_in(root, PassedOver()) if not entry.name.startswith("_")}
    classes = {name: found for name, found in classes.items() if found}
    if len(classes) < 2:
        raise DataError(f"{path}: needs a folder of recordings for each class, or a .txt with the transcript beside each recording; tables "
                        f"({listed(TABLES)}) may name both")
    files = [file for found in classes.values() for file in found]
    hashed = all(re.search(NOHASH, file.as_posix()) for file in files)
    return Seen("folder", files, None, Counter({name: len(found) for name, found in classes.items()}), splits=own, speakers=hashed,
                pattern=NOHASH if hashed else None)


def _table(path: Path) -> Seen:
    if path.suffix.lower() in audio.SUFFIXES:
        raise DataError(f"{path}: is one recording; name the folder, or a table that names recordings")
    if path.suffix.lower() not in TABLES:
        raise DataError(f"{path}: not understood; give a folder or a table ({listed(TABLES)})")
    if path.name == "metadata.csv" and "|" in path.read_text(encoding="utf-8-sig", errors="replace").partition("\n")[0]:
        rows = [line.split("|") for line in path.read_text(encoding="utf-8-sig", errors="replace").splitlines() if line]
        return Seen("table", [path.parent / "wavs" / f"{row[0]}.wav" for row in rows], [row[-1] for row in rows])
    from pipelines.data.tables import read_table

    table = read_table(path)
    there = table.column_names
    sound, text, label, speaker, split = (next((name for name in names if name in there), None)
                                          for names in (PATHS, TEXTS, LABELS, SPEAKERS, ("split", "subset", "part")))
    if sound is None:
        raise DataError(f"{path}: no column names the recordings; call it path (its columns are {listed(there, 'and')})")
    if text is None and label is None:
        raise DataError(f"{path}: which column holds the text or the class is not clear; call it text or label ({listed(there, 'and')})")
    values = {name: [str(value or "") for value in table[name].to_pylist()] for name in (sound, text, label, split) if name}
    parts = [_role(part) for part in values[split]] if split else ["train"] * table.num_rows
    train = [number for number, part in enumerate(parts) if part == "train"]
    files = [path.parent / values[sound][number] for number in train]
    columns = {key: name for key, name, usual in (
        ("audio_key", sound, None), ("text_key", text, "text"), ("label_key", None if text else label, "label"),
        ("speaker_key", speaker, "speaker"), ("split_key", split, None)) if name and name != usual}
    own = {role: name for name in dict.fromkeys(values[split]) if (role := _role(name)) and role != "train"} if split else {}
    if text:
        return Seen("table", files, [values[text][number] for number in train], columns=columns, splits=own, speakers=speaker is not None)
    counts = Counter(values[str(label)][number] for number in train)
    return Seen("table", files, None, counts, columns, own, speaker is not None)


def _headers(files: list[Path]) -> list[audio.Header]:
    """Of a sample spread evenly; raises DataError where not one can be read."""
    found = []
    problem: DataError | None = None
    for file in files[:: max(1, -(-len(files) // SAMPLE))]:
        try:
            there = audio.header(file)
            audio.check_header(there, MAX_SECONDS)
            found.append(there)
        except DataError as error:
            problem = problem or DataError(f"{file}: {error}")
    if not found:
        raise problem or DataError("no recordings")
    return found
