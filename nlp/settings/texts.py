"""The settings of classes and numbers of texts: data sources, tokens, models. Imports no TensorFlow."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipelines.base.formatting import MetricKind, declare
from pipelines.config.label_settings import LabelData, problems_of_labels
from pipelines.config.registry import register_task
from pipelines.config.schema import (
    ClassificationLoss,
    Evaluate,
    Experiment,
    Overridable,
    PrunableBlocks,
    Section,
    Share,
    TableData,
    location_problems,
    setting,
)
from pipelines.config.train_settings import protected_by
from pipelines.config.variants import Variants
from pipelines.encoders.settings import PretrainedModel
from pipelines.fitting.settings import FittedModel, problems_at_once
from pipelines.outputs.settings import NumberEvaluate, NumberLoss, NumberTarget, number_problems

declare({
    "out_of_scope_auroc": MetricKind("max", True, "Out-of-scope AUROC"),
    "out_of_scope_recall": MetricKind("max", True, "Out-of-scope recall"),
})

Count = Annotated[int, Field(ge=1)]
MODELS, TOKENS, SOURCES = Variants(), Variants(what="way of cutting"), Variants("source", "source")
Column = str | Annotated[int, Field(ge=0)]


@SOURCES.register("nlp.data.sources:read_shipped")
class TextData(LabelData, TableData):
    """Where texts and labels come from."""

    labelled: ClassVar[bool] = True  # whether a column says something of each text
    pairs: ClassVar[bool] = False  # the columns of text_key are two texts, and not the parts of one
    source: Overridable[Any, Literal["quick", "tfds", "table", "folder"]] = setting(
        ..., "quick: the embedded sentences; tfds: a TensorFlow data set; table: CSV, TSV, JSONL or Parquet, or a folder with train.csv, "
        "test.csv, ...; folder: a folder of .txt files per class")
    name: str | None = setting(None, "tfds: the data set, such as imdb_reviews, ag_news_subset, clinc_oos or glue/sst2")
    path: str | None = setting(None, "table or folder: the file or folder", path=True)
    data_dir: str | None = setting(None, "tfds: the data directory; default as TFDS has it", path=True)
    text_key: Column | Annotated[list[Column], Field(min_length=1)] = setting(
        "text", "tfds feature or column with the text: a name, a position from 0, or a list of them, joined in that order")
    join: str = setting(" ", "separator of the joined texts", search=True)
    label_key: Column | Annotated[list[Column], Field(min_length=2)] = setting(
        "label", "tfds feature or column with the label: a name or a position from 0; a list of columns that hold 1 for a label that a "
        "text has, else 0 (with labels: one, one of them in each row); of nlp.regression the numbers, in one column or several")
    split_key: Column | None = setting(  # type: ignore[assignment]
        None, "table: column that says train, validation or test; or with numbers of folds, where data.test and data.validation name the "
        "folds that are held out")
    header: Literal["auto", "yes", "no"] = setting(
        "auto", "table: whether the first line of a CSV or TSV names the columns; auto: if settings refer to columns by name")
    longest: int = setting(1_000_000, "a longer text in training data is a bad example: usually a quotation mark that is not closed",
                           unit="characters", ge=1)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + location_problems(self.source, self.name, self.path, example="imdb_reviews")
        if self.source == "tfds" and not all(isinstance(key, str) for key in (*text_keys(self), self.label_key)):
            found.append(("text_key", "source: tfds has features by name, not by position"))
        if isinstance(self.label_key, list) and self.source != "table":
            found.append(("label_key", "several columns that hold 1 or 0 are for source: table"))
        return found

    def described(self) -> list[tuple[str | int, str]]:
        several = [(key, "number") for key in self.label_key] if isinstance(self.label_key, list) else [(self.label_key, "label")]
        return [*((key, "text") for key in text_keys(self)), *several, *self.of_rows()]


class Tokens(Section):
    """What all ways of cutting a text have in common."""

    lower: bool = setting(True, "lower case")
    html: bool = setting(False, "leave out tags such as <br />")
    limit: int = setting(1000, "words (subwords) of a text that are used; what comes after is cut", unit="tokens", ge=1)


@TOKENS.register("nlp.tokens.words")
class Words(Tokens):
    """Words and punctuation marks, each a row of the embedding."""

    name: Literal["words"]
    vocabulary: int = setting(20_000, "size of the vocabulary: the most frequent words of train", ge=1)
    least: int = setting(2, "occurrences in train below which a word is unknown", ge=1)


@TOKENS.register("nlp.tokens.hashed")
class Hashed(Tokens):
    """Words, word n-grams and character n-grams, each a row by its hash: nothing is learned, no word is unknown."""

    name: Literal["hashed"]
    words: int = setting(2, "longest word n-gram: 1 words alone, 2 also pairs of neighbours, ...", ge=1, le=5)
    characters: Annotated[list[Count], Field(min_length=2, max_length=2)] | None = setting(
        None, "[shortest, longest] character n-gram within words, their ends marked; null for none", unit="characters")
    distinct: bool = setting(False, "an n-gram that occurs several times in a text counts once")
    buckets: int = setting(1 << 20, "rows of the embedding; two n-grams may share one", ge=2)
    character_buckets: int | None = setting(
        None, "rows of their own for character n-grams, after those of the words, so that a bag of rarity weighs each by itself; "
        "null: both share `buckets`", ge=1)


@TOKENS.register("nlp.tokens.subwords")
class Subwords(Tokens):
    """Pieces of words, learned from train by sentencepiece; each word is cut into the longest pieces from its beginning."""

    name: Literal["subwords"]
    vocabulary: int = setting(8000, "pieces", ge=16)
    algorithm: Literal["bpe", "unigram"] = setting("bpe", "how pieces are learned: byte-pair merges, or the unigram language model")


@MODELS.register("nlp.models.bag:build")
class Bag(Section):
    """The mean of the tokens' vectors, whatever their order (fastText: Joulin et al. 2017, arXiv:1607.01759)."""

    name: Literal["bag"]
    reads_order: ClassVar[bool] = False
    width: int = setting(16, "size of a token's vector", ge=1)
    hidden: int = setting(0, "units of a dense layer before the last; 0: none", ge=0)
    skip: bool = setting(
        False, "the last layer sees the pooled vector beside the hidden layer, so that linear effects bypass it")
    pool: Literal["mean", "root", "sum", "root_max"] = setting(
        "mean", "sum of the vectors divided by their number, by its root, or by 1; root_max: the largest value of each column beside it")
    rarity: bool = setting(
        False, "tokens are weighted by rarity, log(texts / texts that contain it) + 1 in train, or 0 if train lacks them; a text's weights "
        "have norm 1 (tf-idf); with tokens.character_buckets, words and characters are normalised separately")
    linear: bool = setting(
        False, "a token's vector is what it adds to each class, from 0: no width, hidden or last layer; with rarity and "
        "train.tables.optimizer: sgd this is a linear classifier on tf-idf features")
    drop_tokens: Share = setting(0.0, "share of the tokens left out at random in training", unit="share")
    dropout: Share = setting(0.0, "dropout before the last layer", unit="share")
    naive_bayes: bool = setting(
        False, "instead of vectors, one trained weight a token times its naive Bayes log-count ratios from train (Wang and Manning 2012)")

    @property
    def counts_tokens(self) -> bool:
        """Whether weights are set from how often tokens occur in train."""
        return self.naive_bayes or self.rarity

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.naive_bayes and (self.hidden or self.rarity):
            found.append(("naive_bayes", "naive_bayes has no hidden layer and no rarity; set hidden: 0 and rarity: false"))
        if self.linear and (self.naive_bayes or self.hidden or self.dropout or self.pool == "root_max"):
            found.append(("linear", (
                "the sum over the tokens is the answer, without naive_bayes, hidden, dropout or pool: root_max (drop_tokens may be set)")))
        return found


@MODELS.register("nlp.models.linear:build")
class Linear(FittedModel):
    """Linear support vector machines on tf-idf features of n-grams, of numbers ridge regression, fitted at once: the cheap baseline that
    stands beside every report, as a model. The regularisation is chosen on folds of train."""

    name: Literal["linear"]
    reads_order: ClassVar[bool] = False


@MODELS.register("nlp.models.cnn:build")
class Cnn(Section):
    """Convolutions of several widths, each pooled to its maximum (Kim 2014, arXiv:1408.5882)."""

    name: Literal["cnn"]
    width: int = setting(128, "size of a token's vector", ge=1)
    kernels: list[Count] = setting(lambda: [2, 3, 4], "widths of the convolutions", unit="tokens", min_length=1)
    filters: Count | list[Count] = setting(128, "filters of each width, or a number for each")
    drop_tokens: Share = setting(0.0, "share of the tokens left out at random in training", unit="share")
    dropout: Share = setting(0.5, "dropout before the last layer", unit="share")

    @property
    def of_kernels(self) -> dict[int, int]:
        """Width of a convolution -> its filters."""
        several = self.filters if isinstance(self.filters, list) else [self.filters] * len(self.kernels)
        return dict(zip(self.kernels, several))

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if isinstance(self.filters, list) and len(self.filters) != len(self.kernels):
            found.append(("filters", f"{len(self.filters)} numbers for {len(self.kernels)} kernels"))
        return found

    @property
    def prunable(self) -> list[str]:
        return [f"conv{kernel}" for kernel in self.of_kernels]

    def pruned(self, counts: Mapping[str, int]) -> dict[str, Any]:
        return {"kernels": list(self.of_kernels), "filters": [counts[name] for name in self.prunable]}


@MODELS.register("nlp.models.lstm:build")
class Lstm(Section):
    """A recurrent network over the text in both directions, pooled to mean and maximum."""

    name: Literal["lstm"]
    width: int = setting(128, "size of a token's vector", ge=1)
    units: int = setting(128, "units in each direction", ge=1)
    layers: int = setting(1, "layers", ge=1)
    drop_tokens: Share = setting(0.0, "share of the tokens left out at random in training", unit="share")
    dropout: Share = setting(0.3, "dropout of vectors and before the last layer", unit="share")


@MODELS.register("nlp.models.transformer:build")
class Transformer(PrunableBlocks):
    """A small transformer encoder from scratch (Vaswani et al. 2017, with the norms first), pooled to the mean."""

    name: Literal["transformer"]
    width: int = setting(128, "size of a token's vector", ge=2)
    depth: int = setting(2, "encoder blocks", ge=1)
    heads: Count | list[Count] = setting(4, "attention heads, or those of each block")
    head_size: int | None = setting(None, "columns of a head; default: width / heads", ge=1)
    hidden: Count | list[Count] = setting(512, "units of each block's dense layer, or of each block")
    drop_tokens: Share = setting(0.0, "share of the tokens left out at random in training", unit="share")
    dropout: Share = setting(0.1, "dropout", unit="share")


@MODELS.register("nlp.models.pretrained:build")
class Pretrained(PretrainedModel):
    """An encoder of KerasHub with its own tokens; needs the extra `pretrained`."""

    name: Literal["pretrained"]
    own_tokens: ClassVar[bool] = True  # cut by its own tokenizer, `limit` at most
    limit: int = setting(128, "tokens of a text that are used, with the encoder's own marks", unit="tokens", ge=4)
    window: int | None = setting(
        None, "tokens that the encoder sees at a time: a longer text is cut into windows of equal length, and its vector is the mean over "
        "the tokens of all; default: 128 where the encoder is frozen and its vectors are means, else the limit", unit="tokens", ge=4)
    html: bool = setting(False, "leave out tags such as <br />")
    pool: Literal["auto", "mean", "first", "max"] = setting(
        "auto", "how one vector is made of the tokens' vectors; auto: as the preset states that it was trained, else mean")
    layers: int | None = setting(
        None, "the encoder's last so many layers, whose vectors stand beside one another; default: 3 where the encoder is frozen and its "
        "vectors are means, else 1", ge=1)
    words: int | None = setting(
        None, "longest run of tokens by which linear classifiers, fitted to train without a text's fold, score a text beside the encoder; "
        "0: none. Default: 2 where the encoder is frozen and a class has ten texts, else 0; 0 with train.privacy",
        unit="tokens", ge=0, le=4)


class Reject(Section):
    """Texts that fit no class: how they are marked in the data, and what is rejected."""

    label: str | None = setting(None, "the label that marks texts of no class in the data; such texts are never a class")
    splits: str | None = setting(
        None, "further splits of the data that hold such texts only, with {split} for train, validation and test: '{split}_oos'")
    train: Literal["leave_out", "uniform"] = setting(
        "leave_out", "texts of no class in train: left out, or trained to equal probabilities (Hendrycks et al. 2019)")
    accept: float | None = setting(
        None, "the threshold lets this share of validation's texts of the classes pass; default: the threshold with the highest accuracy "
        "on validation, no class counting as a class", unit="share", gt=0.0, lt=1.0)


class TextEvaluate(Evaluate):
    """Evaluation of texts."""

    words: int = setting(6, "words shown for each of the worst mistakes, those that mattered most", ge=0, le=50)


class TextExperiment(Experiment):
    """What tasks on texts share."""

    data: Annotated[TextData, SOURCES]
    tokens: Annotated[Any, TOKENS] | None = setting(
        None, "how texts are cut; default: hashed for bag and linear, words for cnn, lstm and transformer")
    model: Annotated[Any, MODELS]

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + problems_at_once(self)
        model = self.model
        characters = self.tokens.characters if isinstance(self.tokens, Hashed) else None
        if characters and characters[0] > characters[1]:
            found.append(("tokens.characters", f"{characters} is not [shortest, longest]"))
        if self.own_tokens and self.tokens is not None:
            found.append(("tokens", f"model: {model.name} brings its own tokens; leave the section out (model.limit sets their number)"))
        if isinstance(self.tokens, Hashed) and self.reads_order and not self.own_tokens:
            words = self.tokens
            if words.words > 1 or words.characters:
                found.append(("tokens.words", (
                    f"n-grams do not stand in the text's order, which model: {model.name} reads; set words: 1 and characters: null, or "
                    "take tokens: words or subwords")))
        if isinstance(self.tokens, Hashed) and self.tokens.character_buckets and not characters:
            found.append(("tokens.character_buckets", "there are no character n-grams; set tokens.characters: [2, 5], or leave it out"))
        if getattr(model, "words", 0) and (protection := protected_by(self.train)):
            found.append(("model.words", f"its classifiers are fitted to the training texts without noise; set it to 0 with {protection}"))
        return found

    @property
    def own_tokens(self) -> bool:
        """Whether the model cuts texts by its own tokenizer, as its settings declare."""
        return getattr(self.model, "own_tokens", False)

    @property
    def reads_order(self) -> bool:
        """Whether the model reads tokens in the text's order, as all do whose settings do not declare otherwise."""
        return getattr(self.model, "reads_order", True)

    @property
    def limit(self) -> int:
        """Tokens of a text that are used."""
        return self.model.limit if self.own_tokens else self.cutting.limit

    @property
    def cutting(self) -> "Words | Hashed | Subwords":
        """The tokens section, or the model's default."""
        if self.tokens is not None:
            return self.tokens
        if isinstance(self.model, Linear):
            return Hashed(name="hashed", characters=[2, 5], distinct=True, buckets=1 << 18, character_buckets=1 << 18)
        return Words(name="words", limit=256) if self.reads_order else Hashed(name="hashed")


@register_task("nlp.tasks.classification:Classification")
class TextClassification(TextExperiment):
    """One label per text, or several, or none."""

    task: Literal["nlp.classification"]
    reject: Reject | None = setting(
        None, "rejection of texts that fit no class, which needs a validation split; null: every text gets a class")
    loss: ClassificationLoss = setting(ClassificationLoss, "the loss")
    evaluate: TextEvaluate = setting(TextEvaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        found, model = super().problems() + problems_of_labels(self), self.model
        if self.data.labels == "many":
            if self.reject is not None:
                found.append(("reject", "with labels: many a text may have no label, so nothing is rejected; leave the section out"))
            if getattr(model, "naive_bayes", False):
                found.append(("model.naive_bayes", "naive_bayes is for labels: one"))
        if self.reject and self.reject.train == "uniform" and isinstance(model, Linear):
            found.append(("reject.train", "model.name: linear learns of the classes alone; leave it out"))
        if self.reject and not self.reject.label and not self.reject.splits and self.reject.accept is None:
            found.append(("reject", "needs label or splits (where the texts of no class stand in the data), or accept: 0.95"))
        if self.reject and self.reject.splits and "{split}" not in self.reject.splits:
            found.append(("reject.splits", f"{self.reject.splits!r} lacks {{split}}, such as '{{split}}_oos'"))
        return found


@register_task("nlp.tasks.regression:Regression")
class TextRegression(TextExperiment):
    """One or several numbers per text."""

    task: Literal["nlp.regression"]
    target: NumberTarget = setting(NumberTarget, "what is known of the numbers in data.label_key")
    loss: NumberLoss = setting(NumberLoss, "the loss")
    evaluate: NumberEvaluate = setting(NumberEvaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + number_problems(self)
        if self.data.source in ("quick", "folder"):
            found.append(("data.source", "numbers come from a column of a table, or a feature of TFDS"))
        if self.data.labels == "many":
            found.append(("data.labels", "is for classes; several numbers are columns in data.label_key"))
        found += [(f"model.{name}", "is for classes; leave it out") for name in ("naive_bayes", "words") if getattr(self.model, name, None)]
        return found


def text_keys(data: TextData) -> list[Column]:
    """The columns or features that make up a text."""
    return list(data.text_key) if isinstance(data.text_key, list) else [data.text_key]


QUICK_START = "nlp/quickstart"
