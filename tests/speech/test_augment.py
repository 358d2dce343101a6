"""Augmentation is a function of each example's own key, and does what it says."""

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import DataError
from speech.data.augment import Augmenter, coloured_noise, resampled_at
from speech.data.features import FrontEnd
from speech.settings import Augment, Frontend
from tests.speech.synthetic_recordings import class_folders, tone, write

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


def test_a_warp_moves_frequencies_and_keeps_the_tempo():
    front_end = FrontEnd(Frontend(mels=40), 8000)
    waves, lengths = tf.constant(np.stack([tone(1.0, hertz=1000)] * 32)), tf.fill([32], 8000)
    keys = tf.stack([tf.range(32), tf.range(32)], 1)
    plain, centres = front_end(waves, lengths), tf.constant(front_end.centres, tf.float32)
    warped = Augmenter(Augment(warp=0.2), 8000).warped(plain, keys, centres).numpy()
    peaks = front_end.centres[warped[:, 50].argmax(-1)]
    assert warped.shape == plain.shape and 780 < peaks.min() < 880 and 1150 < peaks.max() < 1290
    alone = Augmenter(Augment(warp=0.2), 8000).warped(plain[7:8], keys[7:8], centres).numpy()
    assert np.array_equal(alone[0], warped[7])
    assert Augmenter(Augment(), 8000).warped(plain, keys, centres) is plain


def test_speed_moves_pitch_and_length():
    wave = tf.constant(tone(1.0, hertz=500.0)[None])
    faster = resampled_at(wave, tf.range(7000.0)[None] * 1.1).numpy()[0]
    peak = np.argmax(np.abs(np.fft.rfft(faster))) * 8000 / 7000
    assert abs(peak - 550) < 3
    assert np.array_equal(resampled_at(wave, tf.range(8000.0)[None]).numpy(), wave.numpy())


def test_noise_is_laid_at_the_ratio():
    augmenter = Augmenter(Augment(noise=1.0, snr=[10.0, 10.0]), 8000)
    waves, _ = augmenter.waveforms(tf.constant(WAVES[:1]), tf.constant(LENGTHS[:1]), KEYS[:1], window=True)
    laid = waves.numpy() - WAVES[:1]
    assert abs(10 * np.log10(np.mean(WAVES[0] ** 2) / np.mean(laid**2)) - 10) < 1.5
    assert np.allclose((coloured_noise() ** 2).mean(axis=1), 1.0, atol=1e-3)


def test_noise_from_a_folder(tmp_path, monkeypatch):
    write(tmp_path / "hum.wav", 0.3 * np.sin(np.arange(3200) * 2 * np.pi * 60 / 8000))
    write(tmp_path / "whine.wav", 0.1 * np.sin(np.arange(12_000) * 2 * np.pi * 1000 / 8000))
    augmenter = Augmenter(Augment(noise=1.0, snr=[10.0, 10.0], noise_folder=str(tmp_path)), 8000)
    noises = augmenter.noises
    assert noises.sizes.tolist() == [3200, 12_000] and len(noises.samples) == 15_200 and noises.note is None
    graph = tf.function(lambda waves: augmenter.waveforms(waves, tf.constant(LENGTHS), KEYS, window=True)[0], autograph=False)
    laid = graph(tf.constant(WAVES)).numpy() - WAVES
    assert graph.get_concrete_function(tf.constant(WAVES)).graph.as_graph_def().ByteSize() < 50_000  # the noise is no part of the graph
    peaks = [np.argmax(np.abs(np.fft.rfft(row[:4000]))) * 2 for row in laid]
    assert all(min(abs(peak - 60), abs(peak - 1000)) < 10 for peak in peaks), peaks  # one noise each, never the next one's beginning
    assert np.allclose(10 * np.log10((WAVES**2).sum(1) / (laid**2).sum(1)), 10, atol=0.5)
    monkeypatch.setattr("speech.data.augment.ALL", 1.0)
    kept = Augmenter(augmenter.settings, 8000).noises
    assert kept.sizes.tolist() == [3200, 4000] and "of 1 of the 2 recordings" in kept.note and "the first 0.5 s" in kept.note
    write(tmp_path / "still.wav", np.zeros(800, np.float32))
    with pytest.raises(DataError, match=r"still\.wav: is silent"):
        _ = Augmenter(augmenter.settings, 8000).noises
    with pytest.raises(DataError, match="holds no recordings"):
        _ = Augmenter(Augment(noise=0.5, noise_folder=str(tmp_path / "none")), 8000).noises


@pytest.mark.slow
def test_a_training_reads_its_noise_when_it_begins_and_a_finished_run_needs_none(tmp_path):
    from pipelines.config.load import from_text
    from pipelines.runs.launch import task_class

    class_folders(tmp_path / "words", {"go": 6, "stop": 6})
    for name, text in (("speech.classification", "model: {name: ds_cnn}"), ("speech.transcription", "model: {name: quartz}")):
        data = "source: synthetic, limit: 12" if "trans" in name else f"source: folder, path: {tmp_path / 'words'}"
        task = task_class(name)
        experiment = from_text(f"task: {name}\n{text}\ndata: {{{data}, rate: 8000, validation: 0, test: 0.4}}\n"
                               f"augment: {{noise: 1.0, noise_folder: {tmp_path / 'gone'}}}\n", check_paths=False).experiment
        with pytest.raises(DataError, match="gone holds no recordings"):
            task(experiment).splits()
        write(tmp_path / "gone" / "hum.wav", tone(0.4))
        facts = task(experiment).splits().facts
        (tmp_path / "gone" / "hum.wav").unlink()
        finished = task(experiment, facts)
        assert len(finished.splits().test) and finished.prepare(finished.input.receive(
            {"samples": tf.constant(WAVES), "length": tf.constant(LENGTHS)}))


def test_copies_by_librosa_are_always_the_same():
    from speech.data.augment import with_copies
    from speech.data.recordings import Facts, Recordings

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


@pytest.mark.parametrize("window", [True, False])
def test_times_follow_what_is_done_to_a_recording(window):
    augmenter, places = Augmenter(Augment(shift=0.1, speed=0.2), 8000), np.array([2000, 3000, 4000, 5000])
    waves = np.zeros([4, 8000], np.float32)
    waves[np.arange(4), places] = 1.0
    moved, _ = augmenter.waveforms(tf.constant(waves), tf.fill([4], 8000), KEYS, window=window)
    scale, delay = np.split(augmenter.times(KEYS, 8000 if window else None).numpy(), 2, 1)
    expected = scale[:, 0] * places / 8000 + delay[:, 0]
    assert np.abs(moved.numpy().argmax(-1) / 8000 - expected).max() < 1.5 / 8000
    assert np.abs(expected - places / 8000).max() > 0.01
