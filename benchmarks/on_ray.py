"""What Ray costs and gains on this machine: the restart after a killed worker, a search and predictions with two workers against one.

python -m benchmarks.on_ray restart
python -m benchmarks.on_ray search          # 8 equal trials: about 4 minutes on 2 quiet cores
python -m benchmarks.on_ray predict         # 6,000 photos: about 3 minutes on 2 quiet cores

Searches and predictions are given to a cluster of two nodes, each bound to a core of its own: two workers have twice what one has. Seconds
are those of the whole command, start and report included, and those of the work: of a search from the first trial's start to the last
one's end, of predictions by the parts of the output after the first of each worker.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.product import machine

RUN = ["vision/digits", "train.precision=float32", "train.devices=cpu", "monitor.tensorboard=false", "evaluate.baseline=false"]


def quartet(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "quartet", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONUNBUFFERED": "1"})


def finished(*arguments: str) -> tuple[float, str]:
    """(wall seconds, what it said)."""
    began = time.monotonic()
    process = quartet(*arguments)
    _, said = process.communicate()
    if process.returncode:
        raise SystemExit(said)
    return time.monotonic() - began, said


def restart(place: Path) -> None:
    """From the SIGKILL of the second worker to the first epoch after it."""
    training = quartet("train", *RUN, "train.epochs=200", "train.checkpoint_seconds=0.5", "--runs", str(place), "--ray", "--workers", "2")
    assert training.stderr
    killed: float | None = None
    for line in training.stderr:
        if killed is None and re.search(r"epoch +3/200", line):
            workers = [one for one in psutil.Process(training.pid).children(recursive=True) if "quartet" in one.cmdline()]
            workers[-1].kill()
            killed = time.monotonic()
        elif killed is not None and ("is lost" in line or "starting again" in line or "training on" in line or "epoch" in line):
            print(f"{time.monotonic() - killed:5.1f} s  {line.strip()[:100]}", flush=True)
            if "epoch" in line and "resum" not in line:
                break
    training.terminate()
    for _ in training.stderr:
        pass
    training.wait()


@contextlib.contextmanager
def two_nodes() -> Iterator[str]:
    """The address of a cluster of two nodes, each of one core; its head has none."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    from ray.cluster_utils import Cluster

    cores, small = os.sched_getaffinity(0), {"object_store_memory": 256 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    try:
        for core in sorted(cores)[:2]:
            os.sched_setaffinity(0, {core})  # which the node and all that it starts inherit
            cluster.add_node(num_cpus=1, **small)
        os.sched_setaffinity(0, cores)
        yield cluster.address
    finally:
        cluster.shutdown()


def compared(what: str, whole: list[float], work: list[float]) -> None:
    """Prints what two workers gain; seconds of one worker and of two."""
    print(f"{what}, one worker against two: {work[0]:.1f} against {work[1]:.1f} s, {work[0] / work[1]:.2f} x; the whole commands "
          f"{whole[0]:.1f} against {whole[1]:.1f} s, {whole[0] / whole[1]:.2f} x", flush=True)


def search(place: Path, epochs: int) -> None:
    """Eight trials of a grid."""
    given = [*RUN, f"train.epochs={epochs}", "tune.seeds=0", "tune.algorithm=grid", "tune.trials=8",
             "tune.space={train.seed: {choice: [1, 2, 3, 4, 5, 6, 7, 8]}}", "--runs", str(place)]
    whole, work = [], []
    with two_nodes() as address:
        for workers in (1, 2):
            whole.append(finished("tune", *given, "--name", f"w{workers}", "--ray", address, "--workers", str(workers))[0])
            journal = place / "vision" / "digits" / f"w{workers}" / "journal.jsonl"
            events = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
            work.append(events[-1]["elapsed"] - next(event["elapsed"] for event in events if event["event"] == "start"))
    compared(f"search of 8 trials of {epochs} epochs", whole, work)


def predict(place: Path, images: int) -> None:
    """Photos of 512 px, so that there is something to decode: fifty, under many names."""
    import numpy as np
    from PIL import Image

    folder, draw = place / "images", np.random.default_rng(0)
    folder.mkdir()
    for number in range(images):
        file = folder / f"{number:06d}.jpg"
        if number < 50:
            Image.fromarray(draw.integers(0, 255, (64, 64, 3), np.uint8)).resize((512, 512), Image.Resampling.BICUBIC).save(file)
        else:
            os.link(folder / f"{number % 50:06d}.jpg", file)
    finished("train", *RUN, "train.epochs=2", "--runs", str(place), "--name", "model")
    whole, work = [], []
    with two_nodes() as address:
        for workers in (1, 2):
            out = place / f"out{workers}"
            whole.append(finished("predict", "digits/model", str(folder), "--runs", str(place), "--output", str(out), "--ray", address,
                                  "--workers", str(workers))[0])
            written = sorted(part.stat().st_mtime for part in out.glob("part-*"))
            work.append((written[-1] - written[workers - 1]) * len(written) / (len(written) - workers))
    compared(f"predictions for {images:,} photos", whole, work)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["restart", "search", "predict"])
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--epochs", type=int, default=60, help="of a trial")
    asked = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as made:
        if asked.what == "predict":
            predict(Path(made), asked.images)
        elif asked.what == "search":
            search(Path(made), asked.epochs)
        else:
            restart(Path(made))
