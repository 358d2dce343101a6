"""Keyword options of a call that extensions add to the command of the same name."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def options_of(command: str, given: Mapping[str, Any]) -> Iterator[None]:
    """Inside, an option such as require_signature=KEY acts as it does on the command line.

    Raises:
        ConfigError: no extension adds an option of that name to the command, or it asks for processes that only a command starts.
    """
    from pipelines.base.errors import ConfigError
    from pipelines.config.doors import OPTIONS
    from pipelines.config.registry import import_extensions
    from pipelines.runs.launcher import chosen

    import_extensions()
    with OPTIONS.surround(command, dict(given)):
        if given and chosen(command).elsewhere:
            raise ConfigError(f"{', '.join(given)}: quartet.{command} works in this process; give the command quartet {command}")
        yield
