"""An index of 100,000 vectors of 384 numbers beside usearch alone: time to build it, and of a query, and how many nearest are found.

python -m benchmarks.search     # about 4 min on 2 cores; needs the extra `search`
Vectors are drawn around 2,000 middles, as those of sentences lie around subjects; queries likewise. Ours is `write_store` and
`Store.nearest`, one query at a time; both have the same settings of the graph. They take turns; medians of three.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROWS, WIDTH, QUERIES, NEAREST, ROUNDS = 100_000, 384, 1_000, 10, 3


def drawn() -> tuple[np.ndarray, np.ndarray]:
    """(vectors [ROWS, WIDTH], queries [QUERIES, WIDTH]) float32 of length 1."""
    draw = np.random.default_rng(0)
    middles = draw.normal(size=(2_000, WIDTH))
    found = middles[draw.integers(0, len(middles), ROWS + QUERIES)] + draw.normal(size=(ROWS + QUERIES, WIDTH)) * 0.8
    found = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
    return found[:ROWS], found[ROWS:]


def timed(work: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def main() -> None:
    from usearch.index import Index

    from extensions.search import store

    vectors, queries = drawn()
    rows = [{"text": f"row {number}"} for number in range(ROWS)]
    true = [set(row) for row in np.argpartition(-(queries @ vectors.T), NEAREST, axis=1)[:, :NEAREST].tolist()]

    def recall(found: list[Any]) -> float:
        return float(np.mean([len(one & set(np.ravel(given).tolist())) / NEAREST for one, given in zip(true, found)]))

    def alone() -> Any:
        graph = Index(ndim=WIDTH, metric="cos", dtype="f32", connectivity=store.CONNECTIVITY, expansion_add=store.CONSTRUCTION,
                      expansion_search=store.EXPANSION)
        graph.add(np.arange(ROWS), vectors)
        return graph

    times: dict[str, list[float]] = {name: [] for name in ("build", "build alone", "ask", "ask alone")}
    found: dict[str, float] = {}
    for _ in range(ROUNDS):
        graph, seconds = timed(alone)
        times["build alone"].append(seconds)
        given, seconds = timed(lambda graph=graph: [graph.search(one, NEAREST).keys for one in queries])
        times["ask alone"].append(seconds)
        found["alone"] = recall(given)
        with tempfile.TemporaryDirectory() as folder:
            _, seconds = timed(lambda folder=folder: store.write_store(Path(folder), vectors, rows, "preset", "0" * 64, []))
            times["build"].append(seconds)
            opened = store.Store.open(Path(folder))
            given, seconds = timed(lambda opened=opened: [opened.nearest(one[None], NEAREST)[0] for one in queries])
            times["ask"].append(seconds)
            found["ours"] = recall(given)
    middle = {name: statistics.median(values) for name, values in times.items()}
    print(f"build         {middle['build']:.1f} s, usearch alone {middle['build alone']:.1f} s: "
          f"{middle['build'] / middle['build alone']:.2f} x")
    print(f"a query       {1e3 * middle['ask'] / QUERIES:.2f} ms, alone {1e3 * middle['ask alone'] / QUERIES:.2f} ms: "
          f"{middle['ask'] / middle['ask alone']:.2f} x")
    print(f"found         {found['ours']:.3f} of the {NEAREST} nearest, alone {found['alone']:.3f}")


if __name__ == "__main__":
    main()
