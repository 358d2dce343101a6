"""The domains by name, found when they are asked for, so that the command line starts without any of them.

A domain is a package with a `settings` module: EXPERIMENTS (task name -> Experiment class) and QUICK_START (the name of
a shipped experiment). A domain whose package is not there is absent. Imports no TensorFlow.
"""

import importlib
from types import ModuleType

from pipelines.base.errors import ConfigError
from pipelines.config.messages import did_you_mean, listed
from pipelines.config.schema import Experiment

DOMAINS = ("vision", "speech", "nlp", "recsys")


def part(domain: str, module: str) -> ModuleType | None:
    """Module `<domain>.<module>`, or None where the package or the module is not there."""
    name = f"{domain}.{module}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name in (domain, name):
            return None
        raise


def domains() -> tuple[str, ...]:
    """The domains that are there, in their usual order."""
    return tuple(domain for domain in DOMAINS if part(domain, "settings") is not None)


def quick_start(domain: str) -> str:
    """Name of the experiment a domain trains when none is named. Raises ConfigError for a domain that is not there."""
    return str(_settings(domain).QUICK_START)


def tasks(domain: str | None = None) -> dict[str, type[Experiment]]:
    """Task name -> Experiment class, of one domain or of all that are there."""
    found: dict[str, type[Experiment]] = {}
    for each in (domain,) if domain else DOMAINS:
        settings = part(each, "settings")
        found.update(settings.EXPERIMENTS if settings else {})
    return found


def experiment_class(task: str) -> type[Experiment]:
    """The Experiment class of a task such as `vision.classification`. Raises ConfigError that lists the tasks there are."""
    domain = task.partition(".")[0]
    found = tasks(domain).get(task) if domain in DOMAINS else None
    if found is None:
        raise ConfigError(f"{task!r} is no task{did_you_mean(task, tasks())}; the tasks are {listed(tasks(), 'and')}")
    return found


def _settings(domain: str) -> ModuleType:
    settings = part(domain, "settings") if domain in DOMAINS else None
    if settings is None:
        raise ConfigError(f"{domain!r} is no domain{did_you_mean(domain, domains())}; the domains are {listed(domains(), 'and')}")
    return settings
