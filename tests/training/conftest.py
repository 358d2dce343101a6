"""For the tests of the loop: figures are not drawn. What they show is tested in tests/reports, and drawing takes as
long as a toy's training."""

import base64

import pytest

DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")  # a PNG of one point


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    monkeypatch.setattr("pipelines.base.figures.png", lambda figure, dpi=120: DOT)
    monkeypatch.setattr("pipelines.reports.report.png", lambda figure, dpi=120: DOT)
