"""`quartet export --for ...`: small and fast forms answer as the run does, within what may be lost, with and without TensorFlow."""

import importlib.util
import json
import os
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf

import quartet
from extensions.convert import runtimes
from extensions.convert.conversion import DYNAMIC, LITERT, ONNX, Format, convert
from extensions.convert.core import INPUT, OUTPUT, Core, input_of
from extensions.convert.export import FORMATS, Passed, chosen_of, export_converted
from pipelines.base.errors import ConfigError
from pipelines.runs.folder import RunFolder
from pipelines.serving.evaluate import evaluate
from pipelines.serving.forms import open_run, predictor
from pipelines.serving.predict import Predictor
from pipelines.task.results import Metric
from quartet.testing import check_form
from tests import finished_run, processes

EXTRAS = ("ai_edge_litert", "onnxruntime", "tf2onnx", "openvino")
pytestmark = [pytest.mark.slow(seconds=30), pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in EXTRAS) and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extras `mobile`, `onnx` and `openvino`: what it tests is not tested here")]


@pytest.fixture(scope="module")
def mobile(loaded, tmp_path_factory):
    """The folder of the digits run as it is for a mobile, and the lines said on the way."""
    folder, said = tmp_path_factory.mktemp("mobile") / "digits", []
    export_converted(loaded, folder, made_for="mobile", loss=1.0, say=said.append)
    return folder, said


@pytest.fixture(scope="module")
def opened(mobile):
    return open_run(RunFolder(mobile[0]))


def shares_of(run, images):
    answers = Predictor(run).together([(str(place), {"image": image}) for place, image in enumerate(images)])
    return np.stack([one.values["probabilities"] for one in answers])


def test_it_is_small_and_answers_nearly_as_it_was_judged(mobile, opened, judged):
    manifest = json.loads((mobile[0] / "manifest.json").read_text())
    assert manifest["nbytes"] == (mobile[0] / "model" / manifest["core"]).stat().st_size < 0.35 * manifest["weights"]
    assert manifest["lost"]["value"] <= 1.0 and manifest["split"] == "validation" and manifest["metric"] == "accuracy"
    assert manifest["model"]["score"]["low"] < manifest["model"]["score"]["value"] < manifest["model"]["score"]["high"]
    assert manifest["export"]["milliseconds"]["value"] < manifest["model"]["milliseconds"]["value"]
    assert len(mobile[1]) == 2 and all("LiteRT" in line for line in mobile[1])
    images, _, expected = judged
    shares = shares_of(opened, images[:100])
    assert 0 < np.abs(shares - expected[:100]).max() < 0.1
    assert np.mean(shares.argmax(1) == expected[:100].argmax(1)) >= 0.97
    assert np.abs(shares.sum(1) - 1).max() < 1e-5


def test_it_is_evaluated_as_a_run_is(opened, loaded):
    theirs, ours = (evaluate(run, split="validation", overrides=["evaluate.bootstrap=100"]).judgement for run in (loaded, opened))
    assert abs(theirs.metrics["accuracy"].value - ours.metrics["accuracy"].value) <= 0.01
    assert ours.metrics["accuracy"].n == theirs.metrics["accuracy"].n


def test_it_answers_without_tensorflow_and_quartet(mobile, opened, judged, tmp_path):
    paths = [tmp_path / f"{place}.png" for place in range(8)]
    for path, image in zip(paths, judged[0]):
        path.write_bytes(image)
    code = ("import json, sys; sys.path.insert(0, sys.argv[1]); from answer import Model; model = Model(sys.argv[1])\n"
            "print(json.dumps([model.answer(path) for path in sys.argv[2:]]))\n"
            "assert not {name.partition('.')[0] for name in sys.modules} & {'tensorflow', 'keras', 'pipelines', 'vision'}")
    done = processes.run("-I", "-c", code, str(mobile[0]), *map(str, paths), cwd=tmp_path, anew=True)
    assert done.returncode == 0, done.stderr
    found, expected = json.loads(done.stdout.splitlines()[-1]), shares_of(opened, judged[0][:8])
    assert np.abs(np.array([list(one["probabilities"].values()) for one in found]) - expected).max() <= 1e-5
    assert [one["label"] for one in found] == [str(row.argmax()) for row in expected]


def test_one_input_takes_the_short_way_behind_a_server_and_answers_alike(opened, judged, monkeypatch):
    quick, slow = predictor(opened), Predictor(opened)
    assert type(quick) is not Predictor
    counted = []
    decode = quick.decoder.decode
    monkeypatch.setattr(quick.decoder, "decode", lambda row: counted.append(decode(row)) or counted[-1])
    for content in (judged[0][0], judged[0][1], tf.io.encode_jpeg(tf.zeros([40, 30, 3], tf.uint8)).numpy()):
        read = [("one", {"image": content})]
        (one,), (other,) = quick.together(read), slow.together(read)
        assert one.values["label"] == other.values["label"] and list(one.values) == list(other.values)
        np.testing.assert_array_equal(one.values["probabilities"], other.values["probabilities"])
        assert one.values["confidence"] == other.values["confidence"]
    assert [values is None for values in counted] == [False, False, True]
    assert [one.error is None for one in quick.together([("a", {"image": judged[0][0]}), ("b", {"image": judged[0][1]})])] == [True] * 2


def test_a_form_keeps_the_contract(tmp_path):
    check_form("onnx", tmp_path)


@pytest.mark.parametrize("made_for", ["openvino", "cpu"])
def test_other_forms(loaded, judged, tmp_path, made_for, monkeypatch):
    monkeypatch.setitem(FORMATS, "cpu", [LITERT, DYNAMIC])
    said: list[str] = []
    manifest = export_converted(loaded, tmp_path / made_for, made_for=made_for, loss=1.0, say=said.append)
    if made_for == "openvino":
        assert [line.partition(":")[0] for line in said] == ["OpenVINO", "OpenVINO int8"]
        assert all("a batch of 64" in line for line in said) and "refused" not in said[1], said
    run = open_run(RunFolder(tmp_path / made_for))
    allowed = 1e-5 if manifest.largest <= 1e-5 else 0.1
    assert np.abs(shares_of(run, judged[0][:20]) - judged[2][:20]).max() <= allowed


def test_from_python_an_unknown_form_is_named_before_any_work():
    with pytest.raises(ConfigError, match=r"'mobil' is no form; did you mean mobile\?"):
        quartet.load(finished_run.run()).export(made_for="mobil")


def core_with(activation) -> Core:
    """A dense layer and an activation, as they stand in an encoder."""
    spec, module = tf.TensorSpec([None, 8], tf.float32, INPUT), tf.Module()
    module.values = (tf.Variable(tf.random.stateless_normal([8, 6], [1, 2], 0.0, 3.0)),)
    function = tf.function(lambda input_0: {OUTPUT.format(0): activation(input_0 @ module.values[0])},
                           input_signature=[spec], autograph=False)
    return Core(function.get_concrete_function(), spec, {"vectors": tf.TensorSpec([None, 6], tf.float32)}, module)


def test_gelu_in_its_exact_form_is_converted_to_onnx(tmp_path):
    core, given = core_with(lambda x: tf.nn.gelu(x, approximate=False)), np.random.default_rng(0).normal(size=[50, 8]).astype("float32")
    compute = runtimes.load("onnx", convert(core, ONNX, given, tmp_path), [])
    np.testing.assert_allclose(compute(given)[0], core(given)[0], atol=1e-5)


def test_an_operation_that_onnx_lacks_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"^the model cannot be converted to ONNX: it lacks Digamma$"):
        convert(core_with(lambda x: tf.math.digamma(tf.abs(x) + 1.0)), ONNX, np.zeros([1, 8], np.float32), tmp_path)


SIGNALLED = """
import os, signal, sys
import numpy as np
import openvino
from openvino import opset13 as operations
from extensions.convert.runtimes import load

given = operations.parameter([-1, 4], np.float32)
openvino.save_model(openvino.Model([operations.relu(given)], [given]), sys.argv[1])
first, second = (load("openvino", sys.argv[1], []) for _ in range(2))
print(second(-np.ones([2, 4], np.float32))[0].sum())
del first
del second
signal.signal(signal.SIGINT, lambda number, frame: print("heard"))
os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_signal_is_heard_after_models_of_openvino_are_gone(tmp_path):
    done = processes.run("-c", SIGNALLED, tmp_path / "core.xml")
    assert (done.returncode, done.stdout.split()[-2:]) == (0, ["0.0", "heard"]), done.stderr


def loaded_by(monkeypatch, change):
    """Runtimes from now on answer what `change` makes of their answers."""
    right = runtimes.load

    def load(*given):
        compute = right(*given)
        return lambda values: change(compute(values))

    monkeypatch.setattr(runtimes, "load", load)


@pytest.mark.parametrize("change, part", [
    (lambda answers: [np.roll(answers[0], 1, axis=1)], "it loses .* points .* of accuracy on validation .* --loss allows 0.5"),
    (lambda answers: [answers[0] * np.nan], "not finite"), (lambda answers: [answers[0][:, :3]], "has the shape"),
])
def test_what_loses_too_much_is_refused_with_the_reason(loaded, tmp_path, monkeypatch, change, part):
    loaded_by(monkeypatch, change)
    monkeypatch.setitem(FORMATS, "mobile", FORMATS["mobile"][:1])
    with pytest.raises(ConfigError, match=f"LiteRT dynamic range: .*{part}"):
        export_converted(loaded, tmp_path / "wrong", made_for="mobile")
    assert not list(tmp_path.iterdir())


def test_a_float32_form_that_answers_otherwise_is_a_wrong_conversion(loaded, tmp_path, monkeypatch):
    loaded_by(monkeypatch, lambda answers: [0.98 * answers[0] + 0.002])
    with pytest.raises(ConfigError, match="the conversion is wrong"):
        export_converted(loaded, tmp_path / "wrong", made_for="onnx", loss=100.0)


def test_a_changed_core_and_a_damaged_manifest_are_refused(mobile, tmp_path):
    folder = tmp_path / "changed"
    shutil.copytree(mobile[0], folder)
    with open(folder / "model" / "core.tflite", "r+b") as file:
        file.seek(2000)
        file.write(b"\0\1")
    with pytest.raises(ConfigError, match="checksum is another one"):
        open_run(RunFolder(folder))
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"manifest\.json"):
        open_run(RunFolder(folder))


def test_a_missing_runtime_is_said(mobile, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(ConfigError, match="pip install ai-edge-litert"):
        open_run(RunFolder(mobile[0]))


def test_models_of_several_inputs_or_texts_are_refused_with_the_reason(loaded):
    class Two(type(loaded.task)):
        def prepare(self, examples, **drawn):
            return {"user": examples["image"], "item": examples["image"]}, None

    class Texts(type(loaded.task)):
        def prepare(self, examples, **drawn):
            return tf.strings.as_string(examples["image"]), None

    for kind, part in ((Two, r"takes 2 inputs \(user and item\)"), (Texts, "takes texts")):
        with pytest.raises(ConfigError, match=part):
            input_of(kind(loaded.task.experiment, loaded.task.facts))


def test_what_is_chosen(tmp_path):
    def tried(name, nbytes, low, high):
        folder = tmp_path / f"{name}{nbytes}{low}"
        folder.mkdir()
        (folder / "core").write_bytes(bytes(nbytes))
        return Passed(Format(name, "litert", False, "core", lambda *_: None), folder, None, None, Metric((low + high) / 2, low, high))

    dynamic = tried("dynamic", 100, 1.0, 1.2)
    assert chosen_of([dynamic, tried("int8", 100, 0.5, 0.9)], "mobile").form.name == "int8"
    assert chosen_of([dynamic, tried("int8", 100, 0.6, 1.1)], "mobile").form.name == "dynamic"  # no faster beyond chance
    assert chosen_of([dynamic, tried("int8", 120, 0.4, 0.9)], "mobile").form.name == "dynamic"  # larger
    assert chosen_of([dynamic, tried("int8", 100, 0.7, 1.1)], "cpu").form.name == "int8"
    for high, name in ((0.9, "int8"), (1.1, "exact")):  # by the time of a batch alone
        exact, int8 = tried("exact", 100, high / 10, 0.2), tried("int8", 100, 2.0 + high, 4.0)
        exact.together, int8.together = Metric(1.1, 1.0, 1.2), Metric(0.8, 0.7, high)
        assert chosen_of([exact, int8], "openvino").form.name == name
