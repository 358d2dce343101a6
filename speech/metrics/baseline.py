"""The baseline of transcription: the transcript of the training recording with the most similar statistics of cepstra, in seconds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source
from pipelines.fitting.folds import fitting_part
from pipelines.outputs.baselines import MOST
from pipelines.task.results import Baseline
from speech.metrics import word_errors

COEFFICIENTS = 20
TEXT_PARTS = 8  # of a recording of several words
WORDS = "word_accuracy"


def statistics_by_part(features: tf.Tensor, frames: tf.Tensor, mfcc: bool) -> tf.Tensor:
    """Bands of recordings of any length, [batch, frames, width] and [batch] int32, as [batch, values]: mean and deviation of each
    cepstral coefficient, its mean in each part, and the length; in graph."""
    cepstra = (features if mfcc else tf.signal.dct(features, norm="ortho"))[..., :COEFFICIENTS]
    number = tf.range(tf.shape(cepstra)[1])[None]
    values = []
    for part in range(-1, TEXT_PARTS):  # all of a recording, then each part
        first, last = (frames * at // TEXT_PARTS for at in ((part, part + 1) if part >= 0 else (0, TEXT_PARTS)))
        own = tf.cast((number >= first[:, None]) & (number < last[:, None]), cepstra.dtype)[..., None]
        count = tf.maximum(tf.reduce_sum(own, 1), 1.0)
        mean = tf.reduce_sum(cepstra * own, 1) / count
        values.append(mean)
        if part < 0:
            values.append(tf.sqrt(tf.reduce_sum(tf.square(cepstra - mean[:, None]) * own, 1) / count))
    return tf.concat([*values, tf.math.log(tf.cast(frames, cepstra.dtype) + 1.0)[:, None]], -1)


def nearest(train: Source, features: Callable[[Source], tuple[np.ndarray, dict[str, Any]]], texts: Callable[[dict[str, Any]], list[str]],
            ) -> Baseline:
    """The transcript of the training recording whose statistics are the nearest.

    Args:
        features: a source -> (`statistics_by_part` of its recordings, targets).
        texts: targets -> transcripts.
    """
    seen, targets = features(fitting_part(train, MOST))
    transcripts, mean, std = texts(targets), seen.mean(0), np.maximum(seen.std(0), 1e-6)
    known = (seen - mean) / std

    def score(source: Source) -> np.ndarray:
        seen, targets = features(source)
        unknown = (seen - mean) / std
        alike = np.argmax(unknown @ known.T - 0.5 * np.square(known).sum(1), axis=1)
        return word_accuracy(texts(targets), [transcripts[number] for number in alike])

    return Baseline("the transcript of the most similar training recording", WORDS, score)


def word_accuracy(reference: list[str], written: list[str]) -> np.ndarray:
    """1 less the word error rate of each recording, [n] float64; below 0 where much is inserted, NaN for an empty reference."""
    counted = word_errors.count(reference, written)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counted.words > 0, 1.0 - counted.errors / counted.words, np.nan)
