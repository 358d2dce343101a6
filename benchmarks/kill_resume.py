"""Promise 2, measured: a run killed (SIGKILL) at random moments and started again ends bit-identical to one never killed.

python -m benchmarks.kill_resume --kills 20      # prints each kill's step, then the comparison; exit status 1 if anything differs

Trains the embedded digits on the CPU with train.deterministic, dropout, augmentation, moving averages, AdamW and a checkpoint
every 0.3 s, through the command line, and compares every array of the last checkpoint, the saved model's weights, the
metrics of all log points and the report's metrics.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SETTINGS = [
    "train.deterministic=true",
    "train.checkpoint_seconds=0.3",
    "train.ema=0.99",
    "augment.shift=1",
    "train.precision=float32",
    "evaluate.worst=4",
    "evaluate.baseline=false",
    "model.dropout=0.3",
    "train.optimizer.name=adamw",
]
TIMES = ("time_s", "examples_per_second", "input_wait_fraction", "memory_bytes", "device_memory_bytes")  # of a log line: what may differ


def command(runs: Path, epochs: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "vision.train",
        "vision/digits",
        f"train.epochs={epochs}",
        *SETTINGS,
        "train.keep_state=true",
        "--runs",
        str(runs),
        "--name",
        "run",
    ]


def start(runs: Path, epochs: int) -> subprocess.Popen:
    return subprocess.Popen(
        command(runs, epochs),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
    )


def step_of(run: Path) -> int:
    """Step of the last whole checkpoint, -1 before the first."""
    try:
        with np.load(run / "checkpoints" / "resume.npz", allow_pickle=False) as stored:
            return json.loads(stored["about"].tobytes())["step"]
    except FileNotFoundError:
        return -1


def outcome(run: Path) -> dict[str, Any]:
    """All that must be the same: name -> bytes or value."""
    found: dict[str, Any] = {}
    with np.load(run / "checkpoints" / "resume.npz", allow_pickle=False) as stored:
        for name in stored:
            if name == "about":
                about = json.loads(stored[name].tobytes())
                found["hooks"], found["step"] = about["hooks"], about["step"]
            elif name != "carry/waited":
                found[name] = (stored[name].dtype.str, stored[name].shape, stored[name].tobytes())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found["metrics.jsonl"] = [{key: value for key, value in line.items() if key not in TIMES} for line in lines]
    found["report"] = json.loads((run / "report" / "report.json").read_text())["metrics"]
    return found


def measure(kills: int, epochs: int, seed: int, folder: Path, start: Callable[[Path, int], Any] = start) -> list[str]:
    """Names of what differs; empty where all is the same.

    Args:
        start: starts the command of these runs and epochs; what it returns is used as a subprocess.Popen.
    """
    draw = random.Random(seed)
    whole = folder / "whole" / "vision" / "digits" / "run"
    process = start(folder / "whole", epochs)
    if process.wait() != 0:
        raise SystemExit(process.stderr.read() if process.stderr else "the run failed")
    run = folder / "killed" / "vision" / "digits" / "run"
    done = 0
    while done < kills:
        before = step_of(run)
        process = start(folder / "killed", epochs)
        # wait until this process has made progress of its own, then kill it at a random moment of the next second
        while process.poll() is None and step_of(run) == before:
            time.sleep(0.05)
            if before < 0 and done == 0 and draw.random() < 0.002:
                break  # now and then before anything is saved
        time.sleep(draw.uniform(0.0, 0.7))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            done += 1
            print(f"kill {done}: the last checkpoint is of step {step_of(run)}", flush=True)
        else:
            print(f"the run ended after {done} kills; give more --epochs", flush=True)
            break
    process = start(folder / "killed", epochs)
    if process.wait() != 0:
        raise SystemExit(process.stderr.read() if process.stderr else "the resumed run failed")
    one, other = outcome(whole), outcome(run)
    return [name for name in sorted(set(one) | set(other)) if one.get(name) != other.get(name)] + (
        ["too few kills"] if done < kills else []
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        differing = measure(asked.kills, asked.epochs, asked.seed, Path(place))
    print(
        f"{asked.kills} kills: "
        + (f"DIFFERS in {', '.join(differing)}" if differing else "weights, optimizer, averages, metrics and report are identical")
    )
    sys.exit(1 if differing else 0)
