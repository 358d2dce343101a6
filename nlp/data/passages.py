"""The splits of an experiment that finds answers in passages, with the facts learned from train alone."""

from typing import Any

import numpy as np
import tensorflow as tf

from nlp.data.answers import Place, Reading, read, split_files
from nlp.data.sources import Rows, TextSource, tensor_of, usable
from nlp.data.splits import LEARNED, of_preset
from nlp.settings import AnswerData, PassageAnswers
from pipelines.base.errors import DataError
from pipelines.data.divide import divide
from pipelines.data.opened import Opened
from pipelines.data.source import Source, origin
from pipelines.data.split import describe
from pipelines.stores.remote import local
from pipelines.task.contract import Splits

ANSWERS = "answers"


class Questions(TextSource):
    """Examples {"text", "text_pair", "answers"}: question, passage, and a string of two int32 for each answer, its first character and the
    one behind its last; empty where the passage has none."""

    def __init__(self, rows: Rows):
        with tf.device("CPU:0"):
            packed = tf.constant([np.array(places, np.int32).tobytes() for places in rows.labels], tf.string)
        super().__init__(tensor_of(rows.texts), {ANSWERS: packed}, rows.places, fingerprint=rows.fingerprint,
                         groups=None if rows.groups is None else np.array(rows.groups))
        self.rows = rows


def open_questions(data: AnswerData) -> tuple[Opened[Source], Reading]:
    """(questions with their passages, nothing divided yet; what their answers are like). Raises DataError with place and remedy."""
    place = local(data.path)
    reading = read(split_files(place, data), data)

    def load(name: str) -> Source:
        return Questions(usable(reading.rows[name], data, opened, f"{place}: split {name}"))

    opened: Opened[Source] = Opened(str(place), list(reading.rows), load)
    return opened, reading


def answers_in(source: Source) -> list[list[Place]]:
    """Of each question."""
    base, numbers = origin(source)
    assert isinstance(base, Questions)
    return [base.rows.labels[number] for number in numbers.tolist()]


def load_questions(experiment: PassageAnswers, known: dict[str, Any] | None = None) -> Splits:
    """The splits. Examples are those of `Questions`.

    Args:
        known: facts of a finished run, whose tokens are then reused.

    Facts:
        unanswerable: whether train has questions without an answer.
        splits and those of an encoder: as nlp.data.splits.load_texts.

    Raises:
        DataError: names file and question or row, and the remedy.
    """
    learned, remarks = ({name: known[name] for name in LEARNED if name in known}, []) if known else of_preset(experiment)
    opened, reading = open_questions(experiment.data)
    train, validation, test, notes = divide(opened.names, opened.load, experiment.data, opened.place)
    parts = {"train": train, "validation": validation, "test": test}
    counts = {name: answers_in(source) for name, source in parts.items() if source is not None}
    if not any(counts["train"]):
        raise DataError(f"{opened.place}: no question of train has an answer, so there is nothing to learn")
    none = {name: sum(not places for places in found) for name, found in counts.items()}
    facts: dict[str, Any] = {"unanswerable": known["unanswerable"] if known else none["train"] > 0, **learned}
    if not known:
        from nlp.models.pretrained import pooling

        facts |= pooling(experiment.model, facts, len(train))
    facts["splits"] = describe(dict(parts))
    if any(none.values()):
        notes.append("questions without an answer: " + ", ".join(f"{count:,} of {len(counts[name]):,} in {name}"
                                                                 for name, count in none.items()))
    return Splits(train=train, validation=validation, test=test, facts=facts, skipped=tuple(opened.skipped),
                  notes=(*reading.notes(), *notes, *remarks))
