"""The settings of texts that are written from texts. Imports no TensorFlow."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from nlp.settings.language import length_problems
from nlp.settings.pairs import PairData
from nlp.settings.texts import Column, Count, TextData
from pipelines.base.formatting import MetricKind, declare
from pipelines.config.registry import register_task
from pipelines.config.schema import Evaluate, Experiment, Overridable, Section, Share, setting
from pipelines.config.variants import Variants

declare({"bleu": MetricKind("max", title="BLEU"), "chrf": MetricKind("max", title="chrF"), "perplexity": MetricKind("min"),
         "token_accuracy": MetricKind("max", True, "Tokens right behind the true ones")})

WRITERS, WRITTEN_SOURCES = Variants(), Variants("source", "source")


@WRITTEN_SOURCES.register("nlp.data.sources:read_shipped")
class TranslationData(PairData):
    """Where texts and what is to be written of them come from."""

    labelled: ClassVar[bool] = False
    source: Overridable[Any, Literal["table"]] = setting(
        ..., "table: CSV, TSV, JSONL or Parquet, or a folder with train.csv, test.csv, ...")
    text_key: Annotated[list[Column], Field(min_length=2, max_length=2)] = setting(
        lambda: ["source", "target"], "the columns of the text that is read and of the one that is written: names, or positions from 0")

    @property
    def read(self) -> TextData:
        """Where texts alone are that are to be answered."""
        return TextData(source="table", path=self.path or "", text_key=self.text_key[0], header=self.header, delimiter=self.delimiter,
                        quote=self.quote, encoding=self.encoding)


class Pieces(Section):
    """How texts are cut: pieces of words, learned from both columns of train by sentencepiece; case, marks and letters stay."""

    vocabulary: int = setting(8000, "pieces", ge=16)
    algorithm: Literal["bpe", "unigram"] = setting("bpe", "how pieces are learned: byte-pair merges, or the unigram language model")
    limit: int = setting(256, "pieces of a text that are used, of what is read and of what is written; what comes after is cut",
                         unit="tokens", ge=2, le=100_000)


@WRITERS.register("nlp.models.translator:build")
class Translator(Section):
    """A Transformer from scratch (Vaswani et al. 2017) with the norms first (Xiong et al. 2020) and one table of vectors for what is read,
    what is written and the last layer (Press and Wolf 2017)."""

    name: Literal["transformer"] = setting(..., "a network from scratch, as yet the only kind of model")
    width: int = setting(256, "size of a token's vector", ge=2)
    depth: int = setting(3, "layers that read", ge=1)
    writing_depth: int = setting(3, "layers that write", ge=1)
    heads: Count = setting(4, "attention heads")
    hidden: Count = setting(1024, "units of each layer's dense part")
    dropout: Share = setting(0.1, "dropout of vectors and behind each part of a layer", unit="share")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.width % self.heads or self.width % 2:
            found.append(("width", f"{self.width} is no even multiple of {self.heads} heads"))
        return found


class WriteLoss(Section):
    """The cross-entropy of each token behind the true ones before it."""

    smoothing: float = setting(0.1, "weight of the uniform distribution over the vocabulary in the target while training", unit="share",
                               ge=0.0, lt=1.0)


class Writing(Section):
    """How an answer is written; the same when it is judged, predicted, exported and served."""

    beam: int = setting(4, "texts followed at the same time; 1: the most probable token at each step", ge=1, le=64, search=True)
    length_penalty: float = setting(
        1.0, "the log probability of a text is divided by its length to this power: longer ones for more than 1, shorter ones for less",
        ge=0.0, le=5.0, search=True)
    most: int | None = setting(None, "tokens written at most; default: tokens.limit", unit="tokens", ge=1)
    fewest: int = setting(1, "tokens written before an answer may end, as far as it may have so many", unit="tokens", ge=1)
    ratio: float = setting(2.0, "tokens written at most for each that is read, beside ten more", gt=0.0)

    def problems(self) -> list[tuple[str, str]]:
        return [*super().problems(), *length_problems(self.fewest, self.most)]


class WriteEvaluate(Evaluate):
    """Evaluation of written texts."""

    tokenize: Literal["13a", "intl", "zh", "char"] = setting(
        "13a", "how BLEU tells words, as sacrebleu names it: 13a, of most languages; zh: Chinese; char: by characters, of other scripts "
        "without blanks")


@register_task("nlp.tasks.translation:Translation")
class TextTranslation(Experiment):
    """Texts into texts, such as sentences into another language, or articles into summaries."""

    task: Literal["nlp.translation"]
    own_tokens: ClassVar[bool] = False
    answering: ClassVar[tuple[str, ...]] = ("writing",)
    data: Annotated[TranslationData, WRITTEN_SOURCES]
    tokens: Pieces = setting(Pieces, "how texts are cut")
    model: Annotated[Any, WRITERS]
    loss: WriteLoss = setting(WriteLoss, "the loss")
    writing: Writing = setting(Writing, "how answers are written")
    evaluate: WriteEvaluate = setting(WriteEvaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.writing.most and self.writing.most > self.tokens.limit:
            found.append(("writing.most", f"{self.writing.most} tokens; no text of train has more than tokens.limit, {self.tokens.limit}"))
        return found

    @property
    def limit(self) -> int:
        """Tokens of a text that are used."""
        return self.tokens.limit

    @property
    def most(self) -> int:
        """Tokens that are written at most."""
        return self.writing.most or self.tokens.limit
