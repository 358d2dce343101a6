"""Presets, checkpoints, exports and data of a stranger, changed at random by a fixed seed: each is used, or refused plainly.
No code of them runs, nothing else is written, and time and memory are bounded.

QUARTET_FUZZ=N tries N of each kind; the suite tries a few.
"""

import os

import pytest

from tests.hostile.kinds import KINDS
from tests.hostile.mutations import outcomes

pytestmark = pytest.mark.slow(seconds=40)
EACH = int(os.environ.get("QUARTET_FUZZ", "0"))
FEW = {"preset": 4, "images": 10, "recordings": 10, "tables": 20, "arrays": 30, "checkpoint": 12, "saved model": 20}


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_file_is_used_or_refused(kind, tmp_path):
    if kind == "preset" and not os.environ.get("QUARTET_REQUIRE_EXTRAS"):
        pytest.importorskip("keras_hub")
    counts = outcomes(kind, tmp_path / kind, 0, EACH or FEW[kind])
    assert counts.get("refused")
