"""The doors by which an extension comes into the core: registries that the core asks, and that name no extension themselves.

An extension is a package that registers what it brings when it is imported: ours lie in the folder `extensions` beside `pipelines`, a
stranger's package names itself in the entry-point group `quartet.extensions` (`registry.import_extensions`). Imports no TensorFlow.

    TRANSFORMS name -> a class of `pipelines.training.transform.Transform`, made for each training whose settings ask for it
    HOOKS      name -> a class of `pipelines.runs.run_hook.RunHook`, made for each run
    COMMANDS   name -> a function, a command of `quartet`
    OPTIONS    name -> a context manager, whose parameters are options of commands that are there
    STORAGES   name -> a class of `pipelines.base.storage.Storage`: the form in which files are kept
    REMOTES    name -> a class of `pipelines.stores.remote.Remote`: what is at addresses such as s3://BUCKET/PATH
    LAUNCHERS  name -> a function: command -> a `pipelines.runs.launcher.Launcher` where it is asked for, else None
    FORMS      name -> a class of `pipelines.serving.forms.Form`, another form of a finished model
    GUARDS     name -> a class of `pipelines.config.guard.Guard`: looks at what a person named before it is opened
    LINEAGE    name -> a class of `pipelines.runs.lineage.Line`: what `quartet lineage` says of a run besides its own files
    PROTOCOLS  name -> a class of `pipelines.serving.protocol.ServerProtocol`, made for each server

Settings of its own stand in a section of the experiment that is there already: `add_settings(Monitor, Track)`. `origin_of` says where
registered code comes from: a file or package of somebody's own, its version, a hash of its content.
"""

import hashlib
import importlib
import importlib.metadata
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.base.errors import ConfigError

Builder = str | Callable[..., Any]  # a function or class, or its place as "module:name"
INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Origin:
    """Where an extension comes from.

    Attributes:
        name: the distribution, or the file's name.
        version: the distribution's; None of a plain file.
        sha256: of the module's file; None where it has none that can be read, as in some notebooks.
        module: its name here.
        file: where it lies here.
        entry_point: it is imported wherever the distribution is installed.
    """

    name: str
    version: str | None
    sha256: str | None
    module: str = field(compare=False)
    file: Path | None = field(default=None, compare=False)
    entry_point: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.name} {self.version}" if self.version else self.name


_SHIPPED: set[str] = {"pipelines", "quartet"}
_LOADED: dict[str, Origin] = {}  # by module, of what is imported as an extension


def ships(package: str) -> None:
    """Says that a top-level package is part of Quartet."""
    _SHIPPED.add(package)


def remember(origin: Origin) -> None:
    """Says where a module that is about to be executed comes from."""
    _LOADED[origin.module] = origin


def forget(name: str) -> None:
    """Extensions of that name are no longer in use; their modules can be imported anew."""
    for module in [module for module, origin in _LOADED.items() if origin.name == name]:
        del _LOADED[module]
        sys.modules.pop(module, None)


def remembered(file: Path) -> bool:
    """Whether that file is an extension in use."""
    return any(origin.file == file for origin in _LOADED.values())


def origin_of(thing: Any) -> Origin | None:
    """Where a function or class, or a place such as "module:name", was defined; None for what ships with Quartet."""
    module = thing.partition(":")[0] if isinstance(thing, str) else thing.__module__
    if module.partition(".")[0] in _SHIPPED:
        return None
    known = next((origin for name, origin in _LOADED.items() if module == name or module.startswith(f"{name}.")), None)
    if known is not None:
        return known
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None or not Path(path).is_file():
        return Origin(module, None, _hash_of_source(thing), module)
    return of_file(Path(path), module)


def of_file(path: Path, module: str) -> Origin:
    """The origin of an imported module: its distribution where it was installed from one, else its file."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if set(INSTALLED) & set(path.parts):
        for name in importlib.metadata.packages_distributions().get(module.partition(".")[0], ()):
            return Origin(name, importlib.metadata.version(name), digest, module, path)
    return Origin(path.name, None, digest, module, path)


def _hash_of_source(thing: Any) -> str | None:
    try:
        return hashlib.sha256(inspect.getsource(thing).encode()).hexdigest()
    except (OSError, TypeError):
        return None


def resolved(builder: Builder) -> Any:
    """The function or class that a builder is, imported where it is given as "module:name"; of "module" alone the module."""
    if not isinstance(builder, str):
        return builder
    module, _, name = builder.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


@dataclass(frozen=True)
class Entry:
    """What an extension brings: a function or class, or its place as "module:name"; `origin` is None for Quartet's own."""

    name: str
    builder: Builder
    origin: Origin | None

    def load(self) -> Any:
        """The function or class; imports its module."""
        return resolved(self.builder)


class Door:
    """One kind of thing that extensions bring.

    Args:
        what: what one of them is called in messages.
    """

    def __init__(self, what: str):
        self.what = what
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, builder: Builder) -> None:
        """Raises ConfigError where another extension has that name already."""
        self._add(Entry(name, builder, origin_of(builder)))

    def _add(self, entry: Entry) -> None:
        name, before = entry.name, self._entries.get(entry.name)
        if before is not None and (before.origin is None or entry.origin is None or before.origin.name != entry.origin.name):
            raise ConfigError(f"there is a {self.what} {name!r} already, from {before.origin or 'Quartet itself'}; choose another name")
        self._entries[name] = entry

    def entries(self) -> tuple[Entry, ...]:
        """In the order in which they were added."""
        return tuple(self._entries.values())

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """Inside, there is no entry of that name."""
        known = self._entries
        self._entries = {other: entry for other, entry in known.items() if other != name}
        try:
            yield
        finally:
            self._entries = known

    def forget(self, extension: str) -> None:
        """Removes what an extension has added."""
        self._entries = {name: entry for name, entry in self._entries.items() if entry.origin is None or entry.origin.name != extension}

    def origins(self) -> set[Origin]:
        """Where entries come from that do not ship with Quartet."""
        return {entry.origin for entry in self._entries.values() if entry.origin is not None}


@dataclass(frozen=True)
class Surround(Entry):
    """Options of commands: a context manager with annotated keyword parameters, which surrounds each call of the commands.

    Attributes:
        commands: by name: "train", "runs compare".
        rewrite: of the command line's words, before they are parsed.
    """

    commands: tuple[str, ...] = ()
    rewrite: Callable[[list[str]], list[str]] | None = None

    @cached_property
    def parameters(self) -> tuple[inspect.Parameter, ...]:
        """One for each option: its name, its default, and its annotation as typer takes it."""
        return tuple(inspect.signature(self.load(), eval_str=True).parameters.values())


class Options(Door):
    """Options that extensions add to commands."""

    def add(self, name: str, builder: Builder, *, commands: Iterable[str] = (),
            rewrite: Callable[[list[str]], list[str]] | None = None) -> None:
        """As `Surround` says. Raises ConfigError where another extension has that name already."""
        self._add(Surround(name, builder, origin_of(builder), tuple(commands), rewrite))

    def of(self, command: str) -> tuple[Surround, ...]:
        """Those of a command, in the order in which they were added."""
        return tuple(entry for entry in self.every() if command in entry.commands)

    def every(self) -> tuple[Surround, ...]:
        """Those of all commands."""
        return tuple(entry for entry in self.entries() if isinstance(entry, Surround))

    @contextmanager
    def surround(self, command: str, given: dict[str, Any]) -> Iterator[None]:
        """Enters the context managers of a command, the first added outermost, each with those of the options that it takes.

        Args:
            given: option -> value; what is missing has its default.

        Raises:
            ConfigError: no extension that is there adds such an option to the command.
        """
        entries = self.of(command)
        taken = {entry: {one.name for one in entry.parameters} for entry in entries}
        unknown = sorted(set(given).difference(*taken.values()))
        if unknown:
            raise ConfigError(f"{command}: there is no option {', '.join(unknown)}")
        with ExitStack() as entered:
            for entry in entries:
                options = {name: value for name, value in given.items() if name in taken[entry]}
                entered.enter_context(entry.load()(**options))
            yield


TRANSFORMS = Door("transform")
HOOKS = Door("hook")
COMMANDS = Door("command")
OPTIONS = Options("set of options")
FORMS = Door("form")
LAUNCHERS = Door("launcher")
STORAGES = Door("storage")
REMOTES = Door("remote storage")
GUARDS = Door("guard")
LINEAGE = Door("line of lineage")
PROTOCOLS = Door("protocol")
ALL = (TRANSFORMS, HOOKS, COMMANDS, OPTIONS, FORMS, LAUNCHERS, STORAGES, REMOTES, GUARDS, LINEAGE, PROTOCOLS)
