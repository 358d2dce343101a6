"""Text classification measured: beside fastText, the cost of a large table, the transformer beside PyTorch, and predictions a second.

python -m benchmarks.text fasttext        # about a minute on 2 cores; needs imdb_reviews prepared and the extra `bench`
python -m benchmarks.text clinc           # CLINC150's in-scope queries, the same
python -m benchmarks.text tables          # a step with 20,000 and with 2,000,000 rows
python -m benchmarks.text transformer     # training rate on the same padded batches, float32 and bfloat16
python -m benchmarks.text finetune        # a step that trains all of MiniLM-L6, beside BertModel of transformers; the preset is at hand
python -m benchmarks.text predict RUN     # RUN: a finished nlp/imdb_bag; the IMDB test set from CSV to CSV
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.product import machine, peer, train

TRANSFORMER = {"width": 128, "depth": 2, "heads": 4, "hidden": 512, "dropout": 0.1}
LIMIT, BATCH, STEPS = 256, 64, 12


def fasttext(name: str, config: str, epochs: tuple[int, ...]) -> None:
    """fastText's test accuracy and training time, then ours: the whole command, of which training and setup."""
    rows = [peer("fasttext_peer", name, "--epochs", str(count)) for count in epochs]
    for row in rows:
        print(f"fastText, {row['epochs']} epochs, rate {row['rate']}: {row['test_accuracy']:.2%} in {row['train_seconds']:.2f} s",
              flush=True)
    began = time.perf_counter()
    report = train(config, "monitor.tensorboard=false", domain="nlp")
    whole = time.perf_counter() - began
    accuracy, timing = report["metrics"]["test/accuracy"], report["timing"]
    print(f"quartet {config}: {accuracy['value']:.2%} [{accuracy['low']:.2%}, {accuracy['high']:.2%}], training "
          f"{timing['train_seconds']:.2f} s = {timing['train_seconds'] / rows[0]['train_seconds']:.2f} of fastText's; reading, cutting and "
          f"tracing before {timing['setup_seconds']:.2f} s; the whole command with judging {whole:.1f} s", flush=True)


def session(*overrides: str, rows: int | None = None):
    """A training assembled in this process, without its loop; `rows` gives the embedding more rows than its tokens have."""
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.config.load import load
    from pipelines.runs.launch import task_class
    from pipelines.training.session import assemble

    experiment = load("nlp/imdb_bag", ["data.test=null", *overrides]).experiment
    task = task_class(experiment.task)
    if rows is not None:
        from nlp import models

        def model(self):
            return models.build(self.experiment.model, size=rows, classes=len(self.classes), limit=self.experiment.cutting.limit)

        task = type("Larger", (task,), {"model": model})
    return assemble(experiment, task)


def seconds_a_step(made, steps: int, times: int = 3) -> float:
    """The least of some measurements, after a first that traces."""
    carry = made.step.fresh()
    _, carry = made.step(made.feed.iterator(0, steps), 0, steps, carry)
    found = []
    for _ in range(times):
        iterator = made.feed.iterator(0, steps)
        began = time.perf_counter()
        _, carry = made.step(iterator, 0, steps, carry)
        found.append((time.perf_counter() - began) / steps)
    return min(found)


def tables() -> None:
    """Milliseconds a step with a small and a large table: the same batches of words in both; and imdb_bag's pairs, hashed into each."""
    words = "tokens={name: words, vocabulary: 19998, html: true}"
    for what, settings in (("the same words", {20_000: words, 2_000_000: words}),
                           ("words and pairs, hashed", {rows: f"tokens.buckets={rows}" for rows in (20_000, 2_000_000)})):
        found, distinct = {}, {}
        for rows, setting in settings.items():
            made = session("data.limit=6400", setting, "train.batch_size=64", rows=rows)
            found[rows] = seconds_a_step(made, 80)
            distinct[rows] = mean_distinct(made, 80)
        print(f"{what}: " + "; ".join(f"{rows:,} rows {found[rows] * 1000:.2f} ms a step, {distinct[rows]:,.0f} of them looked up"
                                      for rows in found) + f": {found[2_000_000] / found[20_000]:.2f} x", flush=True)


def mean_distinct(made, steps: int) -> float:
    """Rows that a step looks up, each once."""
    import numpy as np

    ids = (made.feed.gather(made.feed.numbers(step)[0], 0)["tokens"].numpy() for step in range(steps))
    return float(np.mean([len(np.unique(some)) for some in ids]))


def transformer() -> None:
    """Texts a second of the product's step and of PyTorch, over the same batches."""
    sizes = ", ".join(f"{name}: {value}" for name, value in TRANSFORMER.items())
    for precision in ("float32", "bfloat16"):
        made = session(f"data.limit={BATCH * STEPS}", f"train.batch_size={BATCH}", f"train.precision={precision}",
                       "train.tables.optimizer=adam", f"model={{name: transformer, {sizes}}}",
                       f"tokens={{name: words, vocabulary: 20000, limit: {LIMIT}, html: true}}")
        ours = BATCH / seconds_a_step(made, STEPS)
        theirs, padded = in_torch(made, STEPS, precision, {**TRANSFORMER, "limit": LIMIT})
        print(f"{precision}: quartet {ours:,.0f} texts/s, PyTorch {theirs['texts_per_second']:,.0f}: "
              f"{ours / theirs['texts_per_second']:.2f} x "
              f"({padded:.0f} padded tokens a text)", flush=True)


def in_torch(made, steps: int, precision: str, sizes: dict, *options: str) -> tuple[dict, float]:
    """What PyTorch needs for a session's batches, and their padded tokens a text."""
    import numpy as np
    import tensorflow as tf

    arrays = {}
    for step in range(steps):
        examples = made.feed.gather(made.feed.numbers(tf.constant(step, tf.int64))[0], 0)
        arrays[f"ids_{step}"], arrays[f"labels_{step}"] = examples["tokens"].numpy(), examples["label"].numpy()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.npz"
        np.savez(path, **arrays)
        theirs = peer("torch_encoder", str(path), "--dtype", precision, "--sizes", json.dumps(sizes), *options)
    texts = sum(len(arrays[f"labels_{step}"]) for step in range(steps))
    return theirs, sum(arrays[f"ids_{step}"].size for step in range(steps)) / texts


def finetune(steps: int = 3, batch: int = 16, limit: int = 128) -> None:
    """Milliseconds a step, by the clock and of processor time, of training all of MiniLM-L6 on long texts; product and PyTorch in turn."""
    for precision in ("float32", "bfloat16"):
        made = session(f"data.limit={batch * steps}", f"train.batch_size={batch}", f"train.precision={precision}",
                       "tokens=null", f"model={{name: pretrained, preset: minilm_l6, limit: {limit}}}",
                       "model.finetune={name: whole, head: new}", "train.optimizer={name: adamw, weight_decay: 0.01}")
        carry = made.step.fresh()
        _, carry = made.step(made.feed.iterator(0, steps), 0, steps, carry)
        clock, spent = [], []
        for _ in range(2):
            began, used = time.perf_counter(), time.process_time()
            _, carry = made.step(made.feed.iterator(0, steps), 0, steps, carry)
            clock.append((time.perf_counter() - began) / steps)
            spent.append((time.process_time() - used) / steps)
        sizes = made.model.get_layer("features").get_layer("backbone").get_config()
        theirs, padded = in_torch(made, steps, precision, {
            "vocabulary": sizes["vocabulary_size"], "hidden_size": sizes["hidden_dim"], "num_hidden_layers": sizes["num_layers"],
            "num_attention_heads": sizes["num_heads"], "intermediate_size": sizes["intermediate_dim"]}, "--bert")
        other = batch / theirs["texts_per_second"], theirs["processor_seconds_a_step"]
        print(f"{precision}, {batch} texts of {padded:.0f} tokens: quartet {min(clock) * 1000:,.0f} ms a step ({min(spent) * 1000:,.0f} of "
              f"processor time), PyTorch {other[0] * 1000:,.0f} ({other[1] * 1000:,.0f}): {other[0] / min(clock):.2f} x "
              f"({other[1] / min(spent):.2f} x by processor time)", flush=True)


def predict(run: str) -> None:
    """25,000 reviews, CSV in and CSV out, through the command line; the time is the command's own, after loading."""
    import tensorflow_datasets as tfds

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "reviews.csv", Path(folder) / "answers.csv"
        data = tfds.load("imdb_reviews", split="test", batch_size=-1, download=False)
        with source.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "sentiment"])
            writer.writerows((text.decode(), label) for text, label in zip(data["text"].numpy().tolist(), data["label"].numpy().tolist()))
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "quartet", "predict", run, str(source), "-o", str(target)],
                              capture_output=True, text=True, check=True)
        whole = time.perf_counter() - began
        with target.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        names = sorted({row["label"] for row in rows})
        right = sum(names.index(row["label"]) == int(row["sentiment"]) for row in rows) / len(rows)
        print(f"{done.stderr.strip().splitlines()[-1]}; {right:.2%} right; the whole command {whole:.1f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["fasttext", "clinc", "tables", "transformer", "finetune", "predict"])
    parser.add_argument("run", nargs="?")
    asked = parser.parse_args()
    print(machine(), flush=True)
    if asked.what == "fasttext":
        fasttext("imdb_reviews", "nlp/imdb_bag", (5, 10))
    elif asked.what == "clinc":
        fasttext("clinc_oos", "nlp/clinc_bag", (25, 50))
    elif asked.what == "predict":
        predict(asked.run)
    else:
        {"tables": tables, "transformer": transformer, "finetune": finetune}[asked.what]()
