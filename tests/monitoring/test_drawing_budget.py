"""Drawing takes a tenth of the time at most, and never less than once."""

from itertools import pairwise

from pipelines.task import contract


def test_pictures_come_each_epoch_unless_they_would_take_long(monkeypatch):
    now = 0.0
    monkeypatch.setattr(contract, "perf_counter", lambda: now)

    def drawn(epochs: int, seconds: float) -> list[int]:
        """The epochs of so many seconds after which a drawing of 2 s was made."""
        nonlocal now
        pace, made = contract.DrawingBudget(), []
        for epoch in range(epochs):
            if pace.due():
                with pace:
                    now += 2.0
                made.append(epoch)
            now += seconds
        return made

    assert drawn(12, 30.0) == list(range(12))
    often = drawn(40, 5.0)
    assert often[0] == 0 and 8 <= len(often) <= 12 and max(b - a for a, b in pairwise(often)) <= 5
