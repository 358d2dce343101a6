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
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework.kernels import get_registered_kernels_for_op

from pipelines.machine import kernels
from pipelines.training.chain import Replica
from pipelines.training.embedding_tables import tables_of
from pipelines.training.step import Step

COMMON = ("train.xla=on", "train.devices=cpu", "train.precision=bfloat16", "train.epochs=1")


def rehearse(text: str, overrides: list[str], whole: bool = False) -> dict:
    """One experiment's first step, of eight examples; `whole`: of its own batch, with what was lowered as `made`."""
    from pipelines.config.load import from_text, load
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.launch import task_class
    from pipelines.serving.export import Served
    from pipelines.serving.load import LoadedRun
    from pipelines.training.session import assemble

    overrides = [*COMMON, *(() if whole else ("train.batch_size=8",)), *overrides]
    known = from_text(text, overrides, file="rehearsal") if "\n" in text else load(text, overrides)
    session = assemble(known.experiment, task_class(known.experiment.task))
    step = session.step
    iterator = session.feed.iterator(0, 1)
    if step.feed.on_device:
        step.feed._copies = [{name: kernels.held(value) for name, value in copy.items()} for copy in step.feed._copies]
    trained = step._run.get_concrete_function(iterator, tf.constant(0, tf.int64), tf.constant(1, tf.int64), step.fresh())
    found = {"xla": session.machine.xla, "host": on_the_host(trained)}
    if whole:
        weights = sum(int(variable.shape.num_elements()) for variable in session.weights)
        return {**found, "weights": weights, "batch": step.plan.micro, "made": lowered(step, iterator, update_too=True)}
    if session.machine.xla:
        return {**found, "error": None if "dot" in lowered(step, iterator, update_too=False)["gradients"] else "nothing is multiplied"}
    served = Served(LoadedRun(session.task, session.model, known.experiment, RunFolder(Path()), session.machine, "float32", "rehearsal"),
                    None)
    return {**found, "error": None, "cudnn": cudnn_in(trained), "served with cudnn": cudnn_in(served.signature()),
            "note": session.machine.notes[-1]}


def lowered(step: Step, iterator: Any, *, update_too: bool) -> dict[str, str]:
    """What XLA compiles of the first step, as StableHLO for a GPU: `gradients`, the pass over its first micro-batch forward and back, and
    `update`, the chain of links; nothing of what it does not compile."""
    found: dict[str, str] = {}
    done: dict[str, Any] = {}
    tables, traced = tables_of(step.model), step._gradients._function.python_function
    held = [table._held for table in tables]

    def lower(what: str, pure: Callable, arguments: tuple) -> Any:
        """The compiled function, lowered from its one trace."""
        compiled = tf.function(pure, jit_compile=True, autograph=False)
        found[what] = str(compiled.experimental_get_compiler_ir(*arguments)(stage="stablehlo", platform_name="GPU"))
        return compiled

    def gradients(*arguments: Any) -> Any:
        if "zeros" in done:
            return done["zeros"]

        def pure(rows: list[tf.Tensor], *given: Any) -> Any:
            """TensorFlow lowers what reads variables for devices that are there alone: tables are arguments here."""
            for table, value in zip(tables, rows):
                table._held = SimpleNamespace(variable=SimpleNamespace(value=value))
            try:
                return traced(*given)
            finally:
                for table, one in zip(tables, held):
                    table._held = one

        given = ([tf.convert_to_tensor(one.variable.value) for one in held], *arguments)
        function = lower("gradients", pure, given) if step.machine.xla else tf.function(pure, autograph=False)
        if not update_too:
            raise StopIteration
        sums = function.get_concrete_function(*given).structured_outputs
        done["zeros"] = tf.nest.map_structure(lambda value: tf.zeros([size or 1 for size in value.shape], value.dtype), sums)
        return done["zeros"]

    def update(*arguments: Any) -> Any:
        if step.chain.fuse:
            lower("update", step.chain._updated, arguments)
        raise StopIteration

    kept = step._gradients, step.chain._update
    step._gradients, step.chain._update = gradients, update
    one = tf.constant(1.0)
    try:
        with contextlib.suppress(StopIteration):
            sums = step._summed(tf.constant(0, tf.int64), step.feed.fetched(iterator, deterministic=False)[0], None)
            step.chain.write(Replica(step.machine), tf.constant(0, tf.int64), sums, one, one, 1)
    finally:
        step._gradients, step.chain._update = kept
    return found


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
