"""What the harness promises holds for recordings: replicas train as one device, an interrupted run ends as one that was not."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from tests import processes
from tests.waiting import until_or_over

pytestmark = pytest.mark.slow(seconds=40)
SMALL = ("data.source=synthetic", "data.name=null", "data.words=[]", "data.test_last=null", "data.test=0.1", "data.limit=44",
         "model.width=16", "model.kernels=[5]", "tokens.unit=characters", "train.epochs=2", "train.batch_size=8", "train.precision=float32",
         "train.devices=cpu", "evaluate.bootstrap=100", "evaluate.baseline=false")

REPLICAS = """
import json
import sys
import numpy as np
from pipelines.config.load import load
from pipelines.training.session import assemble
from pipelines.runs.launch import task_class

found = []
for name, settings in json.loads(sys.argv[2]):
    experiment = load(name, settings).experiment
    session = assemble(experiment, task_class(experiment.task))
    step, carry = session.step(session.feed.iterator(0, session.steps), 0, session.steps, session.step.fresh())
    assert step == session.steps and bool(carry.finite)
    found += [np.asarray(weight.value).ravel() for weight in session.weights]
    found.append(carry.totals.numpy())
np.save(sys.argv[1], np.concatenate(found))
"""


def test_two_replicas_train_as_one_device(tmp_path):
    """Both tasks with all augmentation, free lengths, batch statistics by micro-batch, an uneven last batch."""
    further = ["train.micro_batch_size=4", "train.optimizer={name: sgd}", "train.learning_rate.peak=0.002", "train.devices=DEVICES"]
    commands = ["data.limit=44", "model.width=8", "model.depth=1", "train.epochs=1", "train.batch_size=8", "train.precision=float32",
                "augment.noise=0.5", "augment.gain=3.0", "augment.time_masks=1"]
    found = []
    for count in (1, 2):
        asked = [(name, [text.replace("DEVICES", str(count)) for text in (*settings, *further)])
                 for name, settings in (("speech/yes_no_ctc", SMALL), ("speech/quickstart", commands))]
        out = tmp_path / f"{count}.npy"
        processes.run("-c", REPLICAS, out, json.dumps(asked), check=True)
        found.append(np.load(out))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)


def start(runs: Path, anew: bool = False) -> processes.Process:
    settings = [*SMALL, "train.epochs=12", "train.deterministic=true", "monitor.tensorboard=false", "train.checkpoint_seconds=0.5",
                "train.keep_state=true"]
    return processes.start("-m", "speech.train", "speech/yes_no_ctc", *settings, "--runs", runs, "--name", "run", anew=anew)


def state(runs: Path) -> dict[str, np.ndarray]:
    with np.load(runs / "speech" / "yes_no_ctc" / "run" / "checkpoints" / "resume.npz", allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files if name != "about"}


def test_killed_and_started_again_it_ends_bit_identical(tmp_path):
    whole = start(tmp_path / "whole", anew=True)
    log = tmp_path / "cut" / "speech" / "yes_no_ctc" / "run" / "metrics.jsonl"
    cut = start(tmp_path / "cut")
    until_or_over(lambda: log.exists() and len(log.read_bytes().splitlines()) >= 14, cut)
    cut.send_signal(signal.SIGKILL)
    cut.communicate()
    again = start(tmp_path / "cut")
    for process in (whole, again):
        output, errors = process.communicate(timeout=400)
        assert process.returncode == 0, errors[-3000:]
    assert "resuming at step" in output + errors
    first, second = state(tmp_path / "whole"), state(tmp_path / "cut")
    assert set(first) == set(second)
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], err_msg=name)
