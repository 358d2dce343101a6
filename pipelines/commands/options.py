"""How a function becomes a command: its expected failures are reported, and extensions add options to it. Imports no TensorFlow."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from pipelines.commands.shell import reported
from pipelines.config.doors import OPTIONS


def add_command(app: typer.Typer, function: Callable[..., None], name: str | None = None, *, group: str = "") -> None:
    """Adds a function to an app as a command.

    Args:
        name: default: the function's.
        group: the app's own name within `quartet`, such as "runs".
    """
    called = name or function.__name__
    full = f"{group} {called}".strip()

    class Command(TyperCommand):
        """A command line whose words extensions may rewrite, such as an option that may stand without a value."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            for entry in OPTIONS.of(full):
                args = entry.rewrite(args) if entry.rewrite else args
            parsed: list[str] = super().parse_args(ctx, args)
            return parsed

    app.command(called, cls=Command)(surrounded(function, full))


def surrounded(function: Callable[..., None], command: str) -> Callable[..., None]:
    """The function as a command of that name, with the options that extensions add to it."""
    own = inspect.signature(function)
    added = {one.name: one for entry in OPTIONS.of(command) for one in entry.parameters()}

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in added if name in kwargs}
        with OPTIONS.surround(command, given):
            function(*args, **kwargs)

    options = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in added.values()]
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), *options])  # type: ignore[attr-defined]
    run.__annotations__ = {**function.__annotations__, **{one.name: one.annotation for one in options}}
    return reported(run)
