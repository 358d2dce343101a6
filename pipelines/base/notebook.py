"""Lines and a progress line in the output of a notebook's cell, as plain HTML that is updated in place; no widgets are needed."""

import html
import io
import sys
import time
from typing import Any

from rich.console import Console, RenderableType

_WIDTH = 110  # columns
_SECONDS = 0.25  # between updates of the cell
_LINES = 500  # that stay in the cell
_STYLE = "max-height: 24em; overflow: auto; margin: 0; white-space: pre-wrap"


def running() -> bool:
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
