"""What goes wrong in a run, and what is then said and kept: data, numbers, memory, disk, and folders that are not this run's."""

import errno
import os
import resource
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError, QuartetError, TrainingError
from pipelines.base.files import WriteError
from pipelines.data import order
from pipelines.monitoring.metrics_log import MetricsLog
from pipelines.runs import launch
from pipelines.runs.folder import Locked, RunFolder
from pipelines.runs.run import Call
from pipelines.training import state
from pipelines.training.evaluation import Evaluator
from pipelines.training.step import Step
from tests import processes
from tests.training.runs import At, Killed, assert_same_outcome, checkpoint, interrupt, kill, model_weights, rows, run, whole
from tests.training.toy import ToyInput, ToyOutput, ToyTask, experiment

pytestmark = pytest.mark.slow(seconds=50)

ROOT = Path(__file__).parent.parent.parent
STEPS = 5  # an epoch of 200 examples in batches of 48


class Damaged(ToyTask):
    """One training image holds a NaN; `decode` passes it on."""

    at = 131

    def splits(self):
        made = super().splits()
        made.train.arrays["image"][self.at, 3, 3, 0] = np.nan
        return made


def test_a_loss_that_is_not_finite_names_the_example_and_keeps_the_checkpoint(tmp_path):
    with pytest.raises(TrainingError) as caught:
        run(tmp_path, task=Damaged, callbacks=[At()])
    text = str(caught.value)
    step = next(step for step in range(STEPS) if 131 in order.batch_numbers(order.Plan(200, 48), 0, tf.constant(step, tf.int64))[0][:48])
    assert f"not finite at step {step:,} (epoch 1): loss nan, gradient norm nan, learning rate 0.02" in text
    assert "examples whose own loss is not finite: toy1[131]" in text
    assert "toy1[131]," not in text
    if step:
        arrays, about = checkpoint(tmp_path)
        assert about["step"] == step
        assert all(np.isfinite(value).all() for value in arrays.values())


class UnreadableInput(ToyInput):
    def decode(self, raw, key=None):
        return {**raw, "image": tf.debugging.check_numerics(raw["image"], "damaged image")}


class Unreadable(ToyTask):
    """Decoding fails on one image of a split."""

    input_class = UnreadableInput
    where = "train"

    def splits(self):
        made = super().splits()
        getattr(made, self.where).arrays["image"][31, 3, 3, 0] = np.nan
        return made


@pytest.mark.parametrize(("cache", "split", "name"), [
    ("none", "train", "toy1"), ("none", "test", "toy3"), ("memory", "validation", "toy2")])
def test_a_broken_example_ends_the_run_with_its_name(tmp_path, monkeypatch, split, name, cache):
    monkeypatch.setattr(Unreadable, "where", split)
    with pytest.raises(DataError, match=rf"{name}\[31\]: cannot be read: damaged image"):
        run(tmp_path, task=Unreadable, data={"cache": cache, "cache_folder": str(tmp_path / "cache")}, train={"epochs": 1})


def test_an_error_that_is_none_of_the_examples_stays_what_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(ToyOutput, "loss", lambda self, outputs, *_, **__: tf.debugging.check_numerics(outputs[:, 0] / 0.0, "mine"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="mine"):
        run(tmp_path, data={"cache": "none"})


def test_a_full_device_says_what_to_set(tmp_path, monkeypatch):
    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[48,12,12,8]")

    monkeypatch.setattr(Step, "__call__", full)
    with pytest.raises(TrainingError, match=r"not enough memory for a step: OOM .*\nSet train.micro_batch_size"):
        run(tmp_path)


# ---- a full disk -----------------------------------------------------------------------------------------


class Disk:
    """Writes fail for lack of space while it is full."""

    def __init__(self, monkeypatch, number: int = errno.ENOSPC):
        self.full, self.number, self.refused = False, number, []
        really = state.write_whole

        def write(path, content):
            if self.full:
                self.refused.append(path.name)
                raise OSError(self.number, "No space left on device")
            really(path, content)

        monkeypatch.setattr(state, "write_whole", write)

    def fill(self):
        self.full = True

    def free(self):
        self.full = False


def test_a_full_disk_keeps_the_checkpoint_and_says_so(tmp_path, monkeypatch, capsys):
    disk, seen = Disk(monkeypatch), {}

    def look():
        seen["about"] = checkpoint(tmp_path / "run")[1]
        disk.free()

    run(tmp_path / "run", callbacks=[At({7: disk.fill, 9: look})], quiet=False)
    said = " ".join("".join(capsys.readouterr()).split())
    assert seen["about"]["step"] == 6  # the one before is whole
    assert "the checkpoint of step 7 could not be saved: the disk is full; the checkpoint of step 6 is whole and kept" in said
    assert disk.refused == ["resume.npz"] * 2
    whole(tmp_path / "whole")
    assert_same_outcome(tmp_path / "whole", tmp_path / "run")  # training went on


def test_a_full_disk_before_the_first_checkpoint(tmp_path, monkeypatch, capsys):
    disk = Disk(monkeypatch)
    disk.fill()
    with pytest.raises(Killed):
        run(tmp_path, callbacks=[At({3: kill})], quiet=False)
    assert "the disk is full; there is none yet" in " ".join("".join(capsys.readouterr()).split())
    assert not list((tmp_path / "checkpoints").glob("*"))


def test_interrupted_on_a_full_disk_is_an_error(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)

    def both():
        disk.fill()
        interrupt()

    with pytest.raises(TrainingError, match="step 7 could not be saved: the disk is full; the checkpoint of step 6 is whole and kept"):
        run(tmp_path, callbacks=[At({7: both})])
    assert checkpoint(tmp_path)[1]["step"] == 6


def test_best_weights_that_cannot_be_saved_leave_the_best_before(tmp_path, monkeypatch, capsys):
    values = {5: 0.5, 10: 0.9, 15: 0.6}
    monkeypatch.setattr(Evaluator, "scores", lambda self, *_: {"loss": 1.0, "accuracy": values[int(self.model.optimizer.iterations)]})
    disk = Disk(monkeypatch)
    report = run(tmp_path, callbacks=[At({10: disk.fill, 11: disk.free})], quiet=False)
    assert report["timing"]["best_epoch"] == 3
    said = " ".join("".join(capsys.readouterr()).split())
    assert "the best weights so far, of epoch 2, could not be saved: the disk is full; the weights of epoch 1 stay the best" in said
    assert any("of epoch 2, could not be saved" in note for note in report["notes"])


def test_lines_that_cannot_be_written_end_nothing(tmp_path, monkeypatch, capsys):
    really = MetricsLog.append
    broken = {"now": False}

    def append(self, row):
        if broken["now"]:
            raise OSError(errno.ENOSPC, "No space left on device")
        really(self, row)

    monkeypatch.setattr(MetricsLog, "append", append)
    breaking = At({5: lambda: broken.update(now=True), 8: lambda: broken.update(now=False)})
    run(tmp_path, callbacks=[breaking], quiet=False, train={"log_every": 1})
    assert [row["step"] for row in rows(tmp_path) if "train/loss" in row] == [1, 2, 3, 4, 9, 11, 12, 13, 14]
    assert " ".join("".join(capsys.readouterr()).split()).count("a line could not be written: the disk is full") == 1


def test_a_full_disk_for_other_files_ends_in_plain_words_and_the_same_command_goes_on(tmp_path, monkeypatch):
    replace = os.replace

    def full(source, target, **folders):
        if Path(target).name == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target, **folders)

    for name in ("experiment.yaml", "metrics.jsonl", "report.json"):
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", full)
            with pytest.raises(WriteError, match=f"{name}: cannot be written: the disk is full; free some space and give") as caught:
                run(tmp_path, train={"epochs": 1})
        assert isinstance(caught.value, QuartetError) and caught.value.errno == errno.ENOSPC
        assert not list(tmp_path.rglob("*.part"))
    assert run(tmp_path, train={"epochs": 1})["timing"]["epochs"] == 1


def test_a_real_limit_on_files_ends_nothing(tmp_path):
    """The system itself refuses to write more than a few kilobytes into a file, with TensorBoard on."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))

    def free():
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    seen = {}

    def look():
        seen["step"] = checkpoint(tmp_path / "run")[1]["step"]
        seen["files"] = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
        free()

    try:
        run(tmp_path / "run", callbacks=[At({6: limit, 9: look})], monitor={"samples": 0}, train={"keep": "last"})
    finally:
        free()
    assert seen == {"step": 5, "files": ["resume.npz"]}
    whole(tmp_path / "whole", monitor={"samples": 0}, train={"keep": "last"})
    assert_same_outcome(tmp_path / "whole", tmp_path / "run")


@pytest.fixture(scope="module")
def killed_at_7(tmp_path_factory):
    """A run killed after its seventh step. Tests work on copies."""
    folder = tmp_path_factory.mktemp("killed")
    with pytest.raises(Killed):
        run(folder, callbacks=[At({7: kill})])
    return folder


@pytest.fixture
def interrupted(killed_at_7, tmp_path):
    return Path(shutil.copytree(killed_at_7, tmp_path / "interrupted"))


# ---- the run's folder ------------------------------------------------------------------------------------


def test_a_folder_in_use_is_refused(tmp_path):
    with RunFolder(tmp_path).locked(), pytest.raises(ConfigError, match=r"another process \(number \d+\) is training here"):
        run(tmp_path)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_is_locked_while_training(tmp_path, fresh):
    run(tmp_path / "run", train={"epochs": 1})
    found = []

    def try_it():
        try:
            with RunFolder(tmp_path / "run").locked():
                found.append("taken")
        except ConfigError:
            found.append("refused")

    run(tmp_path / "run", fresh=fresh, callbacks=[At({3: try_it})], train={"epochs": 1})
    assert found == (["refused"] if fresh else [])  # without --fresh it is finished, and nothing is trained


def test_several_seeds_begun_anew_keep_their_lock(tmp_path, monkeypatch):
    folder, found = RunFolder(tmp_path / "run"), []

    def train(experiment, one, call):
        with pytest.raises(Locked), folder.locked():
            pass
        found.append(one.path.name)
        raise Killed

    monkeypatch.setattr(launch, "train", train)
    for fresh in (False, True):
        with pytest.raises(Killed):
            launch.train_seeds(experiment(seeds=2), folder, Call("toy/toy", ToyTask, fresh=fresh))
    assert found == ["run-seed0"] * 2 and sorted(path.name for path in tmp_path.iterdir()) == ["run", "run~1"]
    with folder.locked():
        pass


def test_another_experiment_in_the_folder_is_refused(interrupted):
    before, _ = checkpoint(interrupted)
    with pytest.raises(ConfigError) as caught:
        run(interrupted, train={"epochs": 4, "ema": 0.9})
    assert "begun with another experiment" in str(caught.value)
    assert "train.epochs: 3 there, 4 now" in str(caught.value)
    assert "train.ema: null there, 0.9 now" in str(caught.value)
    after, _ = checkpoint(interrupted)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_run_that_was_refused_before_its_first_step_begins_with_the_experiment_as_mended(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim("task: a\nwrong: 1\n")
    folder.claim("task: a\nwrong: 2\n")
    assert folder.experiment.read_text() == "task: a\nwrong: 2\n"
    folder.metrics.write_text("{}\n")
    with pytest.raises(ConfigError, match="begun with another experiment"):
        folder.claim("task: a\nwrong: 3\n")


def test_a_begun_run_may_go_on_on_other_devices(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim("train: {devices: 1, parallel: null, epochs: 2}\n")
    folder.metrics.write_text("{}\n")
    folder.claim("train: {devices: 4, parallel: {data: 2, model: 2}, epochs: 2}\n")
    assert "data: 2" in folder.experiment.read_text()
    with pytest.raises(ConfigError, match=r"train\.epochs: 2 there, 3 now"):
        folder.claim("train: {devices: 1, parallel: null, epochs: 3}\n")
    folder.report.mkdir()
    (folder.report / "report.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"train\.devices: 4 there, 1 now"):  # it says where the run was computed
        folder.claim("train: {devices: 1, parallel: {data: 2, model: 2}, epochs: 2}\n")


def test_fresh_moves_the_old_run_aside(tmp_path):
    run(tmp_path / "run", train={"epochs": 1})
    kept = model_weights(tmp_path / "run")
    (tmp_path / "run~1").mkdir()
    assert run(tmp_path / "run", fresh=True, train={"epochs": 2})["timing"]["epochs"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run~1", "run~2"]
    for one, other in zip(kept, model_weights(tmp_path / "run~2")):
        np.testing.assert_array_equal(one, other)


class OtherData(ToyTask):
    def splits(self):
        made = super().splits()
        made.train.arrays["image"][0, 0, 0, 0] += 1.0
        return made


def test_other_data_are_refused(interrupted):
    with pytest.raises(TrainingError, match=r"the data are not those that this run was begun with .* restore them, or .*--fresh"):
        run(interrupted, task=OtherData)
    run(interrupted, task=OtherData, fresh=True)


def damaged(path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    with np.load(path) as stored:
        values = dict(stored)
    if how == "cut":
        path.write_bytes(content[:middle])
    elif how == "a flipped byte":
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1:])
    elif how == "a weight missing":
        np.savez(path, **{name: value for name, value in values.items() if name != "weights/0002"})
    elif how == "code":
        np.savez(path, **{**values, "weights/0000": np.array([print], object)})


@pytest.mark.parametrize("how", ["cut", "a flipped byte", "a weight missing", "code"])
def test_a_damaged_checkpoint_is_an_error_that_says_what_to_do(interrupted, how):
    damaged(interrupted / "checkpoints" / "resume.npz", how)
    with pytest.raises(TrainingError, match=r"resume\.npz: .*start anew with --fresh"):
        run(interrupted)


def test_best_weights_that_are_gone_are_an_error(interrupted):
    for file in (interrupted / "checkpoints").glob("best-*"):
        file.unlink()
    values = iter([0.0, 0.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluator, "scores", lambda self, *_: {"loss": 1.0, "accuracy": next(values)})
        with pytest.raises(TrainingError, match=r"best-00001\.npz: not a readable checkpoint \(No such file or directory\)"):
            run(interrupted)


KILLED_WRITING = """
import os, signal, sys
from pathlib import Path
from tests.training.runs import At, run

flush = os.fsync

def fsync(descriptor):
    if sys.argv[2] in os.readlink(f"/proc/self/fd/{descriptor}"):
        os.kill(os.getpid(), signal.SIGKILL)
    flush(descriptor)

os.fsync = fsync
run(Path(sys.argv[1]), callbacks=[At()], train={"epochs": 1})
"""


@pytest.fixture(scope="module")
def one_epoch(tmp_path_factory):
    """A run of one epoch that was never killed."""
    folder = tmp_path_factory.mktemp("whole")
    whole(folder, train={"epochs": 1})
    return folder


@pytest.mark.parametrize("name", ["resume.npz", "model.keras"])
def test_nothing_half_is_left_by_kills_in_the_middle_of_a_write(tmp_path, name, one_epoch):
    """A process of its own is killed when it has written the file and not yet flushed it; the next clears up after it."""
    done = processes.run("-c", KILLED_WRITING, tmp_path / "run", name)
    assert done.returncode == -signal.SIGKILL

    def parts():
        return [path for path in (tmp_path / "run").rglob("*") if ".part" in path.name]

    assert len(parts()) == 1 and not (tmp_path / "run" / "report" / "report.json").exists()
    run(tmp_path / "run", callbacks=[At()], train={"epochs": 1})
    assert not parts()
    assert_same_outcome(one_epoch, tmp_path / "run")
