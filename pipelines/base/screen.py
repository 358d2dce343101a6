"""Lines that stay on the terminal above a last one that is kept up to date; in a notebook the same in the cell's output; without either,
plain lines only.
"""

import os
import sys
from types import TracebackType
from typing import TextIO, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from pipelines.base import notebook
from pipelines.base.terminal import lines

Entered = TypeVar("Entered", bound="Screen")


class Screen:
    """A context manager; nothing is drawn before it is entered. Writes plain lines without colour into a pipe, a file, or under CI.

    Args:
        drawn: the last line.
        quiet: show warnings alone.
        file: where to write; default: stderr, so that stdout stays for results.
        bar: keep the last line up to date; default: if `file` is a terminal that can, and CI is not set.
        refresh: times a second that it is drawn.
    """

    def __init__(
        self, drawn: RenderableType, *, quiet: bool = False, file: TextIO | None = None, bar: bool | None = None, refresh: float = 4
    ):
        self.quiet, self._drawn, self._refresh = quiet, drawn, refresh
        self._notebook = file is None and bar is None and notebook.running()
        self._console = Console(file=file or sys.stderr, highlight=False, markup=False, emoji=False, soft_wrap=True, force_jupyter=False)
        able = self._console.is_terminal and not self._console.is_dumb_terminal and not os.environ.get("CI")
        self._bar = (able or self._notebook) if bar is None else bar
        self._live: Live | notebook.Cell | None = None

    def note(self, text: str) -> None:
        """A line that stays, above the last."""
        if not self.quiet:
            self._print(lines(text))

    def warning(self, text: str) -> None:
        """A line that stays and stands out; printed under `quiet` too."""
        self._print(Text.assemble(("warning: ", "bold yellow"), lines(text)))

    def __enter__(self: Entered) -> Entered:
        if self._notebook and not self.quiet:
            self._live = notebook.Cell(self._drawn)
            self._live.start()
        elif self._bar and not self.quiet:
            # What others print goes above the bar; but a stdout that is piped elsewhere must stay there.
            self._live = Live(
                self._drawn, console=self._console, refresh_per_second=self._refresh, transient=True, redirect_stdout=sys.stdout.isatty()
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def _print(self, text: str | Text) -> None:
        if isinstance(self._live, notebook.Cell):
            self._live.print(str(text))
        else:
            self._console.print(text)
