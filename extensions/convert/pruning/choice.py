"""Which channels go: those whose loss costs least by what they save, until the network has so many operations.

What a channel is worth is the first-order change of the loss if it were zero where others read it, squared and summed over batches of
training examples (Molchanov et al. 2019, "Importance Estimation for Neural Network Pruning", arXiv:1906.10771, with the gates in front of
the layers that read a channel): for those weights, the sum of weight x gradient. No gate is built for it.
"""

from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from extensions.convert.pruning.channels import FIXED, Channels, Use

LEFT = 0.125  # share of a layer's channels that stays at least, and one
PART = 0.02  # of the channels left, that go at a time; then what each would save is counted anew


def importance(channels: Channels, loss: Callable[[object, object], tf.Tensor], batches: Iterable[tuple[object, object]]) -> np.ndarray:
    """What each channel is worth, by its number, [count] float64.

    Args:
        loss: of a batch of (inputs, targets), a scalar.
        batches: from train.
    """
    readers = [use for use in channels.uses if _reads(use)]
    kernels = [use.layer._output_dense.kernel if use.heads else use.layer.kernel for use in readers]

    def gradients(inputs: object, targets: object) -> list[tf.Tensor]:
        values = [kernel.value for kernel in kernels]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            value = loss(inputs, targets)
        found = tape.gradient(value, values, unconnected_gradients="zero")
        return [_by_channel(use, kernel * gradient) for use, kernel, gradient in zip(readers, values, found)]

    traced = tf.function(gradients, autograph=False, reduce_retracing=True)
    worth = np.zeros(channels.count)
    for inputs, targets in batches:
        change = np.zeros(channels.count)
        for use, each in zip(readers, traced(inputs, targets)):
            np.add.at(change, use.out if use.heads else use.into, np.asarray(each, np.float64))
        worth += change * change
    return worth


def _reads(use: Use) -> bool:
    """Whether what a layer makes of a channel is a sum over channels: only there its loss can be told from its weights."""
    return use.heads or (type(use.layer).__name__ in ("Conv1D", "Conv2D", "Dense") and bool((use.into != FIXED).any()))


def _by_channel(use: Use, product: tf.Tensor) -> tf.Tensor:
    axis = 0 if use.heads else product.shape.rank - 2
    return tf.reduce_sum(product, [one for one in range(product.shape.rank) if one != axis])


def chosen(channels: Channels, prunable: list[str], worth: np.ndarray, share: float) -> np.ndarray:
    """Which channels stay, [count] bool: those of at most `share` of the multiply-adds.

    The channel with the least worth for each operation that it costs goes first; layers keep LEFT of theirs at least.
    """
    alive = np.ones(channels.count, bool)
    whole = total(channels, alive)
    layers = {name: np.unique(channels.by_layer[name][channels.by_layer[name] != FIXED]) for name in prunable}
    least = {name: max(1, int(np.ceil(LEFT * len(numbers)))) for name, numbers in layers.items()}
    while total(channels, alive) > share * whole:
        free = {name: numbers[alive[numbers]] for name, numbers in layers.items()}
        may = np.concatenate([numbers for name, numbers in free.items() if len(numbers) > least[name]] or [np.zeros(0, np.int64)])
        if not len(may):
            break
        order = may[np.argsort(worth[may] / np.maximum(_costs(channels, alive)[may], 1.0), kind="stable")]
        going = max(1, int(PART * sum(map(len, free.values()))))
        for number in order:
            name = next(name for name, numbers in free.items() if number in numbers)
            if int(alive[layers[name]].sum()) > least[name]:
                alive[number] = False
                going -= 1
            if not going or total(channels, alive) <= share * whole:
                break
    return alive


def total(channels: Channels, alive: np.ndarray) -> float:
    """Multiply-adds of one example."""
    return sum(use.operations(alive) for use in channels.uses)


def _costs(channels: Channels, alive: np.ndarray) -> np.ndarray:
    """Multiply-adds that each channel costs now."""
    costs = np.zeros(channels.count)
    for use in channels.uses:
        operations = use.operations(alive)
        for numbers in ([use.out] if use.heads or use.into is use.out else [use.into, use.out]):
            left = numbers[alive[numbers]]
            np.add.at(costs, left, operations / max(1, len(left)))
    return costs
