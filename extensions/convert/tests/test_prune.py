"""Pruning: a network without some channels answers as the whole one whose readers see nothing of them, and trains as any run."""

import json

import keras
import numpy as np
import pytest

from extensions.convert.pruning import channels, choice
from extensions.convert.pruning.prune import prune
from nlp import models as text_models
from nlp.settings import Cnn as TextCnn
from nlp.settings import Transformer
from pipelines.base.errors import ConfigError
from pipelines.config.load import load
from pipelines.monitoring.arithmetic import forward_operations
from pipelines.runs.folder import RunFolder
from pipelines.serving.load import load_run
from pipelines.training.other_run import lasting
from speech.models import ds_cnn
from speech.settings import DsCnn
from tests import finished_run
from vision import models
from vision.settings import Cnn, Fast, Residual, Vit

pytestmark = pytest.mark.slow(seconds=40)
SETTINGS = {
    "cnn": Cnn(name="cnn", widths=[8, 12], hidden=10, batch_norm=True), "fast": Fast(name="fast", widths=[8, [12, 10]]),
    "residual": Residual(name="residual", depth=2, widths=[8, 12]), "vit": Vit(name="vit", depth=2, width=24, heads=3, hidden=[20, 16]),
    "text cnn": TextCnn(name="cnn", width=8, filters=9, kernels=[2, 3]),
    "transformer": Transformer(name="transformer", width=16, depth=2, heads=4, hidden=12),
    "ds_cnn": DsCnn(name="ds_cnn", width=8, depth=2),
}
EACH = pytest.mark.parametrize("kind", list(SETTINGS))


def built(settings):
    """(a network, inputs for it)."""
    drawn = np.random.default_rng(3)
    if isinstance(settings, DsCnn):
        return ds_cnn.build(settings, frames=20, width=12, classes=4), drawn.normal(size=(3, 20, 12)).astype(np.float32)
    if isinstance(settings, (TextCnn, Transformer)):
        model = text_models.MODELS.build(settings, size=30, classes=4, limit=16)
        return model, np.concatenate([drawn.integers(1, 30, (3, 9)), np.zeros((3, 2), int)], 1).astype(np.int32)
    model = models.build(settings, image_size=(16, 16), channels=3, classes=4, mean=[120.0] * 3, std=[60.0] * 3)
    return model, drawn.uniform(0, 255, (3, 16, 16, 3)).astype(np.float32)


def unsettled(model):
    """Weights as after a training: no two channels alike, no bias zero."""
    drawn = np.random.default_rng(5)
    for variable in model.weights:
        low = 0.5 if "variance" in variable.path else -0.3
        variable.assign(drawn.uniform(low, 1.0 if low > 0 else 0.3, variable.shape))


@EACH
def test_without_channels_it_answers_as_the_whole_that_does_not_read_them(kind):
    settings = SETTINGS[kind]
    model, inputs = built(settings)
    unsettled(model)
    known = channels.channels_of(model, settings.prunable, 11)
    alive = np.ones(known.count, bool)
    for number, name in enumerate(settings.prunable):
        numbers = known.by_layer[name]
        assert (numbers != channels.FIXED).all(), name
        alive[numbers[number % len(numbers)]] = alive[numbers[-1]] = False
    left = channels.counts(known, settings.prunable, alive)
    small, _ = built(type(settings).model_validate({**settings.model_dump(), **settings.pruned(left)}))
    cut = {id(weight): value for weight, value in channels.smaller(known, alive)}
    for target, weight in zip(lasting(small), lasting(model), strict=True):
        target.assign(cut.get(id(weight), np.asarray(weight.value)))
    for use in known.uses:  # the whole network, where nothing reads what is gone
        if use.heads:
            kernel = use.layer._output_dense.kernel
            kernel.assign(kernel * alive[use.out].astype(np.float32)[:, None, None])
        elif type(use.layer) in (keras.layers.Dense, keras.layers.Conv1D, keras.layers.Conv2D):
            kernel = use.layer.kernel
            kernel.assign(kernel * alive[use.into].astype(np.float32)[:, None])
    np.testing.assert_allclose(small(inputs, training=False), model(inputs, training=False), rtol=1e-3, atol=1e-4)
    assert small.count_params() < model.count_params()


@EACH
def test_the_operations_that_are_counted_are_those_of_the_graph(kind):
    model, inputs = built(SETTINGS[kind])
    known = channels.channels_of(model, SETTINGS[kind].prunable, inputs.shape[1])
    counted = choice.total(known, np.ones(known.count, bool)) * len(inputs)
    whole = forward_operations(model, inputs)
    assert whole is not None and 0.8 < 2 * counted / whole <= 1.1  # the rest: norms, activations, looking up tokens


def test_what_costs_much_and_is_worth_little_goes_first():
    settings = SETTINGS["cnn"]
    model, _ = built(settings)
    known = channels.channels_of(model, settings.prunable)
    worth = np.ones(known.count)
    worth[known.by_layer["conv1"][2]] = 0.0
    worth[known.by_layer["hidden"]] = 1e6
    alive = choice.chosen(known, settings.prunable, worth, 0.5)
    whole = choice.total(known, np.ones_like(alive))
    assert choice.total(known, alive) <= 0.5 * whole
    assert not alive[known.by_layer["conv1"][2]] and alive[known.by_layer["hidden"]].all()
    least = choice.chosen(known, settings.prunable, worth, 0.001)
    assert channels.counts(known, settings.prunable, least) == {"conv1": 1, "conv2": 2, "hidden": 2}


def test_a_pruned_run_trains_as_any_run(tmp_path):
    run = load_run(RunFolder(finished_run.run()), where="cpu", precision="float32")
    target = tmp_path / "pruned"
    done = prune(run, target, share=0.3, epochs=1)
    assert done.operations[0] <= 0.3 * done.operations[1]
    assert json.loads((target / "pruned.json").read_text())["weights"] == list(done.weights)
    smaller = load(target / "experiment.yaml").experiment
    assert smaller.model.widths == done.settings["widths"] and smaller.train.epochs == 1
    with pytest.raises(ConfigError, match=r"0\.01 is less than"):
        prune(run, tmp_path / "none", share=0.01)
    trained = finished_run.quartet("train", str(target / "experiment.yaml"), "train.epochs=2", "monitor.tensorboard=false",
                                   "evaluate.baseline=false", "--runs", str(tmp_path / "runs"), "--name", "small", cwd=tmp_path)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    folder = RunFolder(tmp_path / "runs" / "vision" / "experiment" / "small")
    assert set(folder.read_environment()["runs"]) == {"train.start.run", "train.teacher.run"}
    first = json.loads((folder.metrics).read_text().splitlines()[0])
    assert first["train/loss"] < 2.0  # new weights begin at 2.3
    assert load_run(folder).model.count_params() == done.weights[0]


def test_a_network_without_such_settings_is_refused(tmp_path):
    from extensions.convert.pruning.prune import prunable
    from nlp.settings import Bag

    run = load_run(RunFolder(finished_run.run()), where="cpu", precision="float32")
    with pytest.raises(ConfigError, match=r"model\.name: bag cannot be pruned"):
        prunable(Bag(name="bag"), run)


def test_other_weights_than_the_models_are_refused(tmp_path):
    refused = finished_run.quartet("train", "vision/digits", f"train.start.run={finished_run.run()}", "model.hidden=7", "--runs",
                                   str(tmp_path), cwd=tmp_path)
    assert refused.returncode == 2 and "train.start.run" in refused.stderr and "give `model` the settings of that run" in refused.stderr
