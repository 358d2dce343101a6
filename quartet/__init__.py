"""Quartet from Python: train, tune, judge and use models for images, speech, text and recommendation.

Importing this is quick: TensorFlow, Keras, pandas and NumPy are imported when a call first needs them.

    import quartet

    run = quartet.train("vision/digits", {"train.epochs": 3})
    print(run.metrics["test/accuracy"])

docs/python.md shows every call.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.base.errors import ConfigError, DataError, QuartetError, TrainingError
    from pipelines.base.metric_kinds import MetricKind
    from pipelines.config.schema import Data, Experiment, Section, setting
    from pipelines.data.source import ArraySource, Source
    from pipelines.task.contract import Task
    from pipelines.task.learning import Splits
    from pipelines.task.results import Judgement, Metric
    from quartet.extend import declare_metrics, register_domain, register_model, register_task

_EXPORTS = {  # name -> the module that has it, imported when it is first asked for
    "ConfigError": "pipelines.base.errors",
    "DataError": "pipelines.base.errors",
    "QuartetError": "pipelines.base.errors",
    "TrainingError": "pipelines.base.errors",
    # for extensions
    "ArraySource": "pipelines.data.source",
    "Data": "pipelines.config.schema",
    "Experiment": "pipelines.config.schema",
    "Judgement": "pipelines.task.results",
    "Metric": "pipelines.task.results",
    "MetricKind": "pipelines.base.metric_kinds",
    "Section": "pipelines.config.schema",
    "Source": "pipelines.data.source",
    "Splits": "pipelines.task.learning",
    "Task": "pipelines.task.contract",
    "declare_metrics": "quartet.extend",
    "setting": "pipelines.config.schema",
    "register_domain": "quartet.extend",
    "register_model": "quartet.extend",
    "register_task": "quartet.extend",
}

__all__ = ["ArraySource", "ConfigError", "Data", "DataError", "Experiment", "Judgement", "Metric", "MetricKind", "QuartetError", "Section",
           "Source", "Splits", "Task", "TrainingError", "declare_metrics", "register_domain", "register_model", "register_task", "setting"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_EXPORTS[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
