"""Every Keras optimizer as a pure function, against Keras' own apply_gradients; options, and what decays."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.config.keras_names import keras_names
from pipelines.config.train_settings import Optimizer as Settings
from pipelines.training import links

SHAPES = [(3, 4), (4,), (2, 2, 3, 3), (5, 2)]


def weights(dtype: str = "float32") -> list[keras.Variable]:
    rng = np.random.default_rng(0)
    return [keras.Variable(rng.normal(size=shape), dtype=dtype, name=f"w{number}") for number, shape in enumerate(SHAPES)]


def gradients(step: int) -> list[tf.Tensor]:
    rng = np.random.default_rng(step + 1)
    return [tf.constant(rng.normal(size=shape), tf.float32) for shape in SHAPES]


def purely(settings: Settings, steps: int, rate: float) -> list[np.ndarray]:
    """Weights after some updates by stateless_apply, the rate given in the slots as the step does."""
    variables = weights()
    optimizer = links.make_optimizer(settings, variables)
    slots = [tf.convert_to_tensor(value) for value in optimizer.variables]
    place = next(at for at, variable in enumerate(optimizer.variables) if variable is optimizer._learning_rate)
    values = [tf.convert_to_tensor(variable) for variable in variables]
    apply = tf.function(optimizer.stateless_apply, autograph=False)
    for step in range(steps):
        slots[place] = tf.constant(rate)
        values, slots = apply(slots, gradients(step), values)
    for variable, before in zip(variables, weights()):
        np.testing.assert_array_equal(variable, before)  # pure: nothing was written
    return [value.numpy() for value in values]


def by_keras(optimizer: keras.optimizers.Optimizer, steps: int) -> list[np.ndarray]:
    variables = weights()
    optimizer.exclude_from_weight_decay(var_list=[variable for variable in variables if len(variable.shape) < 2])
    optimizer.build(variables)
    for step in range(steps):
        optimizer.apply_gradients(zip(gradients(step), variables))
    return [variable.numpy() for variable in variables]


def test_the_names_are_those_the_experiment_may_have():
    wrappers = {"optimizer", "lossscaleoptimizer", "multioptimizer", "optimizermap"}
    assert set(links.optimizer_names()) == {name.lower() for name in keras_names("keras.optimizers")} - wrappers


@pytest.mark.parametrize("name", sorted(set(links.optimizer_names()) - {"schedulefreeadamw"}))
@pytest.mark.parametrize("decay", [None, 0.05])
def test_equals_keras(name, decay):
    cls, rate = links.optimizer_names()[name], 0.02
    options = {} if decay is None else {"weight_decay": decay}
    if name == "muon" and decay:
        options["adam_weight_decay"] = decay
    expected = by_keras(cls(learning_rate=rate, **options), 5)
    found = purely(Settings(name=name, weight_decay=decay), 5, rate)
    for one, other, start in zip(found, expected, weights()):
        assert np.isfinite(one).all()
        assert np.abs(one - start.numpy()).max() > 1e-5
        np.testing.assert_allclose(one, other, atol=1e-6, rtol=0)


def test_schedule_free_follows_its_paper():
    """Keras' own, on TensorFlow, reads the old momentum through a variable after it was changed. Defazio et al. 2024, arXiv:2405.15682."""
    rate, beta_1, beta_2 = 0.02, 0.9, 0.999
    y = [value.numpy().astype(np.float64) for value in weights()]
    x, z, v = list(y), list(y), [np.zeros_like(value) for value in y]
    for step in range(5):
        for at, gradient in enumerate(gradients(step)):
            g = gradient.numpy().astype(np.float64)
            v[at] = beta_2 * v[at] + (1 - beta_2) * g * g
            z[at] = z[at] - rate * g / (np.sqrt(v[at] / (1 - beta_2 ** (step + 1))) + 1e-8)
            x[at] = (1 - 1 / (step + 1)) * x[at] + z[at] / (step + 1)
            y[at] = (1 - beta_1) * z[at] + beta_1 * x[at]
    for found, expected in zip(purely(Settings(name="schedulefreeadamw"), 5, rate), y):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_options_reach_the_optimizer():
    found = purely(Settings(name="SGD", momentum=0.8, nesterov=True), 4, 0.1)
    for one, other in zip(found, by_keras(keras.optimizers.SGD(0.1, momentum=0.8, nesterov=True), 4)):
        np.testing.assert_allclose(one, other, atol=1e-6)
    found = purely(Settings(name="adam", options={"beta_2": 0.9, "epsilon": 0.1, "amsgrad": True}), 4, 0.1)
    for one, other in zip(found, by_keras(keras.optimizers.Adam(0.1, beta_2=0.9, epsilon=0.1, amsgrad=True), 4)):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("settings", [
    Settings(name="adamw"), Settings(name="adamw", weight_decay=0.3), Settings(name="sgd", weight_decay=0.3), Settings(name="muon"),
    Settings(name="muon", weight_decay=0.3), Settings(name="lion", weight_decay=0.3)])
def test_only_weights_of_two_or_more_dimensions_decay(settings, monkeypatch):
    monkeypatch.setattr(f"{__name__}.gradients", lambda step: [tf.zeros(shape) for shape in SHAPES])
    share = settings.weight_decay or 0.004  # Keras' default where it has one
    for found, start, shape in zip(purely(settings, 3, 0.5), weights(), SHAPES):
        expected = start.numpy() * ((1 - share * 0.5) ** 3 if len(shape) > 1 else 1)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(("settings", "message"), [
    ({"name": "adamm"}, "train.optimizer.name: no optimizer 'adamm' in Keras; did you mean adam"),
    ({"name": "multioptimizer"}, "no optimizer 'multioptimizer'"),
    ({"name": "adam", "options": {"beta2": 0.9}}, "Adam has no option 'beta2'; did you mean beta_2"),
    ({"name": "adam", "momentum": 0.9}, "Adam has no option 'momentum'"),
    ({"name": "adam", "options": {"learning_rate": 0.1}}, "train.optimizer.options.learning_rate: set through train's own settings"),
    ({"name": "adam", "options": {"clipnorm": 1.0}}, "train.optimizer.options.clipnorm: set through"),
    ({"name": "sgd", "options": {"momentum": 0.1}}, "train.optimizer.options.momentum: write it as train.optimizer.momentum"),
    ({"name": "adamw", "options": {"weight_decay": 0.1}}, "write it as train.optimizer.weight_decay"),
    ({"name": "sgd", "options": {"momentum_": 0.1}}, "SGD has no option 'momentum_'; did you mean momentum"),
])
def test_wrong_options(settings, message):
    with pytest.raises(ConfigError) as caught:
        links.make_optimizer(Settings(**settings), weights())
    assert message in str(caught.value)


def test_names_may_be_written_in_any_case():
    assert type(links.make_optimizer(Settings(name="RMSprop"), weights())).__name__ == "RMSprop"
    assert type(links.make_optimizer(Settings(name="schedule_free_adamw"), weights())).__name__ == "ScheduleFreeAdamW"
