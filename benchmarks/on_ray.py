"""What Ray costs and gains on this machine: the restart after a killed worker, a search and predictions with two workers against one.

python -m benchmarks.on_ray restart
python -m benchmarks.on_ray search          # trials of one core
python -m benchmarks.on_ray predict --images 4000

Each command starts a Ray of its own (`--ray` without an address), as a person would. Seconds are those of the whole command, start
and report included; two workers can gain only where two cores are free.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

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


def search(place: Path) -> None:
    """Eight trials of a grid."""
    given = [*RUN, "train.epochs=20", "tune.algorithm=grid", "tune.space={train.seed: {choice: [1, 2, 3, 4, 5, 6, 7, 8]}}", "--runs",
             str(place)]
    for workers in (1, 2):
        os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
        wall, said = finished("tune", *given, "--name", f"w{workers}", "--ray", "--workers", str(workers))
        seconds = [float(one) for one in re.findall(r"trial +\d+/8 .*?  ([\d.]+) s  ", said)]
        print(f"{workers} worker{'s' * (workers > 1)}: {wall:.1f} s in all; trials {sum(seconds):.1f} s together", flush=True)


def predict(place: Path, images: int) -> None:
    import numpy as np
    from PIL import Image

    folder = place / "images"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for number in range(images):
        Image.fromarray(draw.integers(0, 255, (96, 96, 3), np.uint8)).save(folder / f"{number:05d}.jpg")
    finished("train", *RUN, "train.epochs=2", "--runs", str(place), "--name", "model")
    for workers in (1, 2):
        wall, said = finished("predict", str(place / "vision" / "digits" / "model"), str(folder), "--output", str(place / f"out{workers}"),
                              "--ray", "--workers", str(workers))
        print(f"{workers} worker{'s' * (workers > 1)}: {wall:.1f} s in all; {said.strip().splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["restart", "search", "predict"])
    parser.add_argument("--images", type=int, default=4000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if asked.what == "predict":
            predict(Path(made), asked.images)
        else:
            (restart if asked.what == "restart" else search)(Path(made))
