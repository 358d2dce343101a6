"""How well an index answers queries of which it is known what should be found."""

from collections.abc import Iterable, Sequence

import numpy as np

from pipelines.task import intervals
from pipelines.task.results import Metric

DEPTH = 10


def judge_answers(scores: Sequence[tuple[float, float]]) -> dict[str, Metric]:
    """The means of F1 and exact match of each question, with intervals over questions."""
    columns = np.array(scores).reshape(-1, 2).T
    return {name: intervals.mean(values) for name, values in zip(("answer_f1", "exact_match"), columns)}


def judge(found: Iterable[Sequence[str | None]], wanted: Sequence[str], indexed: Sequence[str | None]) -> dict[str, Metric]:
    """nDCG, MRR, recall and precision at DEPTH, with intervals over queries. A row is relevant where its value is that of the query; a
    query without relevant rows is not counted. Of nDCG the gain is 1 and the discount log2(1 + place) (Järvelin and Kekäläinen 2002).

    Args:
        found: of each query the values of the rows found, best first.
        wanted: the value of each query.
        indexed: the value of every row.
    """
    values, counts = np.unique([value for value in indexed if value is not None], return_counts=True)
    relevant = dict(zip(values.tolist(), counts.tolist()))
    discounts = 1.0 / np.log2(np.arange(2, DEPTH + 2))
    table = list[list[float]]()
    for given, value in zip(found, wanted):
        if not (total := relevant.get(value, 0)):
            continue
        hits = np.array([one == value for one in given[:DEPTH]] + [False] * (DEPTH - len(given[:DEPTH])))
        first = float(1.0 / (1 + np.argmax(hits))) if hits.any() else 0.0
        table.append([float((hits * discounts).sum() / discounts[:min(total, DEPTH)].sum()), first, hits.sum() / total, hits.mean(), 1.0])
    sums = np.array(table).reshape(-1, 5)
    names = (f"ndcg@{DEPTH}", f"mrr@{DEPTH}", f"recall@{DEPTH}", f"precision@{DEPTH}")
    return {name: intervals.interval(sums[:, [place, 4]], lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1.0))
            for place, name in enumerate(names)}
