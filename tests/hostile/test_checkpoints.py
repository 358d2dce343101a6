"""Checkpoints that no training wrote: refused before anything of them is taken, with the file and the remedy."""

import json
import shutil
import zipfile

import numpy as np
import pytest

from pipelines.base.errors import TrainingError
from tests.hostile.records import with_
from tests.training.runs import At, Killed, kill, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun") / "run"
    with pytest.raises(Killed):
        run(folder, callbacks=[At({7: kill})])
    return folder


@pytest.fixture
def folder(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "run")


def parts(folder):
    with np.load(folder / "checkpoints/resume.npz", allow_pickle=False) as stored:
        values = dict(stored)
    return values, json.loads(values["about"].tobytes())


def refused(folder):
    with pytest.raises(TrainingError, match=r"resume\.npz: .*start anew with --fresh"):
        run(folder, callbacks=[At()])


ABOUT = [
    ("step", 10**6), ("step", True), ("seconds", -1.0), ("stopping", 3), ("meter|seconds", {"step": "x"}), ("hooks", []),
    ("hooks|best|best", [0.5]), ("hooks|log|totals", ["x"]), ("hooks|callbacks", {"callbacks": "all"}), ("precision", "float8"),
    ("data", {"train": 3}),
]


@pytest.mark.parametrize("place", range(len(ABOUT)))
def test_what_it_says_of_itself(folder, place):
    values, about = parts(folder)
    text = json.dumps(with_(about, *ABOUT[place]))
    np.savez(folder / "checkpoints/resume.npz", **{**values, "about": np.frombuffer(text.encode(), np.uint8)})
    refused(folder)


ARRAYS = [("weights/0000", lambda value: value.astype(np.float64)), ("weights/0000", lambda value: np.array(value, str)),
          ("weights/0000", lambda value: value[None]), ("carry/totals", lambda value: value.astype(np.float32)),
          ("carry/finite", lambda value: np.array("yes")), ("about", lambda value: value[:20])]


@pytest.mark.parametrize("place", range(len(ARRAYS)))
def test_arrays_of_another_type_or_shape(folder, place):
    name, change = ARRAYS[place]
    values, _ = parts(folder)
    np.savez(folder / "checkpoints/resume.npz", **{**values, name: change(values[name])})
    refused(folder)


def test_a_small_file_that_would_become_a_large_one(folder):
    values, _ = parts(folder)
    file = folder / "checkpoints/resume.npz"
    np.savez_compressed(file, **values)
    refused(folder)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("about.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': '|u1'}")
    refused(folder)


def test_attributes_that_are_none_of_a_callbacks(folder):
    values, about = parts(folder)
    about["hooks"]["callbacks"] = {"callbacks": [{"on_epoch_end": 3, "__class__": "x", "model": 1, "_actions": 2, "seen": 5}]}
    np.savez(folder / "checkpoints/resume.npz", **{**values, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)})
    one = At()
    run(folder, callbacks=[one])
    assert one.seen == 5 and callable(one.on_epoch_end) and isinstance(one, At) and one._actions == {}


def test_a_run_whose_data_were_known_by_times_goes_on(folder):
    """An earlier version's fingerprints say nothing to this one: the run goes on and says so."""
    values, about = parts(folder)
    del about["fingerprints"]
    about["data"] = dict.fromkeys(about["data"], "0" * 16)
    np.savez(folder / "checkpoints/resume.npz", **{**values, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)})
    report = run(folder, callbacks=[At()])
    assert any("earlier version, which knew its data by the files' times" in note for note in report["notes"])
