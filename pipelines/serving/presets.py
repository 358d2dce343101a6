"""A preset by itself, as a run that was never trained."""

from pathlib import Path

from pipelines.base.errors import ConfigError
from pipelines.config.registry import part
from pipelines.config.train_settings import to_answer
from pipelines.encoders.presets import find
from pipelines.machine import devices
from pipelines.runs.folder import RunFolder
from pipelines.serving.load import LoadedRun
from pipelines.task.contract import Task


def of_preset(handle: str, module: str, *, what: str) -> LoadedRun:
    """A preset with the task that a domain's `module` has for it: `task`, from preset to task.

    Args:
        what: what such a module makes of presets, for messages.

    Raises:
        ConfigError: there is no such preset, it cannot be used, or it is of no domain.
    """
    preset = find(handle, key="PRESET")
    made = part(preset.domain, module)
    if made is None:
        raise ConfigError(f"{handle} ({preset.backbone}) is no {what}")
    task: Task = made.task(handle)
    machine = devices.prepare(to_answer(task.experiment.train, 1), precision="float32")
    with machine.strategy.scope():
        model = task.model()
    return LoadedRun(task, model, task.experiment, RunFolder(Path(preset.name)), machine, machine.precision, task.experiment.task)
