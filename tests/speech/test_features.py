"""The front end against librosa, over settings and lengths; padding changes nothing."""

import librosa
import numpy as np
import pytest
import tensorflow as tf

from speech.data.features import FrontEnd, rounded, to_int16
from speech.settings import Frontend
from tests.data.prepared import need

RNG = np.random.default_rng(0)
SETTINGS = [
    (8000, {}), (8000, {"top_db": None}), (16_000, {"mels": 64, "fft": 512}), (16_000, {"mels": 80, "low": 0.0, "high": 7600.0}),
    (22_050, {"fft": 2048, "mels": 128, "window": 0.0464, "hop": 0.0116}), (16_000, {"kind": "mfcc"}),
    (8000, {"kind": "mfcc", "coefficients": 13, "mels": 26, "top_db": None}), (44_100, {"window": 0.02, "hop": 0.005}),
]


def by_librosa(samples: np.ndarray, front_end: FrontEnd) -> np.ndarray:
    settings = front_end.settings
    mel = librosa.feature.melspectrogram(
        y=samples, sr=front_end.rate, n_fft=front_end.fft, hop_length=front_end.hop, win_length=front_end.window, n_mels=settings.mels,
        fmin=settings.low, fmax=settings.high, center=True, pad_mode="constant", power=2.0)
    decibels = librosa.power_to_db(mel, ref=1.0, amin=1e-10, top_db=settings.top_db)
    return (librosa.feature.mfcc(S=decibels, n_mfcc=settings.coefficients) if settings.kind == "mfcc" else decibels).T


def signals() -> list[np.ndarray]:
    swept = np.sin(np.cumsum(np.linspace(0.05, 2.5, 9000))) * np.linspace(1, 0.001, 9000)
    return [swept.astype(np.float32), np.zeros(700, np.float32),
            *(RNG.normal(0, 0.1, size).astype(np.float32) for size in (3, 400, 1999, 24_000))]


@pytest.mark.filterwarnings("ignore:n_fft=")
@pytest.mark.parametrize(("rate", "settings"), SETTINGS)
def test_equal_to_librosa_alone_and_padded(rate, settings):
    front_end = FrontEnd(Frontend(**settings), rate)
    made = signals()
    longest = max(map(len, made))
    batch = np.stack([np.pad(one, (0, longest - len(one)), constant_values=0.7) for one in made])  # what lies behind is not heard
    together = front_end(tf.constant(batch), tf.constant([len(one) for one in made])).numpy()
    for row, one in zip(together, made):
        wanted = by_librosa(one, front_end)
        alone = front_end(tf.constant(one[None]), tf.constant([len(one)])).numpy()[0]
        assert alone.shape == wanted.shape == (int(front_end.frames(len(one))), front_end.width)
        within = np.maximum(1e-4, 2 * np.spacing(np.abs(wanted)))  # coefficients of silence, -632, are only rounded to 6e-5 themselves
        assert (np.abs(alone - wanted) <= within).all()
        assert (np.abs(row[:len(alone)] - wanted) <= within).all()


@pytest.mark.realdata
def test_equal_to_librosa_on_voices():
    need("spoken_digit")
    from pipelines.data.tfds import TfdsSource

    source = TfdsSource("spoken_digit", "train[:12]", fields={"audio": "audio"})
    front_end = FrontEnd(Frontend(), 8000)
    for number in range(12):
        samples = source.gather(tf.constant([number]))["audio"][0].numpy().astype(np.float32) / 32768.0
        made = front_end(tf.constant(samples[None]), tf.constant([len(samples)])).numpy()[0]
        assert np.abs(made - by_librosa(samples, front_end)).max() <= 1e-4


@pytest.mark.parametrize("normalize", ["train", "recording", "none"])
def test_normalised_alike_in_any_batch_and_zero_behind(normalize):
    front_end = FrontEnd(Frontend(normalize=normalize), 8000)
    one = RNG.normal(0, 0.1, 4000).astype(np.float32)
    mean, std = tf.zeros([40]) - 30.0, tf.ones([40]) * 9.0

    def made(padding: int) -> np.ndarray:
        batch = tf.constant(np.pad(one, (0, padding))[None])
        return front_end.normalized(front_end(batch, tf.constant([4000])), tf.constant([4000]), mean, std).numpy()[0]

    alone, padded = made(0), made(3000)
    assert np.abs(padded[:len(alone)] - alone).max() <= 1e-4 and not padded[len(alone):].any()
    if normalize == "recording":
        assert np.abs((made(0) * 9.0 - 30.0).mean(0)).max() < 1e-3


def test_sixteen_bits_come_out_as_they_went_in():
    values = np.arange(-32768, 32768, dtype=np.int16)
    assert np.array_equal(to_int16(values / np.float32(32768.0)), values)
    floats = RNG.uniform(-1.2, 1.2, 5000).astype(np.float32)
    assert np.array_equal(to_int16(floats), (rounded(tf.constant(floats)) * 32768.0).numpy().astype(np.int16))
