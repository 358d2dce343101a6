"""Recommendation at scale: the step's rate beside PyTorch and Keras, its growth with the catalogue, judging, and reading.

python -m benchmarks.recommendation [--parts rate keras growth judging reading start]     # about 10 minutes on 2 cores, 6 GB; extra `bench`

rate      made data, 10 M events of 1 M users and 100 k items (popular items as 1 / rank^0.8): two towers of ids alone, width 64, batch
          8,192, in-batch softmax with correction for frequency; examples/s of ours (input included) and of PyTorch with sparse gradients
          (Adagrad), in turns, the median of each; and the share of its time that ours waits for input
keras     the same model in stock Keras `fit` with Adam
growth    ms a step of ours with 10 k and with 1 M items, all drawn alike, batch 1,024: nearly as many rows are touched either way
judging   the product's judging of 100 k users with 100 k items, one item of each held out of 2 M events, two towers of width 64: seconds
          of the lists (the best 50 of all), of report and baselines, and memory
reading   10 M rows of CSV: seconds and memory
start     rows of Parquet with times (--events, 100 events a user, a hundredth of them judged by time) to the second step of two towers of
          width 16: seconds, of the clock and of the processor, and memory
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.product import machine

EVENTS, USERS, ITEMS, WIDTH, BATCH = 10_000_000, 1_000_000, 100_000, 64, 8192


def events(items: int = ITEMS, users: int = USERS, count: int = EVENTS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(users, items), [count] each."""
    rng = np.random.default_rng(seed)
    odds = np.cumsum(1.0 / np.arange(1, items + 1) ** 0.8)
    return rng.integers(0, users, count), np.minimum(np.searchsorted(odds, rng.random(count) * odds[-1]), items - 1)


def session(
    folder: Path, items: int, users: int, count: int, *, batch: int = BATCH, alike: bool = False, data: dict[str, Any] | None = None
) -> Any:
    """A training of ours, assembled by the product from a table on disk.

    Args:
        alike: every item occurs, and about as often as any other.
        data: other settings of the data.
    """
    import pyarrow as pa
    import pyarrow.parquet

    from pipelines.config.load import from_dict
    from pipelines.runs.launch import task_class
    from pipelines.training.session import assemble

    who, what = events(items, users, count)
    if alike:
        what = np.random.default_rng(1).permutation(np.arange(count) % items)
    path = folder / f"events-{items}.parquet"
    pyarrow.parquet.write_table(pa.table({"user": who, "item": what}), path)
    experiment = from_dict(
        {
            "task": "recsys.retrieval",
            "data": {"source": "table", "path": str(path), "validation": 0.0, "test": None, "protocol": "random", **(data or {})},
            "model": {"name": "towers", "width": WIDTH, "history": 0, "dropout": 0.0, "popularity": False, "temperature": 0.1},
            "train": {"batch_size": batch, "epochs": 1, "precision": "float32", "devices": "cpu", "tables": {"learning_rate": 0.1}},
        },
        [],
        check_paths=False,
    )
    return assemble(experiment, task_class("recsys.retrieval"))


def rates(one: Any, rounds: int, steps: int, batch: int = BATCH) -> tuple[list[float], list[float]]:
    """(examples/s, share of the time spent waiting for input) of each round."""
    carry, at, found, waits = one.step.fresh(), 0, list[float](), list[float]()
    _, carry = one.step(one.feed.iterator(0, 2), 0, 2, carry)
    at = 2
    for _ in range(rounds):
        iterator = one.feed.iterator(at, at + steps)
        began, before = time.perf_counter(), float(carry.waited)
        at, carry = one.step(iterator, at, steps, carry)
        float(carry.loss)
        seconds = time.perf_counter() - began
        found.append(steps * batch / seconds)
        waits.append((float(carry.waited) - before) / seconds)
    return found, waits


def torch_rate(rounds: int, steps: int) -> list[float]:
    """The same in PyTorch: sparse embeddings and Adagrad, batches as it draws them itself."""
    import torch
    from torch.nn import functional

    who, what = (torch.from_numpy(values) for values in events())
    users, items = (torch.nn.Embedding(count, WIDTH, sparse=True) for count in (USERS, ITEMS))
    for table in (users, items):
        torch.nn.init.normal_(table.weight, 0, 0.1)
    optimizer = torch.optim.Adagrad([*users.parameters(), *items.parameters()], lr=0.1)
    frequency = torch.log(torch.bincount(what, minlength=ITEMS).clamp(min=1).float() / EVENTS * BATCH)
    labels, found = torch.arange(BATCH), []
    generator = torch.Generator().manual_seed(0)
    for turn in range(rounds + 1):
        began = time.perf_counter()
        for _ in range(steps if turn else 2):
            part = torch.randint(0, EVENTS, (BATCH,), generator=generator)
            mine = what[part]
            left, right = functional.normalize(users(who[part])), functional.normalize(items(mine))
            logits = left @ right.T / 0.1 - frequency[mine]
            same = mine[None, :] == mine[:, None]
            same.fill_diagonal_(False)
            loss = functional.cross_entropy(logits.masked_fill(same, -1e9), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if turn:
            found.append(steps * BATCH / (time.perf_counter() - began))
    return found


def keras_rate(steps: int) -> float:
    """The same in stock Keras: `fit` with Adam, data from arrays."""
    import keras
    import tensorflow as tf

    who, what = events()
    part = slice(0, (steps + 2) * BATCH)
    frequency = tf.constant(np.log(np.maximum(np.bincount(what, minlength=ITEMS), 1) / EVENTS * BATCH), tf.float32)

    class Towers(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = keras.layers.Embedding(USERS, WIDTH), keras.layers.Embedding(ITEMS, WIDTH)

        def call(self, inputs: Any) -> Any:
            left, right = tf.math.l2_normalize(self.left(inputs[0]), -1), tf.math.l2_normalize(self.right(inputs[1]), -1)
            logits = tf.matmul(left, right, transpose_b=True) / 0.1 - tf.gather(frequency, inputs[1])
            same = (inputs[1][None, :] == inputs[1][:, None]) & ~tf.eye(tf.shape(logits)[0], dtype=tf.bool)
            return tf.where(same, -1e9, logits)

    def loss(_: Any, logits: Any) -> Any:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(logits)[0]), logits)

    model = Towers()
    model.compile(keras.optimizers.Adam(), loss)

    class Clock(keras.callbacks.Callback):
        began = 0.0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                self.began = time.perf_counter()

    clock = Clock()
    model.fit((who[part], what[part]), np.zeros(part.stop), batch_size=BATCH, epochs=1, verbose=0, callbacks=[clock])
    return steps * BATCH / (time.perf_counter() - clock.began)


def rate(folder: Path) -> None:
    ours: list[float] = []
    waits: list[float] = []
    theirs: list[float] = []
    began = time.perf_counter()
    one = session(folder, ITEMS, USERS, EVENTS)
    print(f"10 M events read, divided and numbered in {time.perf_counter() - began:.0f} s, writing them included", flush=True)
    for _ in range(2):
        for known, new in zip((ours, waits), rates(one, 1, 12)):
            known += new
        theirs += apart("torch", 1, 12)
    mine, other = statistics.median(ours), statistics.median(theirs)
    print(
        f"towers, batch {BATCH:,}: quartet {mine:,.0f} examples/s {[round(v) for v in ours]}; PyTorch sparse {other:,.0f} "
        f"{[round(v) for v in theirs]}; ratio {mine / other:.2f}; ours waits for input {statistics.median(waits):.1%} of the time, in the "
        f"worst round {max(waits):.1%}",
        flush=True,
    )


def keras_part(folder: Path) -> None:
    print(f"stock Keras fit, Adam: {apart('keras', 1, 4)[0]:,.0f} examples/s", flush=True)


def growth(folder: Path) -> None:
    import recsys.models.store as store

    store.SPARSE_FROM = 1_000  # tables on both sides of the comparison
    found, batch = {}, 1024
    for items in (10_000, 1_000_000):
        one = session(folder, items, 100_000, 2_000_000, batch=batch, alike=True)
        found[items] = statistics.median(1000 * batch / value for value in rates(one, 5, 40, batch)[0])
    small, large = found.values()
    print(f"step, batch {batch:,}: 10 k items {small:.1f} ms, 1 M items {large:.1f} ms, ratio {large / small:.2f}", flush=True)


def judging(folder: Path) -> None:
    from pipelines.training.evaluation import Evaluator

    began = time.perf_counter()
    one = session(folder, ITEMS, 100_000, 2_000_000, batch=1024, alike=True, data={"protocol": "leave_last_out", "test": "test"})
    assert one.splits.test is not None
    print(f"2 M events read, divided and numbered in {time.perf_counter() - began:.0f} s, {memory():.1f} GB held at most", flush=True)
    began = time.perf_counter()
    evaluator = Evaluator(one.task, one.model, one.splits.test, machine=one.machine)
    answers, targets = evaluator.judged()
    lists = time.perf_counter() - began
    print(f"{len(one.splits.test):,} users x {ITEMS:,} items, width {WIDTH}: lists in {lists:.0f} s", flush=True)
    began = time.perf_counter()
    judgement = one.task.output.judge(answers, targets, one.splits.test)
    names = [row["of"] for row in judgement.tables["model_and_baselines"]]
    left = [note for note in judgement.notes if "left out" in note]
    print(
        f"judged beside {', '.join(names[1:])} in {time.perf_counter() - began:.0f} s, {memory():.1f} GB held at most; {'; '.join(left)}",
        flush=True,
    )


def reading(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv

    from pipelines.config.load import from_dict
    from recsys.data.splits import load

    who, what = events()
    rng = np.random.default_rng(1)
    table = pa.table(
        {"user": who, "item": what, "rating": rng.integers(1, 11, EVENTS) / 2, "time": rng.integers(1_600_000_000, 1_700_000_000, EVENTS)}
    )
    path = folder / "events.csv"
    pyarrow.csv.write_csv(table, path)
    code = (
        "import sys, time, resource; from pipelines.config.load import from_dict; from recsys.data.sources import read_log; import json; "
        "began = time.perf_counter(); log = read_log(from_dict(json.loads(sys.argv[1]), [], check_paths=False).data); "
        "print(json.dumps([time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, len(log)]))"
    )
    settings = {
        "task": "recsys.retrieval",
        "model": {"name": "towers"},
        "data": {"source": "table", "path": str(path), "time_key": "time", "rating_key": "rating"},
    }
    assert from_dict(settings, [], check_paths=False) and load
    done = subprocess.run([sys.executable, "-c", code, json.dumps(settings)], capture_output=True, text=True, check=True)
    seconds, size, count = json.loads(done.stdout.strip().splitlines()[-1])
    print(
        f"{count:,} rows of CSV ({path.stat().st_size / 1e6:.0f} MB) read in {seconds:.1f} s, {size:.1f} GB of memory at most", flush=True
    )


def start(folder: Path, count: int = EVENTS) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    path = folder / "timed.parquet"
    rows, piece = np.random.default_rng(2), 1_000_000
    with pyarrow.parquet.ParquetWriter(path, pa.schema([("user", pa.int64()), ("item", pa.int64()), ("time", pa.int64())])) as writer:
        for number in range(0, count, piece):
            who, what = events(ITEMS, max(1, count // 100), min(piece, count - number), seed=number)
            when = rows.integers(1_400_000_000, 1_700_000_000, len(who))
            writer.write_table(pa.table({"user": who, "item": what, "time": when}))
    command = [sys.executable, "-m", "benchmarks.recommendation", "--begin", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, processor, size = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"{count:,} rows of Parquet to the second step in {seconds:.0f} s ({processor:.0f} s of the processor), {size:.1f} GB of memory "
          "at most", flush=True)


def begun(path: str) -> list[float]:
    """(seconds, processor seconds, GB at most) of this process to the second step of a training from a table."""
    from pipelines.config.load import from_dict
    from pipelines.runs.launch import task_class
    from pipelines.training.session import assemble

    began = time.perf_counter()
    one = assemble(from_dict({
        "task": "recsys.retrieval",
        "data": {"source": "table", "path": path, "time_key": "time", "validation": 0.01, "test": 0.01, "protocol": "time"},
        "model": {"name": "towers", "width": 16, "history": 0, "dropout": 0.0, "popularity": False},
        "train": {"batch_size": 4096, "epochs": 1, "precision": "float32", "devices": "cpu"},
    }, [], check_paths=False), task_class("recsys.retrieval"))
    one.step(one.feed.iterator(0, 2), 0, 2, one.step.fresh())
    return [time.perf_counter() - began, time.process_time(), memory()]


def apart(what: str, rounds: int, steps: int) -> list[float]:
    """A peer's rates, from a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.recommendation", "--peer", what, str(rounds), str(steps)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def memory() -> float:
    """Most memory that this process has held, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


PARTS = {"rate": rate, "keras": keras_part, "growth": growth, "judging": judging, "reading": reading, "start": start}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--events", type=int, default=EVENTS, help="of the part `start`")
    parser.add_argument("--peer", nargs=3)
    parser.add_argument("--begin")
    asked = parser.parse_args()
    if asked.peer:
        kind, many, long = asked.peer[0], int(asked.peer[1]), int(asked.peer[2])
        print(json.dumps(torch_rate(many, long) if kind == "torch" else [keras_rate(long)]))
    elif asked.begin:
        print(json.dumps(begun(asked.begin)))
    else:
        print(machine(), flush=True)
        with tempfile.TemporaryDirectory() as place:
            for part in asked.parts:
                PARTS[part](Path(place), **({"count": asked.events} if part == "start" else {}))
