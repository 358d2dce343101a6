"""Where registered code comes from: a file or package of somebody's own, its version, a hash of its content. Imports no TensorFlow."""

import hashlib
import importlib.metadata
import inspect
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OURS = "quartet"  # the distribution's entry-point groups begin with it, and so does its public package


@dataclass(frozen=True)
class Origin:
    """Where an extension comes from.

    Attributes:
        name: the distribution, or the file's name.
        version: the distribution's; None of a plain file.
        sha256: of the module's file; None where it has none, as in a notebook whose source cannot be had.
        file: where the module lies here; what a run keeps does not say it.
        package: its importable name where a new process can import it by that, such as "sample_extension".
    """

    name: str
    version: str | None = None
    sha256: str | None = None
    file: Path | None = field(default=None, compare=False)
    package: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.name} {self.version}" if self.version else self.name


_SHIPPED: set[str] = {"pipelines", OURS}
_LOADED: dict[str, Origin] = {}  # module -> origin, of what was loaded by file or entry point


def ships(package: str) -> None:
    """Says that a top-level package is part of Quartet."""
    _SHIPPED.add(package)


def remember(module: str, origin: Origin) -> None:
    """Says where a module that is about to be executed comes from."""
    _LOADED[module] = origin


def origin_of(thing: Any) -> Origin | None:
    """Where a function or class, or a place such as "module:name", was defined; None for what ships with Quartet."""
    module = thing.partition(":")[0] if isinstance(thing, str) else thing.__module__
    if module.partition(".")[0] in _SHIPPED:
        return None
    if module in _LOADED:
        return _LOADED[module]
    loaded = sys.modules.get(module)
    path = getattr(loaded, "__file__", None)
    if path is None or not Path(path).is_file():
        return Origin(module, None, _hash_of_source(thing))
    return of_file(Path(path), module)


def of_file(path: Path, module: str) -> Origin:
    """The origin of an imported module: its distribution where it was installed from one, else its file."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    top = module.partition(".")[0]
    if "site-packages" in path.parts or "dist-packages" in path.parts:
        for name in importlib.metadata.packages_distributions().get(top, ()):
            return Origin(name, importlib.metadata.version(name), digest, path, module)
    return Origin(path.name, None, digest, path)


def _hash_of_source(thing: Any) -> str | None:
    try:
        return hashlib.sha256(inspect.getsource(thing).encode()).hexdigest()
    except (OSError, TypeError):
        return None
