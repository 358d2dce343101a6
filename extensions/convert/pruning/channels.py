"""Which channels of a network stand or fall together, after "DepGraph" (Fang et al. 2023, arXiv:2301.12900).

Every layer that makes channels numbers its own. Layers that keep channels as they are hand the numbers on, an addition makes those of its
inputs one, and what is not known to do either binds the channels that it reads: they stay. Heads of attention are channels of their
layer. So each number is one filter, unit or head that can be taken out of every weight that knows it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import keras
import numpy as np

FIXED = 0  # the number of all channels that stay
_LAYERS = keras.layers
_KEEPS = (_LAYERS.Activation, _LAYERS.ReLU, _LAYERS.LeakyReLU, _LAYERS.Dropout, _LAYERS.SpatialDropout1D, _LAYERS.SpatialDropout2D,
          _LAYERS.MaxPooling1D, _LAYERS.MaxPooling2D, _LAYERS.AveragePooling1D, _LAYERS.AveragePooling2D, _LAYERS.GlobalMaxPooling1D,
          _LAYERS.GlobalMaxPooling2D, _LAYERS.GlobalAveragePooling1D, _LAYERS.GlobalAveragePooling2D, _LAYERS.ZeroPadding1D,
          _LAYERS.ZeroPadding2D)
_MIXES = (_LAYERS.Conv1D, _LAYERS.Conv2D, _LAYERS.Dense)
_DEPTHWISE = (_LAYERS.DepthwiseConv1D, _LAYERS.DepthwiseConv2D)


@dataclass
class Use:
    """One layer, and the channels that its weights know.

    Attributes:
        into: numbers of the channels that it reads, and `out` of those that it writes; as they were numbered (`Channels.of`).
        places: outputs of each channel, of one example.
        heads: it is attention, and `out` are its heads.
    """

    layer: Any
    into: np.ndarray
    out: np.ndarray
    places: int
    heads: bool = False

    def axes(self) -> list[tuple[keras.Variable, int, np.ndarray]]:
        """(weight, axis, numbers along it) of all that the layer holds."""
        layer = self.layer
        if self.heads:
            dense = [layer._query_dense, layer._key_dense, layer._value_dense]
            found = [(one.kernel, 1, self.out) for one in dense] + [(layer._output_dense.kernel, 0, self.out)]
            return found + [(one.bias, 0, self.out) for one in dense if one.bias is not None]
        if isinstance(layer, _LAYERS.BatchNormalization):
            return [(weight, 0, self.out) for weight in layer.weights]
        last = layer.kernel.ndim - 1
        if isinstance(layer, _DEPTHWISE):
            kernel = [(layer.kernel, last - 1, self.out)]
        else:
            kernel = [(layer.kernel, last - 1, self.into), (layer.kernel, last, self.out)]
        return kernel + ([(layer.bias, 0, self.out)] if layer.use_bias else [])

    def operations(self, alive: np.ndarray) -> float:
        """Multiply-adds of one example, given which numbers are left."""
        if isinstance(self.layer, _LAYERS.BatchNormalization):
            return 0.0
        out = float(alive[self.out].sum())
        if self.heads:
            layer = self.layer
            each, width = layer._key_dim, layer._query_dense.kernel.shape[0]
            return out * each * (4.0 * width * self.places + 2.0 * self.places ** 2)
        kernel = self.layer.kernel.shape
        if isinstance(self.layer, _DEPTHWISE):
            return out * self.places * prod(kernel[:-2])
        return out * float(alive[self.into].sum()) * self.places * prod(kernel[:-2])


@dataclass
class Channels:
    """The channels of a network.

    Attributes:
        uses: every layer that has weights of channels, in the order of the way through the network.
        by_layer: of each layer that makes channels, their numbers.
    """

    uses: list[Use] = field(default_factory=list)
    by_layer: dict[str, np.ndarray] = field(default_factory=dict)
    _above: list[int] = field(default_factory=lambda: [FIXED])

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """The numbers by which channels that are tied to each other are one."""
        return np.array([self._root(int(number)) for number in numbers], np.int64)

    @property
    def count(self) -> int:
        return len(self._above)

    def new(self, name: str, count: int) -> np.ndarray:
        numbers = np.arange(len(self._above), len(self._above) + count)
        self._above.extend(int(number) for number in numbers)
        self.by_layer[name] = numbers
        return numbers

    def tie(self, *several: np.ndarray) -> np.ndarray:
        """Makes channels at the same place one; all fixed where they are of different number."""
        if len({len(one) for one in several}) > 1:
            self.bind(*several)
            return np.full(max(map(len, several)), FIXED)
        for together in zip(*several):
            roots = sorted(self._root(int(one)) for one in together)
            for root in roots[1:]:
                self._above[root] = roots[0]  # FIXED is the least
        return several[0]

    def bind(self, *several: np.ndarray) -> None:
        """Makes channels fixed."""
        for numbers in several:
            for number in numbers:
                self._above[self._root(int(number))] = FIXED

    def _root(self, number: int) -> int:
        while self._above[number] != number:
            number = self._above[number]
        return number


def channels_of(model: keras.Model, prunable: list[str], length: int = 1) -> Channels:
    """The channels of a functional model, of which those of the layers `prunable` may go.

    Args:
        length: steps of an example, for layers whose output has a free length.
    """
    channels = Channels()
    _walk(model, channels, length)
    made = {number for name in prunable for number in channels.by_layer.get(name, ())}
    for name, numbers in channels.by_layer.items():
        if name not in prunable:
            tied = {int(root) for root in channels.of(np.array(sorted(made), np.int64))} if made else set()
            channels.bind(np.array([number for number in numbers if channels._root(int(number)) not in tied], np.int64))
    for use in channels.uses:
        use.into, use.out = channels.of(use.into), channels.of(use.out)
    channels.by_layer = {name: channels.of(numbers) for name, numbers in channels.by_layer.items()}
    return channels


def _walk(model: Any, channels: Channels, length: int) -> None:
    """Follows a network from its inputs, whose channels are fixed, to its outputs, whose channels are, too."""
    known: dict[int, np.ndarray] = {}
    for depth in sorted(model._nodes_by_depth, reverse=True):
        for node in model._nodes_by_depth[depth]:
            inputs = [known.setdefault(id(tensor), _fixed(tensor)) for tensor in node.input_tensors]
            if node.is_input:
                continue
            outputs = keras.tree.flatten(node.output_tensors if hasattr(node, "output_tensors") else node.outputs)
            numbers = _through(node.operation, inputs, list(node.input_tensors), outputs, channels, length)
            for tensor in outputs:
                known[id(tensor)] = numbers if len(numbers) == _width(tensor) else _fixed(tensor)
    for tensor in keras.tree.flatten(model.outputs):
        channels.bind(known[id(tensor)])


def _through(layer: Any, inputs: list[np.ndarray], given: list[Any], outputs: list[Any], channels: Channels, length: int) -> np.ndarray:
    """Numbers of a layer's output."""
    fixed, places = _fixed(outputs[0]), prod(each or length for each in outputs[0].shape[1:-1])
    if isinstance(layer, _MIXES) and not isinstance(layer, _DEPTHWISE) and getattr(layer, "groups", 1) == 1:
        out = channels.new(layer.name, len(fixed))
        channels.uses.append(Use(layer, inputs[0], out, places))
        return out
    if (isinstance(layer, _DEPTHWISE) and layer.depth_multiplier == 1) or isinstance(layer, _LAYERS.BatchNormalization):
        channels.uses.append(Use(layer, inputs[0], inputs[0], places))
        return inputs[0]
    if isinstance(layer, _KEEPS) or getattr(layer, "keeps_channels", False):
        return inputs[0]
    if isinstance(layer, _LAYERS.Flatten):
        return np.tile(inputs[0], len(fixed) // max(1, len(inputs[0]))) if len(fixed) % max(1, len(inputs[0])) == 0 else fixed
    if isinstance(layer, _LAYERS.Add):
        return channels.tie(*inputs)
    if isinstance(layer, _LAYERS.Concatenate) and layer.axis in (-1, len(outputs[0].shape) - 1):
        return np.concatenate(inputs)
    channels.bind(*inputs)
    if isinstance(layer, _LAYERS.MultiHeadAttention):
        channels.uses.append(Use(layer, inputs[0], channels.new(layer.name, layer.num_heads), places, heads=True))
    elif isinstance(layer, keras.Model):
        _walk(layer, channels, length)
    return fixed


def _width(tensor: Any) -> int:
    return int(tensor.shape[-1] or 1) if len(tensor.shape) > 1 else 1


def _fixed(tensor: Any) -> np.ndarray:
    return np.full(_width(tensor), FIXED)


def smaller(channels: Channels, alive: np.ndarray) -> Iterator[tuple[keras.Variable, np.ndarray]]:
    """(weight, its values without the channels that are gone) of every weight that knows channels."""
    values: dict[int, np.ndarray] = {}
    weights: dict[int, keras.Variable] = {}
    for use in channels.uses:
        for weight, axis, numbers in use.axes():
            weights[id(weight)] = weight
            value = values.get(id(weight))
            value = np.asarray(weight.value) if value is None else value
            values[id(weight)] = np.compress(alive[numbers], value, axis=axis)
    return ((weights[key], value) for key, value in values.items())


def counts(channels: Channels, prunable: list[str], alive: np.ndarray) -> Mapping[str, int]:
    """Channels left of each layer."""
    return {name: int(alive[channels.by_layer[name]].sum()) for name in prunable}
