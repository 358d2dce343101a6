"""Augmentation is a function of each example's own key, and does what it says."""

import numpy as np
import pytest
import tensorflow as tf

from pipelines.errors import DataError
from speech.augment import Augmenter, made_noise, played
from speech.settings import Augment
from tests.speech.made import tone, write

KEYS = tf.constant([[1, 2], [3, 4], [5, 6], [7, 8]])
WAVES = np.zeros([4, 8000], np.float32)
LENGTHS = np.array([8000, 4000, 6000, 5000], np.int32)
for number, length in enumerate(LENGTHS):
    WAVES[number, :length] = tone(length / 8000, hertz=300 + 100 * number)
ALL = Augment(shift=0.1, speed=0.1, gain=6.0, noise=1.0, frequency_masks=2, time_masks=2)


@pytest.mark.parametrize("window", [True, False])
def test_the_same_in_any_batch(window):
    augmenter = Augmenter(ALL, 8000)
    waves, lengths = augmenter.waveforms(tf.constant(WAVES), tf.constant(LENGTHS), KEYS, window=window)
    for row in range(4):
        cut = WAVES[row:row + 1] if window else WAVES[row:row + 1, :LENGTHS[row]]
        alone, length = augmenter.waveforms(tf.constant(cut), tf.constant(LENGTHS[row:row + 1]), KEYS[row:row + 1], window=window)
        assert int(length[0]) == int(lengths[row])
        size = int(length[0])
        assert np.abs(alone[0, :size].numpy() - waves[row, :size].numpy()).max() < 1e-5
        assert not waves[row, size:].numpy().any()


def test_features_are_masked_within_the_recording_and_alike_in_any_batch():
    augmenter = Augmenter(ALL, 8000)
    features, frames = tf.ones([4, 90, 40]), tf.constant([90, 50, 70, 20])
    masked = augmenter.features(features, frames, KEYS, 0.01).numpy()
    assert 0.5 < masked.mean() < 1.0
    for row in range(4):
        alone = augmenter.features(features[row:row + 1, :60], frames[row:row + 1], KEYS[row:row + 1], 0.01).numpy()
        assert np.array_equal(alone[0], masked[row, :60])
    assert not np.array_equal(masked[0], masked[1])


def test_speed_moves_pitch_and_length():
    wave = tf.constant(tone(1.0, hertz=500.0)[None])
    faster = played(wave, tf.range(7000.0)[None] * 1.1).numpy()[0]
    peak = np.argmax(np.abs(np.fft.rfft(faster))) * 8000 / 7000
    assert abs(peak - 550) < 3
    assert np.array_equal(played(wave, tf.range(8000.0)[None]).numpy(), wave.numpy())


def test_noise_is_laid_at_the_ratio():
    augmenter = Augmenter(Augment(noise=1.0, snr=[10.0, 10.0]), 8000)
    waves, _ = augmenter.waveforms(tf.constant(WAVES[:1]), tf.constant(LENGTHS[:1]), KEYS[:1], window=True)
    laid = waves.numpy() - WAVES[:1]
    assert abs(10 * np.log10(np.mean(WAVES[0] ** 2) / np.mean(laid**2)) - 10) < 1.5
    assert np.allclose((made_noise() ** 2).mean(axis=1), 1.0, atol=1e-3)


def test_noise_from_a_folder(tmp_path):
    write(tmp_path / "hum.wav", tone(0.4, hertz=60.0))
    assert Augmenter(Augment(noise=0.5, noise_folder=str(tmp_path)), 8000).noise.shape == (1, 3200)
    write(tmp_path / "still.wav", np.zeros(800, np.float32))
    with pytest.raises(DataError, match=r"still\.wav: is silent"):
        Augmenter(Augment(noise=0.5, noise_folder=str(tmp_path)), 8000)
    with pytest.raises(DataError, match="holds no recordings"):
        Augmenter(Augment(noise=0.5, noise_folder=str(tmp_path / "none")), 8000)


def test_copies_by_librosa_are_always_the_same():
    from speech.copies import with_copies
    from speech.sources import Facts, Recordings

    waves = [np.rint(tone(0.5, hertz=300 + 200 * number) * 32_000).astype(np.int16) for number in range(3)]
    facts = Facts(["a", "b", "c"], ["a", "b", "c"], speakers=["x", "y", "x"], lengths=np.full(3, 4000, np.int32))
    base = Recordings(lambda number: waves[number], facts, "made", labels=np.array([0, 1, 0]))
    settings = Augment(copies=2, pitch=3.0, stretch=0.2)
    first, second = with_copies(base, settings, 8000, 0), with_copies(base, settings, 8000, 0)
    assert len(first) == 9 and first.labels.tolist() == [0, 1, 0] * 3 and first.name(4) == "b copy 1"
    assert first.facts.speakers == ["x", "y", "x"] * 3 and first.fingerprint() == second.fingerprint() != base.fingerprint()
    for number in range(9):
        assert np.array_equal(first.load(number), second.load(number))
    assert np.array_equal(first.load(2), waves[2]) and not np.array_equal(first.load(3), waves[0])
    lengths = {len(first.load(number)) for number in range(3, 9)}
    assert len(lengths) > 1 and all(0.75 * 4000 < size < 1.35 * 4000 for size in lengths)
