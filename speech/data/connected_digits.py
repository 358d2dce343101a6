"""Connected digits: real recordings of single digits joined into strings, with varied gaps and a floor of noise.

Each string is of one speaker, and each recording that it uses is of its own split, so training never uses a sound of the test split.
String number n is a function of data.split_seed and n alone.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.base.errors import DataError
from pipelines.config.messages import did_you_mean, listed
from pipelines.data.opened import Opened
from pipelines.data.split import draws
from speech.data.recordings import Facts, Recordings
from speech.data.sources import open_data
from speech.settings import TranscriptData

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
EDGE = 0.1  # s, longest silence before the first and after the last digit
VALIDATION = 0.1  # of each speaker's recordings of a digit, kept for validation strings where data.validation is not a share


@dataclass(frozen=True)
class String:
    """One joined recording: its single recordings, the gaps before each and at the end, and the noise."""

    parts: tuple[int, ...]
    gaps: tuple[int, ...]  # samples
    ratio: float  # dB
    seed: int


def open_connected(data: TranscriptData) -> Opened[Recordings]:
    """Train, validation and test strings of the digits of a tfds data set.

    The test split is of data.test_speakers alone. Train and validation are of the others; recordings used
    in validation strings are in no training string.

    Raises:
        DataError: an unknown speaker, none left to train on, or labels that are no digits.
    """
    single = open_data(data.model_copy(update={"source": "tfds", "group_by": None, "test_names": None, "test_last": None,
                                               "text_key": str(data.label_key), "words": list(data.words)}), texts=True)
    if "train" not in single.names and len(single.names) != 1:
        raise DataError(f"{single.place} has no split 'train'; there are {listed(single.names, 'and')}")
    pool = single.load("train" if "train" in single.names else single.names[0])
    digits, speakers = np.array(pool.facts.texts), pool.facts.speakers
    if speakers is None:
        raise DataError("data.speaker_pattern: connected digits need each recording's speaker; set a pattern that matches it in the names")
    known = sorted(set(speakers))
    for name in data.test_speakers:
        if name not in known:
            raise DataError(f"data.test_speakers: {single.place} has no speaker {name!r}; there are {listed(known, 'and')}"
                            f"{did_you_mean(name, known)}")
    if len(set(data.test_speakers)) == len(known):
        raise DataError("data.test_speakers: no speaker is left to train on")
    words = data.words or list(WORDS)
    spoken = np.array([words[int(digit)] if digit.isdigit() and int(digit) < len(words) else digit for digit in digits.tolist()])
    who = np.array(speakers)
    tested = np.isin(who, data.test_speakers)
    share = data.validation if isinstance(data.validation, float) and data.validation > 0 else VALIDATION
    held = ~tested & _held(share, spoken, who, data.split_seed)
    sides = {"train": np.flatnonzero(~tested & ~held), "validation": np.flatnonzero(held), "test": np.flatnonzero(tested)}
    counts = {"train": data.strings, "validation": max(1, round(share * data.strings)), "test": data.test_strings}
    lengths = pool.facts.lengths if pool.facts.lengths is not None else np.array([len(pool.load(n)) for n in range(len(pool))])

    def load(split: str) -> Recordings:
        strings = _strings(split, counts[split], sides[split], who, data)
        texts = [" ".join(spoken[list(one.parts)].tolist()) for one in strings]
        names = [f"{split}[{number}] {who[one.parts[0]]}" for number, one in enumerate(strings)]
        facts = Facts(names, [f"{split}_{number}_{who[one.parts[0]]}" for number, one in enumerate(strings)], None, texts,
                      [str(who[one.parts[0]]) for one in strings],
                      np.array([sum(one.gaps) + int(lengths[list(one.parts)].sum()) for one in strings], np.int32))
        identity = f"connected 1 {pool.fingerprint()} {data.split_seed} {split} {counts[split]} {data.digits} {data.gap} {data.snr} " \
                   f"{sorted(data.test_speakers)} {share} {data.rate}"
        return Recordings(lambda number: _joined(strings[number], pool), facts, identity, stamp=pool.stamp())

    notes = [f"strings of {data.digits[0]} to {data.digits[1]} digits joined from recordings of {single.place}; the test split is of "
             f"{listed(data.test_speakers, 'and')}, who are not in train; validation strings are of train's speakers, made of "
             "recordings that no training string uses"]
    return Opened(f"connected digits of {single.place}", ["train", "validation", "test"], load, notes=notes)


def _held(share: float, spoken: np.ndarray, who: np.ndarray, seed: int) -> np.ndarray:
    """[recordings] bool: the share of each speaker's recordings of each digit that is kept for validation, at least one."""
    drawn, held = draws(len(spoken), seed, "connected validation"), np.zeros(len(spoken), bool)
    for key in sorted(set(zip(who.tolist(), spoken.tolist()))):
        own = np.flatnonzero((who == key[0]) & (spoken == key[1]))
        if len(own) > 1:
            held[own[np.argsort(drawn[own], kind="stable")[:max(1, round(share * len(own)))]]] = True
    return held


def _strings(split: str, count: int, side: np.ndarray, who: np.ndarray, data: TranscriptData) -> list[String]:
    """`count` strings, speakers in turn."""
    if not len(side):
        raise DataError(f"connected digits: no recordings for {split}")
    rng = np.random.Generator(np.random.Philox(key=int(draws(1, data.split_seed, f"connected {split}")[0])))
    by_speaker = {name: side[who[side] == name] for name in sorted(set(who[side].tolist()))}
    names = list(by_speaker)
    strings = []
    for number in range(count):
        own = by_speaker[names[number % len(names)]]
        size = int(rng.integers(data.digits[0], data.digits[1] + 1))
        parts = tuple(int(part) for part in rng.choice(own, size))
        inner = rng.uniform(data.gap[0], data.gap[1], size - 1)
        edges = rng.uniform(0.0, EDGE, 2)
        gaps = tuple(round(float(gap) * data.rate) for gap in (edges[0], *inner, edges[1]))
        strings.append(String(parts, gaps, float(rng.uniform(data.snr[0], data.snr[1])), int(rng.integers(1 << 31))))
    return strings


def _joined(string: String, pool: Recordings) -> np.ndarray:
    """The samples of a string, int16."""
    pieces: list[np.ndarray] = []
    for gap, part in zip(string.gaps, string.parts):
        pieces += [np.zeros(gap, np.float32), pool.load(part).astype(np.float32)]
    pieces.append(np.zeros(string.gaps[-1], np.float32))
    whole = np.concatenate(pieces)
    power = float(np.mean(whole**2))
    noise = np.random.default_rng(string.seed).standard_normal(len(whole)).astype(np.float32)
    whole += noise * np.sqrt(power / 10 ** (string.ratio / 10))
    return np.clip(np.rint(whole), -32768, 32767).astype(np.int16)
