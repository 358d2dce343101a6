"""Strangers' numbers and several labels, of images, recordings and texts, beside linear models on simple features."""

import csv
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import coverage, several_labels
from benchmarks.strangers import images, recordings
from benchmarks.strangers.stranger import FILES, Baseline, Judged, Stranger, published

COLUMNS = {"vision": "image", "speech": "audio", "nlp": "text"}


def numbers(folder: Path, choosing: bool, *, domain: str, needs: str, rows: Callable[[Path], Iterator[tuple[str, float]]]) -> Path:
    """A table of inputs and numbers."""
    published(needs)
    return _table(folder, [COLUMNS[domain], "number"], rows(FILES))


def labels(folder: Path, choosing: bool, *, needs: str, name: str) -> Path:
    """A table of inputs, labels and splits; while defaults are chosen, without the rows of test."""
    published(needs)
    path = several_labels.table(name, FILES, folder)
    if choosing:
        kept = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.endswith(",test")]
        path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return path


def genres(folder: Path, choosing: bool) -> Path:
    """Titles of films, and their genres."""
    with open(published("ml_1m") / "movies.csv", newline="", encoding="utf-8") as file:
        return _table(folder, ["text", "genres"], [(row["title"], row["genres"]) for row in csv.DictReader(file)])


def _table(folder: Path, header: list[str], rows: Any) -> Path:
    with (folder / "table.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return folder / "table.csv"


def ridge(judged: Judged) -> Iterator[Baseline]:
    """Mean absolute error of ridge regression, its strength chosen by leave-one-out on train."""
    from sklearn.linear_model import RidgeCV

    began = time.perf_counter()
    known, truth, unknown, wanted = _features(judged)
    model = RidgeCV(np.logspace(-2, 5, 15)).fit(known, truth)
    yield Baseline("ridge regression", float(np.abs(model.predict(unknown) - wanted).mean()), time.perf_counter() - began)


def one_by_one(judged: Judged) -> Iterator[Baseline]:
    """Macro F1 of a logistic regression for each label, of equal weight whether it is there or not."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from sklearn.multiclass import OneVsRestClassifier

    began = time.perf_counter()
    known, truth, unknown, wanted = _features(judged)
    model = OneVsRestClassifier(LogisticRegression(C=0.1, max_iter=300, class_weight="balanced")).fit(known, truth)
    score = float(f1_score(wanted, model.predict(unknown), average="macro", zero_division=0))
    yield Baseline("logistic regressions", score, time.perf_counter() - began)


def _features(judged: Judged) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """(features and truth of what may be learned from, features and truth of what is judged): pixels, MFCC statistics or TF-IDF."""
    from sklearn.preprocessing import StandardScaler

    sources = [*judged.known, judged.unknown]
    examples = [_gathered(source) for source in sources]
    truth = [np.asarray(one["target"][:, 0] if "target" in one else one["label"] > 0.5) for one in examples]
    if "text" in examples[0]:
        from sklearn.feature_extraction.text import TfidfVectorizer

        texts = [[text.decode(errors="replace") for text in one["text"].tolist()] for one in examples]
        vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        known, unknown = vectors.fit_transform([text for part in texts[:-1] for text in part]), vectors.transform(texts[-1])
    else:
        describe = images.pixels if "image" in examples[0] else recordings.statistics
        values = [describe(judged, source) for source in sources]
        scaler = StandardScaler().fit(np.concatenate(values[:-1]))
        known, unknown = scaler.transform(np.concatenate(values[:-1])), scaler.transform(values[-1])
    return known, np.concatenate(truth[:-1]), unknown, truth[-1]


def _gathered(source: Any) -> dict[str, np.ndarray]:
    import tensorflow as tf

    return {name: value.numpy() for name, value in source.gather(tf.range(len(source), dtype=tf.int64)).items()}


def _numbers(name: str, domain: str, needs: str, rows: Callable[[Path], Iterator[tuple[str, float]]]) -> Stranger:
    return Stranger(name, domain, partial(numbers, domain=domain, needs=needs, rows=rows), ridge, ("mae",), ("ridge regression",),
                    options=("--target", "number", "--task", "regression"))


def _labels(name: str, domain: str, lay_out: Callable[[Path, bool], Path], column: str = "labels") -> Stranger:
    return Stranger(name, domain, lay_out, one_by_one, ("macro_f1",), ("logistic regressions",), options=("--target", column))


SETS = [
    _numbers("solar_cells", "vision", "solar_cells", coverage.solar_cells),
    _numbers("cells_counted", "vision", "bccd", coverage.cells),
    _numbers("pitch", "speech", "sounds", coverage.notes),
    _numbers("years", "nlp", "ml_1m", coverage.years),
    _labels("scenes", "vision", partial(labels, needs="camvid", name="camvid")),
    _labels("cells_seen", "vision", partial(labels, needs="bccd", name="bccd")),
    _labels("instruments", "speech", partial(labels, needs="sounds", name="instruments")),
    _labels("genres", "nlp", genres, "genres"),
]
