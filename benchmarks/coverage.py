"""Whether intervals of 90 % hold what they promise: the share of test targets inside them, over ten divisions of five sets of numbers.

    python -m benchmarks.coverage --files ~/quartet-files --work /tmp/coverage     # about 15 min on 2 cores

Photos of solar cells (the probability of a defect), pictures of blood (how many cells are boxed) and notes of instruments (their pitch in
semitones) by kernel machines; titles and genres of films (their year, and the number of their ratings, on a logarithmic scale) by ridge
regression. A fifth is held out for test, and a fifth of the rest for the widths of the intervals. Prints the mean over the divisions, and
that of the smallest to the largest quarter of the predictions.
"""

import argparse
import csv
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

TONES = {"C": 0, "Cs": 1, "D": 2, "Ds": 3, "E": 4, "F": 5, "Fs": 6, "G": 7, "Gs": 8, "A": 9, "As": 10, "B": 11}
NOTE = re.compile(r"_([A-G]s?)(\d)_")
HELD_OUT = "source: table, path: '', label_key: number, validation: 0.2, test: 0.2"
IMAGES = f"task: vision.regression\ndata: {{{HELD_OUT}, image_key: input}}\nmodel: {{name: kernel}}\n"
SOUNDS = f"task: speech.regression\ndata: {{{HELD_OUT}, audio_key: input, seconds: 1.0}}\nmodel: {{name: kernel}}\n"
TEXTS = f"task: nlp.regression\ndata: {{{HELD_OUT}, text_key: input}}\nmodel: {{name: linear}}\n"
Rows = Iterator[tuple[str, float]]


def solar_cells(files: Path) -> Rows:
    with open(files / "solar_cells" / "labels.csv", newline="") as file:
        for row in csv.DictReader(file):
            yield str(files / "solar_cells" / row["file"]), float(row["probability"])


def cells(files: Path) -> Rows:
    for path in sorted((files / "bccd" / "Annotations").glob("*.xml")):
        yield str(files / "bccd" / "JPEGImages" / f"{path.stem}.jpg"), float(sum(1 for _ in ElementTree.parse(path).iter("object")))


def notes(files: Path) -> Rows:
    for path in sorted((files / "sounds").glob("*/*.ogg")):
        if match := NOTE.search(path.name):
            yield str(path), float(12 * int(match[2]) + TONES[match[1]])


def films(files: Path) -> Iterator[tuple[str, str, str]]:
    """(item, year, title and genres)."""
    with open(files / "ml_1m" / "movies.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if match := re.fullmatch(r"(.*) \((\d{4})\)", row["title"]):
                yield row["item_id"], match[2], f"{match[1]} {row['genres'].replace('|', ' ')}"


def years(files: Path) -> Rows:
    yield from ((text, float(year)) for _, year, text in films(files))


def watched(files: Path) -> Rows:
    with open(files / "ml_1m" / "interactions.csv", newline="") as file:
        counts = Counter(row["item_id"] for row in csv.DictReader(file))
    yield from ((f"{text} {year}", float(counts[item])) for item, year, text in films(files) if counts[item])


SETS: dict[str, tuple[Callable[[Path], Rows], str]] = {
    "solar cells": (solar_cells, IMAGES), "cells in a picture": (cells, IMAGES), "pitch of notes": (notes, SOUNDS),
    "years of films": (years, TEXTS), "ratings of films": (watched, f"{TEXTS}target: {{scale: log}}\n")}


def main() -> None:
    from pipelines.config.load import from_text
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.run import Call, train
    from pipelines.serving.load import task_class

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--divisions", type=int, default=10)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    for name in asked.sets:
        rows, recipe = SETS[name]
        table = asked.work / f"{name}.csv"
        with open(table, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("input", "number"), *rows(asked.files.expanduser())])
        inside, quarters = [], []
        for seed in range(asked.divisions):
            settings = [f"data.path={table}", f"data.split_seed={seed}", "evaluate.bootstrap=100", "evaluate.baseline=false",
                        "monitor.tensorboard=false"]
            known = from_text(recipe, settings, file=name)
            call = Call(name, task_class(known.experiment.task), quiet=True)
            report = train(known.experiment, RunFolder(asked.work / name / str(seed)), call)
            inside.append(report["metrics"]["test/coverage"]["value"])
            quarters.append([row["coverage"] for row in report["tables"]["test/coverage"]])
        each = ", ".join(f"{share:.1%}" for share in np.mean(quarters, axis=0))
        print(f"{name}: {np.mean(inside):.1%} inside, from {min(inside):.1%} to {max(inside):.1%}; by quarter {each}", flush=True)


if __name__ == "__main__":
    main()
