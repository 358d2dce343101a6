"""Training settings that must fit together, whatever the data: found when the experiment is read. Imports no TensorFlow."""

from collections.abc import Collection
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.config.schema import Optimizer, Train

# what the harness does itself
_OWNED = {"learning_rate", "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "ema_momentum", "ema_overwrite_frequency",
          "loss_scale_factor", "gradient_accumulation_steps", "self", "kwargs", "name"}


def device_count(train: "Train") -> int | None:
    """How many devices train.devices names; None where the machine decides."""
    wanted = train.devices
    return None if wanted == "auto" else 1 if wanted == "cpu" else wanted if isinstance(wanted, int) else len(wanted)


def accumulation_of(train: "Train", replicas: int) -> int:
    """The accumulation steps by which the global batch is divided over `replicas` devices.

    Raises:
        ConfigError: the three batch settings and the number of devices do not fit together.
    """
    batch = train.batch_size
    accumulation = train.accumulation
    if train.micro_batch_size:
        implied, rest = divmod(batch, replicas * train.micro_batch_size)
        if rest or (accumulation or implied) != implied or not implied:
            unit = replicas * train.micro_batch_size * (accumulation or 1)
            nearest = unit if accumulation else max(1, round(batch / unit)) * unit
            raise ConfigError(
                f"train.batch_size: {batch} examples do not divide into {replicas} device{'s' * (replicas > 1)} x "
                f"{accumulation or 'some'} accumulation steps x {train.micro_batch_size} examples "
                f"(train.micro_batch_size); nearest: {nearest}"
            )
        accumulation = implied
    accumulation = accumulation or 1
    if batch % (replicas * accumulation):
        unit = replicas * accumulation
        raise ConfigError(
            f"train.batch_size: the global batch of {batch} examples does not divide over {replicas} devices x {accumulation} accumulation "
            f"steps; nearest: {max(1, round(batch / unit)) * unit}"
        )
    return accumulation


def wrong_options(settings: "Optimizer", title: str, arguments: Collection[str]) -> list[tuple[str, str]]:
    """(dotted setting, what is wrong with it) for each option that the optimizer does not have, or that is set elsewhere.

    Args:
        title: the Keras class, for messages.
        arguments: of its constructor.
    """
    found = []
    allowed = sorted({*arguments, "weight_decay"} - _OWNED)
    own = [name for name in ("weight_decay", "momentum", "nesterov") if getattr(settings, name) is not None]
    for key in [*settings.options, *own]:
        setting = f"train.optimizer.{key}" if key in own else f"train.optimizer.options.{key}"
        if key in settings.options and key in ("weight_decay", "momentum", "nesterov"):
            found.append((f"train.optimizer.options.{key}", f"write it as train.optimizer.{key}"))
        elif key in _OWNED:
            found.append((setting, "set through train's own settings (learning_rate, clip, ema, accumulation)"))
        elif key not in allowed:
            near = get_close_matches(key, allowed, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            found.append((setting, f"{title} has no option {key!r}{hint} (it has: {', '.join(allowed)})"))
    return found
