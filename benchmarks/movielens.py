"""MovieLens latest-small: our three shipped experiments beside implicit's ALS and BPR, and Surprise's SVD and SVD++, in one run.

python -m benchmarks.movielens            # about 8 minutes on 2 cores; needs movielens prepared and the extra `bench`

Lists: each user's last rating by time is test, all ratings count as positive, all items not rated before are ranked, items
that train does not have count as missed. The peers train on all that we train on, the validation items included, with the settings named
here. Ratings: the same random tenth is held out for all; the peers train on the other nine tenths, ours on these less its validation share.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.product import machine, train
from pipelines.config.load import load
from pipelines.reports.intervals import mean
from recsys.baselines import top
from recsys.data import load as read
from recsys.metrics import hits, per_user
from recsys.protocol import TEST
from recsys.users import user_sources

K = 10


def lists() -> None:
    """HR@10 and NDCG@10 of the peers on our split."""
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking

    made, _ = read(load("recsys/movielens_sequential", []).experiment.data)
    test = user_sources(made, length=1, exclude_seen=True)["test"]
    people, items = test.people, len(made.item_ids)  # type: ignore[arg-type]
    numbers = np.arange(len(people))
    rows, held, counts = people.pairs(numbers)
    seen = people.matrix(items, numbers)
    allowed = np.arange(items + 1) > 0
    for name, model in (
        ("implicit ALS", AlternatingLeastSquares(factors=64, regularization=0.05, alpha=20.0, iterations=15, random_state=0)),
        ("implicit BPR", BayesianPersonalizedRanking(factors=64, learning_rate=0.05, regularization=0.01, iterations=100, random_state=0)),
    ):
        began = time.perf_counter()
        model.fit(sparse.csr_matrix(seen), show_progress=False)
        seconds = time.perf_counter() - began
        vectors, others = np.asarray(model.user_factors), np.asarray(model.item_factors)
        places = iter(range(0, len(people), 256))

        def scores(part: sparse.csr_matrix, places: Any = places, vectors: np.ndarray = vectors, others: np.ndarray = others) -> np.ndarray:
            start = next(places)
            return vectors[start:start + part.shape[0]] @ others.T

        found = per_user(hits(top(scores, seen, seen, K, allowed), rows, held, items), counts, K)
        ndcg = mean(found["ndcg"])
        rate = found["hit_rate"].mean()
        print(f"{name}: HR@{K} {rate:.4f}, NDCG@{K} {ndcg.value:.4f} [{ndcg.low:.4f}, {ndcg.high:.4f}], {seconds:.1f} s", flush=True)


def ours(config: str, *overrides: str) -> None:
    """One of our experiments, and its baselines."""
    began = time.perf_counter()
    report = train(config, *overrides, domain="recsys")
    seconds = time.perf_counter() - began
    timing = report["timing"]
    for row in report["tables"]["test/model_and_baselines"]:
        if f"ndcg@{K}" in row:
            print(f"{config}, {row['of']}: HR@{K} {row[f'hit_rate@{K}']:.4f}, NDCG@{K} {row[f'ndcg@{K}']:.4f} "
                  f"[{row[f'ndcg@{K}_low']:.4f}, {row[f'ndcg@{K}_high']:.4f}]", flush=True)
        else:
            print(f"{config}, {row['of']}: RMSE {row['rmse']:.4f} [{row['rmse_low']:.4f}, {row['rmse_high']:.4f}]", flush=True)
    print(f"{config}: training {timing['train_seconds']:.1f} s, setup {timing['setup_seconds']:.1f} s, whole command {seconds:.1f} s, "
          f"input wait {timing['input_wait_fraction']:.1%}", flush=True)


def ratings() -> None:
    """RMSE of Surprise's SVD and SVD++ on our random tenth."""
    from surprise import SVD, Dataset, Reader, SVDpp

    made, _ = read(load("recsys/movielens_rating", []).experiment.data)
    log = made.log
    assert log.users is not None and log.items is not None and log.ratings is not None
    known = np.flatnonzero(made.parts != TEST)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ratings.tsv"
        np.savetxt(file, np.stack([log.users[known], log.items[known], log.ratings[known]], 1), fmt=("%d", "%d", "%g"), delimiter="\t")
        reader = Reader(line_format="user item rating", sep="\t", rating_scale=(0.5, 5.0))
        whole = Dataset.load_from_file(str(file), reader).build_full_trainset()
    held = np.flatnonzero(made.parts == TEST)
    for name, model in (("Surprise SVD", SVD(random_state=0)), ("Surprise SVD++", SVDpp(random_state=0))):
        began = time.perf_counter()
        model.fit(whole)
        seconds = time.perf_counter() - began
        said = np.array([model.predict(str(log.users[number]), str(log.items[number])).est for number in held])
        print(f"{name}: RMSE {np.sqrt(np.mean((said - log.ratings[held]) ** 2)):.4f}, {seconds:.1f} s", flush=True)


PARTS = {"lists": lists, "ratings": ratings, "retrieval": lambda: ours("recsys/movielens_retrieval"),
         "sequential": lambda: ours("recsys/movielens_sequential"), "rating": lambda: ours("recsys/movielens_rating")}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    print(machine(), flush=True)
    for part in parser.parse_args().parts:
        PARTS[part]()
