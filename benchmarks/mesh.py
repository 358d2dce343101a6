"""What each device of a mesh holds, and what a step costs there: a Transformer from scratch on logical devices of the CPU.

python -m benchmarks.mesh                              # 51 M weights, four meshes: some three minutes on two cores
python -m benchmarks.mesh --depth 16 --most-copies 2   # 206 M weights, four minutes; within 24 GiB, with no mesh that holds four copies

Bytes are counted from the parts that lie on the devices between steps: weights, and the two values of Adam for each. Logical devices share
the cores, so that a step says what the division itself costs, not what a card gains. Each mesh has a process of its own.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.product import machine

MESHES = (None, {"data": 1, "model": 4}, {"data": 2, "model": 2}, {"data": 4, "model": 1}, {"data": 4, "model": 1, "state": "divided"})
STEPS = 3
TEXT = "a mesh of devices holds what one of them could not hold alone and each sends the others no more than it must"

CHILD = """
import json, sys, time
import numpy as np
from tensorflow.experimental import dtensor
from pipelines.config.load import from_dict
from pipelines.runs.launch import task_class
from pipelines.training.session import assemble

experiment, steps = from_dict(json.loads(sys.argv[1]), [], check_paths=False), int(sys.argv[2])
session = assemble(experiment, task_class(experiment.task))
session.initialise()
carry, times = session.step.fresh(), []
for step in range(steps):
    began = time.perf_counter()
    _, carry = session.step(session.feed.iterator(step, step + 1), step, 1, carry)
    times.append(time.perf_counter() - began)
weights = {id(one) for one in session.learner.model.trainable_variables}
variables = [*session.learner.model.trainable_variables, *session.update.chain.links[1].variables]
held = {"weights": 0, "state": 0}
for one in variables:
    mesh = session.elsewhere
    part = dtensor.unpack(mesh.copy(one).read_value())[0] if mesh is not None else one.value
    held["weights" if id(one) in weights else "state"] += int(np.prod(part.shape)) * part.dtype.size
print(json.dumps({**held, "count": sum(int(np.prod(one.shape)) for one in session.weights), "loss": float(carry.loss),
                  "seconds": min(times[1:])}))
"""


def measured(mesh: dict | None, width: int, depth: int, text: Path) -> dict:
    """Of a process of its own."""
    devices = mesh["data"] * mesh["model"] if mesh else 1
    experiment = {
        "task": "nlp.language_model",
        "data": {"source": "text", "path": str(text), "validation": 0.1, "test": None},
        "writing": {"most": 8},
        "model": {"name": "transformer", "length": 64, "width": width, "depth": depth, "heads": 16, "hidden": 11 * width // 4},
        "train": {"batch_size": 8, "epochs": 9, "precision": "float32", "optimizer": {"name": "adam"}, "devices": devices,
                  "learning_rate": {"peak": 1e-4}, **({"parallel": mesh} if mesh else {})},
    }
    done = subprocess.run([sys.executable, "-c", CHILD, json.dumps(experiment), str(STEPS)], capture_output=True, text=True,
                          env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--most-copies", type=int, default=4, help="of the weights, which all lie in this machine's memory")
    parser.add_argument("--output", type=Path, help="rows are added to this file")
    options = parser.parse_args()
    print(machine())
    rows, alone = [], {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        words = TEXT.split()
        text.write_text("\n\n".join(" ".join(words[(line * 7 + at * at) % len(words)] for at in range(40)) for line in range(60)))
        for mesh in (one for one in MESHES if one is None or one["data"] <= options.most_copies):
            found = measured(mesh, options.width, options.depth, text)
            alone = alone or found
            name = "one device" if mesh is None else f"{mesh['data']} x {mesh['model']}{', state divided' if 'state' in mesh else ''}"
            rows.append({"mesh": name, "weights": found["count"], "held_weights": round(found["weights"] / alone["weights"], 3),
                         "held_state": round(found["state"] / alone["state"], 3),
                         "held": round((found["weights"] + found["state"]) / (alone["weights"] + alone["state"]), 3),
                         "step": round(found["seconds"] / alone["seconds"], 2),
                         "loss_difference": f"{abs(found['loss'] - alone['loss']):.1e}"})
            print(rows[-1], flush=True)
    if options.output:
        begun = options.output.exists()
        with options.output.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            if not begun:
                writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
