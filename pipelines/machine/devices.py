"""Which devices, precision and compiler a run uses, chosen once and recorded with the run."""

import dataclasses
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Protocol

import keras
import tensorflow as tf
from tensorflow.python.framework import config

from pipelines.base.errors import ConfigError
from pipelines.machine import compiling
from pipelines.machine.group import ALONE, Group, current
from pipelines.machine.hardware import processor_name
from pipelines.machine.mesh import Mesh
from pipelines.machine.precision import fastest


class WantedMesh(Protocol):
    """How many devices share the batch, and how many the weights."""

    @property
    def data(self) -> int: ...
    @property
    def model(self) -> int: ...


class Wanted(Protocol):
    """The part of an experiment's `train` section that concerns the machine."""

    @property
    def seed(self) -> int: ...
    @property
    def deterministic(self) -> bool: ...
    @property
    def devices(self) -> str | int | list[str]: ...
    @property
    def precision(self) -> str: ...
    @property
    def xla(self) -> str: ...
    @property
    def parallel(self) -> WantedMesh | None: ...


PRECISION = "precision"  # with it the note begins that gives the reason of the choice


@dataclass(frozen=True)
class Machine:
    """The choice.

    Attributes:
        devices: of this host, each with a copy of the model.
        notes: the reasons, for the report.
        group: the hosts that train together.
        mesh: of devices that share one model, of which `devices` is the first.
    """

    strategy: tf.distribute.Strategy
    devices: tuple[str, ...]
    precision: str  # float32, bfloat16 or float16
    xla: bool
    notes: tuple[str, ...] = ()
    group: Group = ALONE
    mesh: Mesh | None = None

    @property
    def working(self) -> tuple[str, ...]:
        """All devices of this host that train."""
        return self.mesh.devices if self.mesh else self.devices

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Within, variables are created for training: a copy on each device; of a mesh, whole in main memory."""
        with self.strategy.scope(), tf.device("CPU:0") if self.mesh else nullcontext():
            yield

    def with_reason(self, why: str) -> "Machine":
        """With another reason for its precision."""
        notes = tuple(note for note in self.notes if not note.startswith(f"{PRECISION} "))
        return dataclasses.replace(self, notes=(*notes, f"{PRECISION} {self.precision}: {why}"))

    @property
    def replicas(self) -> int:
        """Over all hosts; each has as many."""
        return len(self.devices) * self.group.size

    @property
    def own(self) -> range:
        """Numbers of this host's replicas among all."""
        return range(self.group.number * len(self.devices), (self.group.number + 1) * len(self.devices))

    def alone(self) -> "Machine":
        """This host without the others, for work that has no part in the training."""
        return dataclasses.replace(self, group=ALONE)


def prepare(train: Wanted, *, precision: str | None = None) -> Machine:
    """Sets up devices, seeds, determinism and precision for this process.

    Called again, it changes what can change within a process: seeds, determinism, precision, and the choice among the devices that
    TensorFlow has started with.

    Args:
        train: the settings.
        precision: the choice of an interrupted run, which resumes with the same.

    Raises:
        ConfigError: devices that do not exist, or that a process which has started with others cannot use.
    """
    gpus = tf.config.get_visible_devices("GPU")  # those that this process has not hidden
    for gpu in gpus:
        with suppress(RuntimeError):  # somebody has begun with the GPU before: it stays as they set it
            tf.config.experimental.set_memory_growth(gpu, True)
    keras.utils.set_random_seed(train.seed)
    determinism(train.deterministic)
    names = name_devices(train)
    group = current()
    mesh = None if train.parallel is None else _mesh(train.parallel, names, train, group)
    names = names if mesh is None else names[:1]
    strategy = group.strategy(names) or _strategy(names)
    on_gpu = names[0].startswith("GPU")
    notes = []
    if train.devices == "auto" and not gpus and tf.config.list_physical_devices("GPU"):
        notes.append("on the CPU: the GPUs were hidden earlier in this process")
    chosen = precision or train.precision
    if chosen == "auto":
        chosen, why = group.of_chief(fastest(on_gpu, gpus) if group.chief else None)
        notes.append(f"{PRECISION} {chosen}: {why}")
    elif train.precision == "auto":
        notes.append(f"{PRECISION} {chosen}: as chosen when the run was begun")
    if mesh is not None and chosen == "float16":
        raise ConfigError("train.precision: float16 needs a loss scale, which a step on a mesh does not have; set train.precision: "
                          "bfloat16, or float32 where the GPU lacks that")
    _set_policy(chosen)
    xla = mesh is None and (train.xla == "on" or (train.xla == "auto" and on_gpu and not train.deterministic))
    return Machine(strategy, names, chosen, xla, tuple(notes), group, mesh)


def _mesh(wanted: WantedMesh, names: tuple[str, ...], train: Wanted, group: Group) -> Mesh:
    """The mesh that train.parallel asks for. Raises ConfigError where the devices or another setting do not suit it."""
    if wanted.data * wanted.model != len(names):
        raise ConfigError(f"train.parallel: a mesh of {wanted.data} (data) x {wanted.model} (model) needs {wanted.data * wanted.model} "
                          f"devices, and train.devices gives {len(names)}; set train.devices: {wanted.data * wanted.model} (on a machine "
                          "without GPUs these are parts of its CPU, to try it), or a mesh of as many")
    if group.size > 1:
        raise ConfigError("train.parallel: a mesh is of one host's devices; leave out train.parallel to train a copy on each host, or "
                          "start on one host")
    if train.xla == "on":
        raise ConfigError("train.xla: on: the step on a mesh is divided by DTensor, which XLA does not compile here; set train.xla: auto")
    return Mesh(names, wanted.data, wanted.model)


def by_convolution(machine: Machine, train: Wanted) -> bool:
    """Whether another precision than float32 was chosen because a plain convolution is faster in it on this CPU."""
    return train.precision == "auto" and machine.precision != "float32" and machine.devices[0].startswith("CPU")


def in_precision(machine: Machine, train: Wanted, precision: str) -> Machine:
    """The machine in another precision, with seeds as `prepare` left them: what is built now is as if it had been chosen at once."""
    keras.utils.set_random_seed(train.seed)
    _set_policy(precision)
    return dataclasses.replace(machine, precision=precision)


def _set_policy(precision: str) -> None:
    keras.config.set_dtype_policy("float32" if precision == "float32" else f"mixed_{precision}")


def for_model(machine: Machine, model: keras.Model) -> Machine:
    """The machine as it trains this model: without XLA where a layer cannot be compiled, and that in its notes.

    On a GPU such a layer is an LSTM or GRU that cuDNN computes in one call for all its time steps. Compiled in cuDNN's place would be a
    loop of some small kernels for each time step, and the layer is most of such a model's work: so it stays, without XLA.
    """
    layers = compiling.obstacles(model) if machine.xla else []
    if not layers:
        return machine
    named = f"{', '.join(layers[:3])}{' and others' if len(layers) > 3 else ''}"
    note = f"not compiled by XLA, which cannot compile a layer as this device computes it ({named}): train.xla has no effect here"
    return dataclasses.replace(machine, xla=False, notes=(*machine.notes, note))


@functools.cache
def _strategy(names: tuple[str, ...]) -> tf.distribute.Strategy:
    """One strategy for each set of devices and process: a second one would count its collectives from 100 again, into the first's."""
    if len(names) > 1:
        return tf.distribute.MirroredStrategy(list(names))
    # the default strategy costs nothing; another device must be named
    return tf.distribute.get_strategy() if names[0] in ("CPU:0", "GPU:0") else tf.distribute.OneDeviceStrategy(names[0])


def name_devices(train: Wanted) -> tuple[str, ...]:
    """The names of the devices that train.devices asks for, which this process then has. Raises ConfigError as `prepare`."""
    return device_names(train.devices, len(tf.config.get_visible_devices("GPU")))


def device_names(wanted: str | int | list[str], gpus: int) -> tuple[str, ...]:
    """Device names for train.devices. A number of CPU devices makes logical ones, for tests of replicas."""
    if wanted == "auto":
        return tuple(f"GPU:{i}" for i in range(gpus)) or ("CPU:0",)
    if wanted == "cpu":
        if gpus:
            with _not_begun(wanted):
                tf.config.set_visible_devices([], "GPU")
        return ("CPU:0",)
    if isinstance(wanted, int):
        if wanted < 1:
            raise ConfigError(f"train.devices: {wanted} devices; give at least 1, or auto")
        if gpus >= wanted:
            return tuple(f"GPU:{i}" for i in range(wanted))
        if gpus:
            raise ConfigError(
                f"train.devices: {wanted} asked for, and this machine has {gpus} GPU{'s' * (gpus > 1)}; give at most {gpus}, or auto"
            )
        return _logical_cpus(tuple(f"CPU:{i}" for i in range(wanted)))
    names = tuple(name.upper() for name in wanted)
    if len(set(names)) < len(names):
        raise ConfigError(f"train.devices: {', '.join(names)} names a device twice")
    if not names:
        raise ConfigError("train.devices: an empty list; give names such as [GPU:0, GPU:1], or auto")
    for name in names:
        kind, _, number = name.partition(":")
        if kind not in ("GPU", "CPU") or not number.isdigit():
            raise ConfigError(f"train.devices: {name!r} is not a device; write GPU:0 or CPU:0")
        if kind == "GPU" and int(number) >= gpus:
            raise ConfigError(f"train.devices: {name} is not there; this machine has {gpus} GPU{'s' * (gpus != 1)} (see `quartet doctor`)")
    return _logical_cpus(names) if all(name.startswith("CPU") for name in names) else names


def _logical_cpus(names: tuple[str, ...]) -> tuple[str, ...]:
    count = max(int(name.partition(":")[2]) for name in names) + 1
    cpu = tf.config.list_physical_devices("CPU")[0]
    if count > 1 and len(tf.config.get_logical_device_configuration(cpu) or [None]) < count:
        with _not_begun(", ".join(names)):
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return names


@contextmanager
def _not_begun(wanted: object) -> Iterator[None]:
    """Says what to do where TensorFlow refuses other devices, since this process has computed with those that it has."""
    try:
        yield
    except RuntimeError as error:
        raise ConfigError(f"train.devices: {wanted}: TensorFlow has begun with other devices in this process, and cannot change them any "
                          "more; start a new process (in a notebook restart the kernel), or leave train.devices as it was") from error


def determinism(wanted: bool) -> None:
    """Makes TensorFlow's operations deterministic, or as fast as they are without."""
    if wanted:
        tf.config.experimental.enable_op_determinism()
    elif config.is_op_determinism_enabled():
        config.disable_op_determinism()  # there is no public way back


def describe(machine: Machine) -> dict:
    """Devices, precision and processor, for environment.json."""
    details = [
        tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in tf.config.list_physical_devices("GPU")
    ]
    return {
        "devices": list(machine.working),
        **({"mesh": [machine.mesh.data, machine.mesh.model]} if machine.mesh else {}),
        **({"hosts": machine.group.size} if machine.group.size > 1 else {}),
        "gpus": details,
        "precision": machine.precision,
        "xla": machine.xla,
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "notes": list(machine.notes),
    }
