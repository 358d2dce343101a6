"""What a GPU would compile, lowered for one on a processor: python -m tests.rehearsal '{name: [experiment, overrides]}'.

Keras is made to believe in a GPU, and each experiment's forward and backward pass over its first batch is lowered to StableHLO for CUDA,
with train.xla on and in bfloat16, as `auto` chooses there. A line of JSON for each: its name, what went wrong or null, whether XLA takes
it, and which operations of a whole step no GPU computes. What cuDNN computes is traced only.
"""

import contextlib
import functools
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework.kernels import get_registered_kernels_for_op

from pipelines.machine import kernels
from pipelines.training.step import Step

COMMON = ("train.xla=on", "train.devices=cpu", "train.precision=bfloat16", "train.batch_size=8", "train.epochs=1")


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
    if step.feed.on_device:
        step.feed._copies = [{name: kernels.held(value) for name, value in copy.items()} for copy in step.feed._copies]
    trained = step._run.get_concrete_function(iterator, tf.constant(0, tf.int64), tf.constant(1, tf.int64), step.fresh())
    found = {"xla": session.machine.xla, "host": on_the_host(trained)}
    if session.machine.xla:
        return {**found, "error": None if "dot" in lowered(step, iterator) else "nothing is multiplied"}
    served = Served(LoadedRun(session.task, session.model, known.experiment, RunFolder(Path()), session.machine, "float32", "rehearsal"),
                    None)
    return {**found, "error": None, "cudnn": cudnn_in(trained), "served with cudnn": cudnn_in(served.signature()),
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


def on_the_host(function: Any) -> list[str]:
    """The operations, with types, that no GPU computes: TensorFlow would copy what they take and give. But for what XLA compiles."""
    graph = function.graph.as_graph_def()
    functions, found, seen = {one.signature.name: one for one in graph.library.function}, set(), set()

    def look(nodes: Any) -> None:
        for node in nodes:
            called = {name for value in node.attr.values() for name in (value.func.name, *(one.name for one in value.list.func))} - {""}
            if not called and node.op not in ("Placeholder", "NoOp", "Const") and not has_gpu_kernel(node):
                found.add(" ".join([node.op, *sorted(tf.as_dtype(value.type).name for value in node.attr.values() if value.type)]))
            for name in called & functions.keys() - seen:
                seen.add(name)
                if not (node.attr["_XlaMustCompile"].b or functions[name].attr["_XlaMustCompile"].b):
                    look(functions[name].node_def)

    look(graph.node)
    return sorted(found)


def has_gpu_kernel(node: Any) -> bool:
    def takes(kernel: Any) -> bool:
        return all(not (given := node.attr[limit.name].type) or given in limit.allowed_values.list.type for limit in kernel.constraint)

    return any(takes(kernel) for kernel in registered(node.op) if kernel.device_type in ("GPU", "DEFAULT"))


@functools.cache
def registered(operation: str) -> list:
    return list(get_registered_kernels_for_op(operation).kernel)


def cudnn_in(function: Any) -> bool:
    """Whether a traced function has an operation of cuDNN's."""
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
    return any(node.op.startswith("Cudnn") for node in nodes)


def believe_in_a_gpu() -> None:
    """Lets Keras take cuDNN wherever it would on a GPU."""
    kernels.gpus = lambda: True
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
