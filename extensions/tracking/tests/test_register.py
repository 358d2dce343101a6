"""`quartet register`: a version in MLflow's own registry, in a store on this disk, which MLflow loads and calls."""

import os
from importlib.util import find_spec

import numpy as np
import pytest
from typer.testing import CliRunner

from extensions.tracking.tests.mlflow_store import store
from pipelines.commands.main import app
from pipelines.runs.folder import RunFolder
from pipelines.serving.exported import load_exported
from tests import finished_run

pytestmark = [
    pytest.mark.slow(seconds=20),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of MLflow's own calls
    pytest.mark.skipif(find_spec("mlflow") is None and not os.environ.get("QUARTET_REQUIRE_EXTRAS"), reason="needs the extra `mlflow`"),
]


@pytest.fixture
def server():
    with store() as address:
        yield address


def register(*arguments):
    return CliRunner().invoke(app, ["register", *map(str, arguments), "--to", "mlflow"])


def test_a_version_with_alias_and_signature(tmp_path, monkeypatch, server):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    folder = finished_run.copy(tmp_path)
    refused = register(folder)
    assert refused.exit_code == 2 and "quartet export" in refused.stderr
    exported = finished_run.quartet("export", str(folder))
    assert exported.returncode == 0, exported.stderr
    done = register(folder, "--alias", "champion")
    assert done.exit_code == 0 and "vision-digits, version 1, as champion" in done.stdout, done.output

    from mlflow import MlflowClient, pyfunc
    from mlflow.types.schema import DataType

    client, report = MlflowClient(), RunFolder(folder).read_report()
    version = client.get_model_version_by_alias("vision-digits", "champion")
    assert str(version.version) == "1" and version.tags["quartet.task"] == "vision.classification"
    assert version.tags["quartet.data.train"] == report["environment"]["data"]["train"]
    run = client.get_run(version.run_id)  # made for it, since the training was not tracked
    assert run.info.status == "FINISHED" and run.data.metrics["test/accuracy"] == pytest.approx(report["metrics"]["test/accuracy"]["value"])
    loaded = pyfunc.load_model("models:/vision-digits@champion")
    signature = loaded.metadata.signature
    assert signature.inputs.input_dict()["image"].type is DataType.binary
    assert signature.outputs.input_names() == list(load_exported(folder / "export").outputs)
    import tensorflow as tf

    images = [tf.io.encode_png(np.full((8, 8, 1), shade, np.uint8)).numpy() for shade in (0, 90, 200)]
    answers = loaded.predict({"image": images})
    wanted = tf.saved_model.load(str(folder / "export")).signatures["serving_default"](image=tf.constant(images))
    np.testing.assert_allclose(np.stack(answers["probabilities"]), wanted["probabilities"].numpy(), atol=1e-6)
    assert answers["label"].tolist() == [label.decode() for label in wanted["label"].numpy()]

    again = register(folder, "--name", "vision-digits", "--alias", "champion")
    assert again.exit_code == 0 and "version 2" in again.stdout
    assert str(client.get_model_version_by_alias("vision-digits", "champion").version) == "2"
