"""`quartet export`: a run as a SavedModel that takes raw input and answers in the user's terms, with all preprocessing
inside.
It needs TensorFlow alone to run (and what Task.needs names): no Keras, none of this project. Its folder is written whole or not at all.
"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base import stored
from pipelines.base.errors import ConfigError, TrainingError
from pipelines.base.files import whole_folder
from pipelines.base.inside import held
from pipelines.base.progress import Say, silent
from pipelines.config.messages import listed
from pipelines.machine.compiling import without_cudnn
from pipelines.runs.folder import RunFolder
from pipelines.serving.answers import class_names, respond
from pipelines.serving.forms import Form
from pipelines.serving.load import LoadedRun, Precision, load_run
from pipelines.task.contract import Task

SIGNATURE = "serving_default"
MANIFEST = "quartet.json"  # what `quartet serve` shows of an exported model


class Sample(stored.Record):
    """One raw input of no meaning: bytes in base64, or zeros of a shape."""

    b64: str | None = None
    shape: list[stored.Count] = []


class Manifest(stored.Record):
    """What the answers of an exported model mean, and an input to warm it up with."""

    title: stored.Text
    task: stored.Text
    outputs: list[stored.Name]  # in their order, which a SavedModel forgets
    meanings: dict[str, stored.Text]
    details: list[stored.Name]
    ranked: list[stored.Name]
    answer_kinds: dict[str, stored.Name] = {}  # of its outputs: pipelines.task.form.ANSWER_KINDS
    fills: dict[str, str | int | float]
    kinds: dict[str, stored.Name] = {}  # of raw inputs that a person enters as they are: pipelines.task.form.FIELD_KINDS
    needs: list[stored.Name]  # modules that hold operations of its graph
    sample: dict[str, Sample]


class Served(tf.Module):
    """The saved object: the variables, the labels, and the function from raw input to answer."""

    def __init__(self, run: LoadedRun, labels: Path | None):
        super().__init__(name="served")
        self.values: list[tf.Variable] = []
        self.labels = tf.saved_model.Asset(str(labels)) if labels else None
        self.resources = list(run.task.input.signature.resources())
        self._run = run

        def answer(**raw: tf.Tensor) -> dict[str, tf.Tensor]:
            return respond(run, run.task.input.receive(raw))

        self.answer = tf.function(answer, autograph=False)

    def signature(self) -> Any:
        """The function for raw_spec, traced."""
        specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in self._run.task.input.raw_spec().items()}
        with without_cudnn(self._run.model):  # a model from a GPU must run on a CPU
            traced = self.answer.get_concrete_function(**specs)
        self.values = list(traced.variables)  # only those it reads, as plain variables, so that the saved object graph holds no Keras
        return traced


def export_run(folder: RunFolder, target: Path, form: Form | None = None, *, precision: Precision | None = None, replace: bool = False,
               say: Say = silent) -> LoadedRun:
    """Writes the model of a run in another form, or as a SavedModel. Returns the run as it was loaded for that.

    Args:
        target: as `export`.
        precision: that a SavedModel computes in; None: as the run was judged.
        say: gets what the form has to say of it.

    Raises:
        ConfigError: the target is there already; as load_run and `Form.export`.
        TrainingError: it cannot be written.
    """
    if form is not None and precision not in (None, "float32"):
        raise ConfigError(f"--precision: is for a SavedModel; {form.name} is made from float32")
    free(target, replace)
    run = load_run(folder, where="cpu", precision="float32" if form else precision)
    if form is not None:
        form.export(run, target, replace=replace, say=say)
    else:
        export(run, target, replace=replace)
    return run


def export(run: LoadedRun, target: Path, *, replace: bool = False) -> Path:
    """Writes the SavedModel with labels.txt and README.txt. Returns its folder.

    Args:
        run: loaded on one device.
        target: the folder; its parent is created.
        replace: an existing folder may be replaced; it stays whole until then.

    Raises:
        ConfigError: the folder exists.
        TrainingError: it cannot be written.
    """
    free(target, replace)
    with writing(run, target, replace=replace) as staging:
        classes = class_names(run.task, len(run.task.facts.get("classes") or ()))
        labels = staging / "labels.txt" if classes else None
        if labels and classes:
            labels.write_text("".join(f"{' '.join(name.splitlines())}\n" for name in classes), encoding="utf-8")
        module = Served(run, labels)
        signature = module.signature()
        tf.saved_model.save(module, str(staging), signatures={SIGNATURE: signature})
        if labels:
            labels.unlink()  # it is now in assets/
        (staging / "README.txt").write_text(readme(run, target, signature), encoding="utf-8")
        (staging / MANIFEST).write_text(manifest(run, list(signature.structured_outputs)).model_dump_json(), encoding="utf-8")
    return target


@contextmanager
def writing(run: LoadedRun, target: Path, *, replace: bool) -> Iterator[Path]:
    """An empty folder that becomes the target at the end, whole or not at all; encrypted where the run is.

    Raises:
        TrainingError: the target cannot be written.
    """
    try:
        with held(run.folder.path), whole_folder(target, replace=replace, like=run.folder.model) as staging:
            yield staging
    except (OSError, tf.errors.ResourceExhaustedError) as error:
        raise TrainingError(f"{target}: the model cannot be written: {getattr(error, 'strerror', None) or error}") from error


def manifest(run: LoadedRun, outputs: list[str]) -> Manifest:
    """Of a run whose model gives `outputs`, in that order."""
    task = run.task
    sample = {name: Sample(b64=base64.b64encode(value).decode()) if isinstance(value, bytes) else Sample(shape=list(np.shape(value)))
              for name, value in task.input.requests.sample().items()}
    requests, shown = task.input.requests, task.output.answers
    fills = {name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value for name, value in requests.fills.items()}
    form, raw = requests.form(), task.input.raw_spec()
    names = list(raw) if len(raw) == len(form) == 1 and not form[0].name else [field.name for field in form]
    kinds = {name: field.kind for name, field in zip(names, form) if name in raw}
    return Manifest(title=f"{run.name}/{run.folder.path.name}", task=task.experiment.task, outputs=outputs, meanings=_meanings(task),
                    details=list(shown.details), needs=list(task.input.signature.needs), ranked=list(shown.ranked),
                    answer_kinds=dict(shown.kinds), fills=fills, kinds=kinds, sample=sample)


def free(target: Path, replace: bool) -> None:
    """Raises ConfigError where the folder exists and may not be replaced."""
    if not target.exists():
        return
    if not replace:
        raise ConfigError(f"{target}: is there already; --output DIR names another place, --replace writes over it")
    if not any((target / name).is_file() for name in ("saved_model.pb", "manifest.json")):
        raise ConfigError(f"{target}: is no exported model, and so is not replaced; --output DIR names another place")


def readme(run: LoadedRun, target: Path, signature: Any) -> str:
    """README.txt: inputs, outputs, and how to call the model."""
    task, classes = run.task, run.task.facts.get("classes")
    takes = {name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in task.input.raw_spec().items()}
    meanings = _meanings(task)

    def lines(specs: dict[str, Any]) -> list[str]:
        return [f"  {name}: {_shape(spec)}{f' - {meanings[name]}' if name in meanings else ''}" for name, spec in specs.items()]

    gives = signature.structured_outputs
    precision = f"Computes in {run.machine.precision}" + (
        ", as the run was judged." if run.machine.precision == run.judged_precision else f"; the run was judged in {run.judged_precision}.")
    example = [
        "import tensorflow as tf", *(f"import {name}  # some of the model's operations are in it" for name in task.input.signature.needs),
        f"model = tf.saved_model.load({str(target.name)!r})  # keep the model: its functions need it",
        *(f"{name} = {task.input.signature.examples.get(name) or _example(spec)}" for name, spec in takes.items()),
        f"answer = model.signatures[{SIGNATURE!r}]({', '.join(f'{name}={name}' for name in takes)})",
        "print({name: value.numpy() for name, value in answer.items()})",
    ]
    parts = [
        f"{run.name} ({task.experiment.task}), run {run.folder.path.name}: a TensorFlow SavedModel.",
        f"It needs {listed(('TensorFlow 2.21 or later', *task.input.signature.needs), 'and')}, nothing else. All preprocessing is inside; "
        "any number of inputs at once.", precision, "",
        f"Signature {SIGNATURE!r} takes", *lines(takes), "and gives", *lines(gives)]
    if classes:
        parts += ["", f"labels.txt in assets/ holds the {len(classes)} class names, in the order of the probabilities."]
    return "\n".join([*parts, "", *(f"    {line}" for line in example), ""])


def _meanings(task: Task) -> dict[str, str]:
    """Of each input and output."""
    return {**task.input.signature.meanings, **task.output.answers.meanings}


def _example(spec: Any) -> str:
    """Python for a batch of one, of a kind and shape that the model takes."""
    sizes = [1 if size is None else size for size in spec.shape]
    if spec.dtype == tf.string:
        return f"tf.fill({sizes}, '...')"
    return f"tf.zeros({sizes}, tf.{spec.dtype.name})"


def _shape(spec: Any) -> str:
    sizes = ["batch", *("any" if size is None else str(size) for size in spec.shape[1:])]
    return f"[{', '.join(sizes)}] {spec.dtype.name}"
