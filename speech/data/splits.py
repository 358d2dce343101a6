"""The splits of a speech experiment, with the facts learned from train alone: class names, statistics of the features."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.config.messages import did_you_mean, listed
from pipelines.data.divide import Warned, check_classes, check_several, divide
from pipelines.data.label_sets import coded, of_trained_labels
from pipelines.data.mapping import mapped
from pipelines.data.number_columns import TARGET, NumberColumns, without_targets_left_out
from pipelines.data.opened import Opened, without
from pipelines.data.source import Source, Tensors, class_counts
from pipelines.data.split import choose, describe
from pipelines.encoders import arrays, presets
from pipelines.outputs import number_scales
from pipelines.task.contract import Splits
from speech.data import yamnet
from speech.data.connected_digits import open_connected
from speech.data.enough import too_little
from speech.data.features import FrontEnd
from speech.data.recordings import Recordings, facts_of
from speech.data.sources import SILENCE, open_data, silence
from speech.data.tokens import Encoder, learn, normalized, steps_needed
from speech.models import steps_of
from speech.settings import CommandData, SoundClassification, SoundRegression, SpeechData, Transcription

Decode = Callable[[Tensors], Tensors]


def load_numbers(experiment: SoundRegression, decode: Decode, front_end: FrontEnd, known: dict[str, Any] | None = None) -> Splits:
    """The splits; examples have `target`, [columns] float32. Arguments and facts are those of speech.data.splits.load_classified, with
    `targets` (see pipelines.outputs.number_scales) in the place of classes and class_counts, and as `known` the facts of a finished run.

    Raises:
        DataError: names file, row and column, and the remedy.
    """
    data, numbers = experiment.data, NumberColumns.asked(experiment)
    assert numbers is not None
    opened = open_data(data, texts=False, numbers=numbers)

    def load(split: str) -> Recordings:
        source = readable(opened.load(split), data, opened.skipped, opened.place, split)
        cells = [label.strip("[]").replace(",", " ").split() for label in source.facts.labels or ()]
        targets = numbers.read([[row[place] if place < len(row) else None for row in cells] for place in range(len(numbers.names))],
                               source.name)
        return source.also(fields={TARGET: np.ascontiguousarray(targets)})

    train, validation, test, notes = divide(opened.names, without_targets_left_out(load, numbers.names, opened.notes), data, opened.place)
    parts = {"train": train, "validation": validation, "test": test}
    notes += shared_speakers(parts)
    targets, scaled = (known["targets"], []) if known else number_scales.learn(train, numbers.names, experiment.target)
    some = choose(STATISTICS, count=len(train), seed=data.split_seed, purpose="statistics")
    mean, std = statistics(train, some, decode, front_end)
    facts = {"targets": targets, "mean": mean, "std": std, "statistics_of": len(some),
             "speakers": sorted(set(facts_of(train).speakers or [])), "splits": describe(parts)}
    return Splits(train=train, validation=validation, test=test, facts=facts, skipped=tuple(opened.skipped),
                  notes=(*opened.notes, *notes, *scaled))


STATISTICS = 1000  # most recordings of train behind mean and deviation
MERGES, ROOM, NEARLY_ALL = (4, 2), 2, 0.99  # of `merge_for`
UNKNOWN = "_unknown_"


def load_classified(experiment: SoundClassification, decode: Decode, front_end: FrontEnd, *, judging: bool = False) -> Splits:
    """The splits of a command experiment.

    Args:
        decode: one recording to the model's input, as Task.decode.
        front_end: from waveforms to features.
        judging: the splits evaluate a finished run, and may have a single class.

    Facts:
        classes: names in the order of the labels.
        class_counts: recordings of each class in train.
        mean, std: of each band of the features over train, dB; of at most 1,000 recordings.
        speakers: of train, where they are known.
        splits: for each split its recordings, fingerprint and recordings of each class.

    Raises:
        DataError: names file and remedy.
    """
    data = experiment.data
    opened = open_data(data, texts=False)
    skipped, classes = opened.skipped, list[str]()

    def load(split: str) -> Recordings:
        source = readable(opened.load(split), data, skipped, opened.place, split)
        return source.also(labels=class_labels(source, classes, data))

    train, validation, test, notes = divide(opened.names, load, data, opened.place)
    missing = [word for word in data.keywords if word not in classes]
    if missing:
        known = sorted(set(facts_labels(train)))
        raise DataError(f"data.keywords: {opened.place} has no class {missing[0]!r}; there are {listed(known, 'and')}"
                        f"{did_you_mean(missing[0], known)}")
    if data.keywords and (validation is not None or test is not None):
        train, note = fewer_unknown(train, classes, data)
        notes += note
    if data.labels == "many":
        train, validation, test, classes = of_trained_labels(train, validation, test, replace(opened, classes=classes), data, skipped)
    parts = {"train": train, "validation": validation, "test": test}
    check_classes(parts, classes, opened.place)
    if not judging and data.labels == "one":
        labels = np.asarray(train.labels)
        check_several([classes[label] for label in np.unique(labels)], opened.place, labels=labels if data.limit is None else None)
    notes += shared_speakers(parts)
    numbers = choose(STATISTICS, count=len(train), seed=data.split_seed, purpose="statistics", labels=train.labels)
    mean, std = statistics(train, numbers, decode, front_end)
    counts = class_counts(train, len(classes))
    facts: dict[str, Any] = {
        "classes": classes, "class_counts": counts.tolist() if counts is not None else None,
        "mean": mean, "std": std, "statistics_of": len(numbers),
        "speakers": sorted(set(facts_of(train).speakers or [])), "splits": describe(parts, classes),
    }
    return Splits(train=train, validation=validation, test=test, facts=facts, skipped=tuple(skipped), notes=(*opened.notes, *notes))


def sounds_as_they_are(experiment: SoundClassification, names: list[str] | None = None) -> Splits:
    """Splits of a model that names sounds without training: silence, to train nothing on, and the classes, by default the preset's."""
    settings: Any = experiment.model
    names = names or yamnet.class_names(presets.find_arrays(settings.preset, arrays.YAMNET).folder)
    train = silence(experiment.data).also(labels=np.zeros((1, len(names)), np.float32))
    parts: dict[str, Source | None] = {"train": train, "validation": None, "test": None}
    facts = {"classes": names, "class_counts": [0] * len(names), "thresholds": [settings.threshold] * len(names),
             "mean": [0.0] * yamnet.BANDS, "std": [0.0] * yamnet.BANDS, "splits": describe(parts)}
    return Splits(train, None, None, facts, notes=("There are no data: the model is used as it is, and is not judged",))


def load_transcripts(experiment: Transcription, decode: Decode, front_end: FrontEnd, *, encoder: Encoder | None = None,
                     longest: float | None = None) -> Splits:
    """The splits of a transcription experiment.

    Args:
        encoder: of the transcripts, where it is not learned from train.
        longest: seconds of a recording to train on, where that is less than data.longest.

    Facts:
        unit, tokens: the output tokens, learned from train's transcripts.
        most_tokens: of a transcript in any split.
        mean, std, speakers, splits: as load_classified.

    Raises:
        DataError: names file and remedy.
    """
    data, settings = experiment.data, experiment.tokens
    opened = open_connected(data) if data.source == "connected" else open_data(data, texts=True)
    skipped = opened.skipped

    def load(split: str) -> Recordings:
        source = readable(opened.load(split), data, skipped, opened.place, split)
        return source.with_texts([normalized(text, settings) for text in source.facts.texts or ()])

    train, validation, test, notes = divided(experiment, opened, load)
    learned = encoder is None
    encoder = encoder or learn(facts_of(train).texts or [], settings)
    judged = validation is not None or test is not None
    if judged:
        train, left_out = alignable(train, encoder, experiment, front_end, min(data.longest, longest or data.longest))
        notes += left_out
    parts = {"train": train, "validation": validation, "test": test}
    notes += shared_speakers(parts)
    lengths, texts = facts_of(train).lengths, facts_of(train).texts
    if judged and not experiment.own_front_end and lengths is not None and texts is not None:
        notes += [Warned(f"train: {note}")] if (note := too_little(texts, float(lengths.sum()) / data.rate)) else []
    encoded = {name: [encoder.encode(text) for text in facts_of(source).texts or ()]
               for name, source in parts.items() if source is not None}
    most = max(1, *(len(tokens) for rows in encoded.values() for tokens in rows))
    ready = {name: _with_tokens(source, encoded[name], most) if source is not None else None for name, source in parts.items()}
    numbers = choose(STATISTICS, count=len(train), seed=data.split_seed, purpose="statistics")
    mean, std = statistics(train, numbers, decode, front_end)
    known = set(encoder.alphabet.tokens) if settings.unit != "subwords" else set("".join(facts_of(train).texts or []))
    for name in ("validation", "test"):
        source = parts[name]
        if source is not None and learned:
            strange = unknown_parts(facts_of(source).texts or [], known, settings.unit)
            if strange:
                kind = "words" if settings.unit == "words" else "characters"
                notes.append(f"{name}: has {len(strange)} {kind} that train lacks, which cannot be written: "
                             f"{' '.join(map(repr, strange[:10]))}")
    facts: dict[str, Any] = {
        "unit": settings.unit, "tokens": list(encoder.alphabet.tokens), "most_tokens": most, "mean": mean, "std": std,
        "statistics_of": len(numbers), "speakers": sorted(set(facts_of(train).speakers or [])), "splits": describe(parts),
    }
    return Splits(train=ready["train"], validation=ready["validation"], test=ready["test"], facts=facts, skipped=tuple(skipped),  # type: ignore[arg-type]
                  notes=(*opened.notes, *notes))


def divided(experiment: Transcription, opened: Opened[Recordings], load: Callable[[str], Recordings],
            ) -> tuple[Source, Source | None, Source | None, list[str]]:
    """As `divide`; where nothing trains and no share is asked for, a test split of its own or else all recordings are judged."""
    data = experiment.data
    if not experiment.untrained or data.fold:
        fixed = {"validation": "validation", "test": "test"} if data.source == "connected" else {}
        return divide(opened.names, load, data.model_copy(update=fixed), opened.place)
    nothing = silence(data)
    if data.source == "none":
        return nothing, None, None, []
    if data.test == 1 or (data.test == "test" and len(opened.names) == 1):
        every = load(opened.names[0])
        return nothing, None, every, [f"test: all {len(every):,} recordings, since nothing trains"]
    return divide(opened.names, load, data, opened.place)


def alignable(train: Source, encoder: Encoder, experiment: Transcription, front_end: FrontEnd, longest: float) -> tuple[Source, list[str]]:
    """Train without what CTC cannot learn from: recordings with fewer steps than their transcript needs, and those that are too long.

    A length of 0 is not known, as the recording's header cannot be read: it stays, so that reading it reports the reason.
    """
    facts, data = facts_of(train), experiment.data
    if facts.lengths is None:
        return train, []
    needed = np.array([steps_needed(encoder.encode(text)) for text in facts.texts or ()])
    merge = getattr(experiment.model, "merge", None) or 1
    steps = np.asarray(steps_of(experiment.model, front_end.frames(facts.lengths), front_end, merge))
    short, long = (needed > steps) & (facts.lengths > 0), facts.lengths > longest * data.rate
    notes = []
    if short.any():
        example = int(np.flatnonzero(short)[0])
        notes.append(f"train: {short.sum():,} recordings are left out that are too short for their transcripts, such as "
                     f"{facts.names[example]} ({facts.lengths[example] / data.rate:.2f} s)")
    if long.any():
        notes.append(f"train: {long.sum():,} recordings of over {longest:g} s are left out (data.longest)")
    kept = np.flatnonzero(~short & ~long)
    if not len(kept):
        raise DataError("no recording of train is long enough for its transcript, or all are longer than data.longest; "
                        + (notes[0] if notes else ""))
    return (train.subset(kept) if len(kept) < len(train) else train), notes


def merge_for(train: Source, steps: Callable[[np.ndarray, int], Any]) -> int:
    """So many steps of a pretrained encoder become one that nearly all of train's recordings have twice what their transcripts need.

    Longer steps leave CTC fewer ways to align few recordings (benchmarks/results/ctc-steps.csv).

    Args:
        steps: (lengths in samples, how many become one) to the steps of the output.
    """
    lengths = facts_of(train).lengths
    if lengths is None or not isinstance(train, Recordings):
        return 1
    needed = np.array([steps_needed(row[:count].tolist()) for row, count in zip(train.fields["tokens"], train.fields["token_count"])])
    enough = (np.mean(np.asarray(steps(lengths, merge)) >= ROOM * needed) >= NEARLY_ALL for merge in MERGES)
    return next((merge for merge, there in zip(MERGES, enough) if there), 1)


def unknown_parts(texts: Sequence[str], known: set[str], unit: str) -> list[str]:
    """Words (where words are the tokens) or characters of the texts that are not `known`, sorted."""
    return sorted({part for text in texts for part in (text.split() if unit == "words" else text)} - known)


def _with_tokens(source: Source, rows: list[list[int]], most: int) -> Source:
    tokens = np.zeros((len(rows), most), np.int32)
    for row, numbers in zip(tokens, rows):
        row[:len(numbers)] = numbers
    assert isinstance(source, Recordings)
    return source.also(fields={"tokens": tokens, "token_count": np.array([len(numbers) for numbers in rows], np.int32)})


def class_labels(source: Recordings, classes: list[str], data: CommandData) -> np.ndarray:
    """Class of each recording, int64, or its labels, [recordings, labels] float32; new names are appended to `classes`, sorted."""
    return coded([_kept(label, data) for label in source.facts.labels or ()], classes)


def _kept(label: Any, data: CommandData) -> Any:
    return label if not data.keywords or label in (*data.keywords, SILENCE) else UNKNOWN


def facts_labels(source: Source) -> list[str]:
    """Class names as stored."""
    return list(source.facts.labels or ()) if isinstance(source, Recordings) else []


def fewer_unknown(train: Source, classes: list[str], data: CommandData) -> tuple[Source, list[str]]:
    """Train with at most data.unknown times the mean keyword's recordings of the class _unknown_."""
    if train.labels is None or UNKNOWN not in classes:
        return train, []
    unknown = np.flatnonzero(train.labels == classes.index(UNKNOWN))
    others = [np.sum(train.labels == classes.index(word)) for word in data.keywords]
    wanted = max(1, round(data.unknown * float(np.mean(others))))
    if wanted >= len(unknown):
        return train, []
    kept = unknown[choose(wanted, count=len(unknown), seed=data.split_seed, purpose="unknown")]
    gone = np.setdiff1d(unknown, kept)
    note = f"train: {wanted:,} of {len(unknown):,} recordings of {UNKNOWN} are used (data.unknown)"
    return train.subset(np.setdiff1d(np.arange(len(train)), gone)), [note]


def readable(source: Recordings, data: SpeechData, skipped: list[str], place: str, split: str) -> Recordings:
    """The recordings; under on_bad_example: skip without those that cannot be read, which are named in `skipped`."""
    if data.on_bad_example == "skip":
        source = without(source, find_bad(source), skipped, data, f"{place}: split {split}")
    if not len(source):
        raise DataError(f"{place}: split {split} has no recording that can be read")
    return source


def find_bad(source: Recordings) -> list[tuple[int, str]]:
    """(number, reason) of every recording that cannot be read, ascending."""
    from concurrent.futures import ThreadPoolExecutor

    def why(number: int) -> str | None:
        try:
            source.load(number)
        except DataError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(8) as threads:
        return [(number, reason) for number, reason in enumerate(threads.map(why, range(len(source)))) if reason is not None]


def statistics(source: Source, numbers: np.ndarray, decode: Decode, front_end: FrontEnd) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each band over the frames of recordings `numbers`, before augmentation.

    Raises:
        DataError: a recording that cannot be read, by name.
    """
    from pipelines.data.cache import bad_example

    def sums(number: tf.Tensor) -> tf.Tensor:
        raw = {name: value[0] for name, value in source.gather(number[None]).items()}
        example = decode(raw)
        waveform = tf.cast(example["samples"], tf.float32)[None] / 32768.0
        lengths = example["length"][None] if "length" in example else tf.shape(waveform)[1:]
        features = tf.cast(front_end.centred(front_end(waveform, lengths), lengths)[0], tf.float64)
        return tf.stack([tf.reduce_sum(tf.ones_like(features), 0), tf.reduce_sum(features, 0), tf.reduce_sum(features**2, 0)])

    total = np.zeros([3, front_end.width])
    dataset = mapped(tf.data.Dataset.from_tensor_slices(numbers), sums, tf.data.AUTOTUNE)
    try:
        for part in dataset:
            total += part.numpy()
    except tf.errors.OpError as error:
        bad = bad_example(source, lambda raw, _: decode(raw), numbers.tolist())
        raise bad or DataError(f"the recordings cannot be read: {error}") from error
    mean = total[1] / total[0]
    std = np.sqrt(np.maximum(total[2] / total[0] - mean**2, 0.0))
    if front_end.settings.normalize == "recording":
        mean = np.zeros_like(mean)
    return mean.tolist(), np.maximum(std, 1e-3).tolist()


def shared_speakers(parts: Mapping[str, Source | None]) -> list[str]:
    """A note for each evaluated split that shares speakers with train."""
    known = set(facts_of(parts["train"]).speakers or []) if parts["train"] is not None else set()
    notes = []
    for name in ("validation", "test"):
        source = parts[name]
        judged = set(facts_of(source).speakers or []) if source is not None else set()
        if both := len(judged & known):
            which = f"all {both:,} speakers are" if both == len(judged) else f"{both:,} of the {len(judged):,} speakers are"
            notes.append(f"{name}: {which} in train, too, so the score says little of new voices; data.group_by: speaker keeps them apart")
    # for validation it is worth a warning only where there is no test split
    return [Warned(note) if note.startswith("test") or parts["test"] is None else note for note in notes]
