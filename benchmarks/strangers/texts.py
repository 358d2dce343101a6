"""Strangers' texts, and what they are compared with: TF-IDF with a linear SVC, and fastText."""

import csv
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.strangers.stranger import Baseline, Judged, Stranger, prepared, published


def questions(folder: Path, choosing: bool) -> Path:
    """train.csv and test.csv, as published. While defaults are chosen, "test" is the last 1,000 of train."""
    root = published("questions")
    target = folder / "questions"
    if not choosing:
        shutil.copytree(root, target, ignore=shutil.ignore_patterns("README*"))
        return target
    rows = list(csv.reader((root / "train.csv").open(encoding="utf-8", newline="")))
    order = [int(number) + 1 for number in np.random.default_rng(0).permutation(len(rows) - 1)]
    target.mkdir()
    for name, part in (("train", order[:-1000]), ("test", order[-1000:])):
        with (target / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([rows[0], *(rows[number] for number in part)])
    return target


def messages(folder: Path, choosing: bool) -> Path:
    return published("messages") / "SMSSpamCollection.tsv"


def of_tfds(folder: Path, choosing: bool, *, name: str, label: str) -> Path:
    """One table with columns text, label and split."""
    parts = ("train", "validation", "test") if name == "clinc_oos" else ("train", "test")
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "split"])
        for part in parts:
            data = prepared(name, part)
            labels = [one.decode() if isinstance(one, bytes) else one for one in data[label].tolist()]
            writer.writerows((text.decode(), one, part) for text, one in zip(data["text"].tolist(), labels))
    return folder / f"{name}.csv"


def baselines(judged: Judged) -> Iterator[Baseline]:
    """Accuracy of TF-IDF of words and pairs with a linear SVC, and of fastText with word pairs."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    parts = [_texts(source) for source in judged.known]
    known, labels = [text for part in parts for text in part[0]], np.concatenate([part[1] for part in parts])
    unknown, truth = _texts(judged.unknown)
    began = time.perf_counter()
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=1 if len(known) < 20_000 else 2)
    model = LinearSVC(C=1.0).fit(vectors.fit_transform(known), labels)
    score = float(np.mean(model.predict(vectors.transform(unknown)) == truth))
    yield Baseline("TF-IDF + linear SVC", score, time.perf_counter() - began)
    try:
        import fasttext
    except ImportError:
        return
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        path.write_text("".join(f"__label__{label} {_line(text)}\n" for label, text in zip(labels, known)), encoding="utf-8")
        fitted = fasttext.train_supervised(str(path), dim=50, wordNgrams=2, epoch=25 if len(known) < 20_000 else 5, lr=0.5, thread=2,
                                           verbose=0)
    # its own predict() cannot make arrays under NumPy 2; this is the call beneath it
    said = [fitted.f.predict(_line(text) + "\n", 1, 0.0, "strict")[0][1] for text in unknown]
    score = float(np.mean([one == f"__label__{label}" for one, label in zip(said, truth)]))
    yield Baseline("fastText", score, time.perf_counter() - began)


def _line(text: str) -> str:
    import re

    return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))


def _texts(source: Any) -> tuple[list[str], np.ndarray]:
    import tensorflow as tf

    raw = source.gather(tf.range(len(source), dtype=tf.int64))
    return [text.decode(errors="replace") for text in raw["text"].numpy().tolist()], np.asarray(source.labels)


_stranger = partial(Stranger, domain="nlp", baselines=baselines, metrics=("accuracy", "example_f1"), expert=("TF-IDF + linear SVC",))
SETS = [
    _stranger("questions", lay_out=questions, own_choice=True),
    _stranger("messages", lay_out=messages),
    _stranger("imdb", lay_out=partial(of_tfds, name="imdb_reviews", label="label")),
    _stranger("clinc", lay_out=partial(of_tfds, name="clinc_oos", label="intent_name")),
]
