"""What the small and fast forms of a model cost and save: size, validation score, time of one input in the core and inside `serve`.

    python -m benchmarks.small                    # trains the five below for a few epochs: about five minutes on two quiet cores
    python -m benchmarks.small transformer        # one of them
    python -m benchmarks.small RUN...             # finished runs, by their folders

Of each, a SavedModel and the mobile form are written to a temporary folder, and the run is served as `quartet serve RUN` does, in the form
that it chooses. `serve` answers with the same objects and calls; the network is left out. All times are of one process, by turns; ratios
are of one run of this program. Processor time is of all threads: it says something on a busy machine, too. No test split is read.
"""

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.product import machine
from pipelines.machine.startup import start_tensorflow

start_tensorflow()

import tensorflow as tf  # noqa: E402

from extensions.convert.compare import latencies  # noqa: E402
from extensions.convert.export import export_converted  # noqa: E402
from pipelines.runs.folder import RunFolder  # noqa: E402
from pipelines.serving.export import export  # noqa: E402
from pipelines.serving.exported import ExportedModel  # noqa: E402
from pipelines.serving.forms import open_run, predictor  # noqa: E402
from pipelines.serving.load import load_run  # noqa: E402

TEXT = b"is there a table for two people at the italian place on Friday evening, and can we bring the dog?"
SHIPPED = {
    "fashion_mnist_cnn": ["vision/fashion_mnist_cnn", "train.epochs=1"],
    "clinc_bag": ["nlp/clinc_bag", "train.epochs=5"],
    "transformer": ["nlp/clinc_bag", "tokens={name: words, limit: 64}", "model={name: transformer}", "train.learning_rate.peak=0.001",
                    "train.epochs=2", "tune=null"],
    "imdb_bag": ["nlp/imdb_bag"],
    "spoken_digit": ["speech/spoken_digit", "train.epochs=6"],
}
FEW = ["data.test=null", "evaluate.baseline=false", "evaluate.bootstrap=100", "monitor.tensorboard=false", "train.devices=cpu"]
CALLS = 200  # answers whose processor time is taken


def trained(name: str, runs: Path) -> Path:
    """The folder of a run of one of SHIPPED."""
    command = [sys.executable, "-m", "quartet", "train", *SHIPPED[name], *FEW, "--runs", str(runs), "--name", name, "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return runs / SHIPPED[name][0] / name


def measured(folder: Path, title: str) -> None:
    run = load_run(RunFolder(folder), where="cpu", precision="float32")
    task: Any = run.task
    row = task.input.requests.sample()
    if "text" in row:
        row = {"text": TEXT}
    elif "samples" in row:  # of silence is warned, which takes the long way
        row["samples"] = np.random.default_rng(0).uniform(-0.1, 0.1, row["length"]).astype(np.float32)
    elif "image" in row:
        row = {"image": tf.io.encode_png(tf.zeros([*task.input.image_size, task.facts["channels"]], tf.uint8)).numpy()}
    with tempfile.TemporaryDirectory() as place:
        server, mobile = Path(place) / "server", Path(place) / "mobile"
        export(run, server)
        manifest = export_converted(run, mobile, made_for="mobile", say=print)
        chosen: list[str] = []
        models = {"SavedModel": ExportedModel(server), "mobile": predictor(open_run(RunFolder(mobile))),
                  "run": predictor(run, say=chosen.append)}
        calls = {kind: partial(answered, model, row) for kind, model in models.items()}
        times = latencies(calls, np.zeros(0))
        processor = {kind: processor_ms(call) for kind, call in calls.items()}
        sizes = [sum(file.stat().st_size for file in one.rglob("*") if file.is_file()) for one in (server, mobile)]
    score, of_model, lost = manifest.export.score, manifest.model.score, manifest.lost
    core, of_core = manifest.export.milliseconds, manifest.model.milliseconds
    assert score and of_model and lost and core and of_core and core.value and of_core.value and of_model.value and score.value
    print(f"{title}: {manifest.form}; core {manifest.nbytes:,} of {manifest.weights:,} bytes of weights "
          f"({manifest.nbytes / manifest.weights:.1%}); folder {sizes[1]:,} of the SavedModel's {sizes[0]:,} ({sizes[1] / sizes[0]:.1%})")
    print(f"  {manifest.metric} {100 * of_model.value:.2f} -> {100 * score.value:.2f} on {manifest.examples:,} of {manifest.split}; "
          f"lost {lost.value:.2f} points [{lost.low or 0:.2f}, {lost.high or 0:.2f}]")
    print(f"  core {of_core.value:.3f} -> {core.value:.3f} ms ({core.value / of_core.value:.2f})")
    for line in chosen:
        print(f"  {line}")
    for kind, one in times.items():
        print(f"  inside serve, {kind}: {one.value:.3f} ms [{one.low or 0:.3f}, {one.high or 0:.3f}] "
              f"({one.value / times['SavedModel'].value:.2f} x), processor {processor[kind]:.3f} ms "
              f"({processor[kind] / processor['SavedModel']:.2f} x)", flush=True)


def answered(model: Any, row: dict[str, Any], _: np.ndarray) -> list[Any]:
    found: list[Any] = model.together([("one", row)])
    return found


def processor_ms(call: Any) -> float:
    """Of one answer, in all threads of this process."""
    began = time.process_time()
    for _ in range(CALLS):
        call(np.zeros(0))
    return 1000 * (time.process_time() - began) / CALLS


def main() -> None:
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as runs:
        for one in sys.argv[1:] or SHIPPED:
            measured(trained(one, Path(runs)) if one in SHIPPED else Path(one), one)


if __name__ == "__main__":
    main()
