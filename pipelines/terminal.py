"""Tables for the terminal: as wide as it is, and in whole lines where the output goes to a file or another program."""

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDE = 100_000  # of output that no terminal wraps: nothing is cut


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), file: TextIO | None = None,
                title: str | None = None) -> None:
    """Prints a table.

    Args:
        columns: headings.
        rows: texts; printed as they are, whatever signs they hold.
        right: numbers of the columns that are set flush right.
        file: default: standard output.
    """
    out = console(file)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", show_edge=False)
    for number, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if number in right else "left", overflow="fold", no_wrap=not out.is_terminal)
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
    return "".join(char if char.isprintable() or char == " " else char.encode("unicode_escape").decode() for char in text)
