"""Other forms of a finished model than the SavedModel of `quartet export`: the door `form`, and what the core asks through it.

An export in such a form is a folder with the run's settings and facts, which decode inputs and word answers (`describe`), the model in
files of the form's own, and manifest.json, whose `made_for` names the form. Starts no TensorFlow by itself.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pipelines.base import stored
from pipelines.base.errors import ConfigError
from pipelines.base.files import finite
from pipelines.base.progress import Say, silent
from pipelines.config import guard
from pipelines.config.doors import FORMS
from pipelines.config.registry import import_extensions
from pipelines.config.yaml_text import resolved_yaml
from pipelines.runs.folder import RunFolder
from pipelines.serving.output import Prediction

if TYPE_CHECKING:
    from pipelines.serving.load import LoadedRun, Precision
    from pipelines.serving.predict import Predictor


class Manifest(stored.Record):
    """What the core reads of manifest.json."""

    made_for: stored.Name


class Form:
    """A form that a finished model can be exported in; register it with `quartet.register_form(NAME)`.

    Attributes:
        name: by which it is registered; its exports stand in RUN/export-NAME.
    """

    def __init__(self, name: str):
        self.name = name

    def wanted(self) -> bool:
        """Whether this call of `quartet export` asks for it, by an option that its extension has added. Imports no TensorFlow."""
        return False

    def export(self, run: "LoadedRun", target: Path, *, replace: bool, say: Say) -> None:
        """Writes the folder (`pipelines.serving.export.writing`) once it is known that the form answers as it should.

        Args:
            run: in float32, on the CPU.
            say: gets lines for the person who waits.

        Raises:
            ConfigError: the form cannot be made of this model, or what it needs is not installed.
            TrainingError: it cannot be written.
        """
        raise NotImplementedError

    def load(self, folder: RunFolder) -> "LoadedRun":
        """An export as a run that answers. No code of the folder is executed.

        Raises:
            ConfigError: it is damaged, or what it needs is not installed.
        """
        raise NotImplementedError

    def predictor(self, run: "LoadedRun", *, batch: int | None, say: Say) -> "Predictor | None":
        """What answers a server's inputs, for a run as it was judged, or for an export in this form; None: the core's Predictor.

        Args:
            batch: examples answered at a time; None: the task's.

        Raises:
            ConfigError: the person asked for what this run cannot have.
        """
        return None


def forms() -> list[Form]:
    """Each form that is registered."""
    import_extensions()
    return [entry.load()(entry.name) for entry in FORMS.entries()]


def wanted() -> Form | None:
    """The form that this call of `quartet export` asks for; None: a SavedModel."""
    return next((form for form in forms() if form.wanted()), None)


def default_folder(run: Path, form: Form | None) -> Path:
    """Where an export goes that no person has named a place for."""
    return run / ("export" if form is None else f"export-{form.name}")


def describe(run: "LoadedRun", folder: Path, made_for: str, **more: Any) -> None:
    """Writes what every export in another form has: settings, facts, and a manifest that names the form and holds `more`."""
    there = RunFolder(folder)
    there.model.mkdir()
    there.facts.write_text(json.dumps(finite(run.task.facts)), encoding="utf-8")
    there.experiment.write_text(resolved_yaml(run.experiment), encoding="utf-8")
    kept = {name: run.environment[name] for name in ("data", "fingerprints", "extensions")}  # nothing of the machine
    there.environment.write_text(json.dumps({"precision": "float32", **kept}), encoding="utf-8")
    there.manifest.write_text(json.dumps({"made_for": made_for, **more}, indent=1), encoding="utf-8")


def open_run(folder: RunFolder, *, where: Literal["auto", "cpu"] | int = "auto",
             precision: "Precision | None" = None) -> "LoadedRun":
    """A run, or an export of one in another form, as load_run has it, with its errors; an export computes as its form does."""
    from pipelines.serving.load import load_run

    if not folder.manifest.is_file():
        return load_run(folder, where=where, precision=precision)
    with guard.opened(folder.path) as path:
        copy = RunFolder(path)
        name = stored.read(copy.manifest, Manifest).made_for
        form = next((one for one in forms() if one.name == name), None)
        if form is None:
            raise ConfigError(f"{folder.path}: is exported for {name}, and no extension that is installed here reads this form")
        return replace(form.load(copy), folder=folder, form=name)


def predictor(run: "LoadedRun", *, batch: int | None = None, say: Say = silent) -> "Predictor":
    """What answers a server's inputs: of a run the first form that offers to, of an export its own; else the core, as it was judged.

    Raises:
        ConfigError: as forms do.
    """
    from pipelines.serving.predict import Predictor

    asked = (form for form in forms() if run.form in (None, form.name))
    offered = (form.predictor(run, batch=batch, say=say) for form in asked)
    return next((one for one in offered if one is not None), None) or Predictor(run, batch=batch)


def difference(one: Prediction, other: Prediction) -> float:
    """The largest difference of any number of two answers; infinite where a text differs."""
    if (one.error is None) != (other.error is None) or set(one.values) != set(other.values):
        return float("inf")
    largest = 0.0
    for name, value in one.values.items():
        first, second = np.asarray(value), np.asarray(other.values[name])
        if first.dtype.kind in "fiu" and first.shape == second.shape:
            largest = max(largest, float(np.abs(first.astype(np.float64) - second).max(initial=0.0)))
        elif not np.array_equal(first, second):
            return float("inf")
    return largest
