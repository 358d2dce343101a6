"""The section `train`: how training goes, and what follows from its settings."""

from collections.abc import Collection
from difflib import get_close_matches
from typing import Annotated, Literal

from pydantic import Field

from pipelines.base.errors import ConfigError
from pipelines.config.section import ADDED, Section, Share, setting

# what the harness does itself
_OWNED = {"learning_rate", "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "ema_momentum", "ema_overwrite_frequency",
          "loss_scale_factor", "gradient_accumulation_steps", "self", "kwargs", "name"}


class Optimizer(Section):
    """A Keras optimizer by name; `options` are handed to its constructor."""

    name: str = setting(
        "adamw", "any class of keras.optimizers, in lower or mixed case: sgd, adam, adamw, muon, lion, rmsprop, ...",
        names="keras.optimizers")
    weight_decay: float | None = setting(None, "decoupled weight decay, applied to every weight of two or more dimensions", ge=0.0)
    momentum: float | None = setting(None, "momentum, for optimizers that have it", ge=0.0, lt=1.0)
    nesterov: bool | None = setting(None, "Nesterov momentum, for optimizers that have it")
    options: dict[str, float | int | bool | str] = setting(dict, "further arguments of the Keras class, such as beta_2 or epsilon")


class LearningRate(Section):
    """Learning rate over the steps of the whole run."""

    peak: float = setting(1e-3, "the highest learning rate", gt=0.0)
    schedule: Literal["constant", "cosine", "linear", "one_cycle", "step"] = setting(
        "cosine", "shape after warm-up: constant; cosine or linear down to `final`; one_cycle (up over `warmup`, cosine down); step")
    warmup: Share = setting(0.0, "share of all steps over which the rate rises linearly (cosine for one_cycle) from `start`", unit="share")
    start: float = setting(0.0, "rate at step 0 as a share of the peak, where there is a warm-up", unit="share of peak", ge=0.0, le=1.0)
    final: float = setting(0.0, "rate at the last step as a share of the peak", unit="share of peak", ge=0.0, le=1.0)
    milestones: list[Share] = setting(list, "step: shares of the run at which the rate is multiplied by `factor`", unit="share")
    factor: float = setting(0.1, "step: the multiplier at each milestone", gt=0.0, lt=1.0)


class Clip(Section):
    """Gradient clipping, after the sum over replicas. At most one of the three."""

    global_norm: float | None = setting(None, "largest norm of all gradients together", gt=0.0)
    norm: float | None = setting(None, "largest norm of each weight's gradient", gt=0.0)
    value: float | None = setting(None, "largest magnitude of each gradient element", gt=0.0)


class Tables(Section):
    """How big embedding tables learn: only the rows that a batch looks up are updated, by an optimizer of their own.

    They follow the schedule's shape and are clipped with the weights; they have no weight decay and no moving average.
    """

    optimizer: Literal["rowwise_adagrad", "adagrad", "adam", "sgd"] = setting(
        "rowwise_adagrad", "rowwise_adagrad keeps one number a row, adagrad one a value, adam two a value (moved only when looked up)")
    learning_rate: float | None = setting(None, "peak learning rate of the tables; default: train.learning_rate.peak", gt=0.0)
    divided: bool = setting(False, "each device holds a part of the rows, so that a table may be larger than a device, and no more than "
                            "main memory; steps exchange the rows that they look up. One device: no effect")


class Parallel(Section):
    """One model over many devices: a mesh of data x model of them, on one host. Along data each works on a part of the batch; along model
    each holds a part of the weights, of the optimizer's state and of their averages. TensorFlow's DTensor does the exchange."""

    data: int = setting(1, "into how many parts the batch is divided", ge=1)
    model: int = setting(1, "into how many parts the weights are divided", ge=1)
    state: Literal["follows", "divided"] = setting(
        "follows", "the optimizer's state and the averages: follows: as their weights, on each device of data; divided: in parts over "
        "data, too (ZeRO's first stage)")
    layouts: dict[str, Literal["whole", "rows", "columns", "heads", "gathered"]] = setting(
        dict, "path of a weight (* and ? are wildcards) -> its layout, in place of the rule's (`quartet check` shows both): rows, columns "
        "and heads divide the work as well, along the first, last and middle axis; gathered: held in parts, and made whole for use; whole")


class EarlyStopping(Section):
    """Stops when the watched metric has not improved for some epochs; the best weights are kept."""

    patience: int = setting(..., "epochs without improvement before stopping", unit="epochs", ge=1)
    min_delta: float = setting(0.0, "smallest change that counts as an improvement", ge=0.0)


class Freeze(Section):
    """Layers whose weights do not move, for all or the first epochs."""

    layers: list[str] = setting(..., "layer names, with * and ? as wildcards", min_length=1)
    epochs: int | None = setting(None, "unfreeze after this many epochs; null: never", unit="epochs", ge=1)


class Teacher(Section):
    """A finished run whose answers a student learns, too: distillation. It must see the same inputs: data, sizes, front end or tokens."""

    run: str = setting(..., "the run that teaches", run=True)
    temperature: float = setting(2.0, "divides both models' logits before they are compared; higher: unlikely classes count more", gt=0.0)
    weight: Share = setting(0.7, "of the distance to the teacher in the loss; the rest is the loss without a teacher", unit="share")


class Start(Section):
    """A finished run, or what `quartet prune` made of one, with whose weights training begins. Its model must have the same settings, and
    see the same inputs."""

    run: str = setting(..., "the run whose weights are taken", run=True)


class Train(Section):
    """How training goes. Batch sizes are global unless they say micro."""

    epochs: int = setting(10, "passes over the training data", unit="epochs", ge=1)
    batch_size: int = setting(128, "global batch: examples per update, over all devices and accumulation steps", unit="examples", ge=1)
    micro_batch_size: int | None = setting(
        None, "examples in one forward pass of one device; batch_size = devices x accumulation x micro_batch_size", unit="examples", ge=1)
    accumulation: int | None = setting(None, "forward passes per device and update; default 1, or what micro_batch_size implies", ge=1)
    optimizer: Optimizer = setting(Optimizer, "the optimizer")
    learning_rate: LearningRate = setting(LearningRate, "the learning rate")
    clip: Clip = setting(Clip, "gradient clipping")
    tables: Tables = setting(Tables, "how embedding tables are updated, in models that have them")
    parallel: Parallel | None = setting(None, "one model over many devices, in place of a copy on each")
    ema: float | None = setting(
        None, "decay of an exponential moving average of the weights per step; it is what is evaluated and saved", gt=0.0, lt=1.0)
    early_stopping: EarlyStopping | None = setting(None, "stop when validation stops improving")
    watch: str | None = setting(None, "metric that early stopping and the best checkpoint follow; default: the task's own")
    keep: Literal["best", "last"] = setting("best", "which weights are judged and saved: best on `watch` over the epochs, or the last")
    keep_state: bool = setting(
        False, "keep the state of the training (optimizer, best weights: some four times the model's size) once the run is finished")
    freeze: Freeze | None = setting(None, "layers that do not train")
    teacher: Teacher | None = setting(None, "a run whose answers are learned, too")
    start: Start | None = setting(None, "a run with whose weights training begins, in place of new ones")
    validate_every: int = setting(1, "epochs between validations (the last epoch always validates)", unit="epochs", ge=1)
    seed: int = setting(0, "seed of weights, order, augmentation and dropout", ge=0)
    deterministic: bool = setting(False, "bit-identical runs on the same machine and software; slower, and switches XLA off")
    devices: Literal["auto", "cpu"] | Annotated[int, Field(ge=1)] | list[str] = setting(
        "auto", "auto: all GPUs, else the CPU; cpu; a number of devices; or names such as [GPU:0, GPU:1]")
    precision: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", "compute precision (weights stay float32); auto measures what is fastest and safe here")
    xla: Literal["auto", "on", "off"] = setting("auto", "compile the step with XLA; auto: on GPUs only")
    checkpoint_seconds: float = setting(60.0, "longest time between resume checkpoints", unit="s", gt=0.0)
    log_every: int | None = setting(None, "steps between log points; default: a tenth of an epoch", unit="steps", ge=1)


def protecting() -> list[str]:
    """Settings of extensions with which no single example of train shows in the weights: nothing but the step may learn of them then."""
    return [f"train.{name}" for added in ADDED.get(Train, ()) if added.protects_examples for name in added.model_fields]


def protected_by(train: Train) -> str | None:
    """The one of `protecting` that is set; None: examples are not protected."""
    return next((name for name in protecting() if getattr(train, name.removeprefix("train."))), None)


def to_answer(train: Train, devices: str | int | list[str]) -> Train:
    """The settings with which a trained model answers on these devices: each has a copy, whatever the model was trained on."""
    return train.model_copy(update={"devices": devices, "parallel": None})


def device_count(train: Train) -> int | None:
    """How many devices train.devices names, a mesh of them as one; None where the machine decides."""
    wanted = 1 if train.parallel else train.devices
    return None if wanted == "auto" else 1 if wanted == "cpu" else wanted if isinstance(wanted, int) else len(wanted)


def accumulation_of(train: Train, replicas: int) -> int:
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


def wrong_options(settings: Optimizer, title: str, arguments: Collection[str]) -> list[tuple[str, str]]:
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
