"""What a GPU would compile, compiled on a processor: python -m tests.rehearsal '{name: [experiment, overrides]}'.

Keras is made to believe in a GPU, and each experiment's first step runs with train.xla on. A line of JSON for each: its name, what went
wrong or null, whether XLA compiled it, and the loss. What cuDNN computes is traced only: no processor runs it.
"""

import json
import math
import sys
import traceback
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

COMMON = ("train.xla=on", "train.devices=cpu", "train.precision=float32", "train.batch_size=8", "train.epochs=1")


def rehearse(text: str, overrides: list[str]) -> dict:
    """One experiment's first step."""
    from pipelines.config.load import from_text, load
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.launch import task_class
    from pipelines.serving.export import Served
    from pipelines.serving.load import LoadedRun
    from pipelines.training.session import assemble

    overrides = [*COMMON, *overrides]
    known = from_text(text, overrides, file="rehearsal") if "\n" in text else load(text, overrides)
    session = assemble(known.experiment, task_class(known.experiment.task))
    step = session.step
    iterator = session.feed.iterator(0, 1)
    if session.machine.xla:
        done, carry = step(iterator, 0, 1, step.fresh())
        loss = float(carry.loss)
        return {"error": None if done == 1 and math.isfinite(loss) else f"loss {loss}", "xla": True, "loss": loss}
    trained = step._run.get_concrete_function(iterator, tf.constant(0, tf.int64), tf.constant(1, tf.int64), step.fresh())
    served = Served(LoadedRun(session.task, session.model, known.experiment, RunFolder(Path()), session.machine, "float32", "rehearsal"),
                    None)
    return {"error": None, "xla": False, "cudnn": cudnn_in(trained), "served with cudnn": cudnn_in(served.signature()),
            "note": session.machine.notes[-1]}


def cudnn_in(function: Any) -> bool:
    """Whether a traced function has an operation of cuDNN's."""
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
    return any(node.op.startswith("Cudnn") for node in nodes)


def believe_in_a_gpu() -> None:
    """Lets Keras take cuDNN wherever it would on a GPU."""
    sys.modules[keras.src.backend.cudnn_ok.__module__]._is_gpu_available = lambda: True
    assert not keras.layers.LSTM(1).supports_jit


def main() -> None:
    believe_in_a_gpu()
    for name, (text, overrides) in json.loads(sys.argv[1]).items():
        try:
            found = rehearse(text, overrides)
        except Exception:
            found = {"error": traceback.format_exc()[-3000:]}
        print(json.dumps({"name": name, **found}), flush=True)


if __name__ == "__main__":
    main()
