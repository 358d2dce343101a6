"""Broken images and recordings, by mutation with a fixed seed: each gets an answer or its error, soon, in bounded memory.

QUARTET_FUZZ=1000 tries as many of each; the suite tries some. Broken requests of HTTP are in test_bad_requests.py.
"""

import io
import os
import random
import resource
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.serving.output import Prediction
from tests.serving.toy_server import Doubling, needs_extra, running

COUNT = int(os.environ.get("QUARTET_FUZZ", "100"))
SECONDS = 10  # of one input
pytestmark = [needs_extra, pytest.mark.slow(seconds=15)]


def mutated(seeds, count, seed=0):
    """So many of the seeds, each with some bytes changed, left out, doubled or set to a number that headers misuse."""
    draw = random.Random(seed)
    for number in range(count):
        data = bytearray(seeds[number % len(seeds)])
        for _ in range(draw.randint(1, 4)):
            place, kind = draw.randrange(min(len(data), draw.choice([40, len(data)])) + 1), draw.randrange(4)
            if kind == 0:
                data[place:place + 1] = bytes([draw.randrange(256)])
            elif kind == 1:
                del data[place:place + draw.randint(1, 30)]
            elif kind == 2:
                data[place:place] = data[place:place + draw.randint(1, 50)] * draw.randint(1, 5)
            else:
                data[place:place + 4] = draw.choice([b"\xff\xff\xff\xff", bytes(4), b"\x7f\xff\xff\xff", b"\x00\x01\x00\x00"])
        yield bytes(data)


def images():
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8))
    kinds = [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("GIF", {}), ("BMP", {}), ("WEBP", {}),
             ("WEBP", {"lossless": True})]
    for kind, options in kinds:
        file = io.BytesIO()
        picture.save(file, kind, **options)
        yield file.getvalue()


def recordings():
    """A quarter of a second of noise in each kind of file, and a FLAC file whose header promises 2 ** 36 samples."""
    import soundfile

    noise = np.random.default_rng(0).uniform(-0.3, 0.3, [2000, 2]).astype(np.float32)
    kinds = [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("WAV", "ULAW"), ("WAVEX", "PCM_24"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"),
             ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_16"), ("CAF", "ALAC_16")]
    for number, (kind, part) in enumerate(kinds):
        file = io.BytesIO()
        soundfile.write(file, noise[:, :1 + number % 2], 8000, part, format=kind)
        yield file.getvalue()
        if kind == "FLAC":
            yield file.getvalue()[:21] + b"\x0f\xff\xff\xff\xff" + file.getvalue()[26:]


@pytest.fixture(scope="module")
def hearing():
    """A small command network, not trained, as a server has it."""
    from pipelines.config.load import load
    from pipelines.machine import devices
    from pipelines.runs.folder import RunFolder
    from pipelines.serving.load import LoadedRun
    from pipelines.serving.predict import Predictor
    from speech.tasks.classification import Classification

    experiment = load("speech/quickstart", ["model.width=8", "model.depth=1", "train.devices=cpu"]).experiment
    machine = devices.prepare(experiment.train, precision="float32")
    bands = experiment.frontend.mels
    task = Classification(experiment, {"classes": ["no", "yes"], "class_counts": [1, 1], "mean": [0.0] * bands, "std": [1.0] * bands})
    return Predictor(LoadedRun(task, task.model(), experiment, RunFolder(Path("toy")), machine, "float32", "toy"))


class Steady(Doubling):
    """Doubles numbers below zero, too, and what is none."""

    def together(self, read):
        with np.errstate(all="ignore"):
            return [Prediction(name, {"doubled": 2 * row["x"]}) for name, row in read]


def peak():
    """Bytes that this process had in memory at the most."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_broken_images_are_answered_or_named_and_harm_no_other(loaded):
    from pipelines.serving.predict import Predictor

    predictor, seeds = Predictor(loaded), list(images())
    (right,) = predictor.together([("right", {"image": seeds[2]})])
    list(map(predictor.large, ({"image": seed} for seed in seeds)))
    predictor.together([(str(number), {"image": seed}) for number, seed in enumerate(seeds)])
    before, broken = peak(), 0
    for content in mutated(seeds, COUNT):
        began = time.monotonic()
        predictor.large({"image": content})
        one, other = predictor.together([("broken", {"image": content}), ("right", {"image": seeds[2]})])
        assert time.monotonic() - began < SECONDS, content
        assert other.error is None and other.values["label"] == right.values["label"], content
        assert (one.error is None) == bool(one.values) and len(one.error or "") < 2000, content
        broken += one.error is not None
    assert COUNT / 4 < broken < COUNT
    assert peak() < 1.2 * before


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")  # nor does the server's log fill with tracebacks
def test_broken_recordings_are_answered_or_named_by_a_server_that_stays_as_it_was(hearing):
    seeds = list(recordings())
    with running(hearing) as server:
        for seed in seeds:
            server.ask(seed, kind="audio/wav")
        right = server.ask(seeds[0], kind="audio/wav")[2]["answers"][0]
        before, broken = peak(), 0
        for content in mutated(seeds, COUNT):
            began = time.monotonic()
            status, _, found = server.ask(content, kind="audio/wav")
            assert time.monotonic() - began < SECONDS, content
            assert status == 200 and len(found["answers"]) == 1, content
            (one,) = found["answers"]
            assert ("label" in one) != ("error" in one) and 0 < len(one.get("error", "x")) < 1000, (content, one)
            broken += "error" in one
        assert COUNT / 4 < broken < COUNT
        assert server.ask(seeds[0], kind="audio/wav")[2]["answers"][0] == right
        assert 'status="500"' not in server.observed.text().decode()
    assert peak() < 1.2 * before
