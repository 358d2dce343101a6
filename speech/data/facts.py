"""The facts of this domain's tasks, checked when a run is loaded."""

from typing import Annotated, Literal

from pydantic import Field

from pipelines.base.stored import Count, Record, Text
from pipelines.encoders.settings import EncoderRecord, KerasObject
from pipelines.task.facts import ClassFacts, Facts, Moment, NumberFacts


class FeatureFacts(Facts):
    """Mean and deviation of each band of the features, dB."""

    mean: Annotated[list[Moment], Field(min_length=1, max_length=100_000)]
    std: Annotated[list[Annotated[Moment, Field(ge=0)]], Field(min_length=1, max_length=100_000)]
    statistics_of: Count = 0
    speakers: list[Text] = []


class EncoderFacts(Facts):
    """Of a pretrained encoder; None without one."""

    backbone: KerasObject | None = None
    converter: KerasObject | None = None
    encoder: EncoderRecord | None = None


Token = Annotated[int, Field(ge=0, lt=10_000_000)]


class Names(Record):
    """Numbers of Whisper's tokens: those before the first word, and with which the name of each class begins."""

    prompt: Annotated[list[Token], Field(min_length=1, max_length=1000)]
    first: Annotated[list[Token], Field(min_length=1, max_length=1_000_000)]


class WindowFacts(FeatureFacts, EncoderFacts):
    """`pool`: how one vector is made of a pretrained encoder's: of the loud steps, quieter ones count less; null: they count alike, as in
    runs before there was another way."""

    pool: Literal["loudness"] | None = None


class SoundNumberFacts(WindowFacts, NumberFacts):
    """Of speech.regression."""


class CommandFacts(WindowFacts, ClassFacts):
    """`names`: of model.names; null without."""

    names: Names | None = None


class VoiceFacts(WindowFacts):
    """`voices`: those of train, in the order of the model's. `calibration`: scale and offset by which a score becomes the log-odds of one
    voice, chosen on validation; null: it is one already."""

    voices: Annotated[list[Text], Field(min_length=2, max_length=10_000_000)]
    calibration: Annotated[list[Moment], Field(min_length=2, max_length=2)] | None = None


Numbers = Annotated[list[Annotated[int, Field(ge=-1, lt=10_000_000)]], Field(max_length=10_000_000)]


class Marks(Record):
    """Numbers of Whisper's tokens: what decoding begins with (-1: the language, recognised) and ends with, what it never writes, and the
    time stamp of 0 s, where it writes them."""

    prompt: Annotated[Numbers, Field(min_length=1)]
    end: Count
    languages: Numbers
    suppressed: Numbers
    suppressed_first: Numbers
    times: Count | None = None


class TranscriptFacts(FeatureFacts, EncoderFacts):
    """`merge`: steps of a pretrained encoder that become one of the output; null: each is one, as in runs before there was a choice."""

    unit: Literal["characters", "subwords", "words", "pieces"]
    tokens: Annotated[list[Annotated[str, Field(min_length=1, max_length=1000)]], Field(min_length=1, max_length=10_000_000)]
    merges: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=10_000_000)] | None = None  # of Whisper's tokenizer
    marks: Marks | None = None
    most_tokens: Annotated[int, Field(ge=1, le=10_000_000)]
    merge: Annotated[int, Field(ge=1, le=50)] | None = None
