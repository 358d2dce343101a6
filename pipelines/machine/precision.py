"""The fastest precision here: for GPUs by their capability, for CPUs by a timed convolution. Imports TensorFlow when asked."""

import platform
import time
from collections.abc import Callable
from typing import Any

from pipelines.machine.hardware import BFLOAT16, instructions, keep_measured, measurements, processor_name, read_measured

FASTER = 1.15  # gain from which bfloat16 is worth its rounding on a CPU
LOSS = 3.0  # times as long as float32: no other work on the machine explains that


def fastest(on_gpu: bool, gpus: list[Any]) -> tuple[str, str]:
    """The fastest precision that is safe here, and why."""
    if on_gpu:
        import tensorflow as tf

        capability = min(tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0)) for gpu in gpus)
        precision = of_capability(capability)
        cores = "no" if precision == "float32" else precision
        return precision, f"the GPU has {cores} tensor cores (compute capability {'.'.join(map(str, capability))})"
    if platform.machine() not in ("x86_64", "AMD64", "aarch64", "arm64"):
        return "float32", f"no bfloat16 measured on {platform.machine()}"
    known = instructions()
    if known and not known & BFLOAT16:
        return "float32", "the processor has no instructions for bfloat16"
    gain = _kept_gain()
    return "bfloat16" if gain >= FASTER else "float32", f"a convolution is {speed(gain, 'bfloat16')} here"


def of_capability(capability: tuple[int, int]) -> str:
    """The fastest precision that is safe on a GPU of a compute capability."""
    return "bfloat16" if capability >= (8, 0) else "float16" if capability >= (7, 0) else "float32"


def _kept_gain() -> float:
    """What a convolution gains by bfloat16, measured once for each processor and version of TensorFlow."""
    import tensorflow as tf

    file, key = measurements("bfloat16"), f"{processor_name()}, TensorFlow {tf.__version__}"
    gain = read_measured(file).get(key)
    if not isinstance(gain, (int, float)):
        gain = convolution_gain("bfloat16")
        keep_measured(file, key, gain)
    return float(gain)


def speed(gain: float, precision: str) -> str:
    """How something runs in a precision that is `gain` times as fast as float32, in words."""
    if 0.95 < gain < 1.05:
        return f"as fast in {precision} as in float32"
    if gain > 1.0:
        return f"{gain:.1f} x as fast in {precision} as in float32"
    return f"{1.0 / gain:.1f} x slower in {precision} than in float32"


def convolution_gain(dtype: str) -> float:
    """How many times as fast as float32 a 3 x 3 convolution with its gradients runs in `dtype` on the CPU.

    The two take turns and the best of each counts, so that other work on the machine does not decide; a clear loss ends it.
    """
    import tensorflow as tf

    def convolution(kind: str) -> Callable[[], Any]:
        images, kernel = tf.ones((64, 16, 16, 64), kind), tf.ones((3, 3, 64, 64), kind)

        @tf.function(autograph=False)
        def run() -> Any:
            with tf.GradientTape() as tape:
                tape.watch([images, kernel])
                out = tf.nn.conv2d(images, kernel, 1, "SAME")
            gradients = tape.gradient(out, [images, kernel], tf.ones_like(out))
            return tf.add_n([tf.reduce_sum(gradient[:1]) for gradient in gradients])

        run()
        return run

    with tf.device("CPU:0"):
        runs = {kind: convolution(kind) for kind in ("float32", dtype)}
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(8):
            for kind, run in runs.items():
                start = time.perf_counter()
                run()
                best[kind] = min(best[kind], time.perf_counter() - start)
            if best[dtype] > LOSS * best["float32"]:
                break
    return best["float32"] / best[dtype]
