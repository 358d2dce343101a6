"""Output for the terminal: text in which nothing moves the cursor; tables of its width, or in whole lines for a file or another
program; and lines that stay above a last one that is kept up to date, in a notebook in the cell's output (`Screen`).

Names of files, classes, runs and metrics are other people's text, and a terminal takes control characters as commands: everything is
written through `shell.echo`, `say` and `fail`, the tables and the `Screen` here.
"""

import html
import io
import json
import os
import sys
import time
import unicodedata
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, TextIO, TypeVar

from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

_WIDE = 100_000  # of output that no terminal wraps: nothing is cut


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), file: TextIO | None = None) -> None:
    """Prints a table.

    Args:
        columns: headings.
        rows: texts; printed as they are, whatever characters they hold.
        right: numbers of the columns that are set flush right.
        file: default: standard output.
    """
    out = console(file)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, column in enumerate(columns):
        justify: Literal["right", "left"] = "right" if number in right else "left"
        table.add_column(Text(printable(column)), justify=justify, overflow="fold", no_wrap=not out.is_terminal)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    out.print(table)


def console(file: TextIO | None = None) -> Console:
    """A console on `file`; where that is no terminal, without width and colour."""
    out = Console(file=file or sys.stdout, highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out.width = _WIDE
    return out


def printable(text: str) -> str:
    """Text in which nothing moves the cursor: line breaks and control characters as escapes, unreadable bytes of file names as `?`."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if text.isprintable() else "".join(char if _harmless(char) else char.encode("unicode_escape").decode() for char in text)


def lines(text: str) -> str:
    """`printable`, but for the ends of lines."""
    return "\n".join(map(printable, text.split("\n")))


def json_text(value: Any) -> str:
    """JSON for programs and for the screen: letters as they are, control characters as JSON escapes them."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(char if char == "\n" or _harmless(char) else json.dumps(char)[1:-1] for char in text)


class Shielded:
    """A text file in front of a terminal: what is written arrives as `lines` has it, tabs as they are."""

    def __init__(self, file: TextIO):
        self._file = file

    def write(self, text: str) -> int:
        self._file.write("\t".join(map(lines, text.split("\t"))))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _harmless(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


_WIDTH = 110  # columns
_SECONDS = 0.25  # between updates of the cell
_LINES = 500  # that stay in the cell
_STYLE = "max-height: 24em; overflow: auto; margin: 0; white-space: pre-wrap"


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class Cell:
    """Takes the place of rich's Live where a notebook's kernel is running.

    Args:
        drawn: the last line, drawn anew at each refresh.
    """

    def __init__(self, drawn: RenderableType):
        self._drawn, self._lines = drawn, list[str]()
        self._handle: Any = None
        self._shown = 0.0

    def start(self) -> None:
        """Begins to show the last line."""
        self._update(_rendered(self._drawn))

    def stop(self) -> None:
        """Leaves the lines that stay, and takes the last one away."""
        self._update("")

    def refresh(self) -> None:
        """Draws the last line as it is now; a few times a second at most."""
        if time.monotonic() - self._shown >= _SECONDS:
            self._update(_rendered(self._drawn))

    def print(self, text: str) -> None:
        """Adds a line that stays."""
        self._lines = [*self._lines, text][-_LINES:]
        self.refresh()

    def _update(self, last: str) -> None:
        from IPython.display import display  # type: ignore[attr-defined]

        text = "\n".join([*self._lines, *([last] if last else [])])
        shown = {"text/plain": text, "text/html": f'<pre style="{_STYLE}">{html.escape(text)}</pre>'}
        self._shown = time.monotonic()
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def _rendered(drawn: RenderableType) -> str:
    out = Console(file=io.StringIO(), width=_WIDTH, highlight=False, markup=False, emoji=False, force_jupyter=False)
    out.print(drawn, end="")
    return out.file.getvalue().rstrip("\n")  # type: ignore[attr-defined]


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
        self._notebook = file is None and bar is None and in_notebook()
        self._console = Console(file=file or sys.stderr, highlight=False, markup=False, emoji=False, soft_wrap=True, force_jupyter=False)
        able = self._console.is_terminal and not self._console.is_dumb_terminal and not os.environ.get("CI")
        self._bar = (able or self._notebook) if bar is None else bar
        self._live: Live | Cell | None = None

    def note(self, text: str) -> None:
        """A line that stays, above the last."""
        if not self.quiet:
            self._print(lines(text))

    def warning(self, text: str) -> None:
        """A line that stays and stands out; printed under `quiet` too."""
        self._print(Text.assemble(("warning: ", "bold yellow"), lines(text)))

    def __enter__(self: Entered) -> Entered:
        if self._notebook and not self.quiet:
            self._live = Cell(self._drawn)
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
        if isinstance(self._live, Cell):
            self._live.print(str(text))
        else:
            self._console.print(text)
