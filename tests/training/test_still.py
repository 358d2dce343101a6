"""What stands still is written once: checkpoints hold what they would hold by themselves, to the bit, and a kill leaves one of them."""

import json

import keras
import numpy as np
import pytest

from pipelines.base.errors import TrainingError
from pipelines.base.files import write_whole
from pipelines.training import state, still
from pipelines.training.still import Still
from tests.training import runs
from tests.training.toy import EncoderToyTask, encoder


class Saved:
    """A folder with checkpoints of two weights that train and two that do not, one large."""

    def __init__(self, folder):
        self.folder, self.still = folder, Still(folder)
        shapes = {"kernel": (300, 300), "bias": (300,), "encoder": (800, 800), "mean": (400,)}
        rng = np.random.default_rng(0)
        self.variables = {name: keras.Variable(rng.normal(size=shape).astype(np.float32), trainable=name in ("kernel", "bias"), name=name)
                          for name, shape in shapes.items()}
        self.groups = {"weights": list(self.variables.values())}

    def write(self, step: int, name: str = "resume.npz") -> int:
        """Bytes of the checkpoint."""
        arrays = state.snapshot(self.groups, {}, {"step": step})
        state.write(self.folder / name, arrays, self.still, still.candidates(self.groups, arrays), step)
        return (self.folder / name).stat().st_size

    def train(self) -> None:
        for name in ("kernel", "bias", "mean"):
            self.variables[name].assign(self.variables[name] + 1.0)

    def values(self) -> list[np.ndarray]:
        return [np.array(variable.value) for variable in self.variables.values()]

    def load(self, name: str = "resume.npz") -> list[np.ndarray]:
        """What a process that begins anew reads."""
        other = Saved(self.folder)
        for variable in other.variables.values():
            variable.assign(variable * 0)
        state.load(self.folder / name, other.groups, still=other.still)
        self.later = other
        return other.values()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("still-*"))


def same(one, other):
    for first, second in zip(one, other, strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_frozen_weight_is_written_once_and_read_from_every_checkpoint(tmp_path):
    saved = Saved(tmp_path)
    sizes = [saved.write(0)]
    assert not saved.files()  # of one step nothing is known yet
    for step in (1, 2, 3):
        saved.train()
        sizes.append(saved.write(step))
        same(saved.load(), saved.values())
    (file,) = saved.files()
    written = (tmp_path / file).stat().st_mtime_ns
    assert sizes[0] > 2.9e6 and max(sizes[1:]) < 0.4e6
    saved.train()
    saved.write(4, "best-00001.npz")
    same(saved.load("best-00001.npz"), saved.values())
    resumed = saved.later  # begins where the process before was killed
    resumed.train()
    assert resumed.write(9) < 0.4e6 and resumed.files() == [file] and (tmp_path / file).stat().st_mtime_ns == written
    same(resumed.load(), resumed.values())


def test_what_moves_after_all_is_in_the_checkpoint_again(tmp_path):
    saved = Saved(tmp_path)
    saved.write(0)
    saved.write(1)
    saved.variables["encoder"].assign(saved.variables["encoder"] * 2.0)
    assert saved.write(2) > 2.9e6
    same(saved.load(), saved.values())
    saved.variables["encoder"].trainable = True  # it was freed: nobody looks whether it stands still
    saved.write(3)
    assert saved.write(4) > 2.9e6
    same(saved.load(), saved.values())


def test_best_weights_and_a_checkpoint_of_one_step_say_nothing_of_what_stands_still(tmp_path):
    saved = Saved(tmp_path)
    assert min(saved.write(7, "best-00001.npz"), saved.write(7)) > 2.9e6 and not saved.files()


def test_a_kill_before_the_checkpoint_leaves_the_one_before(tmp_path, monkeypatch):
    saved = Saved(tmp_path)
    saved.write(0)
    before = saved.values()
    saved.train()

    def killed(path, content):
        if path.name == "resume.npz":
            raise runs.Killed
        write_whole(path, content)

    monkeypatch.setattr(state, "write_whole", killed)
    with pytest.raises(runs.Killed):
        saved.write(1)
    assert len(saved.files()) == 1
    same(saved.load(), before)
    monkeypatch.undo()
    (tmp_path / "still-0123456789abcdef.npz").write_bytes(b"of a process that was killed")
    for step in (1, 2):
        saved.later.write(step)
    saved.later.still.prune()
    assert len(saved.files()) == 1
    same(saved.load(), before)


@pytest.mark.parametrize(("how", "message"), [
    ("gone", r"still-\w+\.npz: not a readable checkpoint \(No such file"), ("changed", r"still-\w+\.npz: .* is not what resume\.npz names"),
    ("empty", r"still-\w+\.npz: not a readable checkpoint \(it has no weights/000"),
])
def test_a_file_that_is_not_the_one_that_was_named_is_refused(tmp_path, how, message):
    saved = Saved(tmp_path)
    saved.write(0)
    saved.write(1)
    (file,) = (tmp_path / name for name in saved.files())
    with np.load(file) as stored:
        values = dict(stored)
    if how == "gone":
        file.unlink()
    else:
        np.savez(file, **{name: value + 1 for name, value in values.items() if how == "changed"})
    with pytest.raises(TrainingError, match=f"{message}.*start anew with --fresh"):
        saved.load()


@pytest.mark.parametrize("named", ["../resume.npz", ".hidden", "a/b.npz", 3])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, named):
    saved = Saved(tmp_path)
    saved.write(0)
    with np.load(tmp_path / "resume.npz") as stored:
        values = dict(stored)
    entry = json.dumps({"file": named, "sums": {"weights/0002": "0"}}).encode()
    np.savez(tmp_path / "resume.npz", **{**values, still.ENTRY: np.frombuffer(entry, np.uint8)})
    with pytest.raises(TrainingError, match=r"resume\.npz: not a readable checkpoint \(still: file: .*start anew with --fresh"):
        saved.load()


@pytest.mark.slow(seconds=8)
def test_a_run_with_frozen_layers_ends_as_one_whose_checkpoints_hold_all(tmp_path, monkeypatch):
    changes = {"task": EncoderToyTask, "model": encoder(name="last", blocks=1), "data": {"cache": "memory"},
               "train": {"epochs": 3, "devices": "cpu", "deterministic": True}}
    one = runs.whole(tmp_path / "all", **changes)
    monkeypatch.setattr(still, "LEAST", 1)
    monkeypatch.setattr(still, "SMALL", 0)
    assert runs.killed(tmp_path / "parts", [8], **changes)["metrics"] == one["metrics"]
    assert not list((tmp_path / "all").rglob("still-*")) and len(list((tmp_path / "parts").rglob("still-*"))) == 1
    with (still.opened(tmp_path / "all/checkpoints/resume.npz") as whole,
          still.opened(tmp_path / "parts/checkpoints/resume.npz") as parts):
        assert whole.part is None and len(parts.part.sums) >= 4 and whole.names == parts.names
        names = sorted(name for name in whole.names if name.startswith(("weights/", "optimizer/")))
        same(*([stored.read(name) for name in names] for stored in (whole, parts)))
