"""A form of half the size, and the option that asks for it."""

from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

import quartet


@contextmanager
def halved(halves: Annotated[bool, typer.Option("--halves", help="Weights in 16 bits.")] = False):
    """The option --halves."""
    Halves.asked = halves
    yield


class Halves(quartet.Form):
    """Weights in 16 bits."""

    asked = False

    def wanted(self):
        return self.asked

    def export(self, run, target, *, replace, say):
        from pipelines.serving.export import writing
        from pipelines.serving.forms import describe

        with writing(run, target, replace=replace) as staging:
            describe(run, staging, self.name)
            np.savez(staging / "model" / "weights.npz", *(weight.astype(np.float16) for weight in run.model.get_weights()))
            (staging / "README.txt").write_text("Weights in 16 bits: quartet predict FOLDER INPUT...\n", encoding="utf-8")

    def load(self, folder):
        from pipelines.serving.load import Described

        run = Described.of(folder).run()
        model = run.task.model()
        with np.load(folder.model / "weights.npz", allow_pickle=False) as weights:
            model.set_weights([weights[name] for name in weights.files])
        return replace(run, model=model)
