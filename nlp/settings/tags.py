"""The settings of things named in texts. Imports no TensorFlow."""

from typing import Annotated, Any, ClassVar, Literal

from pipelines.base.formatting import MetricKind, declare
from pipelines.config.registry import register_task
from pipelines.config.schema import Data, Experiment, Section, Share, setting
from pipelines.config.variants import Variants
from pipelines.encoders.finetune import Finetune, Whole
from pipelines.encoders.settings import PretrainedModel

declare({
    "entity_f1": MetricKind("max", True, "Entity F1"), "entity_precision": MetricKind("max", True, "Entity precision"),
    "entity_recall": MetricKind("max", True, "Entity recall"),
})

TAG_MODELS = Variants()


class TagData(Data):
    """Where texts and the things named in them come from."""

    pairs: ClassVar[bool] = False
    join: ClassVar[str] = " "
    header: ClassVar[str] = "auto"
    delimiter: ClassVar[str | None] = None
    quote: ClassVar[str | None] = None
    label_key: ClassVar[str] = "spans"
    labels: ClassVar[str] = "many"  # a text may have none
    source: Literal["conll", "jsonl"] = setting(
        ..., "conll: a token and its tag (IOB1, IOB2, BILOU or BIOES) on each line, with tabs or blanks between columns, and a blank line "
        "behind each sentence; jsonl: a line of JSON for each text, with its spans in characters, or a JSON list of them, as spaCy's pairs "
        "and Label Studio's exports are")
    path: str = setting(..., "a file, or a folder with train.*, dev.* or validation.*, and test.*", path=True)
    token_column: int = setting(0, "conll: the column of the token, from 0", ge=0)
    label_column: int | None = setting(None, "conll: the column of the tag, from 0, or from -1 backwards; default: the last")
    text_key: str = setting("text", "jsonl: the key of the text")
    spans_key: str | None = setting(
        None, "jsonl: the key of the spans, a list of [start, end, label] or {start, end, label}, the end not included; default: spans, "
        "entities, label or labels, whichever is there")
    group_by: str | None = setting(
        None, "what stays on one side of every split and intervals draw: jsonl: a key; conll: document, which a line -DOCSTART- begins")
    encoding: str | None = setting(None, "of the files; default: by byte order mark, else UTF-8")
    longest: int = setting(100_000, "a longer text is a bad example", unit="characters", ge=1)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.source == "conll" and self.group_by not in (None, "document"):
            found.append(("group_by", f"{self.group_by}: source: conll has the groups of its documents only: set document"))
        return found

    def described(self) -> list[tuple[str | int, str]]:
        return [(self.text_key, "text"), (self.spans_key or "spans", "label")]


@TAG_MODELS.register("nlp.models.tagger:build")
class TagEncoder(PretrainedModel):
    """An encoder of KerasHub and a linear layer on the vector of each word's first token, beside how the word and its neighbours are
    written; needs the extra `pretrained`."""

    name: Literal["pretrained"] = setting(..., "an encoder of KerasHub, as yet the only kind of model")
    own_tokens: ClassVar[bool] = True
    layers: ClassVar[int | None] = 1
    words: ClassVar[int | None] = 0
    html: ClassVar[bool] = False
    pool: ClassVar[str] = "mean"
    limit: int = setting(512, "tokens of a text that are used, with the encoder's own marks; in what comes after nothing is found",
                         unit="tokens", ge=4)
    window: int | None = setting(
        None, "tokens that the encoder sees at a time: a longer text is cut into windows of equal length; default: as many as it takes",
        unit="tokens", ge=4)
    shapes: bool = setting(True, "how words are written - capitals, digits, marks, blanks before them - stands beside their vectors: many "
                           "encoders read small letters alone")
    chain: bool = setting(False, "the tags of a sentence are weighed together, by learned scores of neighbours (a linear-chain CRF)")
    finetune: Finetune | None = setting(
        lambda: Whole(name="whole", head="new"), "how the network is trained: last, gradual, whole or lora; head: new")

    def problems(self) -> list[tuple[str, str]]:
        wrong = self.finetune is None or self.finetune.name == "frozen" or self.finetune.head != "new"
        return super().problems() + ([("finetune", "a tagger trains its encoder under a new head: {name: whole, head: new}, or last, "
                                       "gradual or lora")] if wrong else [])


class TagLoss(Section):
    """Cross-entropy of the words' tags; with model.chain of the whole sequence, by its words."""

    label_smoothing: Share = setting(0.0, "share of the target spread over all tags", unit="share")


@register_task("nlp.tasks.tagging:Tagging")
class TextTagging(Experiment):
    """Things named in a text, such as persons and places, each a span of characters with its type."""

    own_tokens: ClassVar[bool] = True
    tokens: ClassVar[None] = None
    task: Literal["nlp.tagging"]
    data: TagData
    model: Annotated[Any, TAG_MODELS]
    loss: TagLoss = setting(TagLoss, "the loss")

    @property
    def limit(self) -> int:
        """Tokens of a text that are used."""
        return int(self.model.limit)
