"""Commands in long recordings: found once each, when they are, however the samples come."""

from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from speech.listen import detect, stream
from tests.speech.made import tone

RATE, WINDOW = 8000, 4000


class Pitches:
    """A stand-in for a command task: low, high or noise, by which tone of 500 or 2,000 Hz is there."""

    experiment = SimpleNamespace(data=SimpleNamespace(rate=RATE))
    window, classes = WINDOW, ["high", "low", "_unknown_"]

    def receive(self, raw):
        return {"samples": raw["samples"]}

    def prepare(self, examples):
        return examples["samples"], None

    def answer(self, model, inputs):
        power = tf.square(tf.abs(tf.signal.rfft(inputs)))
        high, low = (tf.reduce_sum(power[:, at - 40:at + 40], 1) for at in (1000, 250))
        total = tf.reduce_sum(power, 1) + 1e-3
        shares = tf.stack([high / total, low / total], 1)
        return {"probabilities": tf.concat([shares, 1.0 - tf.reduce_sum(shares, 1, keepdims=True)], 1)}


RUN = SimpleNamespace(task=Pitches(), model=None)


def recording() -> np.ndarray:
    long = np.random.default_rng(0).normal(0, 0.01, RATE * 8).astype(np.float32)
    for start, hertz in ((1.0, 500.0), (3.0, 2000.0), (4.5, 500.0), (7.6, 2000.0)):
        word = tone(0.4, RATE, hertz)
        long[round(start * RATE):][:len(word)] += word[:len(long) - round(start * RATE)]
    long[6 * RATE:7 * RATE] = 0.0
    return long


def test_each_command_once_with_its_time():
    found = detect(RUN, recording(), threshold=0.6)
    assert [one.label for one in found] == ["low", "high", "low", "high"]
    for one, start in zip(found, (1.0, 3.0, 4.5, 7.6)):
        assert one.start - 0.15 <= start and start + 0.4 <= one.end + 0.15 and one.confidence >= 0.6


def test_pieces_of_any_size_give_the_same():
    whole = recording()
    expected = detect(RUN, whole, threshold=0.6)
    for size in (77, 800, 12_345):
        pieces = (whole[at:at + size] for at in range(0, len(whole), size))
        found = list(stream(RUN, pieces, threshold=0.6))
        assert [(one.label, one.start) for one in found] == [(one.label, one.start) for one in expected]


def test_silence_and_noise_are_no_commands():
    assert detect(RUN, np.zeros(RATE * 3, np.float32)) == []
    assert detect(RUN, np.random.default_rng(1).normal(0, 0.1, RATE * 3).astype(np.float32)) == []
