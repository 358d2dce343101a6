"""Two replicas train the three tasks as one device does; each number of replicas in a process of its own."""

import json

import numpy as np
import pytest

from tests import processes

pytestmark = pytest.mark.slow

MADE = {"source": "synthetic", "user_key": "user", "item_key": "item", "time_key": "time", "rating_key": "rating", "limit": 1500}
SGD = {
    "optimizer": {"name": "sgd"},
    "learning_rate": {"peak": 0.05},
    "batch_size": 64,
    "micro_batch_size": 32,
    "epochs": 1,
    "precision": "float32",
}
CASES = {
    "sequential": {
        "task": "recsys.sequential",
        "data": MADE,
        "model": {"name": "gru", "length": 8, "width": 8, "dropout": 0.2, "taste": True},
        "loss": {"name": "sampled", "negatives": 20},
    },
    "retrieval": {
        "task": "recsys.retrieval",
        "data": {**MADE, "categories": ["theme"]},
        "model": {"name": "towers", "width": 8, "history": 3},
        "loss": {"negatives": 10},
    },
    "ranking": {
        "task": "recsys.ranking",
        "data": {**MADE, "categories": ["theme"]},
        "model": {"name": "dcn", "width": 4, "hidden": [8], "history": 4, "dropout": 0.1},
    },
}
CASES |= {f"{name}, ids in tables": case for name, case in CASES.items()}
PROGRAM = """
import json, sys
import numpy as np
from pipelines.config.load import from_dict
from pipelines.training.session import assemble
import recsys.models.store as store
from pipelines.runs.launch import task_class
out, replicas, cases = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
found = {}
for name, values in cases.items():
    values["train"]["devices"] = replicas
    store.SPARSE_FROM = 10 if name.endswith("in tables") else 50_000
    experiment = from_dict(values, [], check_paths=False)
    one = assemble(experiment, task_class(experiment.task))
    _, carry = one.step(one.feed.iterator(0, one.steps), 0, one.steps, one.step.fresh())
    assert bool(carry.finite)
    tables = [table.variable for table in one.tables.tables]
    assert bool(tables) == name.endswith("in tables")
    found[name] = np.concatenate([np.ravel(weight.numpy()) for weight in [*one.weights, *tables]])
np.savez(out, **found)
"""


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    found = []
    cases = {name: {**case, "train": SGD} for name, case in CASES.items()}
    for replicas in (1, 2):
        out = tmp_path_factory.mktemp("weights") / "weights.npz"
        processes.run("-c", PROGRAM, out, replicas, json.dumps(cases), check=True)
        with np.load(out) as stored:
            found.append(dict(stored))
    return found


@pytest.mark.parametrize("case", CASES)
def test_two_replicas_are_one_device(weights, case):
    one, two = weights[0][case], weights[1][case]
    assert np.abs(one).max() > 0.01
    np.testing.assert_allclose(two, one, atol=1e-5)


@pytest.mark.parametrize(("micro", "replicas", "said"), [(None, 2, True), (32, 2, False), (None, 1, False)])
def test_that_the_softmax_sees_one_devices_examples_is_said_at_the_start(micro, replicas, said, monkeypatch):
    from types import SimpleNamespace

    import keras

    from pipelines.data.order import Plan
    from pipelines.runs import run_display
    from recsys.tasks.retrieval import RetrievedLists

    monkeypatch.setattr(run_display, "other_draws", lambda *_: [])
    plan = Plan(examples=64, batch=64, replicas=replicas, accumulation=1)
    session = SimpleNamespace(
        machine=SimpleNamespace(replicas=replicas, precision="float32", devices=["a"] * replicas, xla=False),
        plan=plan, splits=SimpleNamespace(train=[1], validation=None, test=None), weights=[], tables=SimpleNamespace(tables=[]), steps=1,
        feed=SimpleNamespace(summary="", spec={}), way=None,
        learner=SimpleNamespace(model=keras.Sequential(), task=SimpleNamespace(output=SimpleNamespace(mixes=RetrievedLists.mixes))),
        task=SimpleNamespace(output=SimpleNamespace(mixes=RetrievedLists.mixes), experiment=None), transforms=[],
        step=SimpleNamespace(train=SimpleNamespace(micro_batch_size=micro)),
    )
    lines: list[str] = []
    run_display.describe(session, "retrieval", lines.append)
    assert any("softmax over the items of the batch sees the 32 examples of one device" in line for line in lines) == said
