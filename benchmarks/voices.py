"""Whether two recordings are of one voice, of voices that no training heard: Quartet, and librosa with scikit-learn.

    python -m benchmarks.voices [--network]    # a minute on two cores, with a network twenty; needs spoken_digit prepared, and digits_az

The fifteen voices of `digits_az` and TFDS' spoken_digit, their words joined to 3 s. Five times two voices of each collection are held out
and judged by models that learned from the other eleven. Prints a line for each way: the mean equal error rate of all pairs held out, and of
the pairs within one collection, which no microphone tells apart, the lowest and highest of the latter, and the seconds of a training.
"""

import argparse
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import librosa
import numpy as np
import soundfile
import tensorflow as tf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pipelines.config.load import from_text
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train
from pipelines.serving.load import load_run
from speech.metrics.voices import Pairs, eer
from speech.models.voices import scores

FILES = Path("~/quartet-files/digits_az").expanduser()
COLLECTIONS, FOLDS, RATE = ("az", "spoken"), 5, 8000
EXPERIMENT = """task: speech.verification
data: {source: table, path: PATH, split_key: split, rate: 8000, join: 3.0, validation: VALIDATION, test: test}
model: MODEL
"""
MODELS = {"plda on cepstral statistics": ("{name: plda}", 0.0), "ds_cnn, angular margin": ("{name: ds_cnn}", 0.3)}


def gather(folder: Path) -> dict[str, list[Path]]:
    """The recordings of each voice, which is named after its collection."""
    import tensorflow_datasets as tfds

    found: dict[str, list[Path]] = {}
    for path in sorted(FILES.glob("*/*.flac")):
        found.setdefault(f"az_{path.stem.split('_')[1]}", []).append(path)
    for one in tfds.as_numpy(tfds.load("spoken_digit", split="train")):
        name = one["audio/filename"].decode()
        path = folder / f"{Path(name).stem}.wav"
        soundfile.write(path, one["audio"].astype(np.int16), RATE)
        found.setdefault(f"spoken_{name.split('_')[1]}", []).append(path)
    return found


def table(voices: dict[str, list[Path]], fold: int, path: Path) -> None:
    """The table of a fold: two voices of each collection are the test split."""
    held: set[str] = set()
    for collection in COLLECTIONS:
        own = sorted(voice for voice in voices if voice.startswith(collection))
        held |= {own[(place + 2 * fold) % len(own)] for place in range(2)}
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("audio", "speaker", "split"), *(
            (str(one), voice, "test" if voice in held else "train") for voice, files in sorted(voices.items()) for one in files)])


def by_quartet(run: Any, learned: Any, judged: Any) -> np.ndarray:
    found = []
    for start in range(0, len(judged), 32):
        raw = judged.gather(tf.range(start, min(start + 32, len(judged)), dtype=tf.int64))
        rows = [run.task.input.decode({name: value[number] for name, value in raw.items()}) for number in range(len(raw["length"]))]
        inputs, _ = run.task.prepare({"samples": tf.stack([row["samples"] for row in rows])})
        found.append(run.task.output.answer(lambda batch: run.model(batch, training=False), inputs)["vector"].numpy())
    vectors = np.concatenate(found)
    return scores(vectors, vectors)


def _described(source: Any) -> np.ndarray:
    found = []
    for number in range(len(source)):
        cepstra = librosa.feature.mfcc(y=source.load(number) / np.float32(32768.0), sr=RATE, n_mfcc=20)
        found.append(np.concatenate([cepstra.mean(1), cepstra.std(1)]))
    return np.array(found)


def by_cosine(run: Any, learned: Any, judged: Any, *, discriminant: bool) -> np.ndarray:
    """Cosines of mean and deviation of 20 cepstral coefficients, standardised; with `discriminant` of their discriminants."""
    ways: list[Any] = [StandardScaler()]
    if discriminant:
        ways.append(LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"))
    machine = make_pipeline(*ways).fit(_described(learned), learned.labels)
    vectors = machine.transform(_described(judged))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors @ vectors.T


def rates(found: np.ndarray, source: Any) -> list[float]:
    """Equal error rates of all pairs, and of those within each collection."""
    pairs = Pairs.of(found, np.asarray(source.labels))
    collection = np.array([voice.split("_")[0] for voice in source.facts.speakers])
    every = [eer(pairs)]
    for name in COLLECTIONS:
        inside = (collection[pairs.first] == name) & (collection[pairs.second] == name)
        every.append(eer(Pairs(pairs.first[inside], pairs.second[inside], pairs.scores[inside], pairs.same[inside], pairs.recordings)))
    return every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", action="store_true", help="also ds_cnn with an angular margin")
    models = dict(list(MODELS.items())[:2 if parser.parse_args().network else 1])
    every: dict[str, list[list[float]]] = {}
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        recordings = Path(place) / "voices"
        recordings.mkdir()
        voices = gather(recordings)
        for fold in range(FOLDS):
            table(voices, fold, recordings / f"{fold}.csv")
            for way, (model, validation) in models.items():
                text = EXPERIMENT.replace("PATH", str(recordings / f"{fold}.csv")).replace("MODEL", model)
                known = from_text(text.replace("VALIDATION", str(validation)), ["monitor.tensorboard=false"], file="voices")
                folder, begun = RunFolder(Path(place) / f"{fold} {model.strip('{}')[6:10]}"), time.perf_counter()
                train(known.experiment, folder, Call("voices", task_class(known.experiment.task), quiet=True))
                seconds.setdefault(way, []).append(time.perf_counter() - begun)
                run = load_run(folder)
                splits = run.task.splits()
                every.setdefault(way, []).append(rates(by_quartet(run, splits.train, splits.test), splits.test))
            peers: dict[str, Callable[..., np.ndarray]] = {
                "MFCC statistics, cosine": lambda *given: by_cosine(*given, discriminant=False),
                "MFCC statistics, discriminants, cosine": lambda *given: by_cosine(*given, discriminant=True)}
            for way, compute in peers.items():
                begun = time.perf_counter()
                every.setdefault(way, []).append(rates(compute(run, splits.train, splits.test), splits.test))
                seconds.setdefault(way, []).append(time.perf_counter() - begun)
            print(f"# fold {fold}", {way: [round(100 * rate, 1) for rate in found[-1]] for way, found in every.items()}, flush=True)
    print("way,eer of all pairs,eer within a collection,lowest,highest,seconds")
    for way, found in every.items():
        whole, within = np.array(found)[:, 0], np.array(found)[:, 1:]
        numbers = [100 * whole.mean(), 100 * within.mean(), 100 * within.min(), 100 * within.max(), np.mean(seconds[way])]
        print(f'"{way}",' + ",".join(f"{number:.1f}" for number in numbers))


if __name__ == "__main__":
    main()
