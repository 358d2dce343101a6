"""As tests/hostile/test_mutated_files.py: converted cores of a stranger, changed at random, are used, or refused plainly."""

import os

import pytest

from tests.hostile.mutations import outcomes

pytestmark = pytest.mark.slow(seconds=40)
FEW = {"litert": (40, ("ai_edge_litert",)), "onnx": (30, ("onnxruntime", "tf2onnx")), "openvino": (20, ("openvino",))}


@pytest.mark.parametrize("kind", FEW)
def test_a_changed_file_is_used_or_refused(kind, tmp_path):
    count, needs = FEW[kind]
    if not os.environ.get("QUARTET_REQUIRE_EXTRAS"):
        for name in needs:
            pytest.importorskip(name)
    counts = outcomes(kind, tmp_path / kind, 0, int(os.environ.get("QUARTET_FUZZ", "0")) or count, kinds="extensions.convert.tests.cores")
    assert counts.get("refused")
