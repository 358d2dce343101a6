"""Instruments, voices and spoken digits by a kernel machine on cepstra, with YAMNet's layers beside them, and by librosa and scikit-learn.

    python -m benchmarks.sounds [--set instruments]        # some six minutes on two cores

Each recording is answered by models that learned from the other four fifths: of `sounds` by chance, of `digits_az` (who speaks) with whole
words held out, and (which digit) with whole speakers held out. Prints a line for each set and way: accuracy, its 95 % interval and the gain
over the kernel machine on cepstra, both over held-out groups, and the seconds of a training.
"""

import argparse
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import librosa
import numpy as np
from sklearn.model_selection import GroupKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import quartet
from pipelines.config.load import from_text
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train

FILES = Path("~/quartet-files").expanduser()
FOLDS, RESAMPLES = 5, 2000
MODELS = {"kernel machine on cepstra": "{name: kernel}", "kernel machine on cepstra and YAMNet": "{name: kernel, preset: yamnet}"}
Recording = tuple[Path, str, str]  # file, class, group


def instruments() -> list[Recording]:
    return [(path, path.parent.name, str(path)) for path in sorted((FILES / "sounds").glob("*/*.ogg"))]


def voices() -> list[Recording]:
    return [(path, path.name.split("_")[1], path.parent.name) for path in sorted((FILES / "digits_az").glob("*/*.flac"))]


def digits() -> list[Recording]:
    return [(path, path.parent.name, path.name.split("_")[1]) for path in sorted((FILES / "digits_az").glob("*/*.flac"))]


SETS: dict[str, tuple[Callable[[], list[Recording]], float]] = {
    "instruments": (instruments, 1.5), "voices, words unheard": (voices, 1.0), "digits, voices unheard": (digits, 1.0)}


def folds(rows: list[Recording]) -> list[np.ndarray]:
    """Held-out rows of each fold."""
    labels, groups = [row[1] for row in rows], [row[2] for row in rows]
    if len(set(groups)) == len(groups):
        return [held for _, held in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(labels, labels)]
    return [held for _, held in GroupKFold(FOLDS).split(labels, labels, groups)]


def of_quartet(model: str, seconds: float, learned: list[Recording], held: list[Recording]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "learned.csv"
        with open(table, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("audio", "label", "speaker"), *learned])
        group = "data.group_by=speaker" if len({row[2] for row in learned}) < len(learned) else "data.group_by=null"
        known = from_text(f"task: speech.commands\ndata: {{source: table, path: {table}, rate: 16000, seconds: {seconds}, validation: 0, "
                          f"test: null}}\nmodel: {model}\n", ["monitor.tensorboard=false", group])
        train(known.experiment, RunFolder(Path(folder) / "run"), Call("sounds", task_class(known.experiment.task), quiet=True))
        return [one["label"] for one in quartet.load(str(Path(folder) / "run")).predict([str(path) for path, _, _ in held])]


def of_scikit_learn(learned: list[Recording], held: list[Recording]) -> list[str]:
    """Mean and deviation of 20 mel-frequency cepstral coefficients under a support vector machine."""
    def described(rows: list[Recording]) -> np.ndarray:
        found = []
        for path, _, _ in rows:
            coefficients = librosa.feature.mfcc(y=librosa.load(path, sr=16_000)[0], sr=16_000)
            found.append(np.concatenate([coefficients.mean(1), coefficients.std(1)]))
        return np.array(found)

    machine = make_pipeline(StandardScaler(), SVC(C=10.0)).fit(described(learned), [row[1] for row in learned])
    return list(machine.predict(described(held)))


def interval(values: np.ndarray, groups: list[str]) -> tuple[float, float]:
    """Of the mean, 95 %, by resampling groups."""
    names, inverse = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(inverse, values), np.bincount(inverse)
    drawn = np.random.default_rng(0).integers(0, len(names), (RESAMPLES, len(names)))
    low, high = np.percentile(sums[drawn].sum(1) / counts[drawn].sum(1), [2.5, 97.5])
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=list(SETS))
    asked = parser.parse_args()
    print("set,way,accuracy,low,high,gain,gain low,gain high,seconds")
    for title, (found, seconds) in SETS.items():
        if asked.set not in (None, title):
            continue
        rows = found()
        groups = [row[2] for row in rows]
        hits: dict[str, np.ndarray] = {}
        for way in (*MODELS, "MFCC statistics + SVM (librosa, scikit-learn)"):
            right, begun = np.zeros(len(rows)), time.perf_counter()
            for held in folds(rows):
                learned = [rows[number] for number in np.setdiff1d(np.arange(len(rows)), held)]
                judged = [rows[number] for number in held]
                given = of_quartet(MODELS[way], seconds, learned, judged) if way in MODELS else of_scikit_learn(learned, judged)
                right[held] = [answer == row[1] for answer, row in zip(given, judged)]
            hits[way] = right
            gain = right - hits["kernel machine on cepstra"]
            numbers = [right.mean(), *interval(right, groups), gain.mean(), *interval(gain, groups)]
            print(f"\"{title}\",\"{way}\"," + ",".join(f"{100 * number:.1f}" for number in numbers)
                  + f",{(time.perf_counter() - begun) / FOLDS:.1f}", flush=True)


if __name__ == "__main__":
    main()
