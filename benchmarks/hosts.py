"""What several hosts cost: examples per second of two hosts of one core each, against one of two cores.

python -m benchmarks.hosts                 # about 2 minutes on 2 quiet cores; random data of CIFAR-10's size

Hosts are processes of this machine, each bound to a core; the network between them is the loopback. The two ways take turns.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def work(model: str, batch: int, steps: int) -> None:
    """One host's part; the chief prints examples per second."""
    from benchmarks.loop_overhead import OnRandomImages
    from pipelines.machine import group
    from pipelines.machine.hosts import named
    from pipelines.training.hooks.validation import Validation
    from pipelines.training.loop import Loop
    from pipelines.training.meter import Meter
    from pipelines.training.session import assemble
    from vision.settings import ImageClassification

    hosts = named()
    with group.joined(hosts, {}) if hosts else contextlib.nullcontext():
        experiment = ImageClassification.model_validate({
            "task": "vision.classification", "data": {"source": "digits"}, "model": {"name": model},
            "train": {"devices": "cpu", "precision": "float32", "batch_size": batch, "epochs": 10**4, "optimizer": {"name": "adam"}}})
        session = assemble(experiment, OnRandomImages)
        loop = Loop(session.step, plan=session.plan, steps=steps, hooks=[Validation(None, 1)], meter=Meter())
        loop.train()
        if group.current().chief:
            print(loop.meter.examples_per_second, flush=True)


def measured(cores: list[str], arguments: list[str]) -> float:
    """Examples per second with a host on each of these sets of cores."""
    with contextlib.ExitStack() as taken:
        ports = [taken.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in cores]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    started = []
    for number, own in enumerate(cores):
        config = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": number}})} if len(cores) > 1 else {}
        started.append(subprocess.Popen(["taskset", "-c", own, sys.executable, "-m", "benchmarks.hosts", "--host", *arguments],
                                        env={**os.environ, **config}, stdout=subprocess.PIPE, text=True))
    printed = [process.communicate(timeout=600)[0] for process in started]
    return float(printed[0])


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
        given = ["--model", asked.model, "--batch", str(asked.batch), "--steps", str(asked.steps)]
        pairs = [(measured(["0,1"], given), measured(["0", "1"], given)) for _ in range(asked.rounds)]
        one, two = (statistics.median(rates) for rates in zip(*pairs))
        print(f"{asked.model}, batch {asked.batch}, examples/s: one host of two cores {one:,.0f} {[round(each[0]) for each in pairs]}, "
              f"two of one core {two:,.0f} {[round(each[1]) for each in pairs]}: {two / one:.0%}")
