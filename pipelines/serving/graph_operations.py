"""What the graph of somebody's SavedModel may do: compute. Checked before TensorFlow loads it.

A graph is a program: its operations could read and write any file, or run code. Every operation that loading or answering could reach has
to be one that is known to reach nothing outside: one of `STATEFUL`, or one that TensorFlow declares to have no state and whose name
is none of `OUTWARD`. What this TensorFlow does not know is refused, too.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorflow.core.framework.op_def_pb2 import OpList
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.client import pywrap_tf_session

from pipelines.base.errors import ConfigError
from pipelines.data.reasons import reason

# operations with a state of their own that stays in the model: variables, tables, control flow, random numbers
STATEFUL = re.compile(
    "VarHandleOp|ReadVariableOp|AssignVariableOp|VarIsInitializedOp|VariableShape|ResourceGather|ResourceGatherNd|StatefulPartitionedCall|While|If|"
    "Case|Assert|CheckNumerics|CheckNumericsV2|GuaranteeConst|Empty|TensorArray[A-Za-z]*V3|HashTableV2|AnonymousHashTable|MutableHashTableV2|"
    "AnonymousMutableHashTable|LookupTable(Find|Size|Import|Export|Insert)V2|InitializeTableV2|RandomUniform|RandomUniformInt|"
    "RandomStandardNormal|TruncatedNormal|RandomShuffle|StatelessRandomGetAlg|Sentencepiece[A-Za-z]*|TFText>.*")
# of those without a state, what names files, addresses, libraries or code, or moves tensors elsewhere
OUTWARD = re.compile(
    ".*(File|Dataset|Reader|Debug|PyFunc|Proto|Summary|Snapshot|Save|Restore|Checkpoint|LoadAndRemap|Vocab|CustomCall|Tpu|TPU|Collective|"
    "ImmutableConst|HostConst|CustomAggregator|Calibration|BatchFunction|Remote|Rpc|XlaLaunch|DumpTensor).*|_.*|Copy.*|Func(List)?Attr|Batch|"
    "Unbatch|UnbatchGrad")


def refuse_reaching(folder: Path) -> None:
    """Raises ConfigError where a SavedModel has an operation that could reach for files or code, or cannot be read."""
    file = folder / "saved_model.pb"
    try:
        model = SavedModel.FromString(file.read_bytes())
    except Exception as error:  # protobuf's DecodeError, and OSError
        raise ConfigError(f"{file}: cannot be read ({reason(error)})") from error
    if len(model.meta_graphs) != 1 or not model.meta_graphs[0].HasField("object_graph_def"):
        raise ConfigError(f"{file}: is no model of TensorFlow 2, which `quartet export` writes")
    known = OpList()
    known.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    stateful = {one.name: one.is_stateful for one in known.op}
    own = {one.signature.name for one in model.meta_graphs[0].graph_def.library.function}
    for operation in sorted(set(_reachable(model.meta_graphs[0])) - own):
        fine = operation in stateful and (STATEFUL.fullmatch(operation) or (not stateful[operation] and not OUTWARD.fullmatch(operation)))
        if not fine:
            raise ConfigError(f"{folder}: its model has the operation {operation}, which reaches for files or code, or is unknown here; no "
                              "export of quartet has it")


def _reachable(graph: Any) -> Iterator[str]:
    """The operations of the functions that loading and answering may call, and of those that they call. The functions that save and restore
    stand beside them; nothing here calls them, and a model that does has their operations among these."""
    functions = {one.signature.name: one for one in graph.graph_def.library.function}
    waiting, seen = list(graph.object_graph_def.concrete_functions), set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        for node in functions[name].node_def:
            yield node.op
            waiting.append(node.op)  # a function may be called by its name, like an operation
            for value in node.attr.values():
                waiting += [value.func.name] if value.HasField("func") else [one.name for one in value.list.func]
