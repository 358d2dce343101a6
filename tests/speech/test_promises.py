"""What the harness promises holds for recordings: replicas train as one device."""

import json

import numpy as np
import pytest

from tests import processes

pytestmark = pytest.mark.slow(seconds=20)
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
