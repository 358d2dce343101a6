"""What a GPU would compile, lowered for one on a processor: python -m tests.rehearsal '{name: [experiment, overrides]}'.

Keras is made to believe in a GPU, and each experiment's forward and backward pass over its first batch is lowered to StableHLO for CUDA,
with train.xla on. A line of JSON for each: its name, what went wrong or null, and whether XLA takes it. What cuDNN computes is traced only.
"""

import contextlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from pipelines.training.step import Step

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
        return {"error": None if "dot" in lowered(step, iterator) else "nothing is multiplied", "xla": True}
    trained = step._run.get_concrete_function(iterator, tf.constant(0, tf.int64), tf.constant(1, tf.int64), step.fresh())
    served = Served(LoadedRun(session.task, session.model, known.experiment, RunFolder(Path()), session.machine, "float32", "rehearsal"),
                    None)
    return {"error": None, "xla": False, "cudnn": cudnn_in(trained), "served with cudnn": cudnn_in(served.signature()),
            "note": session.machine.notes[-1]}


def lowered(step: Step, iterator: Any) -> str:
    """What XLA is to compile of the pass over the first batch; where it reads a table's rows, which TensorFlow lowers for devices that are
    there alone, for this processor."""
    gradients, found = step._gradients._function, []

    def lower(*arguments: Any) -> Any:
        reads = gradients.get_concrete_function(*arguments).captured_inputs
        where = {"stage": "hlo"} if reads else {"stage": "stablehlo", "platform_name": "GPU"}
        found.append(gradients.experimental_get_compiler_ir(*arguments)(**where))
        raise StopIteration

    step._gradients = lower
    with contextlib.suppress(StopIteration):
        step._summed(tf.constant(0, tf.int64), step.feed.fetched(iterator, deterministic=False)[0], None)
    return str(found[0])


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
