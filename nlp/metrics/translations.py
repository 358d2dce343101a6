"""How good written texts are: BLEU (Papineni et al. 2002) and chrF (Popovic 2015), as sacrebleu counts them (Post 2018), with intervals."""

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nlp.data.translations import rows_of
from pipelines.base import figures
from pipelines.data.source import Source
from pipelines.task import intervals
from pipelines.task.results import Judgement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 400  # characters of a text in a table
PARTS = 4  # of all texts, by how long they are
Sums = np.ndarray  # [texts, counts] float64


@cache
def scorer(name: str, tokenize: str) -> Any:
    """sacrebleu's metric, "bleu" or "chrf"."""
    from sacrebleu.metrics import BLEU, CHRF

    return BLEU(tokenize=tokenize, force=True) if name == "bleu" else CHRF()


def counts(metric: Any, written: list[str], references: list[str]) -> Sums:
    """What the metric counts of each text."""
    return np.asarray(metric._extract_corpus_statistics(written, [references]), np.float64).reshape(len(written), -1)


def score(metric: Any, sums: np.ndarray) -> np.ndarray:
    """The metric of sums over texts [m, counts], 0 to 100, [m]."""
    return np.array([metric._compute_score_from_stats(row.astype(int).tolist()).score for row in np.asarray(sums)])


def corpus(metric: Any, written: list[str], references: list[str]) -> float:
    return float(score(metric, counts(metric, written, references).sum(0)[None])[0])


def judge(output: Any, answers: dict[str, np.ndarray], source: Source) -> Judgement:
    """BLEU and chrF with intervals, by length, and the worst and some usual texts."""
    settings, units = output.experiment.evaluate, output.input.units(source)
    read, references = (rows_of(source, name) for name in ("text", "text_pair"))
    written = output.texts(answers["tokens"])
    sums = {name: counts(scorer(name, settings.tokenize), written, references) for name in ("bleu", "chrf")}
    metrics = {name: intervals.interval(one, partial(score, scorer(name, settings.tokenize)), resamples=settings.bootstrap, units=units)
               for name, one in sums.items()}
    each = score(scorer("chrf", settings.tokenize), sums["chrf"])
    names = [source.name(number) for number in range(len(source))]
    judgement = Judgement(metrics, units=units, notes=units.notes(), predictions={
        "example": names, "read": read, "true": references, "written": written, "chrf": each, "confidence": answers["confidence"]})
    signature = scorer("bleu", settings.tokenize).get_signature().format(short=True)
    judgement.notes.append(f"BLEU and chrF are sacrebleu's, 0 to 100 ({signature}); chrF of single texts says which are worst.")
    empty = sum(not text for text in written)
    if empty:
        judgement.notes.append(f"{empty:,} of {len(written):,} answers are empty.")
    lengths = np.array([len(text.split()) for text in read])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, PARTS + 1)[1:-1]).astype(int))
    part = np.searchsorted(edges, lengths, side="left")
    judgement.tables["by_length"] = [
        {"words read": _range(lengths[part == number]), "examples": int((part == number).sum()),
         "words true": float(np.mean([len(references[at].split()) for at in np.flatnonzero(part == number)])),
         "words written": float(np.mean([len(written[at].split()) for at in np.flatnonzero(part == number)])),
         **{name: float(score(scorer(name, settings.tokenize), one[part == number].sum(0)[None])[0]) for name, one in sums.items()}}
        for number in range(len(edges) + 1) if (part == number).any()]
    judgement.figures["certainty"] = certainty(answers["confidence"], each)
    order = np.argsort(each, kind="stable")
    middle = order[len(order) // 2:]
    for table, which in (("worst_mistakes", order[:settings.worst]), ("typical_answers", middle[:-(-settings.worst // 2)])):
        rows = [{"number": int(at), "example": names[at], "chrf": float(each[at]), "read": _short(read[at]), "true": _short(references[at]),
                 "written": _short(written[at])} for at in which]
        if rows:
            judgement.tables[table] = rows
    return judgement


def _range(values: np.ndarray) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low} to {high}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN - 3]}..."


def certainty(confidence: np.ndarray, each: np.ndarray) -> "Figure":
    """chrF of single texts by the mean probability of their tokens."""
    with figures.style():
        drawn = figures.new_figure(5.0, 3.5)
        axis = drawn.add_subplot()
        axis.scatter(confidence, each, s=6, alpha=0.4, linewidths=0)
        axis.set(xlabel="mean probability of the written tokens", ylabel="chrF of the text", ylim=(-2.0, 102.0), xlim=(0.0, 1.0))
    return drawn
