"""The splits of an experiment on voices: who speaks in each recording, voices kept apart, and short recordings joined."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.data.divide import divide
from pipelines.data.source import Source
from pipelines.data.split import choose, describe
from pipelines.task.contract import Splits
from speech.data.features import FrontEnd
from speech.data.recordings import Facts, Recordings, facts_of
from speech.data.sources import SILENCE, open_data
from speech.data.splits import STATISTICS, Decode, readable, shared_speakers, statistics
from speech.settings import SpeakerVerification

FEWEST = 4  # voices of train, so that folds of it hold out two and leave two


def load_voices(experiment: SpeakerVerification, decode: Decode, front_end: FrontEnd, known: Sequence[str] | None = None) -> Splits:
    """The splits; the label of an example is the number of its voice, those of train first. `known`: the voices of a run that is judged.

    Facts: `voices`, the names of train's, in the order of the labels; `mean`, `std`, `statistics_of` as
    speech.data.splits.load_classified has them; `speakers`, the same names; `splits`.

    Raises:
        DataError: names file and remedy.
    """
    data = experiment.data
    by_speaker = data.group_by in ("speaker", data.speaker_key)
    opened = open_data(data.model_copy(update={"group_by": None}) if by_speaker else data, texts=False)

    def load(split: str) -> Recordings:
        source = readable(opened.load(split), data, opened.skipped, opened.place, split)
        named = source.facts.speakers or source.facts.labels or ()
        heard = [number for number, voice in enumerate(named) if voice != SILENCE]
        source = source.subset(heard) if len(heard) < len(source) else source
        voices = np.array([str(named[number]) for number in heard])
        return source.of_voices(voices, groups=voices if by_speaker else source.groups)

    train, validation, test, notes = divide(opened.names, load, data, opened.place)
    found: dict[str, Any] = {"train": train, "validation": validation, "test": test}
    names = list(known or sorted(set(facts_of(train).speakers or ())))
    if len(names) < FEWEST:
        raise DataError(f"{opened.place}: train has {len(names)} voices; {FEWEST} or more are needed to learn how voices differ "
                        "(data.speaker_key, data.speaker_pattern or the folders say who speaks)")
    there = {voice for part in found.values() if part is not None for voice in facts_of(part).speakers or ()}
    every = [*names, *sorted(there - set(names))]
    numbers = {name: number for number, name in enumerate(every)}
    parts: dict[str, Source | None] = {}
    for split, part in found.items():
        if part is not None and data.join is not None:
            part = joined(part, round(data.join * data.rate), data.split_seed)
        parts[split] = None if part is None else part.also(
            labels=np.array([numbers[voice] for voice in facts_of(part).speakers or ()], np.int64))
    ready = parts["train"]
    assert ready is not None
    if known is None and np.bincount(np.asarray(ready.labels)).max() < 2:
        raise DataError(f"{opened.place}: no voice of train has two recordings{' (data.join)' if data.join else ''}, so nothing says how "
                        "far recordings of one voice differ")
    few = {split: note for split in ("validation", "test") if (note := _too_few(split, parts[split]))}
    if known is None and "validation" in few and not getattr(experiment.model, "fitted", False):
        raise DataError(f"{opened.place}: {few['validation']}; hold out more of the voices (data.validation), or take model.name: plda, "
                        "which needs no validation")
    notes += [*shared_speakers(parts), *few.values()]
    some = choose(STATISTICS, count=len(ready), seed=data.split_seed, purpose="statistics", labels=ready.labels)
    mean, std = statistics(ready, some, decode, front_end)
    facts = {"voices": names, "mean": mean, "std": std, "statistics_of": len(some), "speakers": names, "splits": describe(parts)}
    return Splits(ready, parts["validation"], parts["test"], facts, skipped=tuple(opened.skipped), notes=(*opened.notes, *notes))


def _too_few(split: str, source: Source | None) -> str | None:
    if source is None:
        return None
    counts = np.unique(np.asarray(source.labels), return_counts=True)[1]
    if len(counts) < 2 or counts.max() < 2:
        return f"{split}: it takes two voices, and one with two recordings, to judge pairs; there are {len(counts)} voices"
    return None


def joined(source: Recordings, samples: int, seed: int) -> Recordings:
    """Recordings of one voice joined, in a random order, until they have so many samples; of each voice what is left at the end is left
    out, unless there is nothing else."""
    voices = np.array(source.facts.speakers)
    lengths = source.facts.lengths
    known = [int(lengths[number]) if lengths is not None and lengths[number] > 0 else len(source.load(number))
             for number in range(len(source))]
    order = np.random.default_rng([seed, 1]).permutation(len(source))
    parts: list[list[int]] = []
    for voice in sorted(set(voices)):
        own, whole = list[int](), 0
        for number in order[voices[order] == voice]:
            own, whole = [*own, int(number)], whole + known[number]
            if whole >= samples:
                parts.append(own)
                own, whole = [], 0
        if own and not (parts and voices[parts[-1][0]] == voice):
            parts.append(own)
    first = [own[0] for own in parts]
    facts = Facts([source.name(own[0]) + (f" and {len(own) - 1} more" if len(own) > 1 else "") for own in parts],
                  [source.facts.files[number] for number in first], speakers=[str(voices[number]) for number in first],
                  lengths=np.array([sum(known[number] for number in own) for own in parts], np.int32))

    def load(number: int) -> np.ndarray:
        return np.concatenate([source.load(one) for one in parts[number]])

    chosen = hashlib.sha256(repr(parts).encode()).hexdigest()
    return Recordings(load, facts, f"{source.fingerprint()}\njoined {chosen}",
                      groups=None if source.groups is None else source.groups[first], stamp=source.stamp())
