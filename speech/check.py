"""`quartet check` for recordings. Each is read once to find what spoils training: broken, empty, silent or clipped ones, odd lengths,
transcripts that cannot be written or do not fit their recording."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from pipelines.base.errors import ConfigError, DataError
from pipelines.config.yaml_text import inline
from pipelines.data.check import LEVELS, Check, Finding, Read, check, shared_groups
from pipelines.data.divide import divide, own_parts
from pipelines.data.frame import open_frame
from pipelines.data.opened import LENIENT
from pipelines.data.source import Source
from pipelines.stores.remote import local
from speech.data import pretrained
from speech.data.audio import SILENT
from speech.data.connected_digits import open_connected
from speech.data.enough import too_little
from speech.data.features import FrontEnd
from speech.data.inspection import group_column
from speech.data.manifests import is_lj
from speech.data.recordings import Recordings
from speech.data.sources import open_data
from speech.data.splits import class_labels, divided, unknown_parts
from speech.data.tokens import learn, normalized, steps_needed
from speech.models import steps_of
from speech.settings import SoundClassification, SpeechData, Transcription

CLIPPED = 0.001  # share of samples at full scale from which a recording counts as clipped
FAST = 30.0  # characters a second that nobody speaks
STEP = 256  # recordings between two calls of `progress`
Progress = Callable[[int, int], None]
AnyData = TypeVar("AnyData", bound=SpeechData)


def check_classification(experiment: SoundClassification, progress: Progress | None = None) -> Check:
    """Reads every recording of the splits that the experiment uses.

    Raises:
        DataError: where there are no splits to look at; everything else is a finding.
    """
    data = _grouped(experiment.data)
    if experiment.untrained:
        data = data.model_copy(update={"validation": 0, "test": None})
    opened = open_data(data.model_copy(update=LENIENT), texts=False)
    classes: list[str] = []

    def load(split: str) -> Recordings:
        source = opened.load(split)
        return source if experiment.untrained else source.also(labels=class_labels(source, classes, data))

    train, validation, test, notes = divide(opened.names, load, data, opened.place)
    parts: dict[str, Source | None] = {"train": train, "validation": validation, "test": test}
    heard = {name: ReadSplit(source, data.rate, progress) for name, source in parts.items() if isinstance(source, Recordings)}
    general = check(opened.place, parts, {name: one.read() for name, one in heard.items()}, classes, identical="the same samples",
                 skip=data.on_bad_example == "skip", lost=opened.skipped, notes=[*opened.notes, *notes])
    judged = {} if experiment.untrained else heard
    findings = [finding for name, one in judged.items() for finding in one.findings(name)]
    findings += [finding for name, one in judged.items() for finding in one.longer(name, data.seconds, "heard in part (data.seconds)")]
    return _with_general(general, [*findings, *_speakers(heard, data, own_parts(opened.names, data))])


def check_transcripts(experiment: Transcription, progress: Progress | None = None) -> Check:
    """As check_classification, and the transcripts beside the recordings."""
    data, settings = _grouped(experiment.data), experiment.tokens
    lenient = data.model_copy(update=LENIENT)
    opened = open_connected(lenient) if data.source == "connected" else open_data(lenient, texts=True)

    def load(split: str) -> Recordings:
        source = opened.load(split)
        return source.with_texts([normalized(text, settings) for text in source.facts.texts or ()])

    train, validation, test, notes = divided(experiment, opened, load)
    parts: dict[str, Source | None] = {"train": train, "validation": validation, "test": test}
    heard = {name: ReadSplit(source, data.rate, progress) for name, source in parts.items() if isinstance(source, Recordings)}
    general = check(opened.place, parts, {name: one.read() for name, one in heard.items()}, [], identical="the same samples",
                 skip=data.on_bad_example == "skip", lost=opened.skipped, notes=[*opened.notes, *notes])
    unused = {"train"} if experiment.untrained else set()
    findings = [finding for name, one in heard.items() if name not in unused for finding in one.findings(name)]
    findings += heard["train"].longer("train", data.longest, "left out of training (data.longest)")
    return _with_general(general, [*findings, *_texts(heard, experiment), *_speakers(heard, data, own_parts(opened.names, data))])


CHECKS = {"speech.classification": check_classification, "speech.transcription": check_transcripts}
ENCODED: dict[str, Callable[[str], dict[str, Any]]] = {  # Whisper hears in its own way
    "speech.classification": lambda preset: {"frontend": {}, "data.rate": 16_000}}


class ReadSplit:
    """Every recording of a split read once."""

    def __init__(self, source: Recordings, rate: int, progress: Progress | None = None):
        self.source, self.rate = source, rate
        count = len(source)
        self.bad: list[tuple[int, str]] = []
        self.lengths, self.peaks, self.clipped = np.zeros(count, np.int64), np.zeros(count), np.zeros(count)
        self.prints = np.zeros(count, np.uint64)

        def one(number: int) -> Any:
            try:
                samples = source.load(number)
            except DataError as error:
                return str(error)
            loud = np.abs(samples.astype(np.int32))
            digest = hashlib.blake2b(samples.tobytes(), digest_size=8).digest()
            return len(samples), int(loud.max(initial=0)), float(np.mean(loud >= 32_766)), int.from_bytes(digest, "little")

        with ThreadPoolExecutor(4) as threads:
            for number, result in enumerate(threads.map(one, range(count))):
                if progress and number % STEP == 0:
                    progress(number, count)
                if isinstance(result, str):
                    self.bad.append((number, result))
                else:
                    self.lengths[number], self.peaks[number], self.clipped[number], self.prints[number] = result
        if progress:
            progress(count, count)
        self.good = np.ones(count, bool)
        self.good[[number for number, _ in self.bad]] = False

    def read(self) -> Read:
        loud = 20 * np.log10(np.maximum(self.peaks, 1) / 32768.0)
        return Read(self.bad, self.prints, {"seconds, s": np.round(self.lengths / self.rate, 3), "peak, dB": np.round(loud, 1)})

    def findings(self, split: str) -> list[Finding]:
        silent = self.good & (self.peaks < SILENT * 32768.0)
        clipped = self.good & (self.clipped > CLIPPED)
        findings = []
        if silent.any():
            text = f"{split}: {silent.sum():,} recordings are silent (their peak is under -60 dB)"
            findings.append(Finding("warning", text, self._named(silent)))
        if clipped.any():
            findings.append(Finding("warning", (
                f"{split}: {clipped.sum():,} recordings are clipped (over {CLIPPED:.1%} of their samples at full scale); record lower"),
                self._named(clipped)))
        return findings

    def longer(self, split: str, seconds: float, so: str) -> list[Finding]:
        """The recordings of over `seconds`, which are therefore `so`."""
        long = self.good & (self.lengths > seconds * self.rate)
        if not long.any():
            return []
        return [Finding("note", f"{split}: {long.sum():,} recordings last over {seconds:g} s and are {so}", self._named(long))]

    def _named(self, which: np.ndarray) -> tuple[str, ...]:
        return tuple(f"{self.source.name(int(number))}: {self.lengths[number] / self.rate:.2f} s, peak "
                     f"{20 * np.log10(max(self.peaks[number], 1) / 32768.0):.0f} dB" for number in np.flatnonzero(which))


def _grouped(data: AnyData) -> AnyData:
    """The data with a column of their table for the speaker whose name says that recordings with the same value belong together, where
    nothing says who speaks."""
    path = local(data.path or "", folder=True) if data.source == "table" else None
    if path is None or data.group_by or data.speaker_pattern or data.columns or is_lj(path):
        return data
    frame = open_frame(path)
    used = {data.audio_key, data.split_key, *([data.label_key] if isinstance(data.label_key, str) else data.label_key)}
    column = None if data.speaker_key in frame.names else group_column(frame, [name for name in frame.names if name not in used])
    return data.model_copy(update={"speaker_key": column}) if column else data


def _speakers(heard: dict[str, ReadSplit], data: SpeechData, own: Collection[str]) -> list[Finding]:
    """Speakers in more than one split, including those that only the names of the recordings or a column of theirs suggest; `own`: splits
    of the data's own, which grouping does not change."""
    facts = {name: one.source.facts for name, one in heard.items()}
    if all(one.speakers is None for one in facts.values()):
        if data.group_by is not None:
            return []
        where = "group_by: speaker, with speaker_pattern: "
        labels = {name: one.labels and [str(label) for label in one.labels] for name, one in facts.items()}
        return shared_groups({name: one.files for name, one in facts.items()}, labels,
                             lambda pattern: f"In data: {where}{inline(pattern)}", own)
    usual = data.speaker_key == SpeechData.model_fields["speaker_key"].default
    what, new = ("speakers", "new voices") if usual else (f"values of {data.speaker_key}", "new ones")
    remedy = "data.group_by: speaker keeps" if usual else f"data.speaker_key: {data.speaker_key} with data.group_by: speaker keeps"
    known = {name: set(one.speakers or ()) for name, one in facts.items()}
    train = known.get("train", set())
    return [Finding("warning" if speakers <= train else "note", (
        f"{name}: {len(train & speakers):,} of its {len(speakers):,} {what} are in train, too: expect lower scores for {new}"
        + ("" if name in own else f"; {remedy} them apart")))
        for name, speakers in known.items() if name != "train" and train & speakers]


def _front_end(experiment: Transcription) -> FrontEnd | None:
    """As training hears; None where a preset says it that cannot be used, as `training would stop` says."""
    rate = experiment.data.rate
    if not experiment.own_front_end:
        return FrontEnd(experiment.frontend, rate)
    try:
        return pretrained.front_end(pretrained.learn(experiment.model.preset), rate)
    except ConfigError:
        return None


def _texts(heard: dict[str, ReadSplit], experiment: Transcription) -> list[Finding]:
    """Empty transcripts, and too long ones for their recordings; where the tokens are learned, also characters that train lacks, and
    transcripts that need more steps than there are."""
    settings, findings, learned = experiment.tokens, list[Finding](), not experiment.own_decoder
    train = heard["train"].source.facts.texts or []
    if experiment.data.source == "none":
        return []
    if not any(train) and not experiment.untrained:
        return [Finding("error", "the transcripts of train are empty")]
    if not experiment.own_front_end and (few := too_little(train, float(heard["train"].lengths.sum()) / experiment.data.rate)):
        findings.append(Finding("warning", f"train: {few}"))
    encoder = learn(train, settings) if learned else None
    known = {part for text in train for part in (text.split() if settings.unit == "words" else text)}
    front_end = _front_end(experiment) if learned else None
    for name, one in heard.items():
        source, texts = one.source, one.source.facts.texts or []
        if name == "train" and experiment.untrained:
            continue
        empty = [source.name(number) for number, text in enumerate(texts) if not text]
        if empty:
            findings.append(Finding("warning", f"{name}: {len(empty):,} transcripts are empty", tuple(empty)))
        odd = unknown_parts(texts, known, settings.unit) if learned else []
        if odd:
            where = [f"{source.name(number)}: {text}" for number, text in enumerate(texts) if unknown_parts([text], known, settings.unit)]
            kind = "words" if settings.unit == "words" else "characters"
            findings.append(Finding("warning", (
                f"{name}: {len(odd)} {kind} are not in train, so they cannot be written: {' '.join(map(repr, odd[:10]))}"), tuple(where)))
        needed = np.array([steps_needed(encoder.encode(text)) if encoder else 0 for text in texts])
        steps = needed if front_end is None else np.asarray(steps_of(
            experiment.model, front_end.frames(one.lengths), front_end, getattr(experiment.model, "merge", None) or 1))
        short = one.good & (needed > steps)
        if short.any():
            details = tuple(f"{source.name(int(number))}: {needed[number]} steps needed, {steps[number]} there: {texts[int(number)]}"
                            for number in np.flatnonzero(short))
            findings.append(Finding("warning", (
                f"{name}: {short.sum():,} transcripts are longer than CTC can align with their recordings; a smaller model.stride, or "
                "tokens.unit: subwords, needs fewer steps; or text and recording do not belong together"), details))
        rates = np.array([len(text) for text in texts]) / np.maximum(one.lengths / experiment.data.rate, 1e-3)
        fast = one.good & (rates > FAST) & ~short
        if fast.any():
            details = tuple(f"{source.name(int(number))}: {rates[number]:.0f} characters a second" for number in np.flatnonzero(fast))
            findings.append(Finding("warning", f"{name}: {fast.sum():,} recordings are too short for anyone to speak their text", details))
    if learned and settings.unit == "characters":
        counts = Counter("".join(train))
        rare = sorted(character for character, times in counts.items() if times < 10)
        # letters, and signs between letters as in don't, are parts of words: removing them changes the word
        within = {sign for text in train for sign in re.findall(r"(?<=\w)[^\w\s](?=\w)", text)}
        letters = [sign for sign in rare if sign.isalnum() or unicodedata.category(sign)[0] == "M" or sign in within]
        for signs, remedy in ((letters, "too few to learn: words with them will be misspelled until train has more such texts"),
                              ([sign for sign in rare if sign not in letters], "tokens.remove removes them")):
            if signs:
                text = f"train: characters that occur fewer than 10 times: {' '.join(map(repr, signs))}; {remedy}"
                findings.append(Finding("note", text))
    return findings


def _with_general(general: Check, findings: list[Finding]) -> Check:
    return replace(general, findings=sorted([*general.findings, *findings], key=lambda finding: LEVELS.index(finding.level)))
