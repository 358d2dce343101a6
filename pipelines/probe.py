"""What TensorFlow sees and can do here, as one line of JSON: `python -m pipelines.probe`. The doctor runs it in a process of its own."""

import json
import sys
import time
from typing import Any


def probe() -> dict[str, Any]:
    """Version, build, GPUs (each tried with a convolution), and how bfloat16 does on the CPU."""
    began = time.perf_counter()
    try:
        import tensorflow as tf
    except BaseException as error:  # whatever it is, it is the diagnosis
        return {"error": f"{type(error).__name__}: {error}"}
    build = {key: value for key, value in tf.sysconfig.get_build_info().items() if isinstance(value, (str, bool))}
    found: dict[str, Any] = {"version": tf.__version__, "build": build}
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    found["gpus"] = [_gpu(number, gpu) for number, gpu in enumerate(gpus)]
    found["seconds"] = time.perf_counter() - began
    try:
        from pipelines.training.devices import convolution_gain

        found["bfloat16_gain"] = convolution_gain("bfloat16")
    except Exception as error:
        found["bfloat16_error"] = f"{type(error).__name__}: {error}"
    return found


def _gpu(number: int, gpu: Any) -> dict[str, Any]:
    import tensorflow as tf

    details = tf.config.experimental.get_device_details(gpu)
    found: dict[str, Any] = {
        "name": f"GPU:{number}", "device_name": details.get("device_name"), "capability": details.get("compute_capability")}
    try:
        free, total = _memory(number)
        found |= {"free": free, "total": total}
    except (OSError, ValueError):
        pass
    try:
        with tf.device(f"GPU:{number}"):
            images, kernel = tf.ones((2, 16, 16, 8)), tf.ones((3, 3, 8, 8))
            total_sum = float(tf.reduce_sum(tf.nn.conv2d(images, kernel, 1, "VALID")))
        if total_sum != 2 * 14 * 14 * 8 * 72.0:
            found["error"] = f"wrong result: {total_sum}"
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def _memory(number: int) -> tuple[int, int]:
    """(free, total) bytes, as nvidia-smi has them."""
    import subprocess

    done = subprocess.run(["nvidia-smi", "--query-gpu=memory.free,memory.total", "--format=csv,noheader,nounits", f"--id={number}"],
                          capture_output=True, text=True, timeout=30, check=False)
    free, total = (int(value) << 20 for value in done.stdout.strip().split(","))
    return free, total


if __name__ == "__main__":
    print(json.dumps(probe()))
    sys.stdout.flush()
