"""The numeric core of a run in the form of another runtime: what the core of Quartet asks of it. Imports no TensorFlow by itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from extensions.convert import options
from pipelines.base.errors import ConfigError
from pipelines.base.progress import Say
from pipelines.config import guard
from pipelines.runs.folder import RunFolder
from pipelines.serving.forms import Form

if TYPE_CHECKING:
    from pipelines.serving.load import LoadedRun
    from pipelines.serving.predict import Predictor


class Converted(Form):
    """For a mobile, for ONNX Runtime, or for OpenVINO."""

    def wanted(self) -> bool:
        return str(options.asked.made_for) == self.name

    def export(self, run: "LoadedRun", target: Path, *, replace: bool, say: Say) -> None:
        from extensions.convert.export import export_converted

        export_converted(run, target, made_for=self.name, loss=options.asked.loss, replace=replace, say=say)

    def load(self, folder: RunFolder) -> "LoadedRun":
        from extensions.convert.loading import load_converted

        return load_converted(folder)

    def predictor(self, run: "LoadedRun", *, batch: int | None, say: Say) -> "Predictor | None":
        if run.form is None:
            return None
        if options.asked.computed_by != "auto":
            raise ConfigError(f"--form {options.asked.computed_by}: {run.folder.path} was exported in a form of its own; "
                              "serve the run that it was made from")
        from extensions.convert.quick import QuickPredictor

        task: Any = run.task
        return QuickPredictor(run, task.output.core, task.output.outputs, batch=batch)


class Fastest(Converted):
    """The fastest on this processor; a server answers in it, too."""

    def predictor(self, run: "LoadedRun", *, batch: int | None, say: Say) -> "Predictor | None":
        if run.form is not None:
            return super().predictor(run, batch=batch, say=say)
        from extensions.convert.fastest import choices, predictor

        return predictor(run, wanted=options.asked.computed_by, batch=batch, kept=None if guard.active() else choices(), say=say)
