"""Commands in long recordings: found once each, when they are, however the samples come."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import DataError
from speech.listen import detect, main, stream
from tests import processes
from tests.finished_run import environment
from tests.speech.synthetic_recordings import tone, write

pytestmark = pytest.mark.slow

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


    input = output = property(lambda self: self)


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


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run of two pitches and noise, whose folder of noise is gone."""
    from pipelines.config.load import from_text
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.launch import task_class
    from pipelines.runs.run import Call, train

    place, rng = tmp_path_factory.mktemp("listen"), np.random.default_rng(0)
    for name, hertz in (("low", 500.0), ("high", 2000.0)):
        for number in range(24):
            write(place / "words" / name / f"{number}.wav", tone(0.4, RATE, hertz * rng.uniform(0.97, 1.03), number))
    for number in range(24):
        write(place / "words" / "_unknown_" / f"{number}.wav", rng.normal(0, rng.uniform(0.005, 0.02), WINDOW).astype(np.float32))
    write(place / "noise" / "hiss.wav", rng.normal(0, 0.1, RATE).astype(np.float32))
    experiment = from_text(
        "task: speech.classification\nmodel: {name: ds_cnn, width: 16, depth: 1, dropout: 0.0}\nfrontend: {mels: 16}\n"
        f"data: {{source: folder, path: {place / 'words'}, rate: {RATE}, seconds: 0.5, validation: 0, test: 0.2}}\n"
        f"augment: {{noise: 0.5, shift: 0.2, noise_folder: {place / 'noise'}}}\n"
        "train: {epochs: 100, batch_size: 16, devices: cpu, precision: float32, learning_rate: {peak: 0.01}, validate_every: 100}\n"
        "evaluate: {bootstrap: 100}\nmonitor: {tensorboard: false}\n").experiment
    train(experiment, RunFolder(place / "run"), Call("pitches", task_class(experiment.task), quiet=True))
    shutil.rmtree(place / "noise")
    return place / "run"


@pytest.mark.parametrize("live", [False, True])
def test_the_command_finds_commands_in_a_file_and_in_standard_input(run, tmp_path, live):
    samples = recording()
    path = write(tmp_path / "call.wav", samples, RATE)
    command = ["-m", "speech.listen", str(run), "--threshold", "0.5"]
    if live:
        done = subprocess.run([sys.executable, *command], input=np.rint(samples * 32767).astype("<i2").tobytes(), capture_output=True,
                              timeout=300, check=False, env=environment())
    else:
        done = processes.run(*command, path)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["label"] for one in found] == ["low", "high", "low", "high"], found
    for one, start in zip(found, (1.0, 3.0, 4.5, 7.6)):
        assert one["start"] - 0.2 <= start and start + 0.4 <= one["end"] + 0.2 and 0.5 <= one["confidence"] <= 1.0


def test_the_command_names_a_file_that_cannot_be_read(run, tmp_path):
    with pytest.raises(DataError, match=r"none\.wav: the file is not there"):
        main(run, tmp_path / "none.wav")
