"""Answers in passages: how good they are, whether none is given where there is none, and what a report shows of them."""

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from nlp.data.passages import ANSWERS
from nlp.metrics.exactness import compare
from pipelines.base import figures
from pipelines.base.marked import MarkedText, Piece
from pipelines.data.source import Source
from pipelines.task import intervals
from pipelines.task.results import Judgement, worst_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = 8  # of questions, by their first word, that are told apart
AROUND = 160  # characters of a passage on both sides of an answer in a table
Arrays = dict[str, np.ndarray]


def text_of(characters: np.ndarray, start: int, end: int) -> str:
    """Of code points."""
    return "".join(map(chr, characters[start:end].tolist()))


def compared(starts: np.ndarray, ends: np.ndarray, true: np.ndarray, characters: np.ndarray) -> Arrays:
    """f1 and exact [n] float64 of the most probable answers, and whether there is one, `answerable` [n] bool.

    Args:
        starts, ends: [n] int32, characters.
        true: [n, any, 2] int32, places of the true ones, whose ends are 0 behind the last.
        characters: [n, any] int32, the passages as code points.
    """
    found = np.zeros((len(true), 2))
    for row, (start, end, places, letters) in enumerate(zip(starts.tolist(), ends.tolist(), true.tolist(), characters)):
        found[row] = compare(text_of(letters, start, end), [text_of(letters, *place) for place in places if place[1] > 0])
    return {"f1": found[:, 0], "exact": found[:, 1], "answerable": np.any(true[..., 1] > 0, axis=1)}


def scored(answers: Arrays, threshold: float | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(F1, exact match, whether no answer is given) of each question, [n] each, where none is given from a probability on."""
    none = answers["nothing"] > (0.5 if threshold is None else threshold)
    right = np.where(none, ~answers["answerable"], 0.0)
    f1, exact = (np.where(none, right, np.where(answers["answerable"], answers[name], 0.0)) for name in ("f1", "exact"))
    return f1, exact, none


def threshold_of(answers: Arrays) -> float:
    """The probability of no answer from which none is given: the one by which F1 is highest, in the middle between two of them."""
    order = np.argsort(-answers["nothing"], kind="stable")
    nothing = answers["nothing"][order]
    given = np.where(answers["answerable"], answers["f1"], 0.0)[order]
    none = (~answers["answerable"])[order]
    # the first so many have none
    total = np.concatenate([[0.0], np.cumsum(none)]) + given.sum() - np.concatenate([[0.0], np.cumsum(given)])
    edges = np.concatenate([[1.0], (nothing[1:] + nothing[:-1]) / 2, [0.0]])
    apart = np.concatenate([[True], nothing[1:] < nothing[:-1], [True]])
    return float(edges[np.where(apart, total, -1.0).argmax()])


def judge(output: Any, answers: Arrays, source: Source) -> Judgement:
    """Exact match and F1 with intervals, by the first word of the question, and the questions whose answers are worst."""
    settings, unanswerable = output.experiment.evaluate, output.facts["unanswerable"]
    units = output.input.units(source)
    f1, exact, none = scored(answers, output.facts.get("no_answer_threshold"))
    how: Any = {"resamples": settings.bootstrap, "units": units}
    metrics = {"answer_f1": intervals.mean(f1, **how), "exact_match": intervals.mean(exact, **how)}
    answerable = answers["answerable"]
    for name, which, values in (("answerable_f1", answerable, f1), ("no_answer_accuracy", ~answerable, none)):
        if not answerable.all() and which.any():
            metrics[name] = intervals.mean(values[which].astype(float), resamples=settings.bootstrap,
                                           units=units.pick(np.flatnonzero(which)))
    names = [source.name(number) for number in range(len(source))]
    judgement = Judgement(metrics, units=units, notes=units.notes(), predictions={
        "example": names, "answer_f1": f1, "exact_match": exact, "start": answers["starts"][:, 0], "end": answers["ends"][:, 0],
        "score": answers["chances"][:, 0], **({"no_answer": answers["nothing"]} if unanswerable else {})})
    judgement.notes.append("Exact match and F1 are of words without case, punctuation and English articles, the best over the true "
                           "answers, as SQuAD's own script counts them.")
    threshold = output.facts.get("no_answer_threshold")
    if threshold is not None:
        judgement.notes.append(f"No answer is given where its probability is above {threshold:.3f} (by validation).")
    questions, passages = _texts(source)
    judgement.tables["questions"] = _by_kind(questions, f1, exact, how)
    judgement.figures["certainty"] = certainty(np.maximum(answers["chances"][:, 0], np.where(none, answers["nothing"], 0.0)), f1)
    worst = worst_numbers(output, answers, {}, settings.worst)
    packed = source.gather(tf.constant([number for number, _ in worst], tf.int64))[ANSWERS].numpy() if worst else []
    judgement.tables["worst_mistakes"] = [
        {"number": number, "example": names[number], "answer_f1": score, "question": questions[number],
         "true": " | ".join(dict.fromkeys(passages[number][start:end] for start, end in np.frombuffer(one, np.int32).reshape(-1, 2)))
         or "no answer",
         "found": "no answer" if none[number] else marked(passages[number], int(answers["starts"][number, 0]),
                                                          int(answers["ends"][number, 0]))}
        for (number, score), one in zip(worst, packed)]
    return judgement


def _by_kind(questions: list[str], f1: np.ndarray, exact: np.ndarray, how: Any) -> list[dict[str, Any]]:
    """Scores of questions by their first word."""
    first = np.array([(question.split() or ["?"])[0].lower() for question in questions])
    table = []
    often = [word for word, _ in Counter(first.tolist()).most_common(KINDS)]
    for word in [*often, None]:
        which = np.flatnonzero(~np.isin(first, often) if word is None else first == word)
        if len(which):
            metric = intervals.mean(f1[which], resamples=how["resamples"], units=how["units"].pick(which))
            table.append({"question": word or "others", "examples": len(which), "f1": metric.value, "f1_low": metric.low,
                          "f1_high": metric.high, "exact match": float(exact[which].mean())})
    return table


def certainty(chances: np.ndarray, f1: np.ndarray) -> "Figure":
    """F1 of the answers whose probability is highest, by how many of all these are."""
    order = np.argsort(-chances, kind="stable")
    count = np.arange(1, 1 + len(order))
    from_here = min(len(order) - 1, max(0, len(order) // 50))  # of fewer the mean says nothing
    with figures.style():
        drawn = figures.new_figure(5.0, 3.5)
        axis = drawn.add_subplot()
        axis.plot((count / len(order))[from_here:], (np.cumsum(f1[order]) / count)[from_here:])
        axis.set(xlabel="share of the questions, surest answers first", ylabel="F1 of these", ylim=(0.0, 1.02), xlim=(0.0, 1.0))
        for one in (axis.xaxis, axis.yaxis):
            one.set_major_formatter("{x:.0%}")
    return drawn


def marked(passage: str, start: int, end: int) -> MarkedText:
    """An answer, marked, with what stands around it."""
    before, behind = passage[max(0, start - AROUND):start], passage[end:end + AROUND]
    around = f"{'...' if start > AROUND else ''}{before}", f"{behind}{'...' if end + AROUND < len(passage) else ''}"
    own, (left, right) = re.sub(r"\s+", " ", passage[start:end]), (re.sub(r"\s+", " ", text) for text in around)
    return MarkedText([Piece(left.lstrip()), Piece(own, 0), Piece(right.rstrip())])


def _texts(source: Source) -> tuple[list[str], list[str]]:
    rows = source.gather(tf.range(len(source), dtype=tf.int64))
    return tuple([text.decode("utf-8", "replace") for text in rows[name].numpy()] for name in ("text", "text_pair"))  # type: ignore


def marked_questions(source: Source, numbers: list[int]) -> list[str]:
    """Questions of a source with their passages, in which the first answer stands in brackets."""
    rows = source.gather(tf.constant(numbers, tf.int64))
    lines = []
    for question, passage, packed in zip(*(rows[name].numpy() for name in ("text", "text_pair", ANSWERS))):
        text, places = passage.decode("utf-8", "replace"), np.frombuffer(packed, np.int32).tolist()
        shown = marked(text, *places[:2]) if places else f"{' '.join(text[:2 * AROUND].split())} (no answer)"
        lines.append(f"{question.decode('utf-8', 'replace')} | {shown}")
    return lines
