"""What several hosts cost: examples per second of two hosts of one core each, against one of two cores.

python -m benchmarks.hosts                 # about 3 minutes on 2 quiet cores; random data of CIFAR-10's size

Hosts are processes of this machine, each bound to a core; the network between them is the loopback. The ways take turns. Where the loss is,
the third way shows, one host of one core with half of the batch, which has nothing to sum; and so do the processor time of a step, of all
hosts together, and what a step sends.
"""

import argparse
import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


WARM = 20  # steps before those that are measured


class Measured(NamedTuple):
    """Of one way: examples per second; and of a step, seconds of processor time of all hosts, bytes and packets on the loopback."""

    rate: float
    processor: float
    sent: float
    packets: float


def spent() -> float:
    """Seconds of processor time of this process, all of its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def loopback() -> tuple[int, int]:
    """(bytes, packets) sent over it so far."""
    line = next(line for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines() if line.strip().startswith("lo:"))
    fields = line.partition(":")[2].split()
    return int(fields[8]), int(fields[9])


def work(model: str, batch: int, steps: int) -> None:
    """One host's part; prints examples per second and what a step took of processor time, bytes and packets."""
    from benchmarks.loop_overhead import OnRandomImages
    from extensions.cluster.host_group import joined
    from extensions.cluster.hosts import named
    from pipelines.training.hooks.validation import Validation
    from pipelines.training.loop import Loop
    from pipelines.training.meter import Meter
    from pipelines.training.session import assemble
    from vision.settings import ImageClassification

    hosts = named()
    with joined(hosts, {}) if hosts else contextlib.nullcontext():
        experiment = ImageClassification.model_validate({
            "task": "vision.classification", "data": {"source": "digits"}, "model": {"name": model},
            "train": {"devices": "cpu", "precision": "float32", "batch_size": batch, "epochs": 10**4, "optimizer": {"name": "adam"}}})
        session = assemble(experiment, OnRandomImages)
        loop = Loop(session.step, plan=session.plan, steps=WARM + steps, hooks=[Validation(None, 1)], meter=Meter(), until=WARM)
        loop.train()
        began, before = spent(), loopback()
        loop.until, loop.meter = None, Meter()
        loop.train()
        sent, packets = (now - then for now, then in zip(loopback(), before))
        print(json.dumps([loop.meter.examples_per_second, (spent() - began) / steps, sent / steps, packets / steps]), flush=True)


def measured(cores: list[str], model: str, batch: int, steps: int) -> Measured:
    """With a host on each of these sets of cores."""
    with contextlib.ExitStack() as taken:
        ports = [taken.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in cores]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    started = []
    for number, own in enumerate(cores):
        config = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": number}})} if len(cores) > 1 else {}
        started.append(subprocess.Popen(["taskset", "-c", own, sys.executable, "-m", "benchmarks.hosts", "--host", "--model", model,
                                         "--batch", str(batch), "--steps", str(steps)],
                                        env={**os.environ, **config}, stdout=subprocess.PIPE, text=True))
    hosts = [Measured(*json.loads(process.communicate(timeout=600)[0])) for process in started]
    return hosts[0]._replace(processor=sum(host.processor for host in hosts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--host", action="store_true", help="used by the program itself")
    asked = parser.parse_args()
    if asked.host:
        work(asked.model, asked.batch, asked.steps)
    else:
        from benchmarks.product import machine

        print(machine(), flush=True)
        ways = {"one host of two cores": (["0,1"], asked.batch), "two of one core": (["0", "1"], asked.batch),
                "one of one core, half of the batch": (["0"], asked.batch // 2)}
        rounds = [{way: measured(cores, asked.model, batch, asked.steps) for way, (cores, batch) in ways.items()}
                  for _ in range(asked.rounds)]
        print(f"{asked.model}, batch {asked.batch}, {asked.rounds} rounds of {asked.steps} steps")
        middle = {way: Measured(*(statistics.median(values) for values in zip(*(each[way] for each in rounds)))) for way in ways}
        for way, one in middle.items():
            print(f"{way}: {one.rate:,.0f} examples/s {[round(each[way].rate) for each in rounds]}, {1000 * ways[way][1] / one.rate:.0f} "
                  f"ms a step; {1000 * one.processor:.0f} ms of processor time, {one.sent / 1e6:.2f} MB in {one.packets:.0f} packets")
        one, two, half = middle.values()
        print(f"two hosts against one: {two.rate / one.rate:.0%}; their processor time {two.processor / one.processor:.2f} x, twice that "
              f"of the half without a sum {2 * half.processor / one.processor:.2f} x")
