"""`quartet check` for questions with answers in passages: each read once; copies, questions without an answer, and what cannot be used."""

import hashlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from nlp.data.passages import answers_in, open_questions
from nlp.settings import PassageAnswers
from pipelines.base.errors import DataError
from pipelines.data.check import LEVELS, Check, Finding, Read, check
from pipelines.data.divide import divide
from pipelines.data.opened import LENIENT
from pipelines.data.source import Source


def check_answers(experiment: PassageAnswers, progress: Callable[[int, int], None] | None = None) -> Check:
    """Raises DataError where there are no splits to look at; everything else is a finding."""
    data = experiment.data
    opened, reading = open_questions(data.model_copy(update=LENIENT))
    train, validation, test, notes = divide(opened.names, opened.load, data, opened.place)
    there: dict[str, Source] = {name: source for name, source in (("train", train), ("validation", validation), ("test", test)) if source}
    if not len(train):
        raise DataError(f"{opened.place}: train has no question that can be used")
    reads = {name: _read(source) for name, source in there.items()}
    result = check(opened.place, dict(there), reads, [], identical="the same question about the same passage",
                   skip=data.on_bad_example == "skip", lost=opened.skipped, notes=[*reading.notes(), *notes])
    for name, source in there.items():
        none = sum(not places for places in answers_in(source))
        if none == len(source):
            result.findings.append(Finding("error" if name == "train" else "warning", f"{name}: no question has an answer"))
        elif none:
            result.findings.append(Finding("note", f"{name}: {none:,} of {len(source):,} questions have no answer in their passage"))
        long = int((reads[name].measures["words of the longest answer"] > experiment.answer.longest).sum())
        if long:
            result.findings.append(Finding("warning", f"{name}: {long:,} questions have an answer of more than {experiment.answer.longest} "
                                           "words, which is never found whole (answer.longest)"))
    result.findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return result


def _read(source: Source) -> Read:
    rows = source.gather(tf.range(len(source), dtype=tf.int64))
    questions, passages = ([text.decode("utf-8", "replace") for text in rows[name].numpy()] for name in ("text", "text_pair"))
    prints = [hashlib.blake2b("\0".join(both).encode(), digest_size=8).digest() for both in zip(questions, passages)]
    answers = [max((len(passage[start:end].split()) for start, end in places), default=0)
               for passage, places in zip(passages, answers_in(source))]
    measures = {"words of the question": [len(text.split()) for text in questions],
                "of the passage": [len(text.split()) for text in passages], "words of the longest answer": answers}
    return Read([], np.array([int.from_bytes(one, "little") for one in prints], np.uint64),
                {name: np.array(values) for name, values in measures.items()})
