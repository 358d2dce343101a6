"""Recordings without TensorFlow, as the copy beside a converted model hears them: as the run hears them."""

import io

import numpy as np
import pytest
import soundfile
import tensorflow as tf

from extensions.convert.decoders.recordings import decode
from extensions.convert.decoding import decoder_of
from pipelines.config.load import from_dict
from speech.data import audio
from speech.tasks.classification import Classification

RATE = 8000
FACTS = {"classes": ["a", "b"], "mean": np.linspace(-30, -60, 40).tolist(), "std": np.linspace(8, 12, 40).tolist()}


def sound(seconds, rate=RATE, channels=1):
    times, drawn = np.arange(round(seconds * rate)) / rate, np.random.default_rng(0)
    tone = 0.3 * np.sin(2 * np.pi * 440 * times) * np.exp(-8 * (times - seconds / 3) ** 2) + 0.01 * drawn.normal(size=len(times)) + 0.05
    file = io.BytesIO()
    soundfile.write(file, np.stack([tone] * channels, 1) * np.linspace(1, 0.5, channels), rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


@pytest.mark.parametrize("content", [sound(0.9), sound(0.4), sound(2.0), sound(1.3, 16000), sound(0.7, channels=2)],
                         ids=["window", "shorter", "longer", "resampled", "stereo"])
@pytest.mark.parametrize("normalize, top_db", [("train", 80.0), ("recording", None), ("none", 40.0)])
def test_as_the_run_hears(content, normalize, top_db):
    task = Classification(from_dict({
        "task": "speech.classification", "data": {"source": "folder", "path": "x", "rate": RATE, "seconds": 0.9},
        "frontend": {"mels": 40, "normalize": normalize, "top_db": top_db}, "model": {"name": "ds_cnn"}}, check_paths=False), FACTS)
    samples = audio.read(content, RATE)
    expected, _ = task.prepare({"samples": task.input.receive(
        {"samples": tf.constant(samples[None]), "length": tf.constant([len(samples)])})["samples"]})
    found = decode({**decoder_of(task).settings, "facts": FACTS}, io.BytesIO(content))
    assert found.shape == expected.shape and found.dtype == np.float32
    assert np.abs(found - expected.numpy()).max() <= 2e-3


def test_what_numpy_does_not_compute_is_said():
    task = Classification(from_dict({
        "task": "speech.classification", "data": {"source": "folder", "path": "x", "rate": RATE}, "model": {"name": "ds_cnn"},
        "frontend": {"kind": "mfcc"}}, check_paths=False), {**FACTS, "mean": [0.0] * 20, "std": [1.0] * 20})
    decoder = decoder_of(task)
    assert decoder.file is None and "log-mel" in decoder.why


def test_the_short_way_is_not_for_silence_nor_for_long_recordings():
    task = Classification(from_dict({
        "task": "speech.classification", "data": {"source": "folder", "path": "x", "rate": RATE, "seconds": 0.9},
        "model": {"name": "ds_cnn"}},
        check_paths=False), FACTS)
    for seconds, loud, short in ((0.9, 1, True), (0.5, 1, True), (2.0, 1, False), (0.9, 1e-5, False)):
        samples = audio.read(sound(seconds), RATE) * np.float32(loud)
        found = decoder_of(task).decode({"samples": samples, "length": len(samples)})
        received = task.input.receive({"samples": tf.constant(samples[None]), "length": tf.constant([len(samples)])})
        assert (found is not None) == short and (received["warning"].numpy()[0] == b"") == short
        if short:
            assert np.abs(found - task.prepare({"samples": received["samples"]})[0].numpy()).max() <= 2e-3
