"""Output for the terminal: text in which nothing moves the cursor, and tables of its width, or in whole lines for a file or another
program.

Names of files, classes, runs and metrics are other people's text, and a terminal takes control characters as commands: everything is
written through `shell.echo`, `say` and `fail`, the tables here, and `monitoring.screen`.
"""

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TextIO

from rich import box
from rich.console import Console
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
