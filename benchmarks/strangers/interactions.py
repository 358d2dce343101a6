"""Strangers' interactions, and what they are compared with.

Lists: popularity, item kNN and EASE as the run itself reports them, and implicit's ALS. Ratings: the run's own biases, and Surprise's SVD.
"""

import csv
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.strangers.stranger import Baseline, Judged, Stranger, prepared, published

ALS = {"factors": 64, "regularization": 0.01, "alpha": 5.0, "iterations": 15}


def gowalla(folder: Path, choosing: bool) -> Path:
    return published("gowalla") / "checkins.csv"


def ml_1m(folder: Path, choosing: bool) -> Path:
    return published("ml_1m") / "interactions.csv"


MOVIELENS = {"user_id": "user_id", "movie_id": "movie_id", "rating": "user_rating", "timestamp": "timestamp", "title": "movie_title"}


def movielens(folder: Path, choosing: bool, columns: Sequence[str] = tuple(MOVIELENS)) -> Path:
    """MovieLens latest-small, as a CSV with these columns."""
    data = prepared("movielens/latest-small-ratings", "train")
    with (folder / "ratings.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*([one.decode() if isinstance(one, bytes) else one for one in data[MOVIELENS[name]].tolist()]
                               for name in columns)))
    return folder / "ratings.csv"


def baselines(judged: Judged) -> Iterator[Baseline]:
    kind, _, cutoff = judged.metric.partition("@")
    for row in judged.report["tables"].get(f"{judged.split}/model_and_baselines", []):
        if row["of"] != "model" and judged.metric in row:
            yield Baseline(row["of"], row[judged.metric], 0.0)
    if cutoff:
        yield from _als(judged, kind, int(cutoff))
    elif kind == "rmse":
        yield from _svd(judged)


def _als(judged: Judged, kind: str, k: int) -> Iterator[Baseline]:
    """implicit's ALS, fitted on what is visible of all users."""
    try:
        from implicit.als import AlternatingLeastSquares
    except ImportError:
        return
    from scipy import sparse

    from recsys.metrics.baselines import USERS, top
    from recsys.metrics.per_user import hits, per_user

    began = time.perf_counter()
    source = judged.unknown
    people, items = source.people, source.basis.items
    rows, held, counts = people.pairs(np.arange(len(people)))
    seen = people.matrix(items, np.arange(len(people)))
    model = AlternatingLeastSquares(random_state=0, **ALS)
    model.fit(sparse.csr_matrix(seen), show_progress=False)
    left, right = np.asarray(model.user_factors), np.asarray(model.item_factors)
    places = iter(range(0, len(people), USERS))

    def scores(part: sparse.csr_matrix) -> np.ndarray:
        start = next(places)
        return left[start:start + part.shape[0]] @ right.T

    lists = top(scores, seen, seen, k, source.basis.allowed)
    score = float(per_user(hits(lists, rows, held, items), counts, k)[kind].mean())
    yield Baseline("ALS", score, time.perf_counter() - began)


def _svd(judged: Judged) -> Iterator[Baseline]:
    """Surprise's SVD, with its defaults."""
    try:
        from surprise import SVD, Dataset, Reader
    except ImportError:
        return
    from recsys.data.protocol import TEST, TRAIN, VALIDATION
    from recsys.data.splits import load

    catalogue, _ = load(judged.task.experiment.data)
    log: Any = catalogue.log
    mine = [TRAIN, VALIDATION] if judged.split == "test" else [TRAIN]
    known, held = np.flatnonzero(np.isin(catalogue.parts, mine)), np.flatnonzero(
        catalogue.parts == (TEST if judged.split == "test" else VALIDATION))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ratings.tsv"
        np.savetxt(file, np.stack([log.users[known], log.items[known], log.ratings[known]], 1), fmt=("%d", "%d", "%g"), delimiter="\t")
        scale = (float(log.ratings[known].min()), float(log.ratings[known].max()))
        reader = Reader(line_format="user item rating", sep="\t", rating_scale=scale)
        whole = Dataset.load_from_file(str(file), reader).build_full_trainset()
    model = SVD(random_state=0)
    model.fit(whole)
    said = np.array([model.predict(str(log.users[number]), str(log.items[number])).est for number in held])
    yield Baseline("SVD", float(np.sqrt(np.mean((said - log.ratings[held]) ** 2))), time.perf_counter() - began)


_stranger = partial(Stranger, domain="recsys", baselines=baselines, expert=("ease", "SVD"))
SETS = [
    _stranger("gowalla", lay_out=gowalla, metrics=("ndcg@20", "ndcg@10")),
    _stranger("ml_1m", lay_out=ml_1m, metrics=("ndcg@10",)),
    _stranger("movielens", lay_out=movielens, metrics=("rmse", "ndcg@10")),
    _stranger("movielens_untimed", lay_out=partial(movielens, columns=("user_id", "movie_id", "rating")), metrics=("rmse",)),
    _stranger("movielens_pairs", lay_out=partial(movielens, columns=("user_id", "movie_id")), metrics=("ndcg@10",)),
]
