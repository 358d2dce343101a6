"""Any Keras optimizer, as a pure function.

Keras' TensorFlow optimizers apply themselves through tf.distribute (one more gradient sum, `merge_call`,
no `stateless_apply`). The base class beneath them is pure; `purely` takes its methods back, so that an
update is a function of (optimizer values, gradients, weights), the same in every replica.
"""

import inspect
from difflib import get_close_matches

import keras
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.optimizer import BackendOptimizer

from pipelines.base.errors import ConfigError
from pipelines.config.schema import Optimizer as Settings
from pipelines.config.schema import wrong_options

_BASE_METHODS = (
    "stateless_apply", "assign", "assign_add", "assign_sub", "_backend_update_step", "_apply_weight_decay", "_clip_by_norm", "_var_key",
)

WRAPPERS = ("optimizer", "lossscaleoptimizer", "multioptimizer")  # names of what stands around other optimizers

# between an optimizer and the tf.distribute one in the order of bases, so that what the optimizer itself overrides (Nadam, Muon) holds
_Pure = type("_Pure", (BackendOptimizer,), {name: BaseOptimizer.__dict__[name] for name in _BASE_METHODS})


def purely(optimizer_class: type) -> type:
    """The same optimizer class with the pure base methods in place of the tf.distribute ones."""
    return type(optimizer_class.__name__, (optimizer_class, _Pure), {})


def names() -> dict[str, type]:
    """Lower-case name -> Keras optimizer class, for every one that can be used."""
    kinds = {name.lower(): kind for name, kind in vars(keras.optimizers).items()
             if inspect.isclass(kind) and issubclass(kind, keras.optimizers.Optimizer)}
    return {name: kind for name, kind in kinds.items() if name not in WRAPPERS}


def make(settings: Settings, weights: list[keras.Variable]) -> keras.optimizers.Optimizer:
    """A built, pure optimizer for `weights`; call it inside the strategy's scope.

    Raises:
        ConfigError: an unknown optimizer, or an option that it does not have.
    """
    known = names()
    cls = known.get(settings.name.lower().replace("_", ""))
    if cls is None:
        near = get_close_matches(settings.name.lower(), known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"train.optimizer.name: no optimizer {settings.name!r} in Keras{hint} (there are: {', '.join(sorted(known))})")
    arguments = inspect.signature(cls).parameters
    for setting, message in wrong_options(settings, cls.__name__, arguments):
        raise ConfigError(f"{setting}: {message}")
    own = {key: getattr(settings, key) for key in ("weight_decay", "momentum", "nesterov")}
    options = {**settings.options, **{key: value for key, value in own.items() if value is not None}}
    if settings.weight_decay is not None and "adam_weight_decay" in arguments:  # Muon leaves all but matrices to Adam
        options.setdefault("adam_weight_decay", settings.weight_decay)
    try:
        optimizer = purely(cls)(learning_rate=1.0, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"train.optimizer: {cls.__name__} does not take {options}: {error}") from error
    # biases and scales do not decay, as is usual since Goyal et al. 2017 (arXiv:1706.02677); AdamW decays by default
    optimizer.exclude_from_weight_decay(var_list=[weight for weight in weights if len(weight.shape) < 2])
    optimizer.build(weights)
    return optimizer
