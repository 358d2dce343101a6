"""Opens the data of an experiment - synthetic recordings, TFDS, a folder, a table - as the data's own splits, nothing divided yet."""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.config.messages import listed
from pipelines.data.divide import ALIASES, find
from pipelines.data.label_sets import labels_of_array, named, one_example_each
from pipelines.data.memory import Recordings as InMemory
from pipelines.data.number_columns import NumberColumns
from pipelines.data.opened import Opened, check_columns
from pipelines.data.records import RecordSource, tfds_source
from pipelines.data.tfds import as_text, features, prepared
from pipelines.data.walk import files_of
from pipelines.stores.remote import local
from speech.data import audio, quickstart
from speech.data.features import to_int16
from speech.data.manifests import open_table
from speech.data.recording_files import (
    Part,
    file_lengths,
    files_fingerprint,
    files_loader,
    files_stamp,
    groups_of,
    recordings,
    with_speakers,
)
from speech.data.recordings import Facts, Recordings
from speech.settings import AUDIO_COLUMNS, COMMAND_SOURCES, TRANSCRIPT_SOURCES, CommandData, SpeechData, TranscriptData

STORED_RATES = {"spoken_digit": 8000, "yes_no": 8000, "speech_commands": 16_000, "librispeech": 16_000, "ljspeech": 22_050}  # Hz
SILENCE = "_silence_"  # the label of recordings of noise
NOISE_FOLDER = "_background_noise_"  # of Google's Speech Commands: long recordings of noise beside the class folders


def open_data(data: SpeechData, *, texts: bool, numbers: NumberColumns | None = None) -> Opened[Recordings]:
    """The data set, with transcripts where `texts`, else with class names, or the `numbers` that are to be predicted as texts. Raises
    DataError that names file or row and the remedy."""
    found = (TRANSCRIPT_SOURCES if texts else COMMAND_SOURCES).build(data, texts=texts, numbers=numbers)
    opened = found if isinstance(found, Opened) else _own(found, data, texts)
    if data.test_names is not None or data.test_last is not None:
        opened = _own_test(opened, data)
    return opened


def open_shipped(data: SpeechData, texts: bool, numbers: NumberColumns | None) -> Opened[Recordings]:
    """See `open_data`; of the sources that ship with Quartet."""
    if data.source == "table":
        return open_table(data, texts, numbers)
    return {"synthetic": _synthetic, "tfds": _tfds, "folder": _folder, "none": _none}[data.source](data, texts)


def _own(splits: Mapping[str, Mapping[str, Any]], data: SpeechData, texts: bool) -> Opened[Recordings]:
    """A registered source: split -> {"samples": [n] of [samples] int16, or float in -1..1, at data.rate, or Recordings at their own rate;
    "label" or "text": [n], with labels: many a list of labels each or [n, labels] of 0 and 1; "speaker": [n], where known}."""
    place, what = f"source {data.source}", "text" if texts else "label"
    check_columns(splits, ("samples", what), data.source)

    def load(split: str) -> Recordings:
        columns = splits[split]
        check_columns({split: columns}, ["samples", what, *(["speaker"] if "speaker" in columns else [])], data.source)
        given = columns["samples"]
        samples, rate = (given.samples, given.rate) if isinstance(given, InMemory) else (given, data.rate)
        names = [f"{place} {split}[{number}]" for number in range(len(samples))]
        waves = [_wave(np.asarray(one), rate, data.rate, name) for name, one in zip(names, samples)]
        values: list[Any] = labels_of_array(columns[what], data.label_separator) if isinstance(
            data, CommandData) and data.labels == "many" else [str(value) for value in columns[what]]
        speakers = [str(speaker) for speaker in columns["speaker"]] if "speaker" in columns else None
        facts = Facts(names, [f"{split}_{number}" for number in range(len(waves))], None if texts else values, values if texts else None,
                      speakers, np.array([len(wave) for wave in waves], np.int32))
        digest = hashlib.sha256(repr((values, speakers, data.rate)).encode())
        for wave in waves:
            digest.update(wave.tobytes() + b"|")
        return recordings(lambda number: waves[number], facts, digest.hexdigest(), data)

    return Opened(place, sorted(splits), load)


def _wave(samples: np.ndarray, stored: int, rate: int, name: str) -> np.ndarray:
    """int16 [samples] at the model's rate."""
    if samples.ndim != 1 or not len(samples) or (samples.dtype != np.int16 and samples.dtype.kind != "f"):
        raise DataError(f"{name}: is {samples.dtype} {list(samples.shape)}; a recording is [samples], int16 or float in -1..1")
    if samples.dtype == np.int16 and stored == rate:
        return samples
    full = samples / np.float32(32768.0) if samples.dtype == np.int16 else samples
    if np.abs(full).max() > 1.0 or not np.all(np.isfinite(full)):
        raise DataError(f"{name}: holds samples beyond -1..1, or NaN")
    return to_int16(audio.resampled(full, stored, rate))


def silence(data: SpeechData) -> Recordings:
    """A second of silence, to train on where a model is used as it is."""
    facts = Facts(["silence"], ["silence"], None, [""], None, np.array([data.rate], np.int32))
    return Recordings(lambda number: np.zeros(data.rate, np.int16), facts, f"none {data.rate}")


def _none(data: SpeechData, texts: bool) -> Opened[Recordings]:
    return Opened("no data", ["all"], lambda _: silence(data),
                  notes=["There are no data: the model is used as it is, and is not judged"])


def _synthetic(data: SpeechData, texts: bool) -> Opened[Recordings]:
    def load(_: str) -> Recordings:
        synthesised = quickstart.sentences() if texts else quickstart.commands()
        waves = [to_int16(audio.resampled(one.samples, quickstart.RATE, data.rate)) for one in synthesised]
        files = [f"{one.speaker}_{one.take}_{one.word.replace(' ', '-')}" for one in synthesised]
        facts = Facts([f"synthetic {name}" for name in files], files, None if texts else [one.word for one in synthesised],
                      [one.word for one in synthesised] if texts else None, [one.speaker for one in synthesised],
                      np.array([len(wave) for wave in waves], np.int32))
        return recordings(lambda number: waves[number], facts, f"synthetic 1 {len(synthesised)} {data.rate} {texts}", data)

    return Opened("the synthetic recordings", ["all"], load, notes=["The recordings are synthesised by this package: they are not voices"])


def _tfds(data: SpeechData, texts: bool) -> Opened[Recordings]:
    name = data.name or ""
    builder = prepared(name, data.data_dir)
    known = features(builder)
    sound = data.audio_key or next((key for key in AUDIO_COLUMNS if key in known), None)
    if sound is None:
        raise DataError(f"data.audio_key: {name} has no feature {listed(AUDIO_COLUMNS)}; there are {listed(known, 'and')}")
    what = data.text_key if texts and isinstance(data, TranscriptData) else str(data.label_key)
    fields = {"samples": sound, "what": what}
    for key, feature in (("file", f"{sound}/filename"), ("speaker", data.speaker_key), ("speaker", "speaker_id"), ("id", "id")):
        if feature in known and key not in fields:
            fields[key] = feature
    stored = data.stored_rate or getattr(known[sound], "sample_rate", None) or STORED_RATES.get(builder.info.name)
    if not stored:
        raise DataError(f"data.stored_rate: {name} does not say at which rate it is recorded; set it")
    try:
        audio.check_header(audio.Header(0, int(stored), 1), data.max_seconds)
    except DataError as error:
        raise DataError(f"data.stored_rate: {name}: {error}") from error
    place = builder.info.full_name

    def load(split: str) -> Recordings:
        source = tfds_source(name, split, fields=fields, data_dir=data.data_dir)
        if isinstance(source, RecordSource):
            return _by_number(source)
        samples = source._values["samples"]
        starts, flat = samples.row_splits.numpy(), samples.flat_values.numpy()
        if flat.dtype != np.int16:
            flat = sixteen(flat, f"{place}: ")
        values = {key: source._values[key] for key in fields if key != "samples"}
        source._values = {}  # the int64 samples take four times the memory

        def wave(number: int) -> np.ndarray:
            return ready(flat[starts[number]:starts[number + 1]])

        return _described(wave, values, np.diff(starts), split, source.fingerprint())

    def _by_number(source: RecordSource) -> Recordings:
        import tensorflow as tf

        def wave(number: int) -> np.ndarray:
            own = source.gather(tf.constant([number], tf.int64))["samples"]
            own = (own.flat_values if hasattr(own, "flat_values") else own[0]).numpy()
            return ready(own if own.dtype == np.int16 else sixteen(own, ""))

        columns = source.columns([feature for key, feature in fields.items() if key != "samples"], counted=sound)
        sizes = columns[sound].numpy()
        return _described(wave, {key: columns[feature] for key, feature in fields.items() if key != "samples"}, sizes, source.split,
                          source.fingerprint())

    def sixteen(samples: np.ndarray, where: str) -> np.ndarray:
        peak = int(np.abs(samples).max(initial=0))
        if peak > 32768:
            raise DataError(f"{where}samples reach {peak:,}, which is more than 16 bits hold")
        return np.clip(samples, -32768, 32767).astype(np.int16)

    def ready(own: np.ndarray) -> np.ndarray:
        """Stored samples, int16, at the model's rate."""
        if not len(own):
            raise DataError("holds no samples")
        audio.check_header(audio.Header(len(own), int(stored), 1), data.max_seconds)
        return own if stored == data.rate else to_int16(audio.resampled(own / np.float32(32768.0), stored, data.rate))

    def _described(wave: Any, values: dict[str, Any], sizes: np.ndarray, split: str, fingerprint: str) -> Recordings:
        lengths = np.array([audio.resampled_length(int(size), stored, data.rate) if size else 0 for size in sizes], np.int32)
        count = int(values["what"].shape[0])
        texts_or_labels = [_words(value, known[what], data) for value in _rows(values["what"])]
        title = f"{builder.info.full_name.rpartition('/')[0]}/{split}"
        files = [as_text(value) for value in values["file"].numpy()] if "file" in values else (
            [as_text(value) for value in values["id"].numpy()] if "id" in values else [str(number) for number in range(count)])
        names = [f"{title}[{number}]" + (f" {file}" if "file" in values or "id" in values else "") for number, file in enumerate(files)]
        speakers = [as_text(value) for value in values["speaker"].numpy()] if "speaker" in values else None
        facts = Facts(names, files, None if texts else texts_or_labels, texts_or_labels if texts else None, speakers, lengths)
        return recordings(wave, facts, f"{fingerprint} {stored} {data.rate} {texts_or_labels}", data)

    return Opened(place, _renamed(sorted(builder.info.splits), data, place), lambda split: load(data.train if split == "train" else split))


def _renamed(names: list[str], data: SpeechData, place: str) -> list[str]:
    """The data's splits with the one to train on called train."""
    if data.train == "train":
        return names
    parts = [part.partition("[")[0].strip() for part in data.train.split("+")]
    unknown = [part for part in parts if part not in names]
    if unknown:
        raise DataError(f"data.train: {place} has no split {unknown[0]!r}; there are {listed(names, 'and')}")
    return ["train", *(name for name in names if name not in parts and name != "train")]


def _rows(values: Any) -> list[Any]:
    return [row.tolist() for row in values.numpy()] if hasattr(values, "row_splits") else values.numpy().tolist()


def _words(value: Any, feature: Any, data: SpeechData) -> str:
    """A stored label or text as text: class numbers by their names, several joined by blanks."""
    inner = getattr(feature, "feature", feature)
    names = getattr(data, "words", None) or getattr(inner, "names", None)
    if isinstance(value, (list, np.ndarray)):
        return " ".join(_words(one, inner, data) for one in value)
    if isinstance(value, bytes):
        return as_text(value)
    if names is not None and isinstance(value, int):
        if not 0 <= value < len(names):
            raise DataError(f"data.words: has no word for class {value}")
        return str(names[value])
    return str(value)


def _folder(data: SpeechData, texts: bool) -> Opened[Recordings]:
    root = local(data.path or "")
    if not root.is_dir():
        raise DataError(f"data.path: {root} is not a folder" if root.exists() else f"data.path: {root} does not exist")
    if texts:
        return _transcribed_folder(root, data)
    from pipelines.data.folders import read_folders

    noise = root / NOISE_FOLDER
    folders = read_folders(root, key="samples", suffixes={*audio.SUFFIXES, *audio.UNREAD}, kind="recording",
                           label_pattern=data.label_pattern)
    notes = list(folders.notes)

    def load(split: str) -> Recordings:
        source = folders.splits[split]
        source = one_example_each(source, len(folders.classes)) if getattr(data, "labels", "one") == "many" else source
        labels = named(source, folders.classes, range(len(source)))
        keep = [number for number, label in enumerate(labels) if label not in (NOISE_FOLDER, (NOISE_FOLDER,))]
        files: list[Part] = [(Path(source.paths[number]), 0.0, None) for number in keep]
        labels = [labels[number] for number in keep]
        if noise.is_dir() and len(keep) < len(source.paths):
            cut = _pieces(noise, getattr(data, "seconds", 1.0), data.max_seconds)
            files += cut
            labels += [SILENCE if source.sets is None else ()] * len(cut)
        recording = {path: number for number, path in enumerate(dict.fromkeys(path for path, _, _ in files[len(keep):]))}
        pieces = np.array([-1] * len(keep) + [recording[path] for path, _, _ in files[len(keep):]], np.int64) if recording else None
        names = [str(path) + (f"#t={start:g}" if start or duration else "") for path, start, duration in files]
        relative = [os.path.relpath(path, root) for path, _, _ in files]
        facts = Facts(names, relative, labels, None, None, file_lengths(files, data))
        if data.speaker_pattern:  # noise has no speaker: each recording of it is one of its own
            spoken = with_speakers(facts.of(range(len(keep))), data).speakers or []
            facts = replace(facts, speakers=[*spoken, *relative[len(keep):]])
        return Recordings(files_loader(files, data), facts, files_fingerprint(files, root, data), groups=groups_of(facts, data),
                          pieces=pieces, stamp=files_stamp(files))

    return Opened(str(root), sorted(folders.splits), load, notes=notes)


def _pieces(folder: Path, seconds: float, longest: float) -> list[Part]:
    """Long recordings of noise cut into pieces of the model's length."""
    pieces: list[Part] = []
    for path in files_of(folder, audio.SUFFIXES):
        try:
            header = audio.header(path)
            audio.check_header(header, longest)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
        whole = int(header.seconds / seconds)
        pieces += [(path, round(number * seconds, 6), seconds) for number in range(whole)]
    return pieces


def _transcribed_folder(root: Path, data: SpeechData) -> Opened[Recordings]:
    """Recordings with a .txt of the same name beside each; folders train, validation and test where there are any."""
    tops = sorted(path for path in root.iterdir() if path.is_dir() and any(path.name.lower() in names for names in ALIASES.values()))
    parts = {path.name: path for path in tops} if any(path.name.lower() in ALIASES["train"] for path in tops) else {"all": root}

    def load(split: str) -> Recordings:
        paths = files_of(parts[split], {*audio.SUFFIXES, *audio.UNREAD})
        if not paths:
            raise DataError(f"{parts[split]} holds no recordings ({', '.join(audio.SUFFIXES)})")
        texts = []
        for path in paths:
            beside = path.with_suffix(".txt")
            if not beside.is_file():
                raise DataError(f"{path}: has no transcript; write it to {beside.name} beside it, or name recordings and texts in a table")
            try:
                texts.append(" ".join(beside.read_text(encoding="utf-8-sig").split()))
            except UnicodeDecodeError as error:
                raise DataError(f"{beside}: is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
        files: list[Part] = [(path, 0.0, None) for path in paths]
        facts = Facts([str(path) for path in paths], [os.path.relpath(path, root) for path in paths], None, texts, None,
                      file_lengths(files, data))
        return recordings(files_loader(files, data), facts, files_fingerprint(files, root, data), data, files_stamp(files))

    return Opened(str(root), sorted(parts), load)


def _own_test(opened: Opened[Recordings], data: SpeechData) -> Opened[Recordings]:
    """The data with a test split cut off by the recordings' names (data.test_names, data.test_last)."""
    pool = opened.names[0] if len(opened.names) == 1 else find("train", opened.names)
    if pool is None:
        return opened
    cut: dict[str, np.ndarray] = {}
    whole: list[Recordings] = []

    def load(split: str) -> Any:
        if split not in ("train", "test"):
            return opened.load(split)
        if not cut:
            source = opened.load(pool)
            files = source.facts.files
            if data.test_names is not None:
                pattern = re.compile(data.test_names)
                test = np.array([bool(pattern.search(name)) for name in files])
                if not test.any() or test.all():
                    raise DataError(f"data.test_names: {data.test_names!r} matches {'no' if not test.any() else 'every'} recording of "
                                    f"{opened.place} (names are such as {files[0]!r})")
            else:
                last = int(data.test_last or 0)
                if last >= len(files):
                    raise DataError(f"data.test_last: {opened.place} has {len(files)} recordings, which leaves none to train on")
                test = np.zeros(len(files), bool)
                test[np.argsort(np.array(files), kind="stable")[-last:]] = True
            cut.update(train=np.flatnonzero(~test), test=np.flatnonzero(test))
            whole.append(source)
            opened.notes.append(f"test: {test.sum():,} of {len(files):,} recordings, by their names "
                                + (f"({data.test_names})" if data.test_names is not None else f"(the last {data.test_last})"))
        return whole[0].subset(cut[split])

    others = [name for name in opened.names if name not in (pool, "test")]
    return Opened(opened.place, ["train", "test", *others], load, notes=opened.notes, skipped=opened.skipped)
