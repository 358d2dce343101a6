"""`quartet new`: an experiment written for data that somebody has. The looking is each domain's own, in `<domain>/new.py`.

A domain offers ROLES, the columns that it asks for; TASKS; and `draft(path: Path, asked: Asked) -> Draft`, which raises DataError for what
it does not understand. Imports no TensorFlow.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.inside import check_regular
from pipelines.config.check import not_there
from pipelines.config.doors import Builder, resolved
from pipelines.config.load import from_text
from pipelines.config.messages import did_you_mean, listed
from pipelines.config.registry import current_name, domains, drafted_tasks, part
from pipelines.config.schema import Experiment
from pipelines.config.yaml_text import inline

Entry = tuple[str, object, str]  # setting, value, comment


@dataclass(frozen=True)
class Way:
    """One way to learn from data: the YAML without its header.

    Attributes:
        name: in a table of several.
        notes: on what it uses, a line each.
        tuned: the same with its encoder trained, too, which takes too long to be tried and is proposed where that usually gains.
    """

    name: str
    body: str
    notes: tuple[str, ...] = ()
    tuned: "Way | None" = None


@dataclass(frozen=True)
class Draft:
    """What a domain makes of data.

    Attributes:
        title: what the experiment trains, one line.
        found: what was seen in the data, a line each.
        body: the YAML, with comments.
        compared: what the run will judge beside the model, on the same test; empty where nothing.
        notes: on what the YAML uses, a line each.
        ways: gives the ways that are worth a try, cheap ones first, the draft's own among them.
        parts: whether some of the training examples tell what more of them will.
        stands: whether the draft's own way is proposed where too little of it could be tried.
    """

    title: str
    found: tuple[str, ...]
    body: str
    compared: str = ""
    notes: tuple[str, ...] = ()
    ways: Callable[[], Sequence[Way]] = tuple
    parts: bool = True
    stands: bool = True


@dataclass(frozen=True)
class Drafted:
    """A draft for data, by rules; `file`: name that its text will have."""

    domain: str
    file: str
    draft: Draft

    def text(self, way: Way | None = None, table: Sequence[str] = ()) -> str:
        """The experiment's YAML, checked as `load` checks it.

        Args:
            way: the one that is proposed; default: the draft's own.
            table: lines on how it was chosen.
        """
        draft = self.draft
        way = way or Way("", draft.body, draft.notes)
        ours = part(self.domain, "settings") is not None
        command = f"python -m {self.domain}.train" if ours else "quartet train"
        header = [draft.title, f"  {command} {self.file}", *draft.found, *way.notes, *table,
                  *([f"Beside its score will stand: {draft.compared}."] if draft.compared else []),
                  *([f"Every setting: docs/settings/{self.domain}.md"] if ours else [])]
        text = "".join(f"# {line}\n" for line in header) + way.body.strip() + "\n"
        text += _searched(from_text(text, file=self.file).experiment)
        from_text(text, file=self.file)
        return text


def section(name: str, entries: Iterable[Entry]) -> str:
    """The lines of an experiment's section, comments in a column."""
    lines = [f"{name}:"]
    for key, value, comment in entries:
        text = f"  {key}: {inline(value)}"
        lines.append(f"{text:<30}# {comment}" if comment and len(text) < 30 else f"{text}  # {comment}" if comment else text)
    return "\n".join(lines)


class Asked:
    """What a person said about the data: columns by role, and the task.

    Args:
        columns: role -> column; "none" for a role that no column has.
        task: the last part of a task's name, such as ranking.
        encoder: a preset's name, or "none"; None leaves the choice to the domain.
        blend: whether means of two ways are ways, too.
    """

    def __init__(self, columns: Mapping[str, str] | None = None, task: str | None = None, encoder: str | None = None, *,
                 blend: bool = False):
        self.columns, self.task, self._encoder, self._blend = dict(columns or {}), task, encoder, blend
        self._used: set[str] = set()

    @property
    def wants_encoder(self) -> bool:
        """Whether an encoder was named."""
        return self._encoder not in (None, "none")

    def used_encoder(self) -> str | None:
        """The encoder that was asked for, which is then known to have been looked at."""
        self._used.add("encoder")
        return self._encoder

    def used_blend(self, possible: Callable[[], object]) -> bool:
        """Whether means of two ways are asked for, and possible for these data."""
        if self._blend and possible():
            self._used.add("blend")
        return "blend" in self._used

    def absent(self, role: str) -> bool:
        """Whether no column is to have the role."""
        none = self.columns.get(role, "").lower() == "none"
        if none:
            self._used.add(role)
        return none

    def column(self, role: str, there: Collection[str], path: Path) -> str | None:
        """The column that was named for a role, None where none was. Raises DataError where it is not there, with the nearest."""
        name = self.columns.get(role)
        if name is None or self.absent(role):
            return None
        self._used.add(role)
        if name in there:
            return name
        plainly = [one for one in there if one.lower() == name.lower()]
        if len(plainly) == 1:
            return plainly[0]
        raise DataError(f"--{role}: {path} has no column {name!r}; there are {listed(there, 'and')}{did_you_mean(name, there)}")

    def several(self, role: str, there: Collection[str], path: Path) -> list[str] | None:
        """As `column`, of names divided by commas."""
        value = self.columns.get(role)
        if value is None or value in there or "," not in value:
            name = self.column(role, there, path)
            return None if name is None else [name]
        found = [Asked({role: part.strip()}).column(role, there, path) for part in value.split(",")]
        self._used.add(role)
        return [name for name in found if name is not None]

    def pattern(self) -> str | None:
        """Where the files lie that a table names, with {} for the column's value, as --files says."""
        value = self.columns.get("files")
        if value is None:
            return None
        self._used.add("files")
        return value if "{}" in value else f"{value.rstrip('/')}/{{}}"

    def roles(self, there: Collection[str], path: Path, roles: Iterable[str]) -> dict[str, str]:
        """Role -> column of those that were named."""
        return {role: name for role in roles if (name := self.column(role, there, path)) is not None}

    def check(self, domain: str, roles: Collection[str], tasks: Collection[str]) -> None:
        """Raises ConfigError for a role or task that the domain does not have."""
        wrong = next((role for role in self.columns if role not in roles), None)
        if wrong is not None:
            raise ConfigError(f"--{wrong}: {domain} does not ask for it; its options are {listed([f'--{role}' for role in roles], 'and')}")
        name = None if self.task is None else current_name(f"{domain}.{self.task.removeprefix(f'{domain}.')}").removeprefix(f"{domain}.")
        if name is not None and name not in tasks:
            raise ConfigError(f"--task: {domain} has no task {self.task!r}{did_you_mean(str(self.task), tasks)}; there are "
                              f"{listed(tasks, 'and')}")
        self.task = name

    def check_encoder(self, domain: str) -> None:
        """Raises ConfigError for an encoder that was named for data or a domain for which there are none."""
        if self._encoder not in (None, "none") and "encoder" not in self._used:
            raise ConfigError(f"--encoder: {domain} has no pretrained encoder for such data; leave the option out")

    def check_blend(self, domain: str) -> None:
        """Raises ConfigError where means were asked for, and the domain has none for such data."""
        if self._blend and "blend" not in self._used:
            raise ConfigError(f"--blend: {domain} has no two ways for these data whose mean can be one model: it takes classes of images "
                              "or recordings, and a pretrained encoder at hand; leave the option out")

    def check_used(self, path: Path) -> None:
        """Raises ConfigError for a column that was named for nothing: the data have no columns."""
        unused = next((role for role in self.columns if role not in self._used), None)
        if unused is not None:
            raise ConfigError(f"--{unused}: these data have no columns by which this is known ({path}); leave the option out, or name a "
                              "table")


def look(domain: str, data: str | Path, *, file: str = "experiment.yaml", columns: Mapping[str, str] | None = None,
        task: str | None = None, encoder: str | None = None, blend: bool = False) -> Drafted:
    """An experiment for these data, by rules.

    Args:
        domain: "vision", "speech", "nlp" or "recsys".
        data: file or folder, relative to the current directory or absolute; it stands in the experiment as given.
        file: name the text will have, for the command in its header.
        columns: role -> column of a table ("user", "item", "rating", "time", "text", "label", "split", "group", "file"); what is not named
            is guessed; "none" says that there is no such column. "files" is a pattern: where the files lie that the column names.
        task: the last part of a task's name, such as ranking.
        encoder: the pretrained encoder to begin from, as model.preset names it; "none": without; default: one that is at hand, where
            such data gain by it.
        blend: the mean of a kernel machine and an encoder is one of the ways that are tried, too.

    Raises:
        ConfigError: no such domain, task, role, encoder or mean, or it has no such help.
        DataError: data that are not there or not understood; says what is.
    """
    own = drafted_tasks(domain)
    if domain not in domains() and not own:
        raise ConfigError(f"{domain!r} is no domain{did_you_mean(domain, domains())}; the domains are {listed(domains(), 'and')}")
    module: Any = part(domain, "new") or (SimpleNamespace(ROLES=(), TASKS=tuple(own), draft=partial(_of_task, own)) if own else None)
    if module is None:
        raise ConfigError(f"{domain} cannot write experiments for data; start from a shipped experiment in configs/{domain}")
    path = Path(data).expanduser()
    if not path.exists():
        raise DataError(f"{not_there(path, str(data))}")
    if not path.is_dir():
        check_regular(path)
    asked = Asked(columns, task, encoder, blend=blend)
    asked.check(domain, module.ROLES, module.TASKS)
    made: Draft = module.draft(path, asked)
    asked.check_used(path)
    asked.check_encoder(domain)
    asked.check_blend(domain)
    return Drafted(domain, file, made)


def _of_task(own: Mapping[str, Builder], path: Path, asked: Asked) -> Draft:
    """What a task that somebody registered with a `new` makes of data: the one that was asked for, or the first."""
    name = asked.task or next(iter(own))
    return Draft(f"{name}, as it was registered", (), resolved(own[name])(path))


def new(domain: str, data: str | Path, **given: Any) -> str:
    """YAML text of an experiment for these data, by rules; arguments and errors as those of `look`."""
    return look(domain, data, **given).text()


def _searched(experiment: Experiment) -> str:
    """The section tune, over the learning rate; empty where no steps train, so that there is none."""
    rate = experiment.train.learning_rate
    if experiment.tune is not None or rate is None or "peak" not in rate.model_fields_set:
        return ""
    low, high = (float(f"{rate.peak * factor:.1g}") for factor in (0.1, 3.0))
    space = {"train.learning_rate.peak": {"float": [low, high], "scale": "log"}}
    return section("tune", [("space", space, "for quartet tune; add settings of your own")]) + "\n"
