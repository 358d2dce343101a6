"""Runs of a stranger, changed at random by a fixed seed: each is loaded, or refused with a plain error, and nothing crashes or hangs.

QUARTET_FUZZ=1000 tries as many; the suite tries a few.
"""

import os
import random
import time
from pathlib import Path

import pytest

from pipelines.base.errors import QuartetError
from pipelines.runs.folder import RunFolder
from pipelines.runs.lineage import lineage
from pipelines.runs.listing import entry_of
from pipelines.serving.load import load_run
from tests import finished_run
from tests.hostile.mutations import changed, inside

pytestmark = pytest.mark.slow(seconds=10)
COUNT = int(os.environ.get("QUARTET_FUZZ", "24"))
FILES = ("experiment.yaml", "environment.json", "model/facts.json", "model/model.keras", "model/model.keras", "report/report.json",
         "metrics.jsonl")
SECONDS = 10.0  # of the processor, for one run


def tried(folder: Path) -> str:
    """What became of it, in a word."""
    outcome = "loaded"
    for use in (lambda run: load_run(run, where="cpu"), lambda run: run.read_report(), lambda run: entry_of(run, "x").as_json(), lineage):
        try:
            use(RunFolder(folder))
        except QuartetError as error:
            assert str(error).strip()
            outcome = "refused"
    return outcome


def test_a_changed_run_is_loaded_or_refused(tmp_path):
    folder = finished_run.copy(tmp_path)
    whole = {name: (folder / name).read_bytes() for name in FILES}
    outcomes = []
    for number in range(COUNT):
        dice = random.Random(number)
        name = dice.choice(FILES)
        packed = name.endswith(".keras") and dice.random() < 0.8
        (folder / name).write_bytes(inside(whole[name], dice) if packed else changed(whole[name], dice))
        there = sorted(tmp_path.rglob("*"))
        began = time.process_time()
        try:
            outcomes.append(tried(folder))
        except BaseException as error:
            raise AssertionError(f"change {number} of {name}: {type(error).__name__}: {error}") from error
        assert time.process_time() - began < SECONDS, f"change {number} of {name}"
        assert sorted(tmp_path.rglob("*")) == there, f"change {number} of {name}"
        (folder / name).write_bytes(whole[name])
    assert "refused" in outcomes and "loaded" in outcomes
