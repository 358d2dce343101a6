"""The domains and tasks by name, imported when they are asked for, so that the command line starts without any of them.

A domain is a package with a `settings` module, which registers its tasks (`register_task`) and has QUICK_START, the name of a shipped
experiment. Those that ship with Quartet come in the same way as an installed package's (entry-point group `quartet.domains`) and those
of a file (`register_domain`). A task of one's own needs no domain. Imports no TensorFlow.
"""

import importlib
import importlib.metadata
import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, get_args

from pipelines.base import storage
from pipelines.base.errors import ConfigError
from pipelines.config import doors, variants
from pipelines.config.doors import Builder, Origin, of_file, origin_of, remember, resolved, ships
from pipelines.config.messages import did_you_mean, listed
from pipelines.config.schema import Data, Experiment, Section
from pipelines.config.variants import Variants
from pipelines.stores import remote

SHIPPED = ("vision", "speech", "nlp", "recsys")  # packages of a plain checkout, in which no entry point may be installed
GROUP, EXTENSIONS = "quartet.domains", "quartet.extensions"
ExperimentClass = TypeVar("ExperimentClass", bound=type[Experiment])


@dataclass(frozen=True)
class RegisteredTask:
    """A task: its settings, its class or the place of it as "module:name", and where it comes from (None: Quartet itself).

    Attributes:
        check: (experiment, progress) -> pipelines.data.check.Check, for `quartet check`.
        new: the path of data -> the YAML of an experiment, for `quartet new`.
    """

    experiment: type[Experiment]
    task: Builder
    origin: Origin | None
    check: Builder | None = None
    new: Builder | None = None


EXTENSIONS_FOLDER = Path(__file__).parents[2] / "extensions"  # ours, which may be absent
_domains: dict[str, None] = {}
_tasks: dict[str, RegisteredTask] = {}
_renamed: dict[str, str] = {}  # a task's name before -> its name
_imported = False  # the extensions of installed packages


def register_domain(package: str) -> None:
    """Adds a domain by the name of its package, which must be importable."""
    _domains[package] = None


ships(EXTENSIONS_FOLDER.name)
for _name in SHIPPED:
    ships(_name)
    register_domain(_name)


def register_task(task: Builder) -> Callable[[ExperimentClass], ExperimentClass]:
    """A decorator for the class of a task's experiments, whose `task` is a Literal; `task` is the Task class or its place "module:name".

    Raises:
        ConfigError: the class says no name, or another extension has taken it.
    """

    def add(experiment: ExperimentClass) -> ExperimentClass:
        add_task(experiment, task)
        return experiment

    return add


def add_task(experiment: type[Experiment], task: Builder, *, check: Builder | None = None, new: Builder | None = None) -> None:
    """As `register_task`, called plainly; `check` and `new` are of RegisteredTask."""
    names = get_args(experiment.model_fields["task"].annotation)
    if not names or not all("." in name for name in names):
        raise ConfigError(f'{experiment.__name__}: needs its task\'s name, domain.task, such as task: Literal["mine.regression"]')
    origin = origin_of(task)
    for name in names:
        before = _tasks.get(name)
        if before is not None and (before.origin is None or origin is None or before.origin.name != origin.name):
            raise ConfigError(f"{experiment.__name__}: there is a task {name!r} already, from {before.origin or 'Quartet itself'}")
        _tasks[name] = RegisteredTask(experiment, task, origin, check, new)
    _renamed.update(dict.fromkeys(experiment.formerly, names[0]))


def current_name(task: str) -> str:
    """A task's name, of one that it may have had before."""
    return _renamed.get(task, task)


def part(domain: str, module: str) -> ModuleType | None:
    """Module `<domain>.<module>`, or None where there is no such domain, package or module."""
    if domain not in _known():
        return None
    name = f"{domain}.{module}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name in (domain, name):
            return None
        raise


def domains() -> tuple[str, ...]:
    """The domains that are there, those of Quartet first."""
    return tuple(domain for domain in _known() if part(domain, "settings") is not None)


def quick_start(domain: str) -> str:
    """Name of the experiment a domain trains when none is named. Raises ConfigError for a domain that is not there."""
    return str(_settings(domain).QUICK_START)


def tasks(domain: str | None = None) -> dict[str, type[Experiment]]:
    """Task name -> Experiment class, of one domain or of all that are there, with every section that is registered."""
    for each in (domain,) if domain else _known():
        part(each, "settings")
    import_extensions()
    _rebuild()
    order = {name: number for number, name in enumerate(_known())}
    found = {name: one.experiment for name, one in _tasks.items() if domain in (None, name.partition(".")[0])}
    return dict(sorted(found.items(), key=lambda item: (order.get(item[0].partition(".")[0], len(order)), item[0])))


def experiment_class(task: str) -> type[Experiment]:
    """The Experiment class of a task such as `vision.classification`. Raises ConfigError that lists the tasks there are."""
    found = tasks(task.partition(".")[0]).get(current_name(task))
    if found is None:
        raise ConfigError(f"{task!r} is no task{did_you_mean(task, tasks())}; the tasks are {listed(tasks(), 'and')}")
    return found


def registered_task(task: str) -> RegisteredTask:
    """Raises ConfigError that lists the tasks there are, where it is none of them."""
    experiment_class(task)
    return _tasks[current_name(task)]


def drafted_tasks(domain: str) -> dict[str, Builder]:
    """Of a domain without a package, the last part of a task's name -> its `new`."""
    import_extensions()
    return {name.partition(".")[2]: one.new for name, one in _tasks.items() if name.partition(".")[0] == domain and one.new is not None}


def variants_at(task: str, setting: str) -> Variants:
    """The sections that a task's setting chooses among, such as the models of vision.classification.

    Raises:
        ConfigError: there is no such task, or it has no such choice.
    """
    part(task.partition(".")[0], "settings")
    task = current_name(task)
    if task not in _tasks:
        raise ConfigError(f"{task!r} is no task{did_you_mean(task, tasks())}; the tasks are {listed(tasks(), 'and')}")
    every = _choices(_tasks[task].experiment)
    if setting not in every:
        raise ConfigError(f"{task}: {setting} takes nothing of one's own; {listed(every, 'and')} can")
    return every[setting]


def data_of(task: str) -> type[Section]:
    """The section from which the settings of its sources derive. Raises ConfigError as `variants_at` does."""
    variants_at(task, "data")
    declared = _tasks[current_name(task)].experiment.model_fields["data"].annotation
    return declared if isinstance(declared, type) and issubclass(declared, Section) else Data


def _choices(section: type[Section], before: str = "") -> dict[str, Variants]:
    """Setting -> the sections that it chooses among, of one section and those within it."""
    found = {}
    for name, field in section.model_fields.items():
        if (choice := variants.within(field)) is not None:
            found[before + name] = choice
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found |= _choices(field.annotation, f"{before}{name}.")
    return found


def origins() -> set[Origin]:
    """Of every section and task in use that does not ship with Quartet."""
    tasks()
    registered = {one.origin for one in _tasks.values() if one.origin is not None}
    return variants.origins().union(registered, *(door.origins() for door in doors.ALL))


def forget(name: str) -> None:
    """Takes back what an extension has registered."""
    variants.forget(name)
    for door in doors.ALL:
        door.forget(name)
    for task in [task for task, one in _tasks.items() if one.origin is not None and one.origin.name == name]:
        del _tasks[task]


def task_origin(task: str) -> Origin | None:
    """Where a task comes from; None for Quartet's own."""
    task = current_name(task)
    return _tasks[task].origin if task in _tasks else None


def task_class(task: str) -> Any:
    """The class of a task such as vision.classification; imports its module, and so TensorFlow.

    Raises:
        ConfigError: there is no such task.
    """
    return resolved(registered_task(task).task)


def import_extensions() -> None:
    """Imports our own extensions and those of installed packages (entry-point group `quartet.extensions`), once."""
    global _imported
    if _imported:
        return
    _imported = True  # before: an extension asks for tasks, too
    for package in sorted(EXTENSIONS_FOLDER.glob("*/__init__.py")):
        importlib.import_module(f"{EXTENSIONS_FOLDER.name}.{package.parent.name}")
    for entry in importlib.metadata.entry_points(group=EXTENSIONS):
        name = entry.dist.name if entry.dist else entry.name
        spec = importlib.util.find_spec(entry.module.partition(".")[0])
        file = importlib.util.find_spec(entry.module).origin if spec else None  # type: ignore[union-attr]
        if file is None:
            continue  # it was removed, and its entry point left
        known = of_file(Path(file), entry.module)
        remember(Origin(name, entry.dist.version if entry.dist else None, known.sha256, entry.module, known.file, entry_point=True))
        try:
            entry.load()
        except Exception as error:  # one broken package must not end every command
            warnings.warn(f"the extension {name} cannot be imported ({type(error).__name__}: {error}); what it registers is not there",
                          stacklevel=2)


def _all_of(door: doors.Door) -> list[Any]:
    import_extensions()
    return [entry.load()() for entry in door.entries()]


storage.install(partial(_all_of, doors.STORAGES))
remote.install(partial(_all_of, doors.REMOTES))


def _known() -> dict[str, None]:
    for package in _installed():
        _domains.setdefault(package, None)
    return _domains


@cache
def _installed() -> tuple[str, ...]:
    """The domains of installed packages; of those that were removed, an entry point may be left."""
    packages = [entry.value for entry in importlib.metadata.entry_points(group=GROUP)]
    return tuple(package for package in packages if importlib.util.find_spec(package.partition(".")[0]) is not None)


def _rebuild() -> None:
    """Classes that were built before a section was registered take it from now on."""
    if Variants.stale:
        for one in _tasks.values():
            variants.rebuild(one.experiment)
        Variants.stale = False


def _settings(domain: str) -> ModuleType:
    settings = part(domain, "settings")
    if settings is None:
        raise ConfigError(f"{domain!r} is no domain{did_you_mean(domain, domains())}; the domains are {listed(domains(), 'and')}")
    return settings
