"""Which GPUs each worker of a search has. Imports no TensorFlow."""

import os
import subprocess

from pipelines.config.schema import Experiment
from pipelines.machine.startup import has_nvidia


def worker_devices(worker: int, workers: int, experiment: Experiment) -> dict[str, str]:
    """Environment of a worker's trials: as many GPUs as a training takes, shared with others only where there are too few.

    Devices that the experiment names are left alone: a process that sees fewer GPUs numbers them anew, and the names would mean others.

    Args:
        worker: from 0.
        workers: on this machine; a single one has them all.
    """
    wanted = experiment.train.devices
    if workers == 1 or wanted == "cpu" or isinstance(wanted, list) or not has_nvidia():
        return {}
    there = visible_gpus()
    return {"CUDA_VISIBLE_DEVICES": ",".join(share(there, worker, wanted))} if there else {}


def share(there: list[str], worker: int, wanted: str | int) -> list[str]:
    """Of the GPUs that are there, those of a worker: as many as `wanted` says, one for auto."""
    each = wanted if isinstance(wanted, int) else 1
    return [there[(worker * each + place) % len(there)] for place in range(min(each, len(there)))]


def visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES may name here."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    try:
        listing = subprocess.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, timeout=20,
                                 check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listing.stdout.split() if listing.returncode == 0 else []
