"""What a start costs: from the command to the first step of the four quick starts, each in a process of its own.

python -m benchmarks.start                    # about two minutes on two cores
python -m benchmarks.start vision/digits --root ANOTHER_CHECKOUT

files   of this tree whose functions or modules run before `Loop.train`
moves   calls among them that pass from one file to another
traced  operations in the graphs that are traced until the first step has run
cpu     seconds of processor time of the process from its start until then; the moves are counted in another process
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.product import machine

QUICK_STARTS = ("vision/digits", "speech/quickstart", "nlp/quickstart", "recsys/quickstart")

CHILD = """
import json, os, sys, time
root, config, runs, counted = sys.argv[1:5]
sys.path.insert(0, root)
files, moves = set(), 0


def own(frame):
    name = frame.f_code.co_filename if frame is not None else ""
    return name if name.startswith(root) and "/.venv/" not in name else None


def passed(frame, event, argument):
    global moves
    into = own(frame) if event == "call" else None
    if into is not None:
        files.add(into)
        moves += own(frame.f_back) not in (None, into)


def said(**facts):
    print("FACTS " + json.dumps(facts), flush=True)
    os._exit(0)


if counted == "moves":
    sys.setprofile(passed)
from pipelines.machine.startup import start_tensorflow

start_tensorflow()  # as a command does: Keras alone would import what no run needs
from pipelines.training import loop, step

if counted == "moves":
    def ended(self):
        sys.setprofile(None)
        said(files=len(files), moves=moves)
    loop.Loop.train = ended
else:
    from tensorflow.python.framework import func_graph
    operations, plain, run = 0, func_graph.FuncGraph._create_op_internal, step.Step.__call__

    def created(*given, **named):
        global operations
        operations += 1
        return plain(*given, **named)

    def first(self, iterator, start, count, carry):
        run(self, iterator, start, 1, carry)
        said(traced=operations, cpu=time.process_time())

    func_graph.FuncGraph._create_op_internal, step.Step.__call__ = created, first
from pipelines.commands.main import main

main(["train", config, "--runs", runs, "--quiet", "train.devices=cpu", "train.precision=float32"])
"""


def measured(root: Path, config: str, counted: str) -> dict[str, float]:
    """The facts of one start; `counted` is "moves", which slows it down, or "cost"."""
    with tempfile.TemporaryDirectory() as runs:
        done = subprocess.run([sys.executable, "-c", CHILD, str(root), config, runs, counted], cwd=root, capture_output=True, text=True,
                              env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(root)}, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FACTS ")]
    if not lines:
        raise SystemExit(f"{config}: {done.stderr.strip()}")
    facts: dict[str, float] = json.loads(lines[-1].removeprefix("FACTS "))
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", default=QUICK_STARTS)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="the checkout that is measured")
    arguments = parser.parse_args()
    print(machine())
    print(f"{'':<20} {'files':>6} {'moves':>8} {'traced':>8} {'cpu s':>7}")
    for config in arguments.configs:
        root = arguments.root.resolve()
        facts = measured(root, config, "moves") | measured(root, config, "cost")
        print(f"{config:<20} {facts['files']:>6,} {facts['moves']:>8,} {facts['traced']:>8,} {facts['cpu']:>7.1f}", flush=True)


if __name__ == "__main__":
    main()
