"""Faults at random moments of a training on three hosts: whether its weights are those of one that nothing disturbed.

python -m benchmarks.faults --faults 20        # some 15 s each on 2 quiet cores

Hosts are processes of this machine. A fault is SIGKILL or SIGSTOP of one host, chosen like its moment by --seed; then all are started
again, as a launcher would. The two trainings must end with identical weights (the processor, deterministic, the same number of hosts).
"""

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOSTS = 3
SETTINGS = ["vision/digits", "train.batch_size=48", "train.precision=float32", "train.devices=cpu", "train.deterministic=true",
            "train.checkpoint_seconds=0.5", "train.keep_state=true", "monitor.tensorboard=false", "evaluate.baseline=false"]


def started(runs: Path, name: str, epochs: int) -> list[subprocess.Popen]:
    """The hosts of one training."""
    with contextlib.ExitStack() as taken:
        ports = [taken.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(HOSTS)]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    return [subprocess.Popen(
        [sys.executable, "-m", "quartet", "train", *SETTINGS, f"train.epochs={epochs}", "--runs", str(runs), "--name", name, "--quiet"],
        env={**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": number}})},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for number in range(HOSTS)]


def disturbed(hosts: list[subprocess.Popen], after: float, which: int, number: int) -> tuple[list[int], float]:
    """Sends a signal to one host after so many seconds; (how all ended, seconds from the signal to the end of the last of the others)."""
    until = time.monotonic() + after
    while time.monotonic() < until and any(host.poll() is None for host in hosts):
        time.sleep(0.02)
    if hosts[which].poll() is None:
        hosts[which].send_signal(number)
    began = time.monotonic()
    ends = [host.wait(300) for place, host in enumerate(hosts) if place != which]
    seconds = time.monotonic() - began
    hosts[which].kill()
    hosts[which].wait()
    return ends, seconds


def weights(run: Path) -> list:
    import keras

    return keras.models.load_model(run / "model" / "model.keras", compile=False).get_weights()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--longest", type=float, default=40.0, help="seconds after the start until which a fault may come")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draw, detected, faults = random.Random(asked.seed), [], 0
    with tempfile.TemporaryDirectory() as place:
        runs = Path(place)
        assert not any(host.wait(600) for host in started(runs, "whole", asked.epochs)), "the undisturbed training failed"
        while faults < asked.faults:
            number = draw.choice([signal.SIGKILL, signal.SIGSTOP])
            after, which = draw.uniform(0.0, asked.longest), draw.randrange(HOSTS)
            ends, seconds = disturbed(started(runs, "disturbed", asked.epochs), after, which, number)
            if 0 in ends:
                break
            faults += 1
            detected.append(seconds)
            print(f"{faults:2}  {number.name} to host {which} after {after:4.1f} s: the others ended with {ends} after {seconds:.1f} s",
                  flush=True)
        assert not any(host.wait(600) for host in started(runs, "disturbed", asked.epochs)), "the disturbed training failed"
        one, other = (weights(runs / "vision" / "digits" / name) for name in ("whole", "disturbed"))
    same = all((ours == theirs).all() for ours, theirs in zip(one, other, strict=True))
    print(f"{faults} faults; the others ended after {statistics.median(detected):.1f} s (median), {max(detected):.1f} s (longest); "
          f"weights identical: {same}")
    sys.exit(not same)


if __name__ == "__main__":
    main()
