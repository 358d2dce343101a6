"""The settings of pairs of texts. Imports no TensorFlow."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from nlp.settings.texts import Column, Linear, TextClassification, TextData, TextExperiment, TextRegression
from pipelines.config.registry import register_task
from pipelines.config.schema import Evaluate, Overridable, Section, setting
from pipelines.config.variants import Variants
from pipelines.encoders.finetune import Finetune, Whole
from pipelines.encoders.settings import PretrainedModel
from pipelines.outputs.settings import NumberLoss

PAIR_MODELS, PAIR_SOURCES = Variants(), Variants("source", "source")
MATCH_MODELS, MATCH_SOURCES = Variants(), Variants("source", "source")


@PAIR_SOURCES.register("nlp.data.sources:read_shipped")
class PairData(TextData):
    """Where pairs of texts and what is said of them come from."""

    pairs: ClassVar[bool] = True
    source: Overridable[Any, Literal["tfds", "table"]] = setting(
        ..., "tfds: a TensorFlow data set; table: CSV, TSV, JSONL or Parquet, or a folder with train.csv, test.csv, ...")
    text_key: Annotated[list[Column], Field(min_length=2, max_length=2)] = setting(
        lambda: ["sentence1", "sentence2"], "the two columns or tfds features with the texts of a pair: names, or positions from 0")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.join != type(self).model_fields["join"].default:
            found.append(("join", "the texts of a pair are not joined; leave it out"))
        return found


@MATCH_SOURCES.register("nlp.data.sources:read_shipped")
class MatchData(PairData):
    """Where pairs of texts that belong together come from; columns with labels are not read."""

    labelled: ClassVar[bool] = False
    source: Overridable[Any, Literal["table"]] = setting(
        ..., "table: CSV, TSV, JSONL or Parquet, or a folder with train.csv, test.csv, ...")
    negative_key: Column | None = setting(
        None, "table: a column with a text that does not belong to the first one, but seems to (a hard negative): each pair of the "
        "micro-batch is told from it, too; empty where there is none")

    def problems(self) -> list[tuple[str, str]]:
        elsewhere = self.negative_key is not None and self.source != "table"
        return super().problems() + ([("negative_key", "is a column of source: table")] if elsewhere else [])


class MatchLoss(Section):
    """The cross-entropy of a text's own partner among the partners of the micro-batch: the more pairs train.micro_batch_size has, the
    harder and the better."""

    scale: float = setting(20.0, "what cosines are multiplied by, the inverse of a temperature", gt=0.0)


class PairNumberLoss(NumberLoss):
    """The distance of an answer to the truth, in the learned scale, where train has deviation 1; the mean over an example's numbers. With
    `order` also how the answers to different pairs are ordered."""

    order: float = setting(
        0.0, "weight of CoSENT (Su 2022) beside it: log(1 + the sum of exp(order_scale (b - a))) over all answers a and b of a micro-batch "
        "of which a should be higher", ge=0.0)
    order_scale: float = setting(5.0, "order: what differences are multiplied by, in the learned scale", gt=0.0)


class PairEncoder(PretrainedModel):
    """An encoder of KerasHub for pairs; needs the extra `pretrained`."""

    own_tokens: ClassVar[bool] = True
    layers: ClassVar[int] = 1
    window: ClassVar[int | None] = None
    words: ClassVar[int] = 0
    limit: int = setting(128, "tokens of a text that are used, with the encoder's own marks", unit="tokens", ge=4)
    html: bool = setting(False, "leave out tags such as <br />")
    pool: Literal["auto", "mean", "first", "max"] = setting(
        "auto", "how one vector is made of the tokens' vectors; auto: as the preset states that it was trained, else mean")


@PAIR_MODELS.register("nlp.models.pairs:build")
class CrossEncoder(PairEncoder):
    """An encoder that reads both texts at once, one after the other: each word sees those of the other text, and a pair costs a pass."""

    name: Literal["cross_encoder"]  # type: ignore[assignment]
    limit: int = setting(256, "tokens of both texts together that are used, with the encoder's own marks; the longer text is cut first",
                         unit="tokens", ge=8)


@PAIR_MODELS.register("nlp.models.pairs:build")
class BiEncoder(PairEncoder):
    """An encoder that makes a vector of each text by itself, and a layer that compares them (Reimers and Gurevych 2019, arXiv:1908.10084):
    vectors can be kept, and a new text is compared with a million of them at once."""

    name: Literal["bi_encoder"]  # type: ignore[assignment]
    compare: Literal["cosine", "vectors"] | None = setting(
        None, "what the last layer sees. cosine: that of the two vectors, so that those that lie near one another are alike; vectors: both "
        "with their distance and product by column, |u - v| and u * v. Default: cosine for numbers, vectors for classes")


@MATCH_MODELS.register("nlp.models.pairs:build")
class MatchEncoder(BiEncoder):
    """An encoder that makes a vector of each text by itself; those of texts that belong together come to lie near one another."""

    name: Literal["bi_encoder"] = setting(..., "a vector of each text, as yet the only kind of model")  # type: ignore[assignment]
    finetune: Finetune | None = setting(lambda: Whole(name="whole", head="new"), "how the encoder is trained: whole, last, gradual or lora")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.compare is not None:
            found.append(("compare", "vectors are compared by their cosine; leave it out"))
        if self.finetune is None or self.finetune.name == "frozen":
            found.append(("finetune", "without training the encoder nothing is learned; as it is, `quartet index PRESET` searches with it"))
        elif getattr(self.finetune, "head", "new") != "new":
            found.append(("finetune.head", "there is no last layer that could be fitted first; head: new"))
        return found


@PAIR_MODELS.register("nlp.models.pair_overlap:build")
class PairLinear(Linear):
    """Ridge or logistic regression on how much two texts have in common - cosines of their tf-idf vectors, shared words, lengths - fitted
    at once: the cheap baseline that stands beside every report, as a model."""

    name: Literal["linear"]


@register_task("nlp.tasks.pairs:PairClassification")
class PairsClassification(TextClassification):
    """One class per pair of texts, such as duplicate or not, or entailment, or none."""

    task: Literal["nlp.pair_classification"]  # type: ignore[assignment]
    data: Annotated[PairData, PAIR_SOURCES]
    model: Annotated[Any, PAIR_MODELS]

    def problems(self) -> list[tuple[str, str]]:
        many = [("data.labels", "a pair has one class; leave it out")] if self.data.labels == "many" else []
        return [*super().problems(), *many]


@register_task("nlp.tasks.pairs:PairRegression")
class PairsRegression(TextRegression):
    """One or several numbers per pair of texts, such as how alike they are."""

    task: Literal["nlp.pair_regression"]  # type: ignore[assignment]
    data: Annotated[PairData, PAIR_SOURCES]
    model: Annotated[Any, PAIR_MODELS]
    loss: PairNumberLoss = setting(PairNumberLoss, "the loss")

    def problems(self) -> list[tuple[str, str]]:
        ordered = [("loss.order", "is for answers, and quantiles are three of each; leave it out")] if (
            self.loss.order and self.loss.name == "quantiles") else []
        return [*super().problems(), *ordered]


@register_task("nlp.tasks.pair_ranking:PairRanking")
class PairsRanking(TextExperiment):
    """Pairs of texts that belong together, such as questions with their answers: the one is to be found by the other."""

    task: Literal["nlp.pair_ranking"]
    data: Annotated[MatchData, MATCH_SOURCES]
    model: Annotated[Any, MATCH_MODELS]
    loss: MatchLoss = setting(MatchLoss, "the loss")
    evaluate: Evaluate = setting(Evaluate, "judging")
