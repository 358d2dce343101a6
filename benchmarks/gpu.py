"""A step of shipped experiments on the card that is here, beside what the table of compiled steps says of it.

    python -m benchmarks.gpu vision/imagenet_resnet50 nlp/imdb_minilm_whole      # a process each, half a minute each on a card
    python -m benchmarks.gpu recsys/quickstart --set train.xla=on                # key=value for all of them
    python -m benchmarks.gpu vision/digits --replicas 2                          # two logical GPUs on one card, in float32, beside one
    python -m benchmarks.gpu recsys/quickstart --no-cudnn                        # GRU and LSTM by XLA's loop in place of cuDNN

Prints examples/s, the time of a step, what the products of a step make of it in TFLOP/s, and the most memory that was held beside the bytes
that were predicted (benchmarks/results/cuda.csv); with --replicas how far the loss of the last step is from one device's. Data as
benchmarks.cuda takes it. Without a card the same steps run on the processor, and nothing is said of memory.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import cuda
from benchmarks.product import machine

STEPS = 20


def child(name: str, steps: int, replicas: int, overrides: list[str], files: Path, cudnn: bool) -> None:
    """Prints one line of JSON."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    import tensorflow as tf

    if not cudnn:  # Keras then takes its own loop, which XLA compiles
        sys.modules[keras.src.backend.cudnn_ok.__module__]._is_gpu_available = lambda: False

    cards = tf.config.list_physical_devices("GPU")
    if cards and replicas > 1:  # of one card
        tf.config.set_logical_device_configuration(cards[0], [tf.config.LogicalDeviceConfiguration(memory_limit=8192)] * replicas)
        overrides = [*overrides, f"train.devices=[{', '.join(f'GPU:{number}' for number in range(replicas))}]"]
    elif replicas > 1:
        overrides = [*overrides, f"train.devices={replicas}"]
    from pipelines.config.load import load
    from pipelines.machine import devices
    from pipelines.runs.launch import task_class
    from pipelines.training.session import assemble

    if cards and replicas > 1:
        devices.device_names = lambda wanted, gpus: tuple(f"GPU:{number}" for number in range(replicas))
    with tempfile.TemporaryDirectory() as made:
        cuda.write_data(Path(made))
        given = [text.replace("FILES", str(files)).replace("MADE", made) for text in cuda.GIVEN[name]]
        experiment = load(name, [*given, *overrides]).experiment
        session = assemble(experiment, task_class(experiment.task))
        session.initialise()
        step, carry = session.step, session.step.fresh()
        for _ in range(2):  # the same batches twice: the first time each length is compiled
            if cards:
                tf.config.experimental.reset_memory_stats("GPU:0")
            began = time.perf_counter()
            _, carry = step(session.feed.iterator(0, steps), 0, steps, carry)
            loss, seconds = float(carry.loss), (time.perf_counter() - began) / steps
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"] if cards else None
    print(json.dumps({"batch": step.plan.batch, "seconds": seconds, "peak": peak, "loss": loss, "xla": session.machine.xla,
                      "precision": session.machine.precision}))


def measured(name: str, replicas: int, overrides: list[str], asked: argparse.Namespace) -> dict:
    """Of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.gpu", name, "--child", "--steps", str(asked.steps), "--replicas", str(replicas),
               "--files", str(asked.files), *(["--no-cudnn"] if asked.no_cudnn else []), "--set", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def predicted(name: str) -> dict[str, str]:
    """The experiment's row, of any card: they differ by workspaces alone."""
    return next((row for row in cuda.kept() if row["experiment"] == name and row["card"] == "A100"), {})


def said(name: str, found: dict) -> str:
    row = predicted(name)
    text = (f"{name}: {found['batch'] / found['seconds']:,.0f} examples/s, {1e3 * found['seconds']:.1f} ms a step of {found['batch']}, "
            f"{found['precision']}{', XLA' if found['xla'] else ''}, loss {found['loss']:.4f}")
    if row.get("gigaflop"):
        text += f", {float(row['gigaflop']) / 1e3 * found['batch'] / int(row['batch']) / found['seconds']:.3g} TFLOP/s"
    if found["peak"] and row.get("temporary_mib"):
        text += f"; held {found['peak'] / 2**20:,.0f} MiB, predicted {float(row['argument_mib']) + float(row['temporary_mib']):,.0f}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=sorted(cuda.GIVEN), metavar="NAME", help="shipped experiments")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--files", type=Path, default=Path("~/quartet-files"))
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--no-cudnn", action="store_true", help="recurrent layers by XLA")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.names[0], asked.steps, asked.replicas, asked.set, asked.files.expanduser(), not asked.no_cudnn)
        return
    print(machine(), flush=True)
    for name in asked.names:
        overrides = [*asked.set, *(["train.precision=float32", "train.xla=off"] if asked.replicas > 1 else [])]
        found = measured(name, asked.replicas, overrides, asked)
        print(said(name, found), flush=True)
        if asked.replicas > 1:
            alone = measured(name, 1, overrides, asked)
            apart = abs(found["loss"] - alone["loss"])
            print(f"{name}: {asked.replicas} replicas and one device: {apart:.2g} apart in the loss of the last step", flush=True)


if __name__ == "__main__":
    main()
