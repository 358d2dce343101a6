"""What TensorFlow sees and can do here, as one line of JSON: `python -m pipelines.machine.probe`, which the doctor runs."""

import json
import subprocess
import sys
import time
from typing import Any

from pipelines.machine import memory


def probe() -> dict[str, Any]:
    """Version, build, GPUs (each tried with a convolution), and the gain of bfloat16 on the CPU."""
    began = time.perf_counter()
    try:
        import tensorflow as tf
    except BaseException as error:  # whatever it is, it is the diagnosis
        return {"error": f"{type(error).__name__}: {error}"}
    build = {key: value for key, value in tf.sysconfig.get_build_info().items() if isinstance(value, (str, bool, list))}
    result: dict[str, Any] = {"version": tf.__version__, "build": build}
    devices = tf.config.list_physical_devices("GPU")
    for gpu in devices:
        tf.config.experimental.set_memory_growth(gpu, True)
    result["gpus"] = [_gpu(number, gpu) for number, gpu in enumerate(devices)]
    result["seconds"] = time.perf_counter() - began
    try:
        from pipelines.machine.precision import convolution_gain

        result["bfloat16_gain"] = convolution_gain("bfloat16")
    except Exception as error:
        result["bfloat16_error"] = f"{type(error).__name__}: {error}"
    return result


def _gpu(number: int, gpu: Any) -> dict[str, Any]:
    import tensorflow as tf

    details = tf.config.experimental.get_device_details(gpu)
    result: dict[str, Any] = {
        "name": f"GPU:{number}", "device_name": details.get("device_name"), "capability": details.get("compute_capability")}
    try:
        free, total = memory.gpu_memory(number)
        result |= {"free": free, "total": total}
    except (OSError, ValueError, subprocess.SubprocessError):
        pass
    try:
        with tf.device(f"GPU:{number}"):
            images, kernel = tf.ones((2, 16, 16, 8)), tf.ones((3, 3, 8, 8))
            total_sum = float(tf.reduce_sum(tf.nn.conv2d(images, kernel, 1, "VALID")))
        if total_sum != 2 * 14 * 14 * 8 * 72.0:
            result["error"] = f"wrong result: {total_sum}"
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
    return result


if __name__ == "__main__":
    print(json.dumps(probe()))
    sys.stdout.flush()
