"""What a person names as an experiment - a shipped one, a file, settings, a draft - as checked settings and the name of its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pipelines.base.errors import ConfigError
from quartet.drafts import Draft, new

if TYPE_CHECKING:
    from pipelines.config.schema import Experiment

Given: TypeAlias = "str | Path | Mapping[str, Any] | Experiment | Draft | None"
Settings: TypeAlias = "Mapping[str, Any] | Sequence[str] | None"


@dataclass(frozen=True)
class Chosen:
    """A checked experiment.

    Attributes:
        name: the experiment's, such as vision/digits.
        changes: `train.epochs=3` and the like, which name the run where the person does not.
    """

    experiment: "Experiment"
    name: str
    changes: tuple[str, ...]


def overrides(settings: Settings) -> list[str]:
    """Changed settings as the command line has them: `train.epochs=3`.

    Raises:
        ConfigError: neither a mapping of dotted names nor such texts.
    """
    from pipelines.config.yaml_text import inline

    if isinstance(settings, Mapping):
        return [f"{name}={inline(_plain(value))}" for name, value in settings.items()]
    if isinstance(settings, str) or not all(isinstance(one, str) for one in settings or ()):
        raise ConfigError(f'settings: {settings!r} is no mapping such as {{"train.epochs": 3}}')
    return list(settings or ())


def choose(given: Given, settings: Settings, data: Any, runs: str | Path) -> Chosen:
    """The experiment that is meant.

    Args:
        given: a shipped experiment's name, a YAML file, settings as a mapping, an Experiment, a draft; None: one is proposed for `data`.
        settings: dotted settings to change.
        data: in memory or a path, in place of the experiment's own; None for its own.
        runs: the folder of all runs, where data in memory are kept.

    Raises:
        ConfigError: with everything that is wrong.
        DataError: data in memory that are not understood.
    """
    from pipelines.config.load import from_dict, load
    from pipelines.config.schema import Experiment
    from pipelines.config.yaml_text import inline
    from pipelines.data.memory import in_memory, keep, read_from
    from pipelines.stores.remote import address_of

    changes = overrides(settings)
    if given is None:
        if data is None:
            raise ConfigError("name an experiment, such as vision/digits, or give data")
        given, data = new(data, runs=runs), None
    if data is not None and not in_memory(data):
        raise ConfigError(f'data: {data} is a path; name it in the settings, {{"data.path": ...}}, or see quartet.new')
    if data is not None and address_of(runs):
        raise ConfigError(f"runs: {runs} is in a store; data in memory are kept beside runs on a disk: write them to files, and name these")
    kept = None if data is None else keep(data, Path(runs).absolute() / "data")
    # with these data from the start, since the experiment's own need not be there
    first = [*([f"data.source={kept.source}", f"data.path={inline(str(kept.path))}"] if kept else []), *changes]
    if isinstance(given, Draft):
        experiment, name = from_dict(given.experiment.model_dump(mode="python"), first), given.name
    elif isinstance(given, (Experiment, Mapping)):
        values = given.model_dump(mode="python") if isinstance(given, Experiment) else given
        experiment, name = from_dict(values, first), "experiment"
    else:
        loaded = load(given, first)
        experiment, name = loaded.experiment, loaded.name
    if kept is not None:
        experiment = from_dict(read_from(experiment, kept), changes)
        changes = [*changes, f"data={kept.digest}"]
    domain = experiment.task.partition(".")[0]
    return Chosen(experiment, name if "/" in name else f"{domain}/{name}", tuple(changes))


def _plain(value: Any) -> Any:
    """Without NumPy's types, tuples and paths, which YAML does not have."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
