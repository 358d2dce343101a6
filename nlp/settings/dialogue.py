"""The settings of dialogues. Imports no TensorFlow."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from nlp.settings.language import Drawing, LanguagePreset, room_problems
from nlp.settings.texts import Column, TextData
from pipelines.base.formatting import MetricKind, declare
from pipelines.config.registry import register_task
from pipelines.config.schema import Evaluate, Experiment, Overridable, setting
from pipelines.config.variants import Variants

declare({
    "well_formed": MetricKind("max", True, "Answers of the asked form"),
    "same_answer": MetricKind("max", True, "Answers as given"),
})

DIALOGUE_SOURCES, CHAT_MODELS = Variants("source", "source"), Variants()
CHAT_MODELS.register("nlp.models.language_pretrained:build")(LanguagePreset)


@DIALOGUE_SOURCES.register("nlp.data.dialogues:read_shipped")
class DialogueData(TextData):
    """Where dialogues come from."""

    labelled: ClassVar[bool] = False
    source: Overridable[Any, Literal["messages"]] = setting(
        ..., "messages: a table, or a folder with train.jsonl, test.jsonl, ..., a dialogue in each row")
    text_key: Column | Annotated[list[Column], Field(min_length=2, max_length=2)] = setting(  # type: ignore[assignment]
        "messages", "the column with the messages, each with role and content (OpenAI's form) or from and value (ShareGPT's); or two "
        "columns, what is asked and what is answered")
    join: ClassVar[str] = " "  # type: ignore[misc]


class Replying(Drawing):
    """How a message is answered."""

    temperature: float = setting(0.0, "what logits are divided by; 0: the most probable token at each step", ge=0.0, le=10.0)
    system: str | None = setting(
        None, "a first message of the system, before dialogues that begin with none; null: what the template says")


class DialogueEvaluate(Evaluate):
    """How answers are judged."""

    answers: int = setting(200, "dialogues of a split, evenly chosen, whose last message is written and compared; 0: none", ge=0)
    form: str | None = setting(None, "a regular expression that an answer as a whole should match: share of those that do")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        try:
            re.compile(self.form or "")
        except re.error as error:
            found.append(("form", f"is no regular expression: {error}"))
        return found


@register_task("nlp.tasks.dialogue:Dialogue")
class DialogueModel(Experiment):
    """What is answered in a dialogue, by a language model that was trained for dialogues."""

    task: Literal["nlp.dialogue"]
    answering: ClassVar[tuple[str, ...]] = ("writing",)
    own_tokens: ClassVar[bool] = True
    data: Annotated[DialogueData, DIALOGUE_SOURCES]
    template: str | None = setting(None, "a Jinja file that writes dialogues as text; null: the preset's own", path=True)
    model: Annotated[Any, CHAT_MODELS]
    writing: Replying = setting(Replying, "how messages are answered")
    evaluate: DialogueEvaluate = setting(DialogueEvaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        return super().problems() + room_problems(self.writing.most, self.model.length)

    @property
    def limit(self) -> int:
        """Tokens that are seen at a time."""
        return int(self.model.length)
