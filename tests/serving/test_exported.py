"""An exported model behind a server answers as the run does, in every dialect, and reaches for nothing on the machine."""

import base64
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.serving.export import export
from pipelines.serving.exported import ExportedModel
from pipelines.serving.predict import Predictor
from tests.serving.bad_requests import HUGE_PNG
from tests.serving.toy_server import needs_extra, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(loaded, tmp_path_factory):
    return export(loaded, tmp_path_factory.mktemp("exported") / "export")


@pytest.fixture(scope="module")
def server(loaded, exported):
    """The run as `toy`, its export as `exported`."""
    with running(Predictor(loaded, batch=8), limit=8 << 20) as there:
        model = ExportedModel(exported, batch=8)
        model.warm_up()
        there.models.add("exported", 1, model)
        yield there


def test_it_has_what_the_run_has(loaded, exported):
    run, model = Predictor(loaded), ExportedModel(exported)
    for name in ("title", "task", "columns", "classes", "inputs", "outputs"):
        assert getattr(run, name) == getattr(model, name), name
    assert list(run.outputs) == list(model.outputs)
    assert dict(run.meanings) == dict(model.meanings) and list(run.details) == list(model.details)


def test_warming_up_computes(exported, monkeypatch):
    model = ExportedModel(exported, batch=3)
    sizes = []
    predictions = model._predictions
    monkeypatch.setattr(model, "_predictions", lambda read: sizes.append(len(found := predictions(read))) or found)
    model.warm_up()
    assert sizes == [1, 3]


@needs_extra
@pytest.mark.parametrize("name", ["toy", "exported"])
def test_all_dialects_answer_as_it_was_judged(server, judged, name):
    import tritonclient.http as triton

    images, _, probabilities = judged
    images, expected = images[:20], probabilities[:20]
    encoded = [{"b64": base64.b64encode(image).decode()} for image in images]
    ours = server.ask(json.dumps({"inputs": encoded}).encode(), path=f"/predict?model={name}&probabilities=1")[2]["answers"]
    rest = server.ask(json.dumps({"instances": encoded}).encode(), path=f"/v1/models/{name}:predict")[2]["predictions"]
    classes = server.ask(json.dumps({"examples": [{"image": one} for one in encoded]}).encode(), path=f"/v1/models/{name}:classify")[2]
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        tensor = triton.InferInput("image", [len(images)], "BYTES")
        tensor.set_data_from_numpy(np.array(images, object))
        found = client.infer(name, [tensor])
    for shares in (
        np.array([list(one["probabilities"].values()) for one in ours]), np.array([one["probabilities"] for one in rest]),
        np.array([[score for _, score in one] for one in classes["results"]]), found.as_numpy("probabilities"),
    ):
        assert np.abs(shares - expected).max() <= 1e-5
    assert found.as_numpy("label").astype("U").tolist() == [one["label"] for one in rest] == [str(row.argmax()) for row in expected]


@needs_extra
@pytest.mark.parametrize("name", ["toy", "exported"])
def test_a_picture_that_is_none_fails_alone(server, judged, name):
    sent = [{"b64": base64.b64encode(image).decode()} for image in (judged[0][0], HUGE_PNG, b"x", judged[0][1])]
    status, _, content = server.ask(json.dumps({"inputs": sent}).encode(), path=f"/predict?model={name}")
    assert status == 200 and ["error" in one for one in content["answers"]] == [False, True, True, False]
    status, _, content = server.ask(json.dumps({"instances": sent}).encode(), path=f"/v1/models/{name}:predict")
    assert status == 400 and content["error"].startswith("example 2: ")


def test_a_model_that_reaches_for_files_is_refused(exported, tmp_path):
    class Reading(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def answer(self, image):
            return {"label": tf.map_fn(tf.io.read_file, image)}

    module = Reading()
    tf.saved_model.save(module, str(tmp_path / "bad"), signatures={"serving_default": module.answer})
    shutil.copy(exported / "quartet.json", tmp_path / "bad")
    with pytest.raises(ConfigError, match="ReadFile, which reaches for files or code"):
        ExportedModel(tmp_path / "bad")


def test_modules_that_a_stranger_names_are_not_imported(exported, tmp_path):
    folder = tmp_path / "strange"
    shutil.copytree(exported, folder)
    manifest = json.loads((folder / "quartet.json").read_text())
    (folder / "quartet.json").write_text(json.dumps({**manifest, "needs": ["antigravity"]}))
    with pytest.raises(ConfigError, match="antigravity, which is none of tensorflow_text"):
        ExportedModel(folder)


@pytest.mark.parametrize("name, content, part", [
    ("quartet.json", None, "export the run again"), ("quartet.json", b"{}", "quartet.json"),
    ("quartet.json", b"[" * 100_000, "quartet.json"),
    ("saved_model.pb", b"nothing", "cannot be read"), ("saved_model.pb", b"", "no model of TensorFlow 2"),
])
def test_a_damaged_export_is_a_plain_error(exported, tmp_path, name, content, part):
    folder = tmp_path / "damaged"
    shutil.copytree(exported, folder)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(ConfigError, match=part):
        ExportedModel(folder)
