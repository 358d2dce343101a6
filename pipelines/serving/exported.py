"""An exported model (`quartet export`) as a server has it: its SavedModel answers batches of raw examples."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.op_def_pb2 import OpList
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.client import pywrap_tf_session

from pipelines.base.errors import ConfigError
from pipelines.base.inside import refuse_links
from pipelines.base.storage import readable
from pipelines.base.stored import read
from pipelines.config import guard
from pipelines.data.reasons import reason
from pipelines.serving.answers import bounded_parts, stacked_by
from pipelines.serving.export import MANIFEST, SIGNATURE, Manifest
from pipelines.serving.output import Prediction
from pipelines.serving.predict import UNREADABLE, rows_of
from pipelines.task.form import FIELD_KINDS, Field, fields_of
from pipelines.task.requests import raw_example

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


OPERATIONS = ("tensorflow_text",)  # modules that may be imported for the operations of a graph
BATCH = 64  # examples answered at a time
LARGE = 1 << 20  # bytes of an input that others do not wait for


class ExportedModel:
    """Answers raw examples with a SavedModel; see Answerer for its attributes."""

    decodes = False

    def __init__(self, folder: Path, *, batch: int | None = None):
        """Raises ConfigError where the folder holds no exported model, or one that reaches for files or code."""
        refuse_links(folder)
        with readable(folder) as plain:
            self._load(plain, batch)

    def _load(self, folder: Path, batch: int | None) -> None:
        if not (folder / MANIFEST).is_file():
            raise ConfigError(f"{folder}: has no {MANIFEST}, which `quartet export` writes; export the run again")
        self._manifest = read(folder / MANIFEST, Manifest)
        for name in self._manifest.needs:
            if name not in OPERATIONS:
                raise ConfigError(f"{folder / MANIFEST}: needs the module {name}, which is none of {', '.join(OPERATIONS)}")
            try:
                import_module(name)
            except ImportError as error:
                raise ConfigError(f"{folder}: its model needs {name}: pip install {name.replace('_', '-')} ({error})") from None
        refuse_reaching(folder)
        try:
            self._loaded = tf.saved_model.load(str(folder))  # its functions need it
            self._answer = self._loaded.signatures[SIGNATURE]
        except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, tf.errors.OpError) as error:
            raise ConfigError(f"{folder}: is no model that can be loaded ({reason(error)})") from error
        self.title, self.task, self.batch = self._manifest.title, self._manifest.task, batch or BATCH
        self.inputs: dict[str, tf.TensorSpec] = {
            name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in self._answer.structured_input_signature[1].items()}
        given = self._answer.structured_outputs
        if set(given) != set(self._manifest.outputs):
            raise ConfigError(f"{folder / MANIFEST}: is not of this model, which gives {', '.join(given)}")
        self.outputs: dict[str, tf.TensorSpec] = {
            name: tf.TensorSpec(given[name].shape, given[name].dtype) for name in self._manifest.outputs}
        self.columns: dict[str, int] = {name: spec.shape.rank for name, spec in self.outputs.items()}
        labels = folder / "assets" / "labels.txt"
        try:
            classes = labels.read_text(encoding="utf-8").split("\n")[:-1] if labels.is_file() else []
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"{labels}: cannot be read ({reason(error)}); export the run again") from error
        vector = next((spec for spec in self.outputs.values() if spec.shape.rank == 2), None)
        self.classes: list[str] | None = classes if classes and vector is not None and vector.shape[1] == len(classes) else None
        self.meanings: Mapping[str, str] = self._manifest.meanings
        self.form: Sequence[Field] = fields_of(self.inputs, self.meanings, {
            name: kind for name, kind in self._manifest.kinds.items() if kind in FIELD_KINDS and name in self.inputs})
        self.details: Sequence[str] = self._manifest.details
        self.ranked: Sequence[str] = self._manifest.ranked
        self.kinds: Mapping[str, str] = self._manifest.answer_kinds
        names = ", ".join(f"{name}: {list(spec.shape[1:])} {spec.dtype.name}" for name, spec in self.inputs.items())
        self.sends = f'an object with a value of each input ({names}), or of a single one its value; bytes as {{"b64": "..."}}'

    def take(self, sent: Any) -> dict[str, Any]:
        return raw_example(sent, self.inputs)

    def large(self, row: dict[str, Any]) -> bool:
        """By its bytes: a SavedModel does not say what they are."""
        return any(isinstance(value, bytes) and len(value) > LARGE for value in row.values())

    def heavy(self, sent: bytes) -> bool:
        return False

    def together(self, read: list[Any]) -> list[Prediction]:
        """As Answerer; an input that the model cannot take has an error."""
        try:
            rows = [row for _, row in read]
            return [one for part in bounded_parts(self.inputs, rows) for one in self._predictions(read[part])]
        except UNREADABLE as error:
            if len(read) == 1:
                return [Prediction(read[0][0], error=reason(error))]
            return [one for each in read for one in self.together([each])]

    def _predictions(self, read: list[Any]) -> list[Prediction]:
        batch = stacked_by(self.inputs, [row for _, row in read], self._manifest.fills)
        answers = {name: value.numpy() for name, value in self._answer(**batch).items()}
        rows = rows_of({name: answers[name] for name in self.outputs}, self.ranked, self.details, self.kinds)
        return [Prediction(name, values) for (name, _), values in zip(read, rows)]

    def warm_up(self) -> None:
        row = {}
        with suppress(*UNREADABLE, binascii.Error, KeyError):  # then the first input takes longer
            for name, spec in self.inputs.items():
                sample = self._manifest.sample[name]
                row[name] = base64.b64decode(sample.b64) if sample.b64 is not None else (
                    np.full(sample.shape, b"", object) if spec.dtype == tf.string else np.zeros(sample.shape, spec.dtype.as_numpy_dtype))
            for count in (1, self.batch):
                self._predictions([("warm-up", row)] * count)


def load_exported(folder: Path, *, batch: int | None = None) -> ExportedModel:
    """Loads an exported model, once the guards have looked at it.

    Raises:
        ConfigError: as ExportedModel; Untrusted where a guard refuses it.
    """
    with guard.opened(folder) as path:
        return ExportedModel(path, batch=batch)
