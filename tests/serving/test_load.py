"""Loading a run: its judged weights come back, no code of it runs, and what is no finished run is said plainly."""

import json
import zipfile

import numpy as np
import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.load import from_dict
from pipelines.runs.folder import RunFolder
from pipelines.serving.load import load_run, reading_as, without_pretrained
from tests import finished_run

pytestmark = pytest.mark.slow


def test_answers_are_those_of_the_report(loaded, judged):
    _, labels, probabilities = judged
    report = json.loads((finished_run.run() / "report/report.json").read_text())
    assert (probabilities.argmax(1) == labels).mean() == pytest.approx(report["metrics"]["test/accuracy"]["value"], abs=1e-9)
    loss = -np.log(probabilities[np.arange(len(labels)), labels]).mean()
    assert loss == pytest.approx(report["metrics"]["test/log_loss"]["value"], abs=1e-6)
    assert loaded.name == "vision/digits" and loaded.judged_precision == loaded.machine.precision == "float32"


def test_the_configuration_in_model_keras_is_never_read(tmp_path, judged):
    """Of model.keras only the weights count: a configuration that names code changes nothing."""
    folder = finished_run.copy(tmp_path)
    whole = folder / "model/model.keras"
    with zipfile.ZipFile(whole) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["config.json"] = json.dumps({"module": "os", "class_name": "system", "config": {"command": f"touch {tmp_path}/owned"}}).encode()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    load_run(RunFolder(folder), where="cpu")
    assert not (tmp_path / "owned").exists()


def test_yaml_that_asks_for_code_is_refused(tmp_path):
    folder = finished_run.copy(tmp_path)
    with (folder / "experiment.yaml").open("a") as file:
        file.write(f"\ntune: !!python/object/apply:os.system ['touch {tmp_path}/owned']\n")
    with pytest.raises(ConfigError):
        load_run(RunFolder(folder))
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(("break_it", "message"), [
    (lambda run: (run / "model/model.keras").unlink(), "its model/ is gone"),
    (lambda run: (run / "model/model.keras").write_bytes(b"PK\3\4 rubbish"), "does not hold the weights"),
    (lambda run: (run / "model/facts.json").write_text("{"), "facts.json: cannot be read"),
    (lambda run: (run / "environment.json").write_text("{}"), "says no precision"),
    (lambda run: (run / "experiment.yaml").write_text((run / "experiment.yaml").read_text().replace("hidden: 128", "hidden: 64")),
     "does not hold the weights"),
    (lambda run: [(run / "model/model.keras").unlink(), (run / "report/report.json").unlink()],
     "was interrupted; the command that began it resumes it"),
])
def test_damaged_and_unfinished_runs(tmp_path, break_it, message):
    folder = finished_run.copy(tmp_path)
    break_it(folder)
    with pytest.raises(ConfigError, match=message):
        load_run(RunFolder(folder), where="cpu")


def test_pretrained_weights_are_not_wanted_again():
    experiment = from_dict({"task": "vision.classification", "data": {"source": "digits"},
                            "model": {"name": "application", "architecture": "MobileNetV3Small", "weights": "imagenet"}})
    assert without_pretrained(experiment).model.weights is None
    assert without_pretrained(experiment).train == experiment.train


@pytest.mark.parametrize("setting", ["train.epochs=3", "data.max_pixels=9", "data.resize=pad"])
def test_new_inputs_are_read_otherwise_only_in_the_form_of_their_table(loaded, setting):
    with pytest.raises(ConfigError, match="but for the names of columns"):
        reading_as(loaded, [setting])
