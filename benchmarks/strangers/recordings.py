"""Strangers' recordings, and what they are compared with: an RBF-SVM on statistics of MFCCs."""

import csv
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.strangers.stranger import Baseline, Judged, Stranger, prepared, published

YES_NO = ("no", "yes")  # ken and lo, in order of their labels


def digits_az(folder: Path, choosing: bool) -> Path:
    return published("digits_az")


def sounds(folder: Path, choosing: bool) -> Path:
    """Notes of ten instruments: no speech at all."""
    return published("sounds")


def spoken_digit(folder: Path, choosing: bool, *, manifest: bool) -> Path:
    """A folder for each digit, with the files' own names (`7_theo_3.wav`); or all in one folder, with a CSV of path and label."""
    data = prepared("spoken_digit", "train")
    names = [name.decode() for name in data["audio/filename"].tolist()]
    labels = [str(label) for label in data["label"].tolist()]
    root = folder / "spoken_digit"
    paths = [name if manifest else f"{label}/{name}" for name, label in zip(names, labels)]
    _write(root, paths, data["audio"])
    return _table(root, ["path", "label"], zip(paths, labels)) if manifest else root


def yes_no(folder: Path, choosing: bool, *, manifest: bool) -> Path:
    """Eight words in each recording, with a .txt beside it; or a CSV of path and text."""
    data = prepared("yes_no", "train")
    names = [name.decode() for name in data["audio/filename"].tolist()]
    texts = [" ".join(YES_NO[word] for word in words) for words in data["label"].tolist()]
    root = folder / "yes_no"
    _write(root, names, data["audio"])
    if manifest:
        return _table(root, ["path", "text"], zip(names, texts))
    for name, text in zip(names, texts):
        (root / name).with_suffix(".txt").write_text(text + "\n", encoding="utf-8")
    return root


def _write(root: Path, paths: list[str], audio: Any) -> None:
    """8 kHz WAV; TFDS fills recordings up with zeros to the longest of a batch, which are taken off again."""
    import soundfile

    for path, samples in zip(paths, audio):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(root / path, np.trim_zeros(np.asarray(samples), "b").astype(np.int16), 8000)


def _table(root: Path, header: list[str], rows: Any) -> Path:
    with (root / "recordings.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return root / "recordings.csv"


def baselines(judged: Judged) -> Iterator[Baseline]:
    """Accuracy of an SVM on mean and deviation of 20 MFCCs and of their differences."""
    if "classes" not in judged.splits.facts:
        return  # transcription has no cheap baseline
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    began = time.perf_counter()
    known, labels = (np.concatenate(parts) for parts in zip(*((statistics(judged, source), source.labels) for source in judged.known)))
    unknown, truth = statistics(judged, judged.unknown), np.asarray(judged.unknown.labels)
    model = make_pipeline(StandardScaler(), SVC(C=10.0, gamma="scale")).fit(known, labels)
    yield Baseline("MFCC statistics + SVM", float(np.mean(model.predict(unknown) == truth)), time.perf_counter() - began)


def statistics(judged: Judged, source: Any) -> np.ndarray:
    """MFCC statistics of recordings, [n, values]."""
    import tensorflow as tf

    rows = []
    for number in range(len(source)):
        raw = source.gather(tf.constant([number], tf.int64))
        rows.append(mfcc_statistics(raw["samples"][0].numpy()[:int(raw["length"][0])] / 32768.0, judged.task.experiment.data.rate))
    return np.stack(rows)


def mfcc_statistics(samples: np.ndarray, rate: int, *, mels: int = 40, kept: int = 20) -> np.ndarray:
    """[4 x kept]: mean and deviation over time of MFCCs (25 ms windows, 10 ms apart), then of their differences."""
    from scipy.fft import dct

    size, hop = round(0.025 * rate), round(0.01 * rate)
    length = 1 << (size - 1).bit_length()
    samples = np.pad(samples, (0, max(0, size + 2 * hop - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, size)[::hop] * np.hanning(size)
    power = np.abs(np.fft.rfft(frames, length)) ** 2
    edges = 700.0 * (10.0 ** (np.linspace(0, 2595.0 * np.log10(1 + rate / 1400.0), mels + 2) / 2595.0) - 1.0)
    frequencies = np.fft.rfftfreq(length, 1 / rate)[:, None]
    rise, fall = (frequencies - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - frequencies) / np.diff(edges)[1:]
    cepstra = dct(np.log(power @ np.maximum(0.0, np.minimum(rise, fall)) + 1e-8), norm="ortho")[:, :kept]
    moves = np.diff(cepstra, axis=0)
    return np.concatenate([cepstra.mean(0), cepstra.std(0), moves.mean(0), moves.std(0)])


_stranger = partial(Stranger, domain="speech", baselines=baselines, expert=("MFCC statistics + SVM",))
SETS = [
    _stranger("digits_az", lay_out=digits_az, metrics=("accuracy",)),
    _stranger("sounds", lay_out=sounds, metrics=("accuracy",)),
    _stranger("spoken_digit", lay_out=partial(spoken_digit, manifest=False), metrics=("accuracy",)),
    _stranger("spoken_digit_manifest", lay_out=partial(spoken_digit, manifest=True), metrics=("accuracy",)),
    _stranger("yes_no", lay_out=partial(yes_no, manifest=False), metrics=("wer",)),
    _stranger("yes_no_manifest", lay_out=partial(yes_no, manifest=True), metrics=("wer",)),
]
