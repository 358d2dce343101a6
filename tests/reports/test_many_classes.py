"""What is written of a hundred thousand classes: all names are in the model's facts, and nowhere else."""

import json

import numpy as np

from pipelines.data.check import Read, check
from pipelines.data.source import ArraySource
from pipelines.data.split import describe
from pipelines.reports.report import Reported, write_report
from pipelines.task.contract import Splits

COUNT = 100_000
NAMES = [f"product number {number:06d}" for number in range(COUNT)]


def test_names_are_cut_with_their_count(tmp_path):
    source = ArraySource({"x": np.zeros(5, np.float32)}, labels=np.arange(5) * 100, fingerprint="f")
    parts = {"train": source}
    older = {"classes": dict.fromkeys(NAMES, 0)}
    facts = {"classes": NAMES, "class_counts": [0] * COUNT, "splits": {**describe(parts, NAMES), "older": older}}
    assert describe(parts, NAMES) == {"train": {"examples": 5, "fingerprint": "f"}}
    assert describe(parts, NAMES[:5000])["train"]["classes"][NAMES[400]] == 1
    content = write_report(tmp_path, Reported(task="vision.classification", experiment="x", run="r", judgements={}, timing={},
                           splits=Splits(source, None, None, facts)))
    assert content["data"]["facts"]["splits"]["older"]["classes"]["count"] == COUNT
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 100_000
    assert "100,000 classes: product number 000000, product" in (tmp_path / "model_card.md").read_text()

    read = Read([], np.arange(5, dtype=np.uint64))
    findings = check("x", {"train": source}, {"train": read}, NAMES, identical="the same", skip=False).to_json()
    assert findings["splits"]["train"]["classes"]["count"] == COUNT and len(json.dumps(findings)) < 100_000
