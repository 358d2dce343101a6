"""The settings of things named in texts. Imports no TensorFlow."""

from typing import Annotated, Any, ClassVar, Literal

from nlp.settings.places import PlaceEncoder, PlaceExperiment
from pipelines.base.formatting import MetricKind, declare
from pipelines.config.registry import register_task
from pipelines.config.schema import Data, Section, Share, setting
from pipelines.config.variants import Variants

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
class TagEncoder(PlaceEncoder):
    """An encoder of KerasHub and a linear layer on the vector of each word's first token, beside how the word and its neighbours are
    written; needs the extra `pretrained`."""

    shapes: bool = setting(True, "how words are written - capitals, digits, marks, blanks before them - stands beside their vectors: many "
                           "encoders read small letters alone")
    chain: bool = setting(False, "the tags of a sentence are weighed together, by learned scores of neighbours (a linear-chain CRF)")


class TagLoss(Section):
    """Cross-entropy of the words' tags; with model.chain of the whole sequence, by its words."""

    label_smoothing: Share = setting(0.0, "share of the target spread over all tags", unit="share")


@register_task("nlp.tasks.tagging:Tagging")
class TextTagging(PlaceExperiment):
    """Things named in a text, such as persons and places, each a span of characters with its type."""

    task: Literal["nlp.tagging"]
    data: TagData
    model: Annotated[Any, TAG_MODELS]
    loss: TagLoss = setting(TagLoss, "the loss")

    def problems(self) -> list[tuple[str, str]]:
        both = self.model.chain and self.loss.label_smoothing > 0.0
        return super().problems() + ([("loss.label_smoothing", "is for words one by one, and model.chain weighs them together; leave one "
                                       "of both out")] if both else [])
