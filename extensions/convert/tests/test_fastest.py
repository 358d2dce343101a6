"""A run is served in the fastest form that keeps its answers, which is chosen once."""

import base64
import importlib.util
import json
import os
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from extensions.convert import fastest, runtimes
from extensions.convert.decoding import ImageDecoder
from extensions.convert.fastest import predictor
from extensions.convert.quick import QuickPredictor
from pipelines.base.errors import ConfigError
from pipelines.serving.forms import difference
from pipelines.serving.predict import Predictor
from tests import finished_run, processes
from tests.serving.toy_server import needs_extra
from tests.waiting import until

EXTRAS = ("ai_edge_litert", "onnxruntime", "tf2onnx", "openvino")
pytestmark = [pytest.mark.slow(seconds=35), pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in EXTRAS) and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extras `mobile`, `onnx` and `openvino`: what it tests is not tested here")]


@pytest.fixture
def forms(monkeypatch):
    """LiteRT alone is tried, and is as fast as it has to be."""
    monkeypatch.setattr(fastest, "FORMATS", fastest.FORMATS[:1])
    monkeypatch.setattr(fastest, "FASTER", 1e9)


def test_the_choice_is_made_once_and_answers_as_the_run(loaded, judged, tmp_path, forms, monkeypatch):
    said = []
    first = predictor(loaded, kept=tmp_path, say=said.append)
    monkeypatch.setattr(fastest, "convert", lambda *_: pytest.fail("chosen already"))
    again = predictor(loaded, kept=tmp_path, say=said.append)
    assert said[0] == said[1] and "litert: LiteRT float32 " in said[0] and "TensorFlow " in said[0]
    usual = Predictor(loaded)
    for content in judged[0][:5]:
        read = [("one", {"image": content})]
        for one in (first, again):
            assert isinstance(one, QuickPredictor) and difference(one.together(read)[0], usual.together(read)[0]) <= 1e-5
    (kept,) = tmp_path.iterdir()
    (kept / "core.tflite").write_bytes(b"changed")
    with pytest.raises(pytest.fail.Exception, match="chosen already"):
        predictor(loaded, kept=tmp_path)


def test_a_form_that_answers_otherwise_or_fails_is_left(loaded, forms, monkeypatch):
    right = runtimes.load
    for wrong, part in ((lambda compute: lambda values: [0.98 * compute(values)[0] + 0.002], "LiteRT float32 differs by"),
                        (lambda compute: 1 / 0, "LiteRT float32: ")):
        monkeypatch.setattr(runtimes, "load", lambda *given, wrong=wrong: wrong(right(*given)))
        said = []
        assert type(predictor(loaded, say=said.append)) is Predictor and "tensorflow: TensorFlow " in said[0] and part in said[0]
        with pytest.raises(ConfigError, match=f"--form litert: .*{part}"):
            predictor(loaded, wanted="litert")


def test_a_run_in_halves_has_other_forms_where_its_network_computes_in_float32(loaded, forms, monkeypatch):
    in_halves = replace(loaded, machine=replace(loaded.machine, precision="bfloat16"))
    assert isinstance(predictor(in_halves), QuickPredictor)

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1])])
    def rounded(images):
        return tf.map_fn(lambda image: tf.cast(tf.cast(image, tf.bfloat16), tf.float32), images)

    core = fastest.core_of(loaded)
    monkeypatch.setattr(fastest, "core_of", lambda run: replace(core, function=rounded.get_concrete_function()))
    with pytest.raises(ConfigError, match="judged in bfloat16, in which no other form answers alike"):
        predictor(in_halves, wanted="litert")


def test_a_slower_form_is_left_unless_it_is_asked_for(loaded, forms, monkeypatch):
    monkeypatch.setattr(fastest, "FASTER", 0.0)
    assert type(predictor(loaded)) is Predictor
    assert isinstance(predictor(loaded, wanted="litert"), QuickPredictor)
    assert type(predictor(loaded, wanted="tensorflow")) is Predictor


def test_tensorflow_may_decode_where_numpy_is_not_exact(loaded, judged, forms, monkeypatch):
    monkeypatch.setattr(ImageDecoder, "decode", lambda self, row: np.zeros([1, 8, 8, 1], np.float32))
    one, usual = predictor(loaded), Predictor(loaded)
    read = [("one", {"image": judged[0][0]})]
    assert isinstance(one, QuickPredictor) and difference(one.together(read)[0], usual.together(read)[0]) <= 1e-5
    (broken,) = one.together([("one", {"image": b"nothing"})])
    assert broken.error == usual.together([("one", {"image": b"nothing"})])[0].error


def test_time_is_bounded(loaded, monkeypatch):
    monkeypatch.setattr(fastest, "SECONDS", -1.0)
    said = []
    assert type(predictor(loaded, say=said.append)) is Predictor and "ONNX not tried after" in said[0]


@needs_extra
def test_quartet_serve_chooses_once_says_what_and_answers_as_it_was_judged(judged, tmp_path):
    images, _, probabilities = judged
    body = json.dumps({"inputs": [{"b64": base64.b64encode(images[0]).decode()}]}).encode()
    said = []
    for _ in range(2):
        server = processes.start("-m", "quartet", "serve", finished_run.run(), "--port", "0", cwd=tmp_path,
                                 env=finished_run.environment() | {"XDG_CACHE_HOME": str(tmp_path)})
        try:
            until(lambda server=server: "serving " in server.printed()[1] or server.poll() is not None, seconds=300, pause=0.1)
            lines = server.printed()[1].splitlines()
            address = next(line for line in lines if line.startswith("serving")).split()[1]
            asked = urllib.request.Request(f"{address}/predict?probabilities=1", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=60) as found:
                (answer,) = json.load(found)["answers"]
        finally:
            server.kill()
        assert np.abs(np.array(list(answer["probabilities"].values())) - probabilities[0]).max() <= 1e-5
        said.append(next(line for line in lines if line.startswith("form")))
    (kept,) = (tmp_path / "quartet" / "forms").glob("*/choice.json")
    choice = json.loads(kept.read_text())
    assert said[0] == said[1] == f"form         vision/digits: {choice['form']}: {choice['why']}" and "TensorFlow " in choice["why"]
    assert all(name in choice["why"] for name in ("LiteRT", "ONNX", "OpenVINO"))
