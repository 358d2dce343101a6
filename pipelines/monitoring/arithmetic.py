"""How well a training uses its device: arithmetic of the model's step against what a matrix product reaches here.

The forward pass is counted in the model's graph, and a step counts as three of it (one forward, and two of its size back for the
gradients of weights and of inputs). Augmentation, loss and optimizer are left out: they are a few percent of a network worth
speeding up. The matrix product is timed in the first runs on a machine, and the best is kept in the user's cache folder: a machine that
was once busy with other work does not stay rated slow.
"""

import os
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from pipelines.machine.hardware import keep_measured, measurements, processor_name, read_measured

BACKWARD = 2.0  # of the forward pass: gradients of weights and of inputs
_SECONDS = 0.4  # of timing
_TIMES = 5  # runs that time it
_SIDE = {"CPU": 1024, "GPU": 8192}
_LOOPS = "While", "StatelessWhile", "CudnnRNNV3"
_PRODUCTS = "MatMul", "BatchMatMul", "Conv", "DepthwiseConv", "Einsum"  # with what their types begin


def forward_operations(model: keras.Model, inputs: Any) -> float | None:
    """Multiplications and additions of one forward pass.

    Args:
        inputs: a batch as the model takes it.

    Returns:
        The count over the whole batch; None where the graph has loops (recurrent layers), whose iterations are not counted, or products
        whose size follows from the values (texts in windows).
    """
    specs = tf.nest.map_structure(lambda value: tf.TensorSpec(value.shape, value.dtype), inputs)
    graph = tf.function(lambda value: model(value, training=False), autograph=False).get_concrete_function(specs).graph
    if any(operation.type in _LOOPS or (operation.type.startswith(_PRODUCTS) and not operation.outputs[0].shape.is_fully_defined())
           for operation in graph.get_operations()):
        return None
    options = tf.compat.v1.profiler.ProfileOptionBuilder(tf.compat.v1.profiler.ProfileOptionBuilder.float_operation())
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("ERROR")  # the profiler calls what TensorFlow itself has deprecated
    try:
        counted = tf.compat.v1.profiler.profile(graph, options=options.with_empty_output().build())
    finally:
        logger.setLevel(level)
    return float(counted.total_float_ops) if counted is not None and counted.total_float_ops else None


def matrix_rate(device: str, precision: str, *, cache: Path | None = None) -> float:
    """Operations a second that a square matrix product reaches on a device, counting 2 n^3: the best of up to five measurements, one
    in each of the first calls on a machine.

    Args:
        device: CPU:0, GPU:1, ...
        precision: float32, bfloat16 or float16.
        cache: file; default: in the user's cache folder.
    """
    file = cache or measurements("matrix-product")
    key = f"{_name(device)}, {precision}, TensorFlow {tf.__version__}"
    rate, times = _known(file, key)
    if times < _TIMES:
        rate, times = max(rate, _measure(device, precision)), times + 1
        keep_measured(file, key, {"rate": rate, "times": times})
    return rate


def arithmetic(model: keras.Model, inputs: Any, examples: int, examples_per_second: float, machine: Any) -> dict[str, Any] | None:
    """Operations an example and a second, and their share of what the devices reach in a matrix product.

    Args:
        inputs: a batch of `examples` as the model takes it.
        examples_per_second: in training, waiting for input included.
        machine: `devices.Machine`.

    Returns:
        operations_per_example (forward and back), rate and reachable (operations a second over all devices), share; None where the
        model's arithmetic cannot be counted.
    """
    try:
        forward = forward_operations(model, inputs)
        if forward is None or not examples_per_second:
            return None
        reachable = sum(matrix_rate(device, machine.precision) for device in machine.working)
    except (tf.errors.OpError, ValueError, TypeError, NotImplementedError):
        return None
    each = forward * (1.0 + BACKWARD) / examples
    rate = each * examples_per_second
    return {"operations_per_example": each, "rate": rate, "reachable": reachable, "share": rate / reachable}


def _measure(device: str, precision: str) -> float:
    side = _SIDE[device.partition(":")[0]]
    with tf.device(device):
        matrix = tf.random.stateless_uniform((side, side), (1, 2))
        matrix = tf.cast(matrix, precision)
        product = tf.function(lambda a: tf.reduce_sum(tf.cast(tf.linalg.matmul(a, a)[:1], tf.float32)), autograph=False)
        product(matrix).numpy()
        best, until = float("inf"), time.perf_counter() + _SECONDS
        while time.perf_counter() < until:
            began = time.perf_counter()
            product(matrix).numpy()
            best = min(best, time.perf_counter() - began)
    return 2.0 * side ** 3 / best


def _name(device: str) -> str:
    """The machine of the cached figure: the processor with the cores and threads that this process may use, or the GPU."""
    kind, _, number = device.partition(":")
    if kind == "GPU":
        gpu = tf.config.list_physical_devices("GPU")[int(number)]
        return str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = tf.config.threading.get_intra_op_parallelism_threads() or os.environ.get("TF_NUM_INTRAOP_THREADS")
    return f"{processor_name()}, {cores} cores" + (f", {threads} threads" if threads else "")


def _known(file: Path, key: str) -> tuple[float, int]:
    """(the best so far, how often it was measured)."""
    entry: Any = read_measured(file).get(key)
    try:
        return float(entry["rate"]), int(entry["times"])
    except (KeyError, TypeError, ValueError):
        return 0.0, 0
