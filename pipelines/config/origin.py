"""Where registered code comes from: a file or package of somebody's own, its version, a hash of its content. Imports no TensorFlow."""

import hashlib
import importlib.metadata
import inspect
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
