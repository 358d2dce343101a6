"""A mesh of devices: parts of the batch along one axis, parts of the weights along the other. TensorFlow's DTensor divides the work.

What a tensor means does not depend on where its parts lie; layouts decide about memory and messages alone.
"""

import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

DATA, MODEL = "data", "model"
Axes = tuple[str | None, ...]  # of a tensor: the axis of the mesh along which each of its own is divided; None: not


@dataclass(frozen=True)
class Mesh:
    """data x model devices of this host, in the order of their names: those of one part of the batch stand beside one another."""

    devices: tuple[str, ...]
    data: int
    model: int

    @cached_property
    def _devices(self) -> Any:
        return dtensor.create_mesh([(DATA, self.data), (MODEL, self.model)], devices=list(self.devices))

    def size(self, axis: str | None) -> int:
        """Devices along an axis; 1 for None."""
        return {None: 1, DATA: self.data, MODEL: self.model}[axis]

    def layout(self, axes: Axes) -> Any:
        """DTensor's layout. An axis along which there is one device divides nothing."""
        return dtensor.Layout([dtensor.UNSHARDED if self.size(axis) == 1 else axis for axis in axes], self._devices)

    def place(self, value: Any, axes: Axes) -> tf.Tensor:
        """A value of the host on the mesh; each device is sent its own part."""
        return dtensor.pack([value[self._part(value.shape, axes, number)] for number in range(len(self.devices))], self.layout(axes))

    def whole(self, value: tf.Tensor, axes: Axes) -> np.ndarray:
        """What `place` was given; eager. No device holds more than its part."""
        found = np.empty(value.shape, value.dtype.as_numpy_dtype)
        for number, part in enumerate(dtensor.unpack(value)):
            found[self._part(value.shape, axes, number)] = part.numpy()
        return found

    def relaid(self, value: tf.Tensor, axes: Axes, *, made: Axes | None = None) -> tf.Tensor:
        """The same in another layout; in graph or eager.

        Args:
            made: the layout in which the operation before makes it, where that cannot make it in the other: DTensor would ask it to.
        """
        if made is not None and made != axes:
            value = dtensor.relayout(value, self.layout(made))
        return dtensor.relayout(value, self.layout(axes))

    def undivided(self, value: tf.Tensor, axis: Any) -> tf.Tensor:
        """Not divided but along its first axis, as it comes, where that is another than `axis`; in graph."""
        first = dtensor.UNSHARDED if int(tf.get_static_value(axis)) % value.shape.rank == 0 else dtensor.MATCH
        return dtensor.relayout(value, dtensor.Layout([first, *[dtensor.UNSHARDED] * (value.shape.rank - 1)], self._devices))

    def _part(self, shape: Sequence[int], axes: Axes, number: int) -> tuple[slice, ...]:
        """Which part of a tensor the device of this number holds."""
        place = dict(zip((DATA, MODEL), divmod(number, self.model)))
        sizes = [int(size) // self.size(axis) for size, axis in zip(shape, axes)]
        return tuple(slice(None) if axis is None else slice(place[axis] * size, (place[axis] + 1) * size)
                     for size, axis in zip(sizes, axes))


_TRACED = contextvars.ContextVar[Mesh | None]("traced", default=None)
ALONE = Mesh((), 1, 1)


@contextmanager
def traced_on(mesh: Mesh) -> Iterator[None]:
    """While a model is traced within, its layers may say how their tensors are divided (`divided_along`), and some of TensorFlow's
    functions take care of what DTensor gets wrong. On ALONE they are computed as on a mesh, and nothing is divided."""
    _install()
    token = _TRACED.set(mesh)
    try:
        yield
    finally:
        _TRACED.reset(token)


@functools.cache
def _install() -> None:
    """From now on these functions are ours within `traced_on`, and their own outside."""
    tf.Tensor.__getitem__ = _chosen(_indexed, tf.Tensor.__getitem__)
    tf.concat, tf.split = _chosen(_concat, tf.concat), _chosen(_split, tf.split)
    for name in ("convolution", "conv2d", "max_pool"):
        setattr(tf.nn, name, _chosen(_of_images, getattr(tf.nn, name)))


def _chosen(ours: Callable, theirs: Callable) -> Callable:
    @functools.wraps(theirs)
    def function(*arguments: Any, **options: Any) -> Any:
        mesh = _TRACED.get()
        return theirs(*arguments, **options) if mesh in (None, ALONE) else ours(mesh, theirs, *arguments, **options)

    return function


def _concat(mesh: Mesh, plainly: Callable, values: Any, axis: Any, name: str = "concat") -> tf.Tensor:
    """DTensor 2.21 brings divided parts together in a wrong order, and divides the result where what follows asks for it."""
    return mesh.undivided(plainly([mesh.undivided(value, axis) for value in values], axis, name), axis)


def _split(mesh: Mesh, plainly: Callable, value: tf.Tensor, num_or_size_splits: Any, axis: Any = 0, **options: Any) -> list[tf.Tensor]:
    """DTensor 2.21 splits no divided axis, and ends the process at some."""
    parts = plainly(mesh.undivided(value, axis), num_or_size_splits, axis, **options)
    return [mesh.undivided(part, axis) for part in parts]


def _of_images(mesh: Mesh, plainly: Callable, images: tf.Tensor, *arguments: Any, **options: Any) -> tf.Tensor:
    """DTensor 2.21 divides these by examples alone, and is asked for more by a dense layer behind them."""
    return mesh.undivided(plainly(mesh.undivided(images, -1), *arguments, **options), -1)


def _indexed(mesh: Mesh, plainly: Callable, tensor: tf.Tensor, wanted: Any) -> tf.Tensor:
    """tensor[wanted], with new axes made by themselves: DTensor 2.21 ends the process at a slice of a divided tensor that makes some, such
    as mask[:, None]."""
    items = wanted if isinstance(wanted, tuple) else (wanted,)
    if not any(item is None for item in items):
        return plainly(tensor, wanted)
    rest = tuple(item for item in items if item is not None)
    whole = all(item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in rest)
    value, place = tensor if whole else plainly(tensor, rest), 0
    for item in items:
        if item is None:
            value = tf.expand_dims(value, place)
        if item is Ellipsis:
            place += tensor.shape.rank - (len(rest) - 1)
        elif item is None or isinstance(item, slice):
            place += 1  # a number leaves its axis out
    return value


def on_mesh() -> bool:
    """Whether the current trace is for a mesh, where DTensor lacks some of TensorFlow's operations."""
    return _TRACED.get() is not None


def divided_along(axis: int, *values: tf.Tensor) -> Sequence[tf.Tensor]:
    """Tensors [batch, ...] divided along one of their axes over the devices that share a model, where there are such and it divides: a
    layer calls it with what can be worked on in parts, such as the heads of attention. As they are, without a mesh."""
    mesh = _TRACED.get()
    axis %= values[0].shape.rank
    if mesh in (None, ALONE) or any((value.shape[axis] or 1) % mesh.model for value in values):
        return values

    def axes(*parts: int) -> Axes:
        return tuple(DATA if at == 0 else MODEL if at in parts else None for at in range(values[0].shape.rank))

    return [mesh.relaid(value, axes(axis), made=axes()) for value in values]
