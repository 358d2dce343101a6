"""Registration of one's own models and tasks: each a function or class, and beside it the class of its settings.

    class Tiny(quartet.Section):
        \"\"\"One convolution.\"\"\"
        name: Literal["tiny"]
        filters: int = quartet.setting(16, "filters of the convolution", ge=1)

    @quartet.register_model("vision.classification", Tiny)
    def tiny(settings, *, image_size, channels, classes): ...

The settings are then checked, documented, searched and in the JSON Schema as ours are. docs/extending.md shows each from nothing.
Imports no TensorFlow.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args

from pipelines.base.errors import ConfigError
from pipelines.base.formatting import MetricKind, declare
from pipelines.config import registry
from pipelines.config.doors import (
    COMMANDS,
    FORMS,
    GUARDS,
    HOOKS,
    LAUNCHERS,
    OPTIONS,
    PROTOCOLS,
    REMOTES,
    STORAGES,
    TRANSFORMS,
    Door,
)
from pipelines.config.schema import METRICS, STATISTICS, Experiment, Monitor, Section
from pipelines.config.train_settings import Train
from pipelines.config.variants import add_settings

Builder = TypeVar("Builder", bound=Callable[..., Any])


def register_model(task: str, settings: type[Section]) -> Callable[[Builder], Builder]:
    """A decorator for what builds a model: `(settings, **given) -> keras.Model`, where it is handed those of `given` that it names.

    Args:
        task: whose `model.name` may choose it, such as "vision.classification".
        settings: its section, with `name: Literal["..."]`, a docstring, and a meaning for each setting.

    Raises:
        ConfigError: no such task, settings that cannot be documented, or a name that is taken.
    """
    return _adding(task, "model", settings)


def register_source(task: str, settings: type[Section]) -> Callable[[Builder], Builder]:
    """A decorator for what reads data: `(settings) -> {split: {column: values}}`; of one split `all`, shares are held out.

    The columns are `image` and `label` (vision.classification), `text` and `label` (nlp.classification), `samples` and `label` or `text`
    (speech); a source of interactions (recsys) returns one table. docs/extending.md has each in full.

    Args:
        task: whose `data.source` may choose it.
        settings: derived from the task's own data section (such as `vision.settings.ImageData`), with `source: Literal["..."]`.

    Raises:
        ConfigError: as `register_model` does, or the task takes no sources of one's own.
    """
    base = registry.data_of(task)
    if isinstance(settings, type) and not issubclass(settings, base):
        place = ".".join(base.__module__.split(".")[:2])  # vision.settings, of which each kind of answer has a module
        raise ConfigError(f"{settings.__name__}: the settings of a source of {task} derive from {place}.{base.__name__}")
    return _adding(task, "data", settings)


def register_augmentation(task: str, settings: type[Section]) -> Callable[[Builder], Builder]:
    """A decorator for an augmentation of training examples, chosen by `augment.own: {name: ...}`; in graph, a batch at a time.

    It is handed those of these that it names: for images `(settings, images, keys)` and gives images back, [batch, height, width, channels]
    float32 in 0..255; for speech `(settings, waveforms, lengths, keys, rate)` and gives waveforms back, [batch, samples] float32 in -1..1,
    of which the `lengths` [batch] first samples count. `keys`, int32 [batch, 2], are a pure function of seed, epoch and example: draw with
    `quartet.uniform(keys, stream)` alone, so that examples are the same in any batch and after a resume.

    Args:
        task: "vision.classification", "speech.classification" or "speech.transcription", which has those of speech.classification.
        settings: its section, as of `register_model`.

    Raises:
        ConfigError: as `register_model` does, or the task takes no augmentations.
    """
    return _adding(task, "augment.own", settings)


def register_metric(settings: type[Section], *, better: Literal["max", "min"] | None = None, share: bool = False,
                    title: str | None = None, unit: str | None = None,
                    statistic: Callable[[Any], Any] | None = None) -> Callable[[Builder], Builder]:
    """A decorator for a metric of any task, chosen by `evaluate.metrics: [{name: ...}]`: its mean over the examples that are judged, or
    the `statistic` of its sums over them.

    The function is handed those of these that it names: `(settings, outputs, targets, facts)`, the model's outputs, what the task's `loss`
    is given and what was learned from train (`facts["classes"]`); in graph, it gives [batch] numbers, or [batch, sums] with a statistic,
    NaN where an example does not count.
    `train.watch` and `tune.objective` may name it.

    Args:
        settings: its section; the name in `name: Literal["..."]` is the metric's.
        better, share, title, unit: as of `MetricKind`.
        statistic: sums over examples, [m, sums] float64, to the metric [m], such as the quotient of two; NumPy.

    Raises:
        ConfigError: as `register_model` does, or the name means another metric already.
    """

    def add(function: Builder) -> Builder:
        declare_metrics(**dict.fromkeys(get_args(settings.model_fields["name"].annotation), MetricKind(better, share, title, unit)))
        METRICS.add(settings, function)
        if statistic is not None:
            STATISTICS[settings] = statistic
        return function

    return add


def register_task(experiment: type[Experiment], *, check: Callable[..., Any] | str | None = None,
                  new: Callable[..., str] | str | None = None) -> Callable[[Builder], Builder]:
    """A decorator for a Task class.

    Args:
        experiment: the settings of its experiments, with `task: Literal["mine.regression"]`.
        check: for `quartet check`: (experiment, progress) -> a pipelines.data.check.Check; by default every example is read and decoded
            once, and compared with all others.
        new: for `quartet new DOMAIN --data PATH`: the path -> the YAML of an experiment; it raises DataError for data that it does not
            understand.

    Raises:
        ConfigError: no name of the form domain.task, or one that is taken.
    """

    def add(task: Builder) -> Builder:
        registry.add_task(experiment, task, check=check, new=new)
        return task

    return add


def declare_metrics(**kinds: MetricKind) -> None:
    """Says what metrics of one's own are, by name: `declare_metrics(dice=quartet.MetricKind("max", share=True))`.

    A name that ends in a known one needs no declaration: `absolute_error` is an `error`, of which less is better.

    Raises:
        ConfigError: a name that means something else already.
    """
    try:
        declare(kinds)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def register_hook(name: str, settings: type[Section] | None = None) -> Callable[[Builder], Builder]:
    """A decorator for a class of `quartet.RunHook`: one is made for each run that a person trains; it listens, and changes nothing.

    Args:
        name: what it is called in messages.
        settings: added to `monitor`, each with a name that `monitor` does not have; `self.run.experiment.monitor.added(settings)` has them.

    Raises:
        ConfigError: the name, or one of the settings, is taken.
    """
    if settings is not None:
        add_settings(Monitor, settings)
    return _entering(HOOKS, name)


def register_form(name: str) -> Callable[[Builder], Builder]:
    """A decorator for a class of `quartet.Form`: another form of a finished model, which `quartet export` writes beside the run as
    `export-NAME` where an option of the extension asks for it, and predict, evaluate, serve and `quartet.load` take in place of a run.

    Raises:
        ConfigError: the name is taken.
    """
    return _entering(FORMS, name)


def register_transform(name: str, settings: type[Section] | None = None) -> Callable[[Builder], Builder]:
    """A decorator for a class of `quartet.Transform`: a link in the chain that turns summed gradients into an update.

    Args:
        name: what it is called in messages, and under which a run records it.
        settings: added to `train`, each with a name that `train` does not have; `experiment.train.added(settings)` has them.

    Raises:
        ConfigError: the name, or one of the settings, is taken.
    """
    if settings is not None:
        add_settings(Train, settings)
    return _entering(TRANSFORMS, name)


def register_command(name: str) -> Callable[[Builder], Builder]:
    """A decorator for a function that becomes the command `quartet NAME`; its annotated parameters are the arguments and options, as
    typer takes them. A QuartetError that it raises is printed as one line. Commands come from installed packages alone, not by --use.

    Raises:
        ConfigError: the name is taken.
    """
    return _entering(COMMANDS, name)


def register_options(name: str, *commands: str) -> Callable[[Builder], Builder]:
    """A decorator for a context manager that surrounds each call of commands that are there, such as `train` and `runs compare`: its
    annotated parameters, each with a default, become options of these commands. What it sets, entries of the extension at other doors read.
    Options come from installed packages alone, not by --use.

    Raises:
        ConfigError: the name is taken.
    """

    def add(surround: Builder) -> Builder:
        OPTIONS.add(name, surround, commands=commands)
        return surround

    return add


def register_launcher(name: str) -> Callable[[Builder], Builder]:
    """A decorator for a function that is told a command (train, tune, predict or prepare) and returns a `quartet.Launcher` where one is
    asked for, as by an option or the environment, else None.

    Raises:
        ConfigError: the name is taken.
    """
    return _entering(LAUNCHERS, name)


def register_protocol(name: str) -> Callable[[Builder], Builder]:
    """A decorator for a class of `quartet.ServerProtocol`: one is made for each server of `quartet serve`.

    Raises:
        ConfigError: the name is taken.
    """
    return _entering(PROTOCOLS, name)


def register_storage(name: str) -> Callable[[Builder], Builder]:
    """A decorator for a class of `quartet.Storage`: the form in which the files of some runs are kept, such as encrypted.

    Raises:
        ConfigError: the name is taken.
    """
    return _entering(STORAGES, name)


def register_remote(name: str) -> Callable[[Builder], Builder]:
    """A decorator for a class of `quartet.Remote`: what lies at addresses such as s3://BUCKET/PATH; it is asked before those there are.

    Raises:
        ConfigError: the name is taken.
    """
    return _entering(REMOTES, name)


def register_guard(name: str) -> Callable[[Builder], Builder]:
    """A decorator for a class of `quartet.Guard`: it looks at runs, models and presets before any file of them is opened.

    Raises:
        ConfigError: the name is taken.
    """
    return _entering(GUARDS, name)


def register_domain(package: str) -> None:
    """Adds a domain: an importable package with a `settings` module, such as those of Quartet."""
    registry.register_domain(package)


def _entering(door: Door, name: str) -> Callable[[Builder], Builder]:
    def add(builder: Builder) -> Builder:
        door.add(name, builder)
        return builder

    return add


def _adding(task: str, setting: str, settings: type[Section]) -> Callable[[Builder], Builder]:
    variants = registry.variants_at(task, setting)

    def add(builder: Builder) -> Builder:
        variants.add(settings, builder)
        return builder

    return add
