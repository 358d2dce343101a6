"""The settings of language models. Imports no TensorFlow."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from nlp.settings.texts import Column, Count, TextData
from pipelines.base.formatting import MetricKind, declare
from pipelines.config.registry import register_task
from pipelines.config.schema import Evaluate, Experiment, Overridable, Section, Share, setting
from pipelines.config.variants import Variants

declare({"bits_per_byte": MetricKind("min", title="Bits per byte")})

LANGUAGE_MODELS, DOCUMENT_SOURCES, UNITS = Variants(), Variants("source", "source"), Variants(what="way of cutting")


@DOCUMENT_SOURCES.register("nlp.data.documents:read_shipped")
class DocumentData(TextData):
    """Where running texts come from; nothing is said of them."""

    labelled: ClassVar[bool] = False
    source: Overridable[Any, Literal["text", "table"]] = setting(
        ..., "text: a file of plain text, or a folder of them, each a document; a word of a file's name may say its split: train.txt, "
        "dev-books.txt; table: CSV, TSV, JSONL or Parquet, a document in each row")
    text_key: Column = setting("text", "table: the column with the texts")  # type: ignore[assignment]
    join: ClassVar[str] = " "  # type: ignore[misc]
    longest: int = setting(1_000_000_000, "a longer document is a bad example", unit="characters", ge=1)

    def problems(self) -> list[tuple[str, str]]:
        missing = self.source == "text" and not self.path
        return super().problems() + ([("path", "needed by source: text: a file or folder")] if missing else [])


class Units(Section):
    """What all ways of cutting running texts have in common."""


@UNITS.register("nlp.tokens.units:Characters")
class Characters(Units):
    """Characters, those of train."""

    name: Literal["characters"]
    most: int = setting(2000, "different characters, the most frequent of train; others are unknown", ge=1)


@UNITS.register("nlp.tokens.units:Bytes")
class Bytes(Units):
    """Bytes of UTF-8: nothing is learned, no text is unknown."""

    name: Literal["bytes"]


@UNITS.register("nlp.tokens.units:Parts")
class Parts(Units):
    """Pieces of words, learned from train by sentencepiece; case, marks and ends of lines stay, blanks become single ones."""

    name: Literal["pieces"]
    vocabulary: int = setting(8000, "pieces", ge=16)
    algorithm: Literal["bpe", "unigram"] = setting("bpe", "how pieces are learned: byte-pair merges, or the unigram language model")


@LANGUAGE_MODELS.register("nlp.models.language:build")
class LanguageTransformer(Section):
    """A Transformer from scratch that reads what was written so far: rotary places (Su et al. 2021), root mean square norms (Zhang and
    Sennrich 2019), queries in groups that share keys and values (Ainslie et al. 2023), gated dense parts (Shazeer 2020)."""

    name: Literal["transformer"] = setting(..., "a network from scratch, as yet the only kind of model")
    length: int = setting(256, "tokens that are seen at a time, and windows of train", unit="tokens", ge=8, le=100_000)
    width: int = setting(192, "size of a token's vector", ge=2)
    depth: int = setting(4, "layers", ge=1)
    heads: Count = setting(6, "attention heads")
    groups: Count | None = setting(None, "keys and values, each shared by as many heads; default: one for each head")
    hidden: Count = setting(512, "units of each layer's gated dense part")
    dropout: Share = setting(0.1, "dropout of vectors and behind each part of a layer", unit="share")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.width % (2 * self.heads):
            found.append(("width", f"{self.width} is no even multiple of {self.heads} heads"))
        if self.groups and self.heads % self.groups:
            found.append(("groups", f"{self.heads} heads do not divide into {self.groups}"))
        return found


@LANGUAGE_MODELS.register("nlp.models.language_pretrained:build")
class LanguagePreset(Section):
    """A language model of KerasHub in Llama's shape (Llama, SmolLM2, Mistral without its window) with its own tokens; needs the extra
    `pretrained`."""

    name: Literal["pretrained"] = setting(..., "a language model that was trained before")
    own_tokens: ClassVar[bool] = True
    preset: str = setting(
        ..., "the language model: a folder (a Keras preset, or from Hugging Face with safetensors), a name in ~/.keras/presets, "
        "hf://ORGANISATION/NAME, or a name of KerasHub; the last two are downloaded once", preset=True)
    weights: Literal["preset"] | None = setting("preset", "preset: start from its weights; null: from scratch")
    length: int = setting(256, "tokens that are seen at a time, and windows of train", unit="tokens", ge=8, le=100_000)
    dropout: Share = setting(0.0, "dropout of vectors and behind each part of a layer", unit="share")
    lora: int | None = setting(
        8, "rank of the change of each dense layer that trains (LoRA, Hu et al. 2021, arXiv:2106.09685); null: all weights train", ge=1)


class TextForm(Section):
    """What written texts are, whatever the model would write: one of `choice`, `regex` and `json_schema`. Needs the extra `constrained`."""

    choice: list[Annotated[str, Field(min_length=1, max_length=1000)]] | None = setting(None, "texts, of which one is written")
    regex: Annotated[str, Field(min_length=1, max_length=10_000)] | None = setting(
        None, "a regular expression in the syntax of Rust's regex, which a text as a whole matches")
    json_schema: dict[str, Any] | None = setting(None, "a JSON schema that a text keeps to")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if len(self.asked) != 1:
            found.append(("choice", "give one of choice, regex and json_schema"))
        if self.choice == []:
            found.append(("choice", "an empty list; give at least one text"))
        return found

    @property
    def asked(self) -> dict[str, Any]:
        """What is given, by its name."""
        return self.model_dump(exclude_none=True)


class Drawing(Section):
    """How a text is written on; equal prompts get equal texts."""

    most: int = setting(200, "tokens written at most", unit="tokens", ge=1)
    fewest: int = setting(0, "tokens written before a text may end by itself", unit="tokens", ge=0)
    temperature: float = setting(0.8, "what logits are divided by; 0: the most probable token at each step", ge=0.0, le=10.0)
    top_k: int | None = setting(None, "only so many of the most probable tokens are drawn; null: all", ge=1)
    top_p: float | None = setting(
        0.95, "only the most probable tokens that together have this probability are drawn; null: all", gt=0.0, le=1.0)
    repetition: float = setting(
        1.0, "more than 1 makes tokens less probable that are written already (Keskar et al. 2019)", ge=1.0, le=10.0)
    stop: list[str] = setting(list, "texts before which writing ends")
    seed: int = setting(0, "what is drawn; another number gives other texts", ge=0)
    form: TextForm | None = setting(None, "what texts have to be; null: anything")

    def problems(self) -> list[tuple[str, str]]:
        found = [*super().problems(), *length_problems(self.fewest, self.most)]
        if self.form is not None:
            found += [(name, "a form says itself when a text ends; leave it out") for name in ("fewest", "stop") if getattr(self, name)]
        return found


def length_problems(fewest: int, most: int | None) -> list[tuple[str, str]]:
    """Where a text may not be as long as it must be."""
    return [("fewest", f"{fewest} tokens at least, and {most} at most")] if most is not None and fewest > most else []


def room_problems(most: int, length: int) -> list[tuple[str, str]]:
    """What is wrong with so many tokens to be written, of those that are seen."""
    return [("writing.most", f"{most} tokens leave no room for what they follow: model.length is {length}")] if most >= length else []


@register_task("nlp.tasks.language_model:LanguageModelling")
class LanguageModel(Experiment):
    """What comes next in a running text, token by token."""

    task: Literal["nlp.language_model"]
    answering: ClassVar[tuple[str, ...]] = ("writing",)
    data: Annotated[DocumentData, DOCUMENT_SOURCES]
    tokens: Annotated[Any, UNITS] | None = setting(None, "how texts are cut; default: characters")
    model: Annotated[Any, LANGUAGE_MODELS]
    writing: Drawing = setting(Drawing, "how texts are written on")
    evaluate: Evaluate = setting(Evaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.own_tokens and self.tokens is not None:
            found.append(("tokens", f"model: {self.model.name} brings its own tokens; leave the section out"))
        return found + room_problems(self.writing.most, self.model.length)

    @property
    def own_tokens(self) -> bool:
        """Whether the model cuts texts by its own tokenizer."""
        return getattr(self.model, "own_tokens", False)

    @property
    def cutting(self) -> Units:
        """The section tokens, or its default."""
        return Characters(name="characters") if self.tokens is None else self.tokens

    @property
    def limit(self) -> int:
        """Tokens that are seen at a time."""
        return int(self.model.length)
