"""An experiment from its file (or name) and `a.b.c=value` overrides, checked whole before any work.

Everything that is wrong is said at once in one ConfigError: file and line (or the override), the setting, the value, what is
allowed and the nearest valid name. Imports no TensorFlow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipelines.base.errors import ConfigError
from pipelines.base.inside import other_kind
from pipelines.config import guard
from pipelines.config.check import Check, validation_problems
from pipelines.config.messages import did_you_mean, listed, nearest, show, spell
from pipelines.config.problems import ExperimentError, Place, Problem, Route, dotted
from pipelines.config.registry import EXTENSIONS_FOLDER, current_name, quick_start, tasks
from pipelines.config.schema import Experiment, Section
from pipelines.config.space import laid_over
from pipelines.config.space import problems as space_problems
from pipelines.config.tree import settings_with, shapes_at, split
from pipelines.config.yaml_text import Document, compose, parse, plain, read, resolved_yaml, scalar
from pipelines.stores.remote import address_of, local

Override = tuple[str, Any, Place]


def parse_overrides(overrides: Sequence[str]) -> list[Override]:
    """(dotted name, value, place) of each; raises ConfigError for what is not `setting=value`."""
    parsed = []
    problems = []
    for number, text in enumerate(overrides):
        place = Place(text, override=number)
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name or not all(name.split(".")):
            example = f"{name.strip('.')}=value" if name.strip(".") and not equals else "train.epochs=3"
            problems.append(Problem(place, (), f"overrides are written setting=value, such as {example}"))
            continue
        try:
            parsed.append((name, _value(value.strip(), place), place))
        except ExperimentError as error:
            problems += error.problems
        except ConfigError as error:
            problems.append(Problem(place, (), str(error).partition(": ")[2]))
    if problems:
        raise ExperimentError(problems)
    return parsed


def apply_overrides(document: Document, overrides: Sequence[Override], cls: type[Section]) -> list[Problem]:
    """Changes the document's values and their places; returns what could not be laid over."""
    problems = []
    for name, value, place in overrides:
        route = split(cls, name)
        at: Any = document.values
        blocked = None
        for depth, step in enumerate(route[:-1], 1):
            if at.get(step) is None:
                at[step] = {}
                document.places[route[:depth]] = place
            at = at[step]
            if not isinstance(at, dict):
                blocked = route[:depth]
                break
        if blocked:
            problems.append(Problem(place, (), _blocked(document, blocked, at, route[len(blocked):], value)))
            continue
        _forget(document, route)
        if value is None and not _may_be_null(cls, route):
            at.pop(route[-1], None)
        else:
            at[route[-1]] = value
            document.places[route] = place
    return problems


def _value(text: str, place: Place) -> Any:
    """Flow lists, mappings and quoted texts as YAML; anything else is one plain scalar, whatever signs are in it."""
    if text[:1] not in ("[", "{", '"', "'"):
        return scalar(text)
    node = compose(text, "override")
    return None if node is None else plain(node, str(place))


def _may_be_null(cls: type[Section], route: Route) -> bool:
    found = shapes_at(cls, route)
    return not found or any(each.nullable for each in found)


def _forget(document: Document, route: Route) -> None:
    for known in [known for known in document.places if known[: len(route)] == route]:
        del document.places[known]


def _blocked(document: Document, route: Route, at: Any, below: Route, value: Any) -> str:
    """What stands in the way of an override, and how to write it instead."""
    name = dotted(route)
    if isinstance(at, list):
        return f"{name} is a list ({document.place(route)}); give the whole list: {name}=[...]"
    return f"{name} is {show(at)} ({document.place(route)}), which holds no settings; write {name}={{{dotted(below)}: {spell(value)}}}"


__all__ = ["Loaded", "from_dict", "from_text", "load", "resolved_yaml", "shipped"]

_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Loaded:
    """A checked experiment and where it came from.

    Attributes:
        experiment: the checked settings.
        name: `vision/cifar10_cnn` for a shipped experiment; the file's stem for any other.
        path: the file; None for an experiment from text or a mapping.
        header: the comment lines that open the file.
    """

    experiment: Experiment
    name: str
    path: Path | None
    header: str
    document: Document = field(repr=False)

    def where(self, setting: str) -> str:
        """The place of a dotted setting, for messages: `mine.yaml:12`, or the override; the section's where it is not given."""
        return str(self.document.place(split(type(self.experiment), setting)))


def load(
    config: str | Path | None, overrides: Sequence[str] = (), *, domain: str | None = None, check_paths: bool = True,
) -> Loaded:
    """Reads and checks an experiment.

    Args:
        config: a YAML file, or the name of a shipped experiment (`vision/cifar10_cnn`, or `cifar10_cnn` where the domain is
            known); None for the domain's quick start.
        overrides: `a.b.c=value`, the value in YAML; later ones win.
        domain: the domain the experiment must belong to; None for any.
        check_paths: files and folders that it names must exist, relative to the current directory.

    Raises:
        ConfigError: with everything that is wrong.
    """
    path, name = file_of(config, domain)
    if check_paths:  # a person's, not that of a run that is opened
        guard.check(path, "experiment")
    document = read(path, _shown(path))
    experiment = _build(document, overrides, domain, check_paths)
    return Loaded(experiment, name, path, document.header, document)


def from_text(text: str, overrides: Sequence[str] = (), *, file: str = "experiment", check_paths: bool = True) -> Loaded:
    """An experiment from YAML text; `file` is how messages call it. Raises ConfigError as `load` does."""
    document = parse(text, file)
    experiment = _build(document, overrides, None, check_paths)
    return Loaded(experiment, Path(file).stem, None, document.header, document)


def from_dict(values: Mapping[str, Any], overrides: Sequence[str] = (), *, check_paths: bool = True) -> Experiment:
    """An experiment from plain values, with the checks of `load`; messages name the settings alone."""
    document = Document("experiment", _copy(values))
    return _build(document, overrides, None, check_paths)


def apply(experiment: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment of one trial: dotted settings set to `values`, without its tune section.

    A model other than the experiment's own starts from its defaults. Raises ConfigError where the values do not go together.
    """
    return from_dict(laid_over(type(experiment), experiment.model_dump(mode="python"), values), check_paths=False)


def shipped() -> dict[str, Path]:
    """Name -> file of every shipped experiment, in a checkout or an installed wheel, those of our extensions among them."""
    folders = [*_configs(), *sorted(EXTENSIONS_FOLDER.glob("*/configs"))]
    found = {path.relative_to(folder).with_suffix("").as_posix(): path for folder in folders for path in folder.rglob("*")
             if path.suffix in _SUFFIXES and path.is_file()}
    return dict(sorted(found.items()))


def _build(document: Document, overrides: Sequence[str], domain: str | None, check_paths: bool) -> Experiment:
    parsed = parse_overrides(overrides)
    cls = _class(document, parsed, domain)
    problems = apply_overrides(document, parsed, cls)
    document.values["task"] = current_name(document.values["task"])
    check = Check(cls, document.values, lambda route: document.place(route).override is not None).run()
    # What an entry of the search space may be is known to space.py better than to its type.
    wrong = [found for found in check.problems if found[0][:2] != ("tune", "space") or len(found[0]) < 3]
    wrong += (check.missing if check_paths else []) + space_problems(cls, document.values)
    experiment = None
    if not check.problems:
        _expand_paths(cls, document.values)
        try:
            experiment = cls.model_validate(document.values)
        except ValidationError as error:
            wrong += validation_problems(error, document.values)
    if experiment is not None:
        wrong += [(split(cls, name), message) for name, message in experiment.problems()]
    problems += [Problem(document.place(route), route, message) for route, message in wrong]
    if experiment is None or problems:
        raise ExperimentError(problems)
    return experiment


def _class(document: Document, overrides: Sequence[Override], domain: str | None) -> type[Experiment]:
    """The Experiment class of the task; nothing else can be checked without it."""
    given = [(value, place) for name, value, place in overrides if name == "task"]
    task, place = given[-1] if given else (document.values.get("task"), document.place(("task",)))
    if isinstance(task, str):
        found = tasks(task.partition(".")[0])
        task = current_name(task)
        if task in found:
            if domain and task.partition(".")[0] != domain:
                raise _wrong_task(place, f"{task!r} is not a task of {domain}, whose tasks are {listed(tasks(domain), 'and')}")
            return found[task]
    known = tasks(domain)
    if task is None:
        slip = nearest("task", document.values) if "task" not in document.values else None
        near = f" (there is {slip!r})" if slip else ""
        raise _wrong_task(document.place((slip,) if slip else ("task",)), f"must be given{near}: one of {listed(known)}")
    allowed = f"{'one of ' if len(known) > 1 else ''}{listed(known)}"
    guess = did_you_mean(str(task), known, 0.4) if len(known) > 1 else ""
    raise _wrong_task(place, f"{show(task)} is not {allowed}{guess}")


def _wrong_task(place: Place, message: str) -> ExperimentError:
    return ExperimentError([Problem(place, ("task",), message)])


def _expand_paths(cls: type[Experiment], values: dict[str, Any]) -> None:
    """~ in the paths of an experiment becomes the home folder, so that whoever opens them need not think of it."""
    for setting in settings_with(cls, "path"):
        if setting.exists_in(values) and "*" not in setting.route:
            *above, last = setting.route
            at: Any = values
            for step in above:
                at = at.get(step) if isinstance(at, dict) else None
            if isinstance(at, dict) and isinstance(at.get(last), str) and address_of(at[last]) is None:
                at[last] = str(Path(at[last]).expanduser())


def file_of(config: str | Path | None, domain: str | None) -> tuple[Path, str]:
    """The file and the name of an experiment, as `load` takes it. Raises ConfigError where there is none."""
    if config is None:
        if domain is None:
            raise ConfigError("name an experiment: a YAML file, or a shipped one such as vision/digits")
        config = quick_start(domain)
    if address_of(config):
        config = local(config)
    names, path = shipped(), Path(config).expanduser()
    given = str(config)
    kind = other_kind(path)
    if kind and kind != "a folder":
        raise ConfigError(f"{given}: is {kind}, not a file; only regular files are read")
    if path.suffix in _SUFFIXES or path.is_file():
        if not path.is_file():
            raise ConfigError(f"{given}: {_no_file(path, names)}")
        home = {each.resolve(): name for name, each in names.items()}
        return path, home.get(path.resolve(), path.stem)
    for name in (given, f"{domain}/{given}"):
        if name in names:
            return names[name], name
    if path.is_dir():
        inside = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
        raise ConfigError(f"{given}: is a folder" + (f"; did you mean {inside[0]}?" if inside else "; name a YAML file"))
    own = [name for name in names if not domain or name.startswith(f"{domain}/")]
    tails = [name for name in own if name.rpartition("/")[2] == given]
    guess = tails[0] if tails else nearest(given, own) or nearest(f"{domain}/{given}", own)
    hint = f"; did you mean {guess}?" if guess else f"; shipped are {listed(own, 'and')}" if own else ""
    raise ConfigError(f"{given}: there is no shipped experiment and no file of that name{hint}")


def _no_file(path: Path, names: Mapping[str, Path]) -> str:
    if not path.parent.is_dir():
        return f"there is no such file, nor a folder {path.parent}"
    others = [str(path.parent / each.name) for each in path.parent.iterdir() if each.suffix in _SUFFIXES]
    guess = nearest(str(path), others) or nearest(str(path.with_suffix("")), names)
    return "there is no such file" + (f"; did you mean {guess}?" if guess else "")


def _configs() -> list[Path]:
    """Folder of the core's shipped experiments: inside the package in a wheel, beside it in a checkout."""
    package = Path(str(files("pipelines")))
    return [folder for folder in (package / "configs", package.parent / "configs") if folder.is_dir()][:1]


def _shown(path: Path) -> str:
    """A path as messages name it: short where it lies below the current directory."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, (list, tuple)) else value
