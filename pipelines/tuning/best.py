"""The best setting as an experiment: best.yaml for `train`, and what is trained over several seeds. Imports no TensorFlow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.base import formatting, storage
from pipelines.config.schema import Experiment
from pipelines.config.space import laid_over
from pipelines.config.yaml_text import to_yaml
from pipelines.stores.copies import named


def best_yaml(experiment: Experiment, name: str, best: Any, trials: int, objective: str, file: Path) -> str:
    """The experiment with the best setting, as short as it was given, without its tune section; its first lines say where it is from.

    Args:
        best: the trial: `number`, `values`, `value`.
        file: where it will stand.
    """
    document = laid_over(type(experiment), experiment.model_dump(mode="python", exclude_unset=True), best.values)
    del document["tune"]
    algorithm = experiment.tune.algorithm if experiment.tune else ""
    call = f"quartet train {named(str(file))} --name {run_name(name, file.parent.name)}{storage.options(file.parent)}"
    return (f"# The best of {trials} trials ({algorithm} search) over {name}: trial {best.number}, "
            f"validation {formatting.title(objective).lower()} {formatting.number(float(best.value), objective)}.\n"
            f"#   {call}\n" + to_yaml(document))


def run_name(experiment: str, search: str) -> str:
    """What to call a run of best.yaml: the files of all searches have one name, so that their runs stand in one folder."""
    return f"{experiment.rpartition('/')[2]}-{search}"


def repeated_yaml(experiment: Experiment, values: Mapping[str, Any], seeds: int, precision: str) -> str:
    """The experiment with a setting, over several seeds, in the precision that the trials were compared in."""
    document = laid_over(type(experiment), experiment.model_dump(mode="python"), {**values, "seeds": seeds})
    if document["train"]["precision"] == "auto":
        document["train"]["precision"] = precision
    return to_yaml(document)
