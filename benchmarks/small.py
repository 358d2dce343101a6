"""What `quartet export --for mobile` costs and saves: size, validation score, and the time of one input, in the core and inside `serve`.

    python -m benchmarks.small RUN...

RUN is a finished run's folder. A SavedModel and the mobile form of each are written to a temporary folder. `serve` answers with the same
objects and calls; the network is left out. All times are of one process, by turns; ratios are of one run of this program.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.machine.startup import start_tensorflow

start_tensorflow()

import tensorflow as tf  # noqa: E402

from pipelines.runs.folder import RunFolder  # noqa: E402
from pipelines.serving.converted.compare import latencies  # noqa: E402
from pipelines.serving.converted.export import export_converted  # noqa: E402
from pipelines.serving.converted.fastest import predictor  # noqa: E402
from pipelines.serving.converted.loading import open_run  # noqa: E402
from pipelines.serving.export import export  # noqa: E402
from pipelines.serving.exported import ExportedModel  # noqa: E402
from pipelines.serving.load import load_run  # noqa: E402

TEXT = b"is there a table for two people at the italian place on Friday evening, and can we bring the dog?"


def measured(name: str) -> None:
    run = load_run(RunFolder(Path(name)), where="cpu", precision="float32")
    task: Any = run.task
    row = task.sample()
    if "text" in row:
        row = {"text": TEXT}
    elif "samples" in row:  # of silence is warned, which takes the long way
        row["samples"] = np.random.default_rng(0).uniform(-0.1, 0.1, row["length"]).astype(np.float32)
    elif "image" in row:
        row = {"image": tf.io.encode_png(tf.zeros([*task.image_size, task.facts["channels"]], tf.uint8)).numpy()}
    with tempfile.TemporaryDirectory() as place:
        server, mobile = Path(place) / "server", Path(place) / "mobile"
        export(run, server)
        manifest = export_converted(run, mobile, made_for="mobile", say=print)
        models = {"server": ExportedModel(server), "mobile": predictor(open_run(RunFolder(mobile)))}
        calls = {kind: partial(answered, model, row) for kind, model in models.items()}
        times = latencies(calls, np.zeros(0))
        sizes = {kind: sum(file.stat().st_size for file in (Path(place) / kind).rglob("*") if file.is_file()) for kind in models}
    score, of_model, lost = manifest.export.score, manifest.model.score, manifest.lost
    core, of_core = manifest.export.milliseconds, manifest.model.milliseconds
    assert score and of_model and lost and core and of_core and core.value and of_core.value and of_model.value and score.value
    print(f"{manifest.title}: {manifest.form}; core {manifest.nbytes:,} of {manifest.weights:,} bytes of weights "
          f"({manifest.nbytes / manifest.weights:.1%}); folder {sizes['mobile']:,} of the SavedModel's {sizes['server']:,} "
          f"({sizes['mobile'] / sizes['server']:.1%})")
    print(f"  {manifest.metric} {100 * of_model.value:.2f} -> {100 * score.value:.2f} on {manifest.examples:,} of {manifest.split}; "
          f"lost {lost.value:.2f} points [{lost.low or 0:.2f}, {lost.high or 0:.2f}]")
    print(f"  core {of_core.value:.3f} -> {core.value:.3f} ms ({core.value / of_core.value:.2f}); inside serve "
          + " -> ".join(f"{one.value:.3f} [{one.low or 0:.3f}, {one.high or 0:.3f}]" for one in times.values())
          + f" ms ({times['mobile'].value / times['server'].value:.2f})", flush=True)


def answered(model: Any, row: dict[str, Any], _: np.ndarray) -> list[Any]:
    found: list[Any] = model.together([("one", row)])
    return found


if __name__ == "__main__":
    for one in sys.argv[1:]:
        measured(one)
