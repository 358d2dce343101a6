"""Several labels an example, beside the cheap kernel machine whose thresholds are chosen alike: macro F1 of both, and their difference.

    python -m benchmarks.several_labels camvid --files ~/quartet-files --work /tmp/several

The data are made of plain files with boxes or masks: of CamVid which of 11 classes take at least 1/200 of a street scene, of BCCD which
kinds of cells are boxed, both in their published division; of instruments' notes up to three laid over one another, of which neither notes
nor recordings are in two splits.
"""

import argparse
import csv
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

SPLITS = ("train", "validation", "test")
SEEN = 200  # a class that takes a smaller part of the picture than one of these is not counted as seen
CLASSES = ("sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "bicyclist")
RATE, SECONDS = 8000, 1.5
MIXED = {"train": (range(16), 900), "validation": (range(16, 20), 250), "test": (range(20, 24), 300)}  # notes an instrument, recordings
Row = tuple[Path, list[str], str]

TABLE = "source: table, labels: many, label_key: labels, split_key: split, validation: validation, test: test"
RECIPES = {
    "camvid": f"""
task: vision.classification
data: {{{TABLE}, image_size: [180, 240]}}
model: {{name: pretrained, preset: efficientnet_lite0, finetune: {{name: frozen}}}}
""",
    "bccd": f"""
task: vision.classification
data: {{{TABLE}, image_size: [240, 320], resize: squash}}
model: {{name: pretrained, preset: efficientnet_lite0}}
""",
    "instruments": f"""
task: speech.classification
data: {{{TABLE}, rate: {RATE}, seconds: {SECONDS}}}
model: {{name: ds_cnn}}
augment: {{shift: 0.1}}
train: {{epochs: 30, batch_size: 32, learning_rate: {{peak: 0.004, schedule: cosine, warmup: 0.1}}, ema: 0.995}}
""",
}


def camvid(files: Path, work: Path) -> Iterable[Row]:
    """Scenes and what is seen in them."""
    from PIL import Image

    for split in SPLITS:
        for mask in sorted((files / "camvid" / split / "masks").glob("*.png")):
            pixels = np.asarray(Image.open(mask))
            counts = np.bincount(pixels.ravel(), minlength=len(CLASSES))[:len(CLASSES)]
            image = next((files / "camvid" / split / "images").glob(f"{mask.stem}.*"))
            yield image, [name for name, count in zip(CLASSES, counts) if SEEN * count >= pixels.size], split


def bccd(files: Path, work: Path) -> Iterable[Row]:
    """Pictures of blood and the kinds of cells that are boxed in them."""
    for split, stored in zip(SPLITS, ("train", "val", "test")):
        for name in (files / "bccd" / "ImageSets" / "Main" / f"{stored}.txt").read_text().split():
            boxes = ElementTree.parse(files / "bccd" / "Annotations" / f"{name}.xml").iter("object")
            yield files / "bccd" / "JPEGImages" / f"{name}.jpg", sorted({box.findtext("name") or "" for box in boxes}), split


def instruments(files: Path, work: Path) -> Iterable[Row]:
    """None to three notes laid over one another at random places, each of another instrument, some 6 dB apart."""
    import librosa
    import soundfile

    notes: dict[str, list[np.ndarray]] = {}
    for path in sorted((files / "sounds").glob("*/*.ogg")):
        note = librosa.load(path, sr=RATE)[0][:round(RATE * SECONDS)]
        notes.setdefault(path.parent.name, []).append(note / max(np.sqrt(np.mean(note**2)), 1e-4))
    draw, names = np.random.default_rng(0), sorted(notes)
    for split, (own, count) in MIXED.items():
        for number in range(count):
            there = sorted(draw.choice(names, draw.choice(4, p=[0.05, 0.35, 0.35, 0.25]), replace=False).tolist())
            wave = draw.normal(0, 1e-3, round(RATE * SECONDS))
            for name in there:
                note = notes[name][draw.choice(own)]
                start = draw.integers(0, len(wave) - len(note) + 1)
                wave[start:start + len(note)] += 0.05 * 10 ** draw.uniform(-0.3, 0.3) * note
            path = work / f"{split}_{number:03}.wav"
            soundfile.write(path, wave / max(1.0, 1.05 * np.abs(wave).max()), RATE)
            yield path, there, split


SETS: dict[str, Callable[[Path, Path], Iterable[Row]]] = {"camvid": camvid, "bccd": bccd, "instruments": instruments}


def table(name: str, files: Path, work: Path) -> Path:
    """Writes the table of a set, its column `labels` with `;` between names."""
    work.mkdir(parents=True, exist_ok=True)
    path = work / f"{name}.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["audio" if name == "instruments" else "image", "labels", "split"])
        rows.writerows((str(image), ";".join(labels), split) for image, labels, split in SETS[name](files, work))
    return path


def compared(given: np.ndarray, other: np.ndarray, true: np.ndarray) -> str:
    """Macro F1 of two models' labels, [n, labels] bool each, with paired intervals."""
    from pipelines.task.intervals import resampled_sums

    def sums(labels: np.ndarray) -> np.ndarray:
        return np.concatenate([2.0 * (labels & true), labels * 1.0 + true], axis=1)

    def macro(totals: np.ndarray) -> np.ndarray:
        hits, sizes = np.split(totals, 2, axis=1)
        return (hits / np.maximum(sizes, 1)).sum(1) / np.maximum((sizes > 0).sum(1), 1)

    values = [macro(sums(labels).sum(0, keepdims=True))[0] for labels in (given, other)]
    drawn = [macro(resampled_sums(sums(labels))) for labels in (given, other)]  # of the same seed, so they are paired
    low, high = np.percentile(drawn[0] - drawn[1], [2.5, 97.5])
    gain = [100 * one for one in (values[0] - values[1], low, high)]
    return f"macro F1 {values[0]:.1%} against {values[1]:.1%}, {gain[0]:+.1f} points [{gain[1]:+.1f}, {gain[2]:+.1f}]"


def main() -> None:
    from pipelines.config.load import from_text
    from pipelines.outputs import label_metrics
    from pipelines.runs import judging
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.run import Call, train
    from pipelines.serving.load import task_class

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("overrides", nargs="*")
    asked = parser.parse_args()
    path = table(asked.set, asked.files.expanduser(), asked.work / asked.set)
    known = from_text(RECIPES[asked.set], [f"data.path={path}", *asked.overrides], file=asked.set)
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    f1, put_beside = label_metrics.example_f1, judging.put_beside

    def listening(given: np.ndarray, true: np.ndarray) -> np.ndarray:
        seen.append((np.asarray(given) > 0.5, np.asarray(true) > 0.5))
        return f1(given, true)

    def beside(*args: Any, **options: Any) -> None:
        (given, true), (other, _) = seen[-2:]  # what the model answers, and then what the baseline does
        print(f"{asked.set}, {len(true)} examples: {compared(given, other, true)}", flush=True)
        put_beside(*args, **options)

    with mock.patch.object(label_metrics, "example_f1", listening), mock.patch.object(judging, "put_beside", beside):
        train(known.experiment, RunFolder(asked.work / asked.set / "run"), Call(asked.set, task_class(known.experiment.task)))


if __name__ == "__main__":
    main()
