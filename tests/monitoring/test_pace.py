"""Work that takes long says how far it is."""

from pipelines.monitoring.pace import Pace


def test_a_line_now_and_then():
    said, now = [], [0.0]
    pace = Pace(said.append, "judging test", 3000, clock=lambda: now[0])
    for now[0] in (4.0, 9.9, 12.0, 13.0, 22.5):
        pace.add(600)
    assert said == ["judging test: 1,800 of 3,000, 150 a second", "judging test: 3,000 of 3,000, 133 a second"]


def test_what_comes_together_is_counted_together():
    said, now = [], [0.0]

    def items():
        for now[0] in (12.0, 12.001, 12.002, 24.0, 24.001):
            yield now[0]

    assert len(list(Pace(said.append, "vectors", clock=lambda: now[0]).of(items()))) == 5
    assert said == ["vectors: 3, 0 a second"]
