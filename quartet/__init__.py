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
    from pipelines.base.errors import ConfigError, DataError, Interrupted, QuartetError, TrainingError, Untrusted
    from pipelines.base.formatting import MetricKind
    from pipelines.base.storage import Storage
    from pipelines.config.guard import Guard
    from pipelines.config.schema import Data, Experiment, Section, setting
    from pipelines.config.variants import Variants
    from pipelines.data.draws import integers, uniform
    from pipelines.data.files import FileSource
    from pipelines.data.memory import Recordings
    from pipelines.data.source import ArraySource, Source
    from pipelines.runs.launcher import Launcher
    from pipelines.runs.run_hook import RunHook
    from pipelines.serving.forms import Form
    from pipelines.serving.protocol import ServerProtocol
    from pipelines.stores.remote import Remote
    from pipelines.task.contract import (
        AnswerFormat,
        Answers,
        Decoding,
        Input,
        Learning,
        Output,
        PreparedForm,
        Requests,
        SetScores,
        Signature,
        Splits,
        Task,
        kept,
    )
    from pipelines.task.results import Baseline, Judgement, Metric, worst_examples
    from pipelines.training.transform import Transform
    from quartet.drafts import Draft, new
    from quartet.extend import (
        declare_metrics,
        register_augmentation,
        register_command,
        register_domain,
        register_form,
        register_guard,
        register_hook,
        register_launcher,
        register_metric,
        register_model,
        register_options,
        register_protocol,
        register_remote,
        register_source,
        register_storage,
        register_task,
        register_transform,
    )
    from quartet.run import Evaluation, Run, load, runs
    from quartet.searching import Search, tune
    from quartet.training import check, train

_EXPORTS = {  # name -> the module that has it, imported when it is first asked for
    # to train and to use runs
    "check": "quartet.training",
    "Draft": "quartet.drafts",
    "Evaluation": "quartet.run",
    "load": "quartet.run",
    "new": "quartet.drafts",
    "Recordings": "pipelines.data.memory",
    "Run": "quartet.run",
    "runs": "quartet.run",
    "Search": "quartet.searching",
    "train": "quartet.training",
    "tune": "quartet.searching",
    # what can go wrong
    "ConfigError": "pipelines.base.errors",
    "DataError": "pipelines.base.errors",
    "Interrupted": "pipelines.base.errors",
    "QuartetError": "pipelines.base.errors",
    "TrainingError": "pipelines.base.errors",
    "Untrusted": "pipelines.base.errors",
    # for extensions
    "ArraySource": "pipelines.data.source",
    "Baseline": "pipelines.task.results",
    "Data": "pipelines.config.schema",
    "declare_metrics": "quartet.extend",
    "Experiment": "pipelines.config.schema",
    "Guard": "pipelines.config.guard",
    "Judgement": "pipelines.task.results",
    "Launcher": "pipelines.runs.launcher",
    "Metric": "pipelines.task.results",
    "MetricKind": "pipelines.base.formatting",
    "register_augmentation": "quartet.extend",
    "register_command": "quartet.extend",
    "register_domain": "quartet.extend",
    "register_form": "quartet.extend",
    "register_guard": "quartet.extend",
    "register_hook": "quartet.extend",
    "register_launcher": "quartet.extend",
    "register_metric": "quartet.extend",
    "register_model": "quartet.extend",
    "register_options": "quartet.extend",
    "register_protocol": "quartet.extend",
    "register_remote": "quartet.extend",
    "register_source": "quartet.extend",
    "register_storage": "quartet.extend",
    "register_task": "quartet.extend",
    "register_transform": "quartet.extend",
    "Form": "pipelines.serving.forms",
    "Remote": "pipelines.stores.remote",
    "RunHook": "pipelines.runs.run_hook",
    "Section": "pipelines.config.schema",
    "ServerProtocol": "pipelines.serving.protocol",
    "setting": "pipelines.config.schema",
    "FileSource": "pipelines.data.files",
    "Source": "pipelines.data.source",
    "Variants": "pipelines.config.variants",
    **dict.fromkeys(("AnswerFormat", "Answers", "Decoding", "Input", "kept", "Learning", "Output", "PreparedForm", "Requests", "SetScores",
                     "Signature", "Splits", "Task"), "pipelines.task.contract"),
    "Transform": "pipelines.training.transform",
    "Storage": "pipelines.base.storage",
    **dict.fromkeys(("integers", "uniform"), "pipelines.data.draws"),
    "worst_examples": "pipelines.task.results",
}

__all__ = [
    "AnswerFormat", "Answers", "ArraySource", "Baseline", "ConfigError", "Data", "DataError", "Decoding", "Draft", "Evaluation",
    "Experiment", "FileSource", "Form", "Guard", "Input", "Interrupted", "Judgement", "Launcher", "Learning", "Metric",
    "MetricKind", "Output", "PreparedForm", "QuartetError", "Recordings", "Remote", "Requests", "Run", "RunHook", "Search",
    "Section", "ServerProtocol", "SetScores", "Signature", "Source", "Splits", "Storage", "Task", "TrainingError", "Transform",
    "Untrusted", "Variants", "check", "declare_metrics", "integers", "kept", "load", "new", "register_augmentation",
    "register_command", "register_domain", "register_form", "register_guard", "register_hook", "register_launcher",
    "register_metric", "register_model", "register_options", "register_protocol", "register_remote", "register_source",
    "register_storage", "register_task", "register_transform", "runs", "setting", "train", "tune", "uniform", "worst_examples",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_EXPORTS[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
