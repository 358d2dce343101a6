"""Faults at random moments of a training on three hosts: whether its weights are those of one that nothing disturbed.

python -m benchmarks.faults --faults 20                   # some 40 s each on 2 quiet cores
python -m benchmarks.faults --faults 5 --folder FOLDER    # in parts: the same command goes on, and the last part compares

Hosts are processes of this machine, each in a network namespace with an address of its own (root and the command `ip`). A fault is
SIGKILL, SIGSTOP or SIGTERM of one host, or its link cut, chosen by --seed like the host and the moment, which is counted from the start
of the processes or from the first step that they take; then all are started again, as a launcher would. The two trainings must end with
identical weights (the processor, deterministic, the same number of hosts).
"""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HOSTS = 3
PORT = 2222
SETTINGS = ["vision/digits", "train.batch_size=48", "train.precision=float32", "train.devices=cpu", "train.deterministic=true",
            "train.checkpoint_seconds=0.5", "train.keep_state=true", "monitor.tensorboard=false", "evaluate.baseline=false"]
FAULTS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "terminated": signal.SIGTERM, "cut": None}
PATIENCE = 180.0  # s until the others must have ended


class Network:
    """A namespace for each host, joined by a bridge in one more, without a way out."""

    def __init__(self) -> None:
        self.hub = f"qf{os.getpid()}"
        self.names = [f"{self.hub}h{number}" for number in range(HOSTS)]
        self.addresses = [f"10.78.0.{number + 1}:{PORT}" for number in range(HOSTS)]

    def link(self, number: int, state: str) -> None:
        """Cuts (down) or joins (up) a host's link."""
        ip("-n", self.hub, "link", "set", f"port{number}", state)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def network() -> Iterator[Network]:
    net = Network()
    try:
        for name in (net.hub, *net.names):
            ip("netns", "add", name)
        ip("-n", net.hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", net.hub, "link", "set", "bridge", "up")
        for number, name in enumerate(net.names):
            ip("-n", net.hub, "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", net.hub, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", name, "address", "add", f"10.78.0.{number + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield net
    finally:
        for name in (net.hub, *net.names):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def started(net: Network, runs: Path, name: str, epochs: int) -> list[subprocess.Popen]:
    """The hosts of one training; what they say goes to NAME.N.log beside the runs."""
    hosts = []
    for number, inside in enumerate(net.names):
        task = {"cluster": {"worker": net.addresses}, "task": {"type": "worker", "index": number}}
        with open(runs / f"{name}.{number}.log", "ab") as log:
            hosts.append(subprocess.Popen(
                ["ip", "netns", "exec", inside, sys.executable, "-m", "quartet", "train", *SETTINGS, f"train.epochs={epochs}",
                 "--runs", str(runs), "--name", name, "--quiet"],
                env={**os.environ, "TF_CONFIG": json.dumps(task)}, stdout=log, stderr=log))
    return hosts


def disturbed(net: Network, hosts: list[subprocess.Popen], saved: Path, fault: str, after: float, which: int, training: bool,
              ) -> tuple[list[int | None], float, bool]:
    """One fault; (how the others ended, None: not at all, seconds from the fault to the end of the last of them, whether it came).

    Args:
        saved: the checkpoint, from whose next change seconds are counted where `training`.
    """
    def all_there() -> bool:
        return any(host.poll() is None for host in hosts)

    def stamp() -> int:
        return saved.stat().st_mtime_ns if saved.exists() else 0

    before = stamp()
    while training and stamp() == before and all_there():
        time.sleep(0.02)
    until = time.monotonic() + after
    while time.monotonic() < until and all_there():
        time.sleep(0.02)
    came, number, began = hosts[which].poll() is None, FAULTS[fault], time.monotonic()
    if came and number is None:
        net.link(which, "down")
    elif came:
        hosts[which].send_signal(number)
    ends: list[int | None] = []
    for place, host in enumerate(hosts):
        if place != which:
            try:
                ends.append(host.wait(max(0.1, began + PATIENCE - time.monotonic())))
            except subprocess.TimeoutExpired:
                ends.append(None)
    seconds = time.monotonic() - began
    for host in hosts:
        host.kill()
        host.wait()
    if came and number is None:
        net.link(which, "up")
    return ends, seconds, came


def weights(run: Path) -> list:
    import keras

    return keras.models.load_model(run / "model" / "model.keras", compile=False).get_weights()


def rows(journal: Path) -> list[dict]:
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()] if journal.exists() else []


def finished(runs: Path, name: str) -> bool:
    return (runs / "vision" / "digits" / name / "report" / "report.json").exists()


def disturb(net: Network, runs: Path, journal: Path, asked: argparse.Namespace) -> None:
    """So many further faults; fewer where the training ends before."""
    for _ in range(asked.faults):
        draw = random.Random(f"{asked.seed} {len(rows(journal))}")
        fault, which, training = draw.choice(sorted(FAULTS)), draw.randrange(HOSTS), draw.random() < 0.7
        after = draw.uniform(0.0, 3.0 if training else asked.longest)
        saved = runs / "vision" / "digits" / "disturbed" / "checkpoints" / "resume.npz"
        ends, seconds, came = disturbed(net, started(net, runs, "disturbed", asked.epochs), saved, fault, after, which, training)
        if finished(runs, "disturbed"):
            return
        assert came, f"a training ended by itself: {ends}"
        line = {"fault": fault, "host": which, "after": round(after, 1), "of": "training" if training else "start", "ends": ends,
                "seconds": round(seconds, 1)}
        with open(journal, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{len(rows(journal)):2}  host {which} {fault} {after:4.1f} s after the {line['of']}: the others ended with {ends} after "
              f"{seconds:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=20, help="further faults; 0: none, the training goes on to its end and is compared")
    parser.add_argument("--folder", type=Path, help="keeps the runs, so that another call goes on; the one with --faults 0 compares")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--longest", type=float, default=40.0, help="seconds after the start until which a fault may come")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, network() as net:
        runs = (asked.folder or Path(place)).absolute()
        runs.mkdir(parents=True, exist_ok=True)
        journal = runs / "journal.jsonl"
        if not finished(runs, "whole"):
            assert not any(host.wait(600) for host in started(net, runs, "whole", asked.epochs)), f"see {runs / 'whole.0.log'}"
        disturb(net, runs, journal, asked)
        if asked.folder and asked.faults:
            return
        if not finished(runs, "disturbed"):
            assert not any(host.wait(600) for host in started(net, runs, "disturbed", asked.epochs)), f"see {runs / 'disturbed.0.log'}"
        one, other = (weights(runs / "vision" / "digits" / name) for name in ("whole", "disturbed"))
        done = rows(journal)
    same = all((ours == theirs).all() for ours, theirs in zip(one, other, strict=True))
    for fault in sorted(FAULTS):
        took = [row["seconds"] for row in done if row["fault"] == fault]
        if took:
            print(f"{fault}: {len(took)}; the others ended after {statistics.median(took):.1f} s (median), {max(took):.1f} s (longest)")
    unended = sum(None in row["ends"] for row in done)
    print(f"{len(done)} faults; {unended} after which not all others ended within {PATIENCE:.0f} s; weights identical: {same}")
    sys.exit(not same or bool(unended))


if __name__ == "__main__":
    main()
