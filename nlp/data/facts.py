"""The facts of this domain's tasks, checked when a run is loaded."""

from typing import Annotated, Literal

from pydantic import Field

from pipelines.base.stored import FolderName
from pipelines.encoders.settings import EncoderRecord, KerasObject
from pipelines.task.facts import ClassFacts, Facts, NumberFacts


class KerasTokenizer(KerasObject):
    """A tokenizer of keras-hub; files in base64. `lower`: it takes texts in small letters alone."""

    files: dict[FolderName, Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]*={0,2}$")]]
    lower: bool = False


Strings = Annotated[list[Annotated[str, Field(min_length=1, max_length=10_000)]], Field(max_length=50_000_000)]


class TokenFacts(Facts):
    """Of tokens and of a pretrained encoder."""

    vocabulary: Strings | None = None
    encoder: EncoderRecord | None = None
    backbone: KerasObject | None = None
    pool: Literal["mean", "first", "max"] | None = None
    layers: Annotated[int, Field(ge=1, le=1000)] | None = None  # of the encoder, whose vectors stand beside one another; null: 1
    window: Annotated[int, Field(ge=4, le=1_000_000)] | None = None  # tokens that the encoder sees at a time; null: the limit
    words: Annotated[int, Field(ge=0, le=4)] | None = None  # longest run of tokens that is scored beside an encoder; null: 0
    buckets: Annotated[int, Field(ge=2, le=1 << 20)] | None = None  # rows of each linear classifier beside an encoder
    tokenizer: KerasTokenizer | None = None


class TextFacts(TokenFacts, ClassFacts):
    """Of nlp.classification."""

    threshold: Annotated[float, Field(ge=-1.0, le=2.0)] | None = None


class TextNumberFacts(TokenFacts, NumberFacts):
    """Of nlp.regression."""


class PairFacts(TextFacts):
    """Of nlp.pair_classification."""

    f1_threshold: Annotated[float, Field(ge=0.0, le=1.0)] | None = None


class TagFacts(TokenFacts, ClassFacts):
    """Of nlp.tagging: `classes` are the types, `class_counts` the things of each in train."""


class AnswerFacts(TokenFacts):
    """Of nlp.question_answering. `unanswerable`: train has questions without an answer; `no_answer_threshold`: the probability that there
    is none from which that is the answer."""

    unanswerable: bool
    no_answer_threshold: Annotated[float, Field(ge=0.0, le=1.0)] | None = None


class WrittenFacts(TokenFacts):
    """Of nlp.translation: `vocabulary` are the pieces of both columns of train."""

    vocabulary: Annotated[Strings, Field(min_length=1)]  # type: ignore[assignment]


class LanguageFacts(Facts):
    """Of nlp.language_model: `vocabulary` are characters or pieces of train; null: bytes, or the tokenizer of a preset."""

    vocabulary: Strings | None = None
    encoder: EncoderRecord | None = None
    backbone: KerasObject | None = None
    tokenizer: KerasTokenizer | None = None


class DialogueFacts(LanguageFacts):
    """Of nlp.dialogue: `template` writes dialogues as text."""

    encoder: EncoderRecord
    backbone: KerasObject
    tokenizer: KerasTokenizer
    template: Annotated[str, Field(min_length=1, max_length=100_000)]
