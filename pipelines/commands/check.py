"""`quartet check`: finds what a domain offers for checking data, and shows how far it is.

A task may be registered with a function (experiment, progress) -> pipelines.data.check.Check, and a domain's `check` module has CHECKS:
task name -> such a function; of any other task the examples are read as they are stored.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import ConfigError, QuartetError
from pipelines.base.progress import Work
from pipelines.base.terminal import Screen
from pipelines.commands.check_features import compared
from pipelines.config.doors import HOOKS, resolved
from pipelines.config.registry import part, registered_task
from pipelines.config.schema import Experiment
from pipelines.data.check import LEVELS, Check, Finding
from pipelines.encoders.settings import PretrainedModel

if TYPE_CHECKING:
    from pipelines.training.preparation import Prepared


def check(experiment: Experiment, encoder: str | None = None, *, name: str = "") -> Check:
    """Reads every example of an experiment once, and compares them by the features of an encoder.

    Args:
        encoder: a preset; none; or None: the experiment's own, where it has one, on fewer examples.
        name: the experiment's, in the description of the data.

    Raises:
        ConfigError: the encoder that was named cannot be used.
        DataError: there are no data to look at.
    """
    from pipelines.commands.check_examples import check_examples
    from pipelines.machine.devices import name_devices

    with suppress(ConfigError):  # `_begun` says it; TensorFlow takes no other devices once examples were read
        name_devices(experiment.train)
    module: Any = part(experiment.task.partition(".")[0], "check")
    own = registered_task(experiment.task).check
    checker: Callable[..., Check] = resolved(own) if own else getattr(module, "CHECKS", {}).get(experiment.task, check_examples)
    say = Screen("").note
    with Work(say, "reading every example") as work:
        checked = checker(experiment, work.of)
    begun = None if checked.failed else _begun(experiment)
    if isinstance(begun, str):
        checked.findings.insert(0, Finding("error", f"training would stop before its first step: {begun}"))
    elif begun is not None:
        for hook in HOOKS.entries():
            try:
                checked.descriptions |= hook.load().describe_data(experiment, begun.splits, name or experiment.task)
            except (QuartetError, OSError) as error:  # what training needs of them was read
                checked.findings.append(Finding("note", f"the data could not be described ({hook.name}): {error}"))
    if begun is not None and not isinstance(begun, str):
        if begun.layouts:
            checked.findings.append(Finding("note", "; ".join(map(str.strip, begun.layouts.described()))))
        checked.findings.extend(compared(experiment, encoder, begun, say))
        checked.findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return checked


def _begun(experiment: Experiment) -> "Prepared | str":
    """What `train` itself does before its first step, or why it refuses the experiment."""
    from pipelines.runs.launch import task_class
    from pipelines.training.preparation import prepare

    encoded = isinstance(getattr(experiment, "model", None), PretrainedModel)  # its features are kept by the precision of training
    # else, which precision is fastest need not be measured for this
    precision = "float32" if experiment.train.precision == "auto" and not encoded else None
    try:
        return prepare(experiment, task_class(experiment.task), precision=precision)
    except QuartetError as error:
        return str(error)
