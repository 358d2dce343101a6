"""An exported model as MLflow loads it: mlflow.pyfunc.load_model("models:/NAME@ALIAS").predict(table). Named in the MLmodel files that
`quartet register` writes, so that it stays where it is."""

from pathlib import Path
from typing import Any

import numpy as np

from pipelines.serving.exported import ExportedModel, load_exported

DATA = "export"  # the SavedModel's folder, in that of the registered model


class Answers:
    """Answers the rows of a pandas table, or lists by the input's name, as the server would; an input that cannot be read raises."""

    def __init__(self, model: ExportedModel):
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """A pandas table with a column for each output; `params` are not used.

        Raises:
            ValueError: an input that the model cannot take; names its row.
        """
        import pandas as pd

        table = model_input if isinstance(model_input, pd.DataFrame) else pd.DataFrame(model_input)
        rows = [(str(number), self.model.take(row)) for number, row in enumerate(table.to_dict("records"))]
        answers = []
        for start in range(0, len(rows), self.model.batch):
            answers += self.model.together(rows[start:start + self.model.batch])
        wrong = next((one for one in answers if one.error), None)
        if wrong is not None:
            raise ValueError(f"row {wrong.name}: {wrong.error}")
        values = [{name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in one.values.items()}
                  for one in answers]
        return pd.DataFrame(values, columns=list(self.model.outputs))


def _load_pyfunc(path: str) -> Answers:
    """Called by MLflow, with the folder of the SavedModel."""
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    return Answers(load_exported(Path(path)))
