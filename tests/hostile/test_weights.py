"""Models that no memory holds, and weights that are no numbers: refused with what to do, before they take anything."""

import resource
import shutil

import numpy as np
import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.load import load
from pipelines.runs.folder import RunFolder
from tests import finished_run


@pytest.mark.parametrize("setting", ["model.hidden=1000000000000", "model.hidden=4000000000000000000", "model.widths=[64, 4000000000000]"])
def test_a_model_that_no_memory_holds(setting):
    from pipelines.runs.launch import task_class
    from pipelines.training.session import assemble

    experiment = load("vision/digits", [setting, "train.devices=cpu", "train.precision=float32"]).experiment
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match=r"too large for this machine: .*; set a smaller model"):
        assemble(experiment, task_class(experiment.task))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2_000_000  # kB


def test_a_number_that_is_none_of_a_tensor():
    with pytest.raises(ConfigError, match=r"model.hidden: .* is larger than any number that a setting can be"):
        load("vision/digits", [f"model.hidden={10**30}"])
    with pytest.raises(ConfigError, match=r"data\.image_size"):
        load("vision/digits", ["data.image_size=1000000"])


@pytest.mark.slow
def test_a_run_that_asks_for_such_a_model_is_not_loaded(tmp_path):
    from pipelines.serving.load import load_run

    folder = finished_run.copy(tmp_path)
    (folder / "experiment.yaml").write_text((folder / "experiment.yaml").read_text().replace("hidden: 128", "hidden: 1000000000000"))
    with pytest.raises(ConfigError, match="small: too large for this machine"):
        load_run(RunFolder(folder), where="cpu")


@pytest.mark.slow
def test_weights_that_are_no_numbers(tmp_path):
    from pipelines.serving.load import load_run

    folder = finished_run.copy(tmp_path)
    run = load_run(RunFolder(folder), where="cpu")
    variable = run.model.trainable_variables[-1]
    values = np.array(variable.value)
    values.flat[0] = np.nan
    variable.assign(values)
    run.model.save(tmp_path / "new.keras")
    shutil.move(tmp_path / "new.keras", folder / "model/model.keras")
    with pytest.raises(ConfigError, match=rf"model\.keras: {variable.path} has 1 of 10 values that are no finite numbers"):
        load_run(RunFolder(folder), where="cpu")
