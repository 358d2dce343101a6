"""Broken messages of gRPC, by mutation with a fixed seed: each gets a code that says what is wrong with it, soon, in bounded memory."""

import importlib.util
import os
import time

import numpy as np
import pytest

from extensions.gateway.tests.gateway_server import running
from tests.serving.test_bad_files import COUNT, SECONDS, Steady, mutated, peak
from tests.serving.toy_server import Spelling, needs_extra

pytestmark = [needs_extra, pytest.mark.slow(seconds=5)]


@pytest.mark.skipif(not all(importlib.util.find_spec(name) for name in ("tritonclient", "tensorflow_serving"))
                    and not os.environ.get("QUARTET_REQUIRE_EXTRAS"), reason="needs the extra `grpc`: what it tests is not tested here")
def test_broken_messages_of_grpc_have_a_code_that_says_so(caplog):
    import grpc

    from extensions.gateway.tests.test_grpc import infer_request, predict_request

    infer, serve = "/inference.GRPCInferenceService/ModelInfer", "/tensorflow.serving.PredictionService/Predict"
    seeds = [(infer, infer_request().SerializeToString()), (infer, infer_request(shape=[4, 3], raw=[bytes(48)]).SerializeToString()),
             (serve, predict_request("double", x=np.ones([2, 3], np.float32)).SerializeToString()),
             (serve, predict_request("toy", text=np.array([b"ab"], object), times=np.array([1], np.int64)).SerializeToString())]
    allowed = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
    with running(Spelling(), grpc=0) as server, grpc.insecure_channel(f"127.0.0.1:{server.rpc_port}") as channel:
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
