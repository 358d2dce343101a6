"""What a search costs, on the embedded digits: memory over the trials, time outside training, two workers against one, and kills.

python -m benchmarks.tuning memory      # 30 trials: resident memory of the searching process after 30 against after 3
python -m benchmarks.tuning overhead    # 4 trials of about 20 s: time outside training, per trial
python -m benchmarks.tuning workers     # 12 equal trials of one core each, with one worker and with two
python -m benchmarks.tuning kills       # SIGKILL at 10 random moments of 12 trials, random and grid, against a search never killed
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
from pathlib import Path
from typing import Any

from benchmarks.product import machine

SETTINGS = ["train.precision=float32", "train.devices=cpu", "train.batch_size=128", "evaluate.bootstrap=100", "monitor.samples=0",
            "model.widths=[8]", "model.hidden=16", "tune.seeds=0"]
RANDOM = "tune.space={train.learning_rate.peak: {float: [1.0e-3, 3.0e-2], scale: log}, model.dropout: {float: [0.0, 0.5]}}"
GRID = "tune.space={train.learning_rate.peak: {choice: [0.003, 0.01, 0.03]}, model.dropout: {choice: [0.0, 0.2, 0.4, 0.5]}}"


def start(runs: Path, *arguments: str, threads: int | None = None, name: str = "search") -> subprocess.Popen:
    command = [sys.executable, "-m", "vision.tune", "vision/digits", *SETTINGS, *arguments, "--runs", str(runs), "--name", name]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    if threads:
        environment |= {"TF_NUM_INTRAOP_THREADS": str(threads), "TF_NUM_INTEROP_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finished(process: subprocess.Popen) -> None:
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(errors)


def search_of(runs: Path, name: str = "search") -> Path:
    return runs / "vision" / "digits" / name


def events(search: Path) -> list[dict[str, Any]]:
    path = search / "journal.jsonl"
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def resident(pid: int) -> float:
    """MiB."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0.0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20 if len(fields) > 1 else 0.0


def memory(runs: Path) -> None:
    process, seen = start(runs, RANDOM, "tune.trials=30", "train.epochs=1"), {}
    while process.poll() is None:
        done = sum(event["event"] == "end" for event in events(search_of(runs)))
        now = resident(process.pid)
        if now:
            seen.setdefault(done, now)
        time.sleep(0.05)
    finished(process)
    first, last = seen[3], seen.get(30) or seen[max(seen)]
    print(f"memory: searching process {first:.0f} MiB after 3 trials, {last:.0f} MiB after {max(seen)}: {last / first:.3f} x")


def overhead(runs: Path) -> None:
    finished(start(runs, RANDOM, "tune.trials=4", "train.epochs=140", "train.batch_size=16", "model.widths=[32]", "model.hidden=64"))
    told = events(search_of(runs))
    ends = [event for event in told if event["event"] == "end"]
    begin = next(event for event in told if event["event"] == "begin")
    whole = (ends[-1]["elapsed"] - begin["elapsed"]) / len(ends)
    trained = sum(event["train_seconds"] for event in ends) / len(ends)
    print(f"overhead: {whole:.1f} s a trial, of which training (with its validation) {trained:.1f} s: {(whole - trained) / whole:.1%} "
          f"outside; once before the first trial {begin['elapsed']:.1f} s")


def workers(runs: Path) -> None:
    took = {}
    for count in (1, 2):
        finished(start(runs, RANDOM, "tune.trials=12", "train.epochs=40", "--workers", str(count), threads=1, name=f"w{count}"))
        told = events(search_of(runs, f"w{count}"))
        took[count] = told[-1]["elapsed"] - told[0]["elapsed"]
    print(f"workers: 12 trials of one core in {took[1]:.1f} s with one worker, {took[2]:.1f} s with two: {took[1] / took[2]:.2f} x")


def outcome(search: Path) -> list[Any]:
    """All that must be the same; fails where a trial is lost or there twice."""
    for kind in ("start", "end"):
        numbers = sorted(event["trial"] for event in events(search) if event["event"] == kind)
        if numbers != list(range(1, len(numbers) + 1)):
            raise SystemExit(f"{search}: {kind} of trials {numbers}")
    content = json.loads((search / "report" / "search.json").read_text())
    return [content["best"], *[(trial["trial"], trial["values"], trial["metrics"]) for trial in content["trials"]]]


def kills(runs: Path, times: int = 10, seed: int = 0) -> None:
    draw = random.Random(seed)
    for algorithm, space in (("random", RANDOM), ("grid", GRID)):
        call = (space, f"tune.algorithm={algorithm}", "tune.trials=12", "train.epochs=2", "train.deterministic=true")
        finished(start(runs, *call, name=f"{algorithm}-whole"))
        killed = f"{algorithm}-killed"
        done = 0
        while done < times:
            before = len(events(search_of(runs, killed)))
            process = start(runs, *call, name=killed)
            while process.poll() is None and len(events(search_of(runs, killed))) <= before:
                time.sleep(0.02)  # until this process has come further than the one before
            time.sleep(draw.uniform(0.0, 3.0))
            if process.poll() is not None:
                break
            process.send_signal(signal.SIGKILL)
            process.communicate()
            done += 1
        finished(start(runs, *call, name=killed))
        same = outcome(search_of(runs, killed)) == outcome(search_of(runs, f"{algorithm}-whole"))
        print(f"kills: {algorithm}, {done} kills of 12 trials: {'the same trials and the same best' if same else 'DIFFERENT'}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="+", choices=["memory", "overhead", "workers", "kills"])
    asked = parser.parse_args()
    print(machine(), flush=True)
    for one in asked.what:
        with tempfile.TemporaryDirectory() as place:
            {"memory": memory, "overhead": overhead, "workers": workers, "kills": kills}[one](Path(place))
