"""The settings of questions whose answers stand in passages. Imports no TensorFlow."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from nlp.settings.places import PlaceEncoder, PlaceExperiment
from nlp.settings.texts import Column
from pipelines.base.formatting import MetricKind, declare
from pipelines.config.registry import register_task
from pipelines.config.schema import Section, TableData, setting
from pipelines.config.variants import Variants

declare({
    "answer_f1": MetricKind("max", True, "Answer F1"), "exact_match": MetricKind("max", True, "Exact match"),
    "answerable_f1": MetricKind("max", True, "F1 where there is an answer"),
    "no_answer_accuracy": MetricKind("max", True, "Found that there is none"),
    "start_accuracy": MetricKind("max", True, "First word right"), "end_accuracy": MetricKind("max", True, "Last word right"),
})

READERS = Variants()


class AnswerData(TableData):
    """Where questions, passages and the answers in them come from."""

    given_groups: ClassVar[tuple[str, ...]] = ("passage",)
    pairs: ClassVar[bool] = True
    labelled: ClassVar[bool] = True
    join: ClassVar[str] = " "
    label_key: ClassVar[str] = "answers"
    labels: ClassVar[str] = "many"  # a question may have none
    source: Literal["squad", "table"] = setting(
        ..., "squad: JSON as SQuAD 1.1 and 2 have it (data, paragraphs, context, qas, answers with text and answer_start); table: CSV, "
        "TSV, JSONL or Parquet")
    path: str = setting(..., "a file, or a folder in which a word of each file's name says its split: train.json, reddit_train.json, "
                        "dev-v2.0.json; several files of a split are joined", path=True)
    text_key: Annotated[list[Column], Field(min_length=2, max_length=2)] = setting(
        lambda: ["question", "context"], "table: the columns of the question and of the passage: names, or positions from 0")
    answer_key: Column = setting(
        "answers", "table: the column of the answers: a text of the passage, a JSON list of them, or an object {\"text\": [...], "
        "\"answer_start\": [...]} in characters, as Hugging Face has it; empty where the passage has none")
    split_key: Column | None = setting(  # type: ignore[assignment]
        None, "table: column that says train, validation or test")
    header: Literal["auto", "yes", "no"] = setting(
        "auto", "table: whether the first line of a CSV or TSV names the columns; auto: if settings refer to columns by name")
    group_by: str | None = setting(
        "passage", "what stays on one side of every split and intervals draw: passage, with all its questions; squad: title, of an "
        "article; table: a column; null: each question by itself")
    longest: int = setting(1_000_000, "a longer question or passage is a bad example", unit="characters", ge=1)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.source == "squad" and self.group_by not in (None, "passage", "title"):
            found.append(("group_by", f"{self.group_by}: source: squad has passages and titles"))
        if self.source == "squad" and self.split_key is not None:
            found.append(("split_key", "is for source: table; the names of files say their splits"))
        return found

    def described(self) -> list[tuple[str | int, str]]:
        return [*((key, "text") for key in self.text_key), (self.answer_key, "label")]


class AnswerSettings(Section):
    """How an answer is looked for."""

    longest: int = setting(40, "tokens of an answer at most", unit="tokens", ge=1, le=1000)
    best: int = setting(3, "answers that are given for a question, the most probable first; they may overlap", ge=1, le=20)

    def problems(self) -> list[tuple[str, str]]:
        return super().problems() + ([("best", f"{self.best} answers, of which one of {self.longest} tokens has fewer; raise longest")]
                                     if self.best > self.longest else [])


@READERS.register("nlp.models.reader:build")
class AnswerEncoder(PlaceEncoder):
    """An encoder of KerasHub that reads a passage behind its question, and a linear layer that says of each word whether an answer begins
    there, and whether one ends there (Devlin et al. 2019, arXiv:1810.04805); needs the extra `pretrained`. Of a longer passage it sees
    windows, each with the question; all words of the passage are weighed against each other (Clark and Gardner 2018, arXiv:1710.10723)."""

    limit: int = setting(4096, "tokens of a question and its passage together, with the encoder's own marks, that are read; in what comes "
                         "after nothing is found", unit="tokens", ge=16)
    question: int = setting(64, "tokens of a question that are used", unit="tokens", ge=4)
    window: int | None = setting(
        None, "tokens of the question and a part of the passage that the encoder sees at a time; default: 384, or as many as it takes",
        unit="tokens", ge=16)
    overlap: int | None = setting(
        None, "tokens of the passage that a window has in common with the one before: an answer longer than that may be cut in two; "
        "default: a third of the window", unit="tokens", ge=1)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.window is not None and self.window < self.question + (self.overlap or 0) + 8:
            found.append(("window", f"{self.window} tokens have no room for a question of {self.question} and a passage; lower "
                                    "model.question or model.overlap"))
        return found


@register_task("nlp.tasks.question_answering:QuestionAnswering")
class PassageAnswers(PlaceExperiment):
    """The answer to a question as it stands in a passage, in characters, or that there is none."""

    task: Literal["nlp.question_answering"]
    data: AnswerData
    model: Annotated[Any, READERS]
    answer: AnswerSettings = setting(AnswerSettings, "how an answer is looked for")
