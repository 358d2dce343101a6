"""The saved model: it answers raw input as the evaluation did, in a process that has TensorFlow and nothing of this project."""

import json
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.config.load import from_dict
from pipelines.runs.folder import RunFolder
from pipelines.serving.export import Served, export, readme
from pipelines.serving.load import LoadedRun, load_run
from pipelines.task.contract import Signature
from quartet import task_testing
from tests import finished_run
from vision.tasks.classification import Classification

pytestmark = pytest.mark.slow

USE = """
import json
import sys
import numpy as np
import tensorflow as tf

images = [bytes.fromhex(line) for line in open(sys.argv[2])]
model = tf.saved_model.load(sys.argv[1])
serve = model.signatures["serving_default"]
answers = {size: serve(image=tf.constant(images[:size])) for size in (1, 3, len(images))}
np.savez(sys.argv[3], **{f"{name}/{size}": value.numpy().astype(str) if value.dtype == tf.string else value.numpy()
                         for size, answer in answers.items() for name, value in answer.items()})
print(json.dumps({"heavy": sorted({name.partition(".")[0] for name in sys.modules} & {"keras", "vision", "pipelines"}),
                  "labels": open(model.labels.asset_path.numpy(), encoding="utf-8").read().split()}))
"""


@pytest.fixture(scope="module")
def exported(loaded, tmp_path_factory):
    return export(loaded, tmp_path_factory.mktemp("export") / "digits model")


@pytest.fixture(scope="module")
def elsewhere(exported, judged, tmp_path_factory):
    """What the process with TensorFlow alone says: (its modules and labels, answers by name and batch size)."""
    folder = tmp_path_factory.mktemp("elsewhere")
    images, _, _ = judged
    (folder / "images").write_text("".join(image.hex() + "\n" for image in images))
    said = task_testing.run_bare(USE, exported, "images", "answers.npz", folder=folder)
    return json.loads(said.splitlines()[-1]), dict(np.load(folder / "answers.npz"))


def test_it_agrees_with_the_evaluation(elsewhere, judged):
    found, answers = elsewhere
    images, _, probabilities = judged
    assert found["heavy"] == []
    assert np.abs(answers[f"probabilities/{len(images)}"] - probabilities).max() <= 1e-5
    assert answers[f"label/{len(images)}"].tolist() == [str(best) for best in probabilities.argmax(1)]
    assert np.abs(answers[f"confidence/{len(images)}"] - probabilities.max(1)).max() <= 1e-5


def test_any_batch_size(elsewhere, judged):
    _, answers = elsewhere
    for size in (1, 3):
        assert answers[f"probabilities/{size}"].shape == (size, 10)
        assert np.abs(answers[f"probabilities/{size}"] - judged[2][:size]).max() <= 1e-5


def test_labels_and_readme(elsewhere, exported):
    assert elsewhere[0]["labels"] == [str(digit) for digit in range(10)]
    readme = (exported / "README.txt").read_text()
    for text in ("image: [batch] string", "label: [batch] string", "probabilities: [batch, 10] float32", "serving_default",
                 "float32, as the run was judged"):
        assert text in readme
    assert sorted(path.name for path in exported.iterdir()) == [
        "README.txt", "assets", "fingerprint.pb", "quartet.json", "saved_model.pb", "variables"]


def test_the_readme_names_what_the_model_needs_and_makes_an_example_of_every_input(loaded, tmp_path):
    class Input(type(loaded.task.input)):
        signature = Signature(needs=("tensorflow_text",))

        def raw_spec(self):
            return {**super().raw_spec(), "times": tf.TensorSpec([None, None, 3], tf.int64)}

    class Task(type(loaded.task)):
        input_class = Input

    signature = Served(loaded, None).signature()
    text = readme(replace(loaded, task=Task(loaded.task.experiment, loaded.task.facts)), tmp_path / "e", signature)
    assert "needs TensorFlow 2.21 or later and tensorflow_text, nothing else" in text and "    import tensorflow_text" in text
    assert "    image = tf.fill([1], '...')\n" in text and "    times = tf.zeros([1, 1, 3], tf.int64)\n" in text


def test_the_example_in_the_readme_runs(exported, judged, tmp_path, monkeypatch):
    example = "\n".join(line[4:] for line in (exported / "README.txt").read_text().splitlines() if line.startswith("    "))
    assert len(example.splitlines()) == 5
    (tmp_path / "example").write_bytes(judged[0][0])
    (tmp_path / exported.name).symlink_to(exported)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(example, names)
    assert names["answer"]["label"].numpy()[0].decode() == str(judged[2][0].argmax())


def test_test_time_views_are_inside(tmp_path, judged, loaded):
    folder = finished_run.copy(tmp_path)
    text = (folder / "experiment.yaml").read_text()
    assert "flip: false\n  shift: 0" in text.partition("evaluate:")[2]
    head, _, tail = text.partition("evaluate:")
    (folder / "experiment.yaml").write_text(head + "evaluate:" + tail.replace("flip: false\n  shift: 0", "flip: true\n  shift: 1", 1))
    run = load_run(RunFolder(folder), where="cpu")
    answer = tf.saved_model.load(str(export(run, tmp_path / "export"))).signatures["serving_default"](image=tf.constant(judged[0][:20]))
    images = tf.stack([tf.io.decode_png(image) for image in judged[0][:20]])
    inputs, _ = run.task.prepare({"image": images})
    expected = run.task.output.answer(lambda batch: run.model(batch, training=False), inputs)["probabilities"]
    assert np.abs(answer["probabilities"] - expected).max() <= 1e-5
    assert np.abs(answer["probabilities"] - judged[2][:20]).max() > 1e-3


@pytest.mark.parametrize(("model", "precision"), [
    ({"name": "residual", "depth": 1, "widths": [8, 16]}, "float32"), ({"name": "fast", "widths": [8, 16, 16]}, "bfloat16"),
], ids=lambda value: value if isinstance(value, str) else value["name"])
def test_networks_with_batch_statistics_answer_in_their_precision(tmp_path, loaded, model, precision):
    experiment = from_dict({"task": "vision.classification", "data": {"source": "digits"}, "model": model, "evaluate": {"flip": True}})
    facts = {"classes": ["a", "b", "c"], "image_size": [32, 32], "channels": 3, "mean": [120.0] * 3, "std": [60.0] * 3}
    keras.config.set_dtype_policy("float32" if precision == "float32" else f"mixed_{precision}")
    try:
        task = Classification(experiment, facts)
        built = task.model()
        run = LoadedRun(task, built, experiment, loaded.folder, replace(loaded.machine, precision=precision), precision, loaded.name)
        saved = tf.saved_model.load(str(export(run, tmp_path / "export")))
        images = np.random.default_rng(0).integers(0, 256, (5, 40, 50, 3), np.uint8)
        encoded = tf.constant([tf.io.encode_jpeg(image).numpy() for image in images])
        answer = saved.signatures["serving_default"](image=encoded)
        inputs, _ = task.prepare(task.input.receive({"image": encoded}))
        expected = task.output.answer(lambda batch: built(batch, training=False), inputs)["probabilities"]
    finally:
        keras.config.set_dtype_policy("float32")
    assert answer["probabilities"].dtype == tf.float32
    assert np.abs(answer["probabilities"] - expected).max() <= (1e-5 if precision == "float32" else 1e-2)


def test_another_precision_is_said(tmp_path):
    run = load_run(RunFolder(finished_run.run()), where="cpu", precision="bfloat16")
    target = export(run, tmp_path / "export")
    assert "Computes in bfloat16; the run was judged in float32." in (target / "README.txt").read_text()
    load_run(RunFolder(finished_run.run()), where="cpu")  # the precision is the process's: back to that of the other tests


def test_nothing_is_overwritten_unasked_and_a_failure_leaves_nothing(tmp_path, loaded, monkeypatch):
    target = tmp_path / "export"
    export(loaded, target)
    with pytest.raises(ConfigError, match="is there already"):
        export(loaded, target)
    (target / "mark").write_text("old")
    export(loaded, target, replace=True)
    assert not (target / "mark").exists()
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "thesis.tex").write_text("years")
    with pytest.raises(ConfigError, match="is no exported model"):
        export(loaded, other, replace=True)
    monkeypatch.setattr("pipelines.serving.export.readme", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(loaded, target, replace=True)
    assert (target / "saved_model.pb").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "thesis"]
