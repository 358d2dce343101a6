"""An exported model behind a server answers as the run does, and reaches for nothing on the machine."""

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
def test_it_answers_as_it_was_judged_and_a_picture_that_is_none_fails_alone(server, judged, name):
    images, _, probabilities = judged
    sent = [{"b64": base64.b64encode(image).decode()} for image in (*images[:20], HUGE_PNG, b"x", images[20])]
    status, _, content = server.ask(json.dumps({"inputs": sent}).encode(), path=f"/predict?model={name}&probabilities=1")
    answers = content["answers"]
    assert status == 200 and ["error" in one for one in answers] == [*[False] * 20, True, True, False]
    shares = np.array([list(one["probabilities"].values()) for one in (*answers[:20], answers[22])])
    assert np.abs(shares - probabilities[:21]).max() <= 1e-5


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
