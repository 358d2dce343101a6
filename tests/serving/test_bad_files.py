"""Broken image files and messages of gRPC, by mutation with a fixed seed: each gets an answer or its error, soon, in bounded memory.

QUARTET_FUZZ=1000 tries as many of each; the suite tries some. Broken requests of HTTP are in test_bad_requests.py.
"""

import importlib.util
import io
import os
import random
import resource
import time

import numpy as np
import pytest
from PIL import Image

from pipelines.serving.output import Prediction
from tests.serving.toy_server import Doubling, Spelling, needs_extra, running

COUNT = int(os.environ.get("QUARTET_FUZZ", "100"))
SECONDS = 10  # of one input
pytestmark = [needs_extra, pytest.mark.slow(seconds=10)]


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


@pytest.mark.skipif(not all(importlib.util.find_spec(name) for name in ("tritonclient", "tensorflow_serving"))
                    and not os.environ.get("QUARTET_REQUIRE_EXTRAS"), reason="needs the extra `grpc`: what it tests is not tested here")
def test_broken_messages_of_grpc_have_a_code_that_says_so(caplog):
    import grpc

    from tests.serving.test_grpc import infer_request, predict_request

    infer, serve = "/inference.GRPCInferenceService/ModelInfer", "/tensorflow.serving.PredictionService/Predict"
    seeds = [(infer, infer_request().SerializeToString()), (infer, infer_request(shape=[4, 3], raw=[bytes(48)]).SerializeToString()),
             (serve, predict_request("double", x=np.ones([2, 3], np.float32)).SerializeToString()),
             (serve, predict_request("toy", text=np.array([b"ab"], object), times=np.array([1], np.int64)).SerializeToString())]
    allowed = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
    with running(Spelling(), rpc=True) as server, grpc.insecure_channel(f"127.0.0.1:{server.rpc_port}") as channel:
        server.models.add("double", 7, Steady())
        grpc.channel_ready_future(channel).result(60)
        calls = {path: channel.unary_unary(path) for path in (infer, serve)}
        for path, content in seeds:
            calls[path](content, timeout=60)
        before, found = peak(), set()
        for number, content in enumerate(mutated([content for _, content in seeds], COUNT)):
            began = time.monotonic()
            try:
                calls[seeds[number % len(seeds)][0]](content, timeout=60)
                found.add("OK")
            except grpc.RpcError as error:
                found.add(error.code().name)
                assert error.code().name in allowed and error.details(), (content, error)
            assert time.monotonic() - began < SECONDS, content
        assert {"OK", "INVALID_ARGUMENT"} <= found and peak() < 1.2 * before
        assert server.ask(b'{"inputs": [[1, 2, 3]]}', path="/predict?model=double")[0] == 200
    assert not caplog.records
