"""The doors by which an extension comes into the core: registries that the core asks, and that name no extension themselves.

An extension is a package that registers what it brings when it is imported: ours lie in the folder `extensions` beside `pipelines`, a
stranger's package names itself in the entry-point group `quartet.extensions` (`registry.import_extensions`). Imports no TensorFlow.

    TRANSFORMS name -> a class of `pipelines.training.transform.Transform`, made for each training whose settings ask for it
    HOOKS      name -> a class of `pipelines.runs.run_hook.RunHook`, made for each run
    COMMANDS   name -> a function, a command of `quartet`

Settings of its own stand in a section of the experiment that is there already: `add_settings(Monitor, Track)`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.config.origin import Origin, origin_of
from pipelines.config.variants import Builder, resolved


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
        entry, before = Entry(name, builder, origin_of(builder)), self._entries.get(name)
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


TRANSFORMS = Door("transform")
HOOKS = Door("hook")
COMMANDS = Door("command")
ALL = (TRANSFORMS, HOOKS, COMMANDS)
