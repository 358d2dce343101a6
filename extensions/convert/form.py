"""The numeric core of a run in the form of another runtime: what the core of Quartet asks of it. Imports no TensorFlow by itself."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from extensions.convert import options
from pipelines.runs.folder import RunFolder
from pipelines.serving.forms import Form

if TYPE_CHECKING:
    from pipelines.serving.load import LoadedRun
    from pipelines.serving.predict import Predictor


class Converted(Form):
    """For a mobile, for ONNX Runtime, or for OpenVINO."""

    def wanted(self) -> bool:
        return options.asked.made_for == self.name

    def export(self, run: "LoadedRun", target: Path, *, replace: bool, say: Callable[[str], None]) -> None:
        from extensions.convert.export import export_converted

        export_converted(run, target, made_for=self.name, loss=options.asked.loss, replace=replace, say=say)

    def load(self, folder: RunFolder) -> "LoadedRun":
        from extensions.convert.loading import load_converted

        return load_converted(folder)


class Fastest(Converted):
    """The fastest on this processor; a server answers in it, too."""

    def predictor(self, run: "LoadedRun", *, batch: int | None, keep: bool, say: Callable[[str], None]) -> "Predictor":
        from extensions.convert.fastest import choices, predictor

        return predictor(run, wanted=options.asked.serve, batch=batch, kept=choices() if keep else None, say=say)
