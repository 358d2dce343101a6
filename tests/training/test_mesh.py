"""Promise 1 on a mesh: parts of the batch and of the weights train as one device does, to 1e-5 in every weight; resumed on another mesh.

Each set of devices has a process of its own.
"""

import json

import keras
import numpy as np
import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.train_settings import Parallel
from pipelines.machine.mesh import DATA, MODEL, Mesh
from pipelines.training.mesh_layouts import lay_out
from tests import processes
from tests.training.toy import encoder

CASES = {
    "dropout, uneven last batch": {"model": "max dropout"},
    "averages, clipping, accumulation, class weights": {
        "model": "max", "class_weights": [1, 2, 0.5, 1, 1], "label_smoothing": 0.1,
        "train": {"ema": 0.9, "accumulation": 2, "clip": {"global_norm": 0.3}}},
    "freezing, AdamW with decay": {
        "model": "max",
        "train": {"freeze": {"layers": ["first"], "epochs": 1}, "learning_rate": {"peak": 0.01},
                  "optimizer": {"name": "adamw", "weight_decay": 0.05, "options": {"epsilon": 1.0}}}},
    "batch norm, penalty": {"model": "max norm penalty", "train": {"ema": 0.9}},
    "whole encoder": {"model": encoder(name="whole", learning_rate=0.01, decay=0.5, head="new")},
}
MESHES = [{"data": 2, "model": 2}, {"data": 1, "model": 4}, {"data": 4, "model": 1}, {"data": 2, "model": 2, "state": "divided"}]
FIRST = "dropout, uneven last batch"  # on all meshes; the others on the first and, with averages, the last
ON = {name: MESHES if name == FIRST else [MESHES[0], MESHES[3]] if "averages" in name else MESHES[:1] for name in CASES}

RESUMED = """
import json, sys
import numpy as np
import tensorflow as tf
from pathlib import Path
from pipelines.training import state
from pipelines.training.session import assemble
from pipelines.training.still import Still
from tests.training.toy import ToyTask, experiment

tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4)
folder, values = Path(sys.argv[1]), []
train = {"optimizer": {"name": "adam"}, "ema": 0.9, "learning_rate": {"peak": 0.01}, "epochs": 3}
for parts in json.loads(sys.argv[2]):
    done = 0
    for number, parallel in enumerate(parts):
        mesh = {"devices": parallel["data"] * parallel["model"], "parallel": parallel} if parallel else {"devices": 1}
        made = assemble(experiment(model="max dropout", train=train | mesh), ToyTask)
        still = Still(folder)
        if number:
            state.load(folder / "state.npz", made.state_groups, still=still)
        else:
            made.initialise()
        done, carry = made.step(made.feed.iterator(done, done + 4), done, 4, made.step.fresh())
        if made.elsewhere is not None:
            made.elsewhere.gather()
        about = {"step": done, "seconds": 0.0, "stopping": None, "meter": {}, "hooks": {}}
        state.write(folder / "state.npz", state.snapshot(made.state_groups, {}, about), still, [], done)
    values.append(np.concatenate([np.ravel(one.numpy()) for group in made.state_groups.values() for one in group]))
np.savez(sys.argv[3], *values)
"""


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> dict[tuple[str, str], np.ndarray]:
    """(case, mesh) -> final weights, averages, loss and accuracy; of one device under ""."""
    found = {}
    asked = {1: [(name, None) for name in CASES], 4: [(name, mesh) for name in CASES for mesh in ON[name]]}
    for devices, pairs in asked.items():
        cases = []
        for name, mesh in pairs:
            changes = json.loads(json.dumps(CASES[name], default=lambda one: one.model_dump()))
            changes["train"] = changes.get("train", {}) | {"devices": devices} | ({"parallel": mesh} if mesh else {})
            cases.append(changes)
        out = tmp_path_factory.mktemp("weights") / "weights.npz"
        processes.run("-m", "tests.training.toy", out, json.dumps(cases), check=True)
        with np.load(out) as stored:
            found |= {(name, json.dumps(mesh)): value for (name, mesh), value in zip(pairs, stored.values())}
    return found


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("name", CASES)
def test_a_mesh_trains_as_one_device(weights, name):
    one = weights[name, "null"]
    assert np.isfinite(one).all()
    for mesh in ON[name]:
        worst = np.abs(one[:-2] - weights[name, json.dumps(mesh)][:-2]).max()
        assert worst <= 1e-5, f"{mesh} differs from one device by {worst:.1e}"
        np.testing.assert_allclose(one[-2:], weights[name, json.dumps(mesh)][-2:], rtol=1e-4)


@pytest.mark.slow(seconds=25)
def test_a_run_goes_on_on_another_mesh_or_on_none(tmp_path):
    ways = [[None, None], [{"data": 2, "model": 2}, {"data": 1, "model": 4}], [{"data": 4, "model": 1, "state": "divided"}, None],
            [None, {"data": 2, "model": 2}]]
    processes.run("-c", RESUMED, tmp_path, json.dumps(ways), tmp_path / "out.npz", check=True)
    with np.load(tmp_path / "out.npz") as stored:
        one, *others = stored.values()
    assert np.abs(one).max() > 0.01
    for way, other in zip(ways[1:], others):
        np.testing.assert_allclose(other, one, atol=1e-5, err_msg=str(way))


@pytest.mark.slow(seconds=15)
def test_a_step_that_comes_out_otherwise_than_on_one_device_is_refused():
    program = """
from pipelines.base.errors import ConfigError
from pipelines.machine import mesh
from pipelines.training.session import assemble
from tests.training.toy import ToyTask, experiment
made = assemble(experiment(model="max", train={"devices": 2, "parallel": {"model": 2}}), ToyTask)
alone = made.step._alone
made.step._alone = lambda *batch: (sums := alone(*batch))._replace(gradients=[1.1 * one for one in sums.gradients])
try:
    made.step(made.feed.iterator(0, 1), 0, 1, made.step.fresh())
except ConfigError as error:
    assert "kernel differs by" in str(error) and "gathered" in str(error), error
else:
    raise SystemExit("not refused")
"""
    processes.run("-c", program, check=True)


@pytest.mark.slow(seconds=30)
def test_a_run_on_a_mesh_answers_on_one_device(tmp_path):
    made = ("vision/digits", "model.name=cnn", "data.limit=128", "train.epochs=1", "train.precision=float32", "train.devices=2",
            "train.parallel={model: 2}", "--runs", "runs", "--name", "one")
    processes.run("-m", "quartet", "train", *made, cwd=tmp_path, check=True)
    run = "vision/digits/one"
    told = json.loads((tmp_path / "runs" / run / "report" / "report.json").read_text())
    assert "CPU:1" in str(told)
    processes.run("-m", "quartet", "evaluate", run, "--split", "validation", "--runs", "runs", cwd=tmp_path, check=True)
    exported = processes.run("-m", "quartet", "export", run, "--runs", "runs", cwd=tmp_path, check=True)
    assert exported.stdout


@pytest.fixture(scope="module")
def model() -> keras.Model:
    layers = keras.layers
    x = given = keras.Input((6,), dtype="int32")
    x = layers.Embedding(10, 8, name="table")(x)
    x = layers.MultiHeadAttention(2, 4, name="attention")(x, x)
    x = layers.Dense(32, activation="gelu", name="wide")(x)
    x = layers.Dense(8, name="narrow")(x)
    x = layers.Conv1D(6, 3, name="conv")(x)
    return keras.Model(given, layers.Dense(3, name="last")(layers.LayerNormalization(name="norm")(x)))


def laid(model, devices: tuple[int, int] = (2, 2), **settings):
    parallel = Parallel(data=devices[0], model=devices[1], **settings)
    found = lay_out(model, parallel, Mesh(tuple(f"CPU:{number}" for number in range(devices[0] * devices[1])), *devices))
    return found, {one.path: one for one in found.by_id.values()}


def test_layouts_follow_the_layers(model):
    found, by_path = laid(model)
    how = {path: (one.how, one.axes) for path, one in by_path.items()}
    assert how["table/embeddings"] == ("rows", (MODEL, None))
    assert how["attention/query/kernel"] == ("heads", (None, MODEL, None))
    assert how["attention/attention_output/kernel"] == ("rows", (MODEL, None, None))
    assert how["wide/kernel"] == ("columns", (None, MODEL)) and how["narrow/kernel"] == ("rows", (MODEL, None))
    assert how["conv/kernel"] == ("gathered", (None, MODEL, None)) and by_path["conv/kernel"].used == (None, None, None)
    assert how["norm/gamma"] == ("whole", (None,)) and how["last/kernel"] == ("rows", (MODEL, None))
    whole, own = found.held()
    assert whole == model.count_params() and whole / 2 < own < 0.6 * whole  # norms and biases are on each
    said = found.described()
    assert "2 (data) x 2 (model)" in said[0] and any("columns" in line and "wide/kernel [8, 32]" in line for line in said)


def test_the_optimizers_state_is_divided_over_data_too(model):
    found, by_path = laid(model, state="divided")
    assert by_path["wide/kernel"].state == (DATA, MODEL) and by_path["wide/kernel"].axes == (None, MODEL)
    assert by_path["norm/gamma"].state == (DATA,)
    assert found.held("state")[1] < found.held()[1]
    slot = keras.Variable(np.zeros((8, 32), "float32"), name="wide_kernel_momentum")
    assert found.of(slot).axes == (DATA, MODEL)
    assert found.of(keras.Variable(0.0, name="learning_rate")).axes == ()
    assert found.of(keras.Variable(np.zeros((32, 8), "float32"), name="average"), model.get_layer("narrow").kernel).axes == (MODEL, DATA)


def test_layouts_of_ones_own(model):
    _, by_path = laid(model, layouts={"*kernel": "gathered", "table/*": "columns"})
    assert by_path["wide/kernel"].how == "gathered" and by_path["table/embeddings"].axes == (None, MODEL)


@pytest.mark.parametrize(("devices", "settings", "message"), [
    ((1, 7), {}, "no weight divides into 7 parts; the largest are"),
    ((2, 2), {"layouts": {"tables/*": "rows"}}, "tables/*: the model has no such weight"),
    ((1, 4), {"layouts": {"table/*": "rows"}}, "table/embeddings [10, 8] does not divide so into 4 parts"),
])
def test_layouts_that_cannot_be_are_refused(model, devices, settings, message):
    with pytest.raises(ConfigError) as error:
        laid(model, devices, **settings)
    assert message in str(error.value)


@pytest.mark.parametrize(("changes", "message"), [
    ({"train": {"devices": 1, "parallel": {"data": 2}}}, "needs 2 devices, and train.devices gives 1"),
    ({"train": {"devices": 1, "xla": "on", "parallel": {}}}, "train.xla: on"),
    ({"train": {"devices": 1, "precision": "float16", "parallel": {}}}, "float16 needs a loss scale"),
    ({"model": "table", "train": {"devices": 1, "parallel": {}}}, "embedding tables"),
    ({"model": encoder(name="frozen"), "data": {"cache": "memory"}, "train": {"devices": 1, "parallel": {}}}, "the encoder is frozen"),
])
def test_what_does_not_go_with_a_mesh_is_refused(changes, message):
    from pipelines.training.session import assemble
    from tests.training.toy import EncoderToyTask, TableToyTask, ToyTask, experiment

    kind = changes.get("model", "")
    with pytest.raises(ConfigError) as error:
        assemble(experiment(**changes), EncoderToyTask if not isinstance(kind, str) else TableToyTask if "table" in kind else ToyTask)
    assert message in str(error.value)
