"""`quartet.new`: an experiment proposed for data, on the disk or in memory.

What a person names as an experiment - a shipped one, a file, settings, a draft - as checked settings and the name of its runs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pipelines.base.errors import ConfigError
from quartet.process import for_python

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


_DOMAINS = {"images": "vision", "recordings": "speech", "texts": "nlp"}  # of data in memory that can be nothing else


@dataclass(frozen=True)
class Draft:
    """A proposed experiment.

    Attributes:
        yaml: its text, with comments on the data and on the alternatives to each choice.
        name: what its runs are called: runs/<domain>/<name>/.
    """

    yaml: str
    name: str

    @property
    def experiment(self) -> "Experiment":
        """The checked settings, without the comments.

        Raises:
            ConfigError: the data are gone.
        """
        from pipelines.config.load import from_text

        return from_text(self.yaml, file=f"{self.name}.yaml").experiment

    @for_python
    def save(self, path: str | Path) -> Path:
        """Writes the YAML, whole.

        Raises:
            ConfigError: something stands there already.
            WriteError: it cannot be written.
        """
        from pipelines.base.files import write_whole

        target = Path(path)
        if target.exists():
            raise ConfigError(f"{target}: exists already; give another name, or remove it")
        write_whole(target, self.yaml)
        return target

    def __str__(self) -> str:
        return self.yaml


@for_python
def new(data: Any, domain: str | None = None, *, task: str | None = None, columns: Mapping[str, str] | None = None,
        encoder: str | None = None, name: str | None = None, runs: str | Path = "runs", minutes: float = 0.0) -> Draft:
    """Looks at data and proposes an experiment for them: how they are read and divided, a model, and how it is trained.

    Args:
        data: a file or folder, or data in memory as `quartet.train` takes them; these are kept in `runs`/data.
        domain: "vision", "speech", "nlp", "recsys", or another that is installed. Images, texts and recordings in memory need none.
        task: the last part of a task's name, such as ranking; default: by the data.
        columns: role -> column of a table, such as {"text": "body", "label": "topic"}; what is not named is guessed, "none" says that
            there is no such column.
        encoder: the pretrained encoder to begin from, as model.preset names it; "none": without; default: one that is at hand, where such
            data gain by it.
        name: what runs of it are called; default: by the file's or folder's name, or `in-memory`.
        runs: the folder of all runs.
        minutes: time for trying the few ways that fit on folds of train, as `quartet new` does for 3; the cheapest of the best is proposed.
            0: the proposal follows rules.

    Raises:
        ConfigError: no such domain, task or role; or the domain must be named.
        DataError: data that are not there or not understood.

    Example:
        >>> import numpy as np
        >>> import quartet
        >>> images = np.random.default_rng(0).integers(0, 256, [60, 16, 16], np.uint8)
        >>> draft = quartet.new((images, np.arange(60) % 3), runs="RUNS")
        >>> draft.experiment.task
        'vision.classification'
    """
    from pipelines.config.draft import look
    from pipelines.data.memory import in_memory, keep

    if in_memory(data):
        kept = keep(data, Path(runs).absolute() / "data")
        path, called, domain = kept.path, "in-memory", domain or _DOMAINS.get(kept.kind)
        if kept.kind == "texts":  # whose columns are known, whatever they hold
            columns = {**{setting.removesuffix("_key"): name for setting, name in kept.keys.items()}, **(columns or {})}
    else:
        path = Path(data)
        called = re.sub(r"[^A-Za-z0-9._-]+", "-", path.absolute().stem).strip("-.") or "data"
    if domain is None:
        raise ConfigError('domain: such data may be of several domains; name one of them: "vision", "speech", "nlp" or "recsys"')
    called = name or called
    drafted = look(domain, str(path), file=f"{called}.yaml", columns=columns, task=task, encoder=encoder)
    if not minutes:
        return Draft(drafted.text(), called)
    from quartet.process import tensorflow

    with tensorflow(training=True):
        from pipelines.tuning.proposing import propose

        return Draft(propose(drafted, minutes).text, called)
