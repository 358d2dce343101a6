"""MovieLens latest-small: our three shipped experiments beside implicit's ALS and BPR, and Surprise's SVD and SVD++, in one run.

python -m benchmarks.movielens            # about 8 minutes on 2 cores; needs movielens prepared and the extra `bench`

Lists: each user's last rating by time is test, all ratings count as positive, all items not rated before are ranked, items
that train does not have count as missed. All train on everything but the last; the peers' settings are the best of a grid by the one
before. Ratings: the same random tenth is held out for all; the peers train on the other nine tenths, ours on these less its share
for validation.
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
from pipelines.task.intervals import mean
from recsys.data.protocol import TEST
from recsys.data.splits import load as read
from recsys.metrics.baselines import USERS, top
from recsys.metrics.per_user import hits, per_user
from recsys.metrics.users import user_sources

K = 10


ALS = [{"factors": factors, "regularization": regularization, "alpha": alpha}
       for factors in (16, 32, 64) for regularization in (0.01, 0.1, 1.0) for alpha in (1.0, 5.0, 20.0)]
BPR = [{"factors": factors, "learning_rate": rate, "regularization": regularization, "iterations": rounds}
       for factors in (32, 64) for rate in (0.01, 0.05) for regularization in (0.01, 0.05) for rounds in (100, 300)]


def lists() -> None:
    """HR@10 and NDCG@10 of the peers on our split: of a small grid, what is best on validation, fitted again with it."""
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking

    made, _ = read(load("recsys/movielens_sequential", ["data.validation=0.1"]).experiment.data)
    sources = user_sources(made, length=1, exclude_seen=True)
    for name, kind, grid in (("implicit ALS", AlternatingLeastSquares, ALS), ("implicit BPR", BayesianPersonalizedRanking, BPR)):
        tried = [float(factorised(kind, settings, sources["validation"])["ndcg"].mean()) for settings in grid]
        best = grid[int(np.argmax(tried))]
        began = time.perf_counter()
        found = factorised(kind, best, sources["test"])
        seconds, ndcg, rate = time.perf_counter() - began, mean(found["ndcg"]), found["hit_rate"].mean()
        value = f"{ndcg.value:.4f} [{ndcg.low:.4f}, {ndcg.high:.4f}]"
        print(f"{name}, {best}: HR@{K} {rate:.4f}, NDCG@{K} {value}, {seconds:.1f} s", flush=True)


def factorised(kind: Any, settings: dict[str, Any], source: Any) -> dict[str, np.ndarray]:
    """The metrics of each user with one of implicit's models, fitted on what is visible of all."""
    people, items = source.people, source.basis.items
    rows, held, counts = people.pairs(np.arange(len(people)))
    seen = people.matrix(items, np.arange(len(people)))
    model = kind(random_state=0, **settings)
    model.fit(sparse.csr_matrix(seen), show_progress=False)
    values = np.asarray(model.user_factors) @ np.asarray(model.item_factors).T
    places = iter(range(0, len(people), USERS))

    def scores(part: sparse.csr_matrix) -> np.ndarray:
        start = next(places)
        return values[start:start + part.shape[0]]

    return per_user(hits(top(scores, seen, seen, K, source.basis.allowed), rows, held, items), counts, K)


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
          f"input wait {timing['input_wait_fraction'] or 0:.1%}", flush=True)


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
