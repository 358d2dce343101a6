"""Strangers' images, and what they are compared with: logistic regression and an RBF-SVM on pixels."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.strangers.stranger import Baseline, Judged, Stranger, prepared, published

EDGE = 32  # px, to which images are reduced for the baselines
SVM_MOST = 10_000  # training images of the SVM; its time grows with their square


def hand_signs(folder: Path, choosing: bool) -> Path:
    return published("hand_signs")


def cells(folder: Path, choosing: bool) -> Path:
    """Blood cells cut out by their boxes, a folder for each kind: sizes and classes are uneven."""
    from xml.etree import ElementTree

    from PIL import Image

    root = published("bccd")
    for file in sorted((root / "Annotations").glob("*.xml")):
        picture = Image.open(root / "JPEGImages" / f"{file.stem}.jpg").convert("RGB")
        for number, box in enumerate(ElementTree.parse(file).getroot().iter("object")):
            left, upper, right, lower = (int(box.findtext(f"bndbox/{edge}") or 0) for edge in ("xmin", "ymin", "xmax", "ymax"))
            if right - left >= 8 and lower - upper >= 8:
                target = folder / "cells" / str(box.findtext("name")) / f"{file.stem}_{number}.jpg"
                target.parent.mkdir(parents=True, exist_ok=True)
                picture.crop((left, upper, right, lower)).save(target, quality=95)
    return folder / "cells"


def digits(folder: Path, choosing: bool) -> Path:
    """scikit-learn's 1,797 digits of 8 x 8 px."""
    from sklearn.datasets import load_digits

    data = load_digits()
    _write(folder / "digits", np.rint(data.images * (255 / 16)).astype(np.uint8), data.target, [str(digit) for digit in range(10)])
    return folder / "digits"


def odd(folder: Path, choosing: bool) -> Path:
    """What nobody thinks of: 20 x 12 px, six classes of 40 to 160 images, bars of a direction and thickness in noise."""
    rng = np.random.default_rng(0)
    images, labels = [], []
    for label, count in enumerate((160, 120, 80, 60, 40, 40)):
        for _ in range(count):
            image = rng.normal(110, 30, (12, 20))
            along, thick = divmod(label, 2)
            row, column = rng.integers(1, 8), rng.integers(1, 15)
            where = {0: np.s_[row:row + 1 + thick, :], 1: np.s_[:, column:column + 1 + thick]}.get(along)
            if where is None:
                for step in range(12):
                    image[step, (column + step) % 20:(column + step) % 20 + 1 + thick] += 60
            else:
                image[where] += 60
            images.append(np.clip(image, 0, 255).astype(np.uint8))
            labels.append(label)
    _write(folder / "odd", np.stack(images), np.array(labels), [f"kind {label}" for label in range(6)])
    return folder / "odd"


def of_tfds(folder: Path, choosing: bool, *, name: str, images: int | None) -> Path:
    """`images` of train, drawn, and all of test. While defaults are chosen, "test" is 5,000 others of train."""
    import tensorflow_datasets as tfds

    train = prepared(name, "train")
    order = np.random.default_rng(0).permutation(len(train["label"]))
    most = len(order) - 5000 if choosing else len(order)
    part = order[:min(images or most, most)]
    test = {key: train[key][order[-5000:]] for key in ("image", "label")} if choosing else prepared(name, "test")
    classes = tfds.builder(name).info.features["label"].names
    classes = [one.replace("/", " or ") for one in classes]
    _write(folder / name / "train", train["image"][part], train["label"][part], classes)
    _write(folder / name / "test", test["image"], test["label"], classes)
    return folder / name


def _write(folder: Path, images: np.ndarray, labels: np.ndarray, classes: list[str]) -> None:
    """A PNG for each, in its class's folder."""
    from PIL import Image

    for name in classes:
        (folder / name).mkdir(parents=True)
    for number, (image, label) in enumerate(zip(images, labels.tolist())):
        Image.fromarray(np.squeeze(image)).save(folder / classes[label] / f"{number:05}.png", compress_level=1)


def baselines(judged: Judged) -> Iterator[Baseline]:
    """Accuracy of both on pixels of at most 32 x 32, 0..1."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    known, labels = (np.concatenate(parts) for parts in zip(*((pixels(judged, source), source.labels) for source in judged.known)))
    unknown, truth = pixels(judged, judged.unknown), np.asarray(judged.unknown.labels)
    began = time.perf_counter()
    scaler = StandardScaler().fit(known)
    model = LogisticRegression(C=0.01, max_iter=100).fit(scaler.transform(known), labels)
    score = float(np.mean(model.predict(scaler.transform(unknown)) == truth))
    yield Baseline("logistic regression", score, time.perf_counter() - began)
    some = np.random.default_rng(0).permutation(len(known))[:SVM_MOST]
    began = time.perf_counter()
    model = SVC(C=10.0, gamma="scale", cache_size=1000).fit(known[some], labels[some])
    score = float(np.mean(model.predict(unknown) == truth))
    few = f", {SVM_MOST:,} images" if len(some) < len(known) else ""
    yield Baseline(f"RBF-SVM{few}", score, time.perf_counter() - began)


def pixels(judged: Judged, source: Any) -> np.ndarray:
    """Images as the run sees them, reduced, [n, values] float32."""
    import tensorflow as tf

    height, width = judged.task.input.image_size
    factor = max(1.0, max(height, width) / EDGE)
    size = [max(1, round(height / factor)), max(1, round(width / factor))]

    def one(number: tf.Tensor) -> tf.Tensor:
        raw = {name: value[0] for name, value in source.gather(number[None]).items()}
        image = tf.cast(judged.task.input.decode(raw)["image"], tf.float32) / 255.0
        return tf.image.resize(image, size, "area") if factor > 1 else image

    batches = tf.data.Dataset.range(len(source)).map(one, num_parallel_calls=2).batch(256)
    return np.concatenate([batch.numpy().reshape(len(batch), -1) for batch in batches])


_stranger = partial(Stranger, domain="vision", baselines=baselines, metrics=("accuracy",), expert=("RBF-SVM",))
SETS = [
    _stranger("hand_signs", lay_out=hand_signs),
    *(_stranger(f"{name}_{images or 'all'}", lay_out=partial(of_tfds, name=name, images=images), own_choice=True)
      for name in ("cifar10", "fashion_mnist") for images in (1000, 5000, None)),
    _stranger("cells", lay_out=cells),
    _stranger("digits", lay_out=digits),
    _stranger("odd", lay_out=odd),
]
