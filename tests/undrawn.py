"""Figures in which nothing is drawn, as PNGs of one point: drawing those of a report takes as long as a small training.

What figures show is tested in tests/reports, and tests/test_contract.py draws those of every task (mark `figures`).
"""

import base64
from typing import Any

import numpy as np
import pytest

DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")


class Nothing:
    """Axes, lines, a legend, ...: takes every call, and has no parts."""

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *given: Any, **options: Any) -> "Nothing":
        return self

    def __getitem__(self, place: Any) -> "Nothing":
        return self

    def __iter__(self) -> Any:
        return iter(())


class Blank(Nothing):
    """In place of matplotlib's Figure."""

    def subplots(self, rows: int = 1, columns: int = 1, *, squeeze: bool = True, **options: Any) -> Any:
        axes = np.full((rows, columns), Nothing(), object)
        return axes.squeeze()[()] if squeeze else axes


def rendered(figure: Any, dpi: int) -> bytes:
    """In place of pipelines.base.figures.rendered."""
    return DOT


def draw_nothing(patch: pytest.MonkeyPatch) -> None:
    """Until the patch is undone."""
    patch.setattr("pipelines.base.figures.canvas", lambda width, height: Blank())
    patch.setattr("pipelines.base.figures.rendered", rendered)


def in_this_process() -> None:
    """For a process of a test's that trains."""
    draw_nothing(pytest.MonkeyPatch())
