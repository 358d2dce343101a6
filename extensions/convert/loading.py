"""A model that was converted from a run (`quartet export --for mobile`, ...), loaded as a run is: predict, evaluate and serve take it.

Its folder holds the run's experiment and facts, which decode inputs and word answers, and the numeric core in another form. No code of
it is executed, and its core is what the manifest's checksum says.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import tensorflow as tf

from extensions.convert.runtimes import PACKAGES, load
from pipelines.base import stored
from pipelines.base.errors import ConfigError
from pipelines.base.storage import readable
from pipelines.config.messages import listed
from pipelines.data.reasons import reason
from pipelines.data.source import Tensors
from pipelines.machine.startup import silenced
from pipelines.runs.folder import RunFolder
from pipelines.serving.load import Described, LoadedRun
from pipelines.task.contract import Task


class Tensor(stored.Record):
    """A tensor with its batch; null: any size."""

    name: stored.Name
    dtype: Literal["float32", "float64", "int32", "int64", "uint8", "bool"]
    shape: list[stored.Count | None]

    @classmethod
    def of(cls, name: str, spec: tf.TensorSpec) -> "Tensor":
        return cls(name=name, dtype=spec.dtype.name, shape=spec.shape.as_list())

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec(self.shape, tf.as_dtype(self.dtype))


class Measured(stored.Record):
    """The score and the time of one input, with 95 % intervals."""

    score: stored.StoredMetric | None = None
    milliseconds: stored.StoredMetric | None = None


class Manifest(stored.Record):
    """manifest.json.

    Attributes:
        files: SHA-256 of each file of the core.
        shares: places of answers that sum to 1 and were rounded to 8 bits.
        weights: bytes of the weights as they were trained; nbytes: of the core's files.
        split, examples, metric: what both were judged on.
        decode: what decode.py needs, where there is one; not_alone: why there is none.
    """

    title: stored.Text
    task: stored.Text
    made_for: stored.Name
    form: stored.Name
    runtime: Literal["litert", "onnx", "openvino"]
    core: stored.FolderName
    files: dict[stored.FolderName, stored.Text]
    nbytes: stored.Count
    weights: stored.Count
    input: Tensor
    answers: list[Tensor]
    shares: list[stored.Count] = []
    split: stored.Name
    examples: stored.Count
    metric: stored.Name
    model: Measured
    export: Measured
    lost: stored.StoredMetric | None = None
    largest: float
    notes: list[stored.Text] = []
    classes: list[stored.Text] | None = None
    decode: dict[str, Any] | None = None
    not_alone: stored.Text | None = None


class _Converted:
    """In front of the class of a task's output: answers come from a converted core, and no Keras model is there to look into."""

    core: ClassVar[Any]  # numeric core, a function of arrays
    outputs: ClassVar[dict[str, tf.TensorSpec]]

    def answer(self, model: Any, inputs: tf.Tensor) -> Tensors:
        specs = list(self.outputs.values())
        values = tf.numpy_function(type(self).core.__call__, [inputs], [spec.dtype for spec in specs], stateful=False)
        return {name: tf.ensure_shape(value, spec.shape) for name, value, spec in zip(self.outputs, values, specs)}

    def explain(self, *_: Any) -> None:
        pass


class _ConvertedTask:
    """In front of a task's class: its output is a converted one."""

    answering: ClassVar[dict[str, Any]]  # what `_Converted` asks for

    def __init__(self, *given: Any):
        super().__init__(*given)
        kind: Any = type(self.output)  # type: ignore[has-type]
        self.output: Any = type(kind.__name__, (_Converted, kind), self.answering)(self)


def load_converted(folder: RunFolder) -> LoadedRun:
    """A run without a Keras model: `model` is None.

    Raises:
        ConfigError: damaged, changed, or its runtime is not installed.
    """
    run = Described.of(folder).run()
    manifest = stored.read(folder.manifest, Manifest)
    core = core_of(folder.model, manifest)
    experiment = run.task.experiment
    evaluate = experiment.evaluate.model_copy(update={"metrics": []})  # those are of the model's outputs, which are not there
    outputs = {one.name: one.spec for one in manifest.answers}
    kind: Any = type(type(run.task).__name__, (_ConvertedTask, type(run.task)), {"answering": {"core": core, "outputs": outputs}})
    task: Task = kind(experiment.model_copy(update={"evaluate": evaluate}), run.task.facts)
    return replace(run, task=task, name=manifest.title.rpartition("/")[0])


class _Plain:
    """A core whose runtime's own errors, which of a damaged one may come only when it computes, are those of any input that cannot be
    answered."""

    def __init__(self, compute: Any, failing: str):
        self._compute, self._failing = compute, failing

    def __call__(self, values: Any) -> list[Any]:
        try:
            answers: list[Any] = self._compute(values)
        except RuntimeError as error:
            raise ValueError(f"{self._failing} ({reason(error)})") from error
        return answers


def core_of(folder: Path, manifest: Manifest) -> Any:
    """The core as a function of arrays. Raises ConfigError."""
    if manifest.core not in manifest.files:
        raise ConfigError(f"{folder.parent}: its manifest names no checksum of {manifest.core}; export the run again")
    for name, wanted in manifest.files.items():
        try:
            found = checksum(folder / name)
        except OSError as error:
            raise ConfigError(f"{folder / name}: cannot be read ({reason(error)}); export the run again") from error
        if found != wanted:
            raise ConfigError(f"{folder / name}: is not the file that was exported (its checksum is another one); export the run again")
    package = PACKAGES[manifest.runtime]
    try:
        with silenced(), readable(folder) as plain:
            compute = load(manifest.runtime, plain / manifest.core, list(manifest.shares))
    except ImportError as error:
        raise ConfigError(f"{folder.parent}: its model needs {package}: pip install {package} ({error})") from None
    except Exception as error:  # whatever a runtime fails with
        raise ConfigError(f"{folder / manifest.core}: {listed([package], 'and')} cannot load it ({reason(error)})") from error

    return _Plain(compute, f"{manifest.core}: {package} cannot compute it")


def checksum(file: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with stored.open_regular(file) as opened:
        while part := opened.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()
