"""The options of `quartet serve` that search brings. Needs no extra."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer


@dataclass(frozen=True)
class SearchOptions:
    """What the command line says. While one is entered, the protocol of the server reads it: `chosen`."""

    index: Annotated[Path | None, typer.Option(
        metavar="DIR", show_default=False, help="An index of `quartet index`, which POST /v1/search answers from.")] = None
    reader: Annotated[Path | None, typer.Option(
        metavar="RUN", show_default=False, help="With --index: a run that finds answers in passages, which answers queries.")] = None

    _entered: ClassVar[list["SearchOptions"]] = []

    def __enter__(self) -> None:
        self._entered.append(self)

    def __exit__(self, *error: object) -> None:
        self._entered.pop()


def chosen() -> SearchOptions:
    """Of the command that runs."""
    return SearchOptions._entered[-1] if SearchOptions._entered else SearchOptions()
