"""Models that no memory holds, and weights that are no numbers: refused with what to do, before they take anything."""

import io
import resource
import shutil
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.load import load
from pipelines.runs.folder import RunFolder
from pipelines.training.weight_limits import filled, read_weights
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
    (folder / "experiment.yaml").write_text((folder / "experiment.yaml").read_text().replace("hidden: 128", "hidden: 4000000"))
    with pytest.raises(ConfigError, match=r"small: its settings ask for .* of weights or more, and its model\.keras holds 207"):
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


def small_file(place: Path, x: np.ndarray, packed: bool = True) -> Path:
    """A model.keras with one array."""
    weights, file = io.BytesIO(), place / "model.keras"
    with h5py.File(weights, "w") as stored:
        stored.create_dataset("x", data=x, compression="gzip" if packed else None)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model.weights.h5", weights.getvalue())
    return file


def test_settings_that_ask_for_more_than_the_file_holds(tmp_path):
    """Free memory is no bound for a stranger's run of a megabyte."""
    file = small_file(tmp_path, x=np.arange(4096.0), packed=False)
    built = []

    def build() -> keras.Model:
        built.append(keras.Variable("zeros", shape=(64, 1000)))
        built.append(keras.Variable("zeros", shape=(64, 4_000_000)))
        raise AssertionError("it was created")

    with pytest.raises(ConfigError, match=r"a run: its settings ask for 976.* of weights or more, and its model\.keras holds 32\.0 KiB"):
        filled(build, file, "a run")
    assert len(built) == 1


def test_arrays_that_become_large_once_they_are_read(tmp_path):
    file = small_file(tmp_path, x=np.zeros(50_000_000, np.int8))
    assert file.stat().st_size < 200_000
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    for read in (lambda: filled(lambda: model, file, "a run"), lambda: read_weights(model, file)):
        with pytest.raises(ConfigError, match=r"model\.keras: .*its arrays are to have 47.7 MiB, and it has"):
            read()
