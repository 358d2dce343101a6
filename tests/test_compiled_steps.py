"""The table of compiled steps: that it has all shipped experiments, and how it is read from what compilers write."""

import pytest

from benchmarks import cuda
from pipelines.commands.cards import named
from tests.finished_run import ROOT
from tests.test_gpu_rehearsal import BY_CUDNN, CASES

DOT = "contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<8x32xf32>, tensor<32x10xf32>) -> tensor<8x10xf32> loc(#loc2)"
WINDOW = "dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1]} {batch_group_count = 1 : i64}"
CONVOLVED = "(tensor<8x10x10x3xbf16>, tensor<3x3x3x4xbf16>) -> tensor<8x8x8x4xbf16>"
STEP = f"""
module @step {{
  func.func public @main(%arg0: tensor<8x32xbf16>, %arg1: tensor<32x10xf32>, %arg2: tensor<8x10x10x3xbf16>) -> (tensor<8x10xf32>) {{
    %0 = stablehlo.convert %arg0 : (tensor<8x32xbf16>) -> tensor<8x32xf32> loc(#loc1)
    %1 = stablehlo.dot_general %0, %arg1, {DOT}
    %2 = stablehlo.dot_general %0, %arg1, {DOT}
    %3 = stablehlo.convolution(%arg2, %k) {WINDOW} : {CONVOLVED} loc(#loc3)
    %output, %mean, %var = "stablehlo.batch_norm_training"(%3, %s) <{{epsilon = 1.000000e-03 : f32}}> : (tensor<8x8x8x4xbf16>) loc(#loc4)
    %4 = stablehlo.add %1, %mean : tensor<8x10xf32> loc(#loc5)
    return %4 : tensor<8x10xf32> loc(#loc6)
  }}
}}
"""

COMPILED = """
HloModule step, is_scheduled=true, entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,0}}

%fused_add (p0: f32[8,3], p1: f32[8,3]) -> f32[8,3] {
  %p0 = f32[8,3]{1,0} parameter(0)
  %p1 = f32[8,3]{1,0} parameter(1)
  ROOT %add.1 = f32[8,3]{1,0} add(%p0, %p1)
}

%body (state: (s32[], f32[8,3])) -> (s32[], f32[8,3]) {
  %state = (s32[], f32[8,3]{1,0}) parameter(0)
  %get-tuple-element.1 = f32[8,3]{1,0} get-tuple-element(%state), index=1
  %call.1 = (f32[8,3]{1,0}, s8[64]{0}) custom-call(%get-tuple-element.1), custom_call_target="__cublas$lt$matmul"
  ROOT %tuple.1 = (s32[], f32[8,3]{1,0}) tuple(%state, %call.1)
}

ENTRY %main.9 (a.1: f32[8,3]) -> f32[8,3] {
  %a.1 = f32[8,3]{1,0} parameter(0)
  %while.1 = (s32[], f32[8,3]{1,0}) while(%a.1), condition=%condition, body=%body
  %conv = (f32[8,3]{1,0}, u8[0]{0}) custom-call(%a.1, %a.1), custom_call_target="__cudnn$convForward"
  %send.1 = (f32[8,3]{1,0}, u32[], token[]) send(%a.1), channel_id=1
  ROOT %loop_add_fusion = f32[8,3]{1,0} fusion(%a.1, %conv), kind=kLoop, calls=%fused_add
}
"""


def test_every_shipped_experiment_is_compiled_or_has_no_step():
    assert cuda.FITTED.isdisjoint(cuda.GIVEN) and sorted({*cuda.GIVEN, *cuda.FITTED}) == cuda.shipped()
    rows = {(row["experiment"], row["card"]): row for row in cuda.kept()}
    assert rows.keys() == {(name, card) for name in (*cuda.GIVEN, *CASES) for card in cuda.CARDS}, "make cuda ARGS=--write"


def test_what_the_table_promises():
    for row in cuda.kept():
        name = f"{row['experiment']} on {row['card']}"
        assert int(row["transfers"]) == 0, name
        assert {one for one in row["host"].split("; ") if one} <= cuda.ON_HOST.keys(), name
        assert (row["by"] == "XLA") == bool(row["kernels"]), name
        if row["experiment"] in CASES:
            assert (row["by"] == "cuDNN") == (row["experiment"] in BY_CUDNN), name
        if row["kernels"]:
            assert int(row["kernels"]) >= int(row["fusions"]) > 0, name
            memory = sum(float(row[column]) for column in ("argument_mib", "temporary_mib"))
            assert memory < cuda.CARDS[row["card"]].memory / 2**20, name


def test_the_page_has_the_rows_of_the_table():
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8").splitlines()
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in page if line.startswith("| `")]
    rows = {row["experiment"]: row for row in cuda.kept() if row["card"] == "A100"}
    assert len(lines) == 12
    for name, batch, gigaflop, wide, memory, *counts in lines:
        row = rows[name.strip("`")]
        assert int(batch.replace(",", "")) == int(row["batch"]), name
        assert float(gigaflop.replace(",", "")) == float(row["gigaflop"]), name
        assert wide == f"{float(row['float32'].rstrip('%')):.0f} %", name
        assert int(memory.replace(",", "")) == round(float(row["argument_mib"]) + float(row["temporary_mib"])), name
        assert [count.replace(",", "") for count in counts] == [row[one] for one in ("kernels", "cudnn", "cublas", "update_kernels")], name


def test_products_are_counted_where_something_needs_them():
    dense, convolution = 2 * 8 * 10 * 32, 2 * (8 * 8 * 8 * 4) * (3 * 3 * 3)
    assert cuda.products(STEP) == (dense + convolution, dense)


def test_kernels_are_counted_outside_of_fusions_and_within_loops_once():
    assert cuda.counted(COMPILED) == {"kernels": 4, "fusions": 1, "transfers": 1,
                                      "calls": {"__cublas$lt$matmul": 1, "__cudnn$convForward": 1}}
    with pytest.raises(ValueError, match="not an instruction"):
        cuda.counted(COMPILED.replace("f32[8,3]{1,0} parameter(0)", "parameter 0"))


def test_truth_values_are_unpacked():
    text = 'dense<"0xFE01"> : tensor<4x4xi1>'
    assert cuda.unpacked(text) == f'dense<"0x{"00" + "01" * 7 + "01" + "00" * 7}"> : tensor<4x4xi1>'
    assert cuda.unpacked(cuda.unpacked(text)) == cuda.unpacked(text)


def test_what_moved_is_said():
    (row, *_) = cuda.kept()
    assert cuda.differences([row], [row]) == []
    name = f"{row['experiment']} on {row['card']}"
    assert cuda.differences([], [row]) == [f"{name}: has no row yet"]
    moved = {**row, "cublas": str(2 * int(row["cublas"]) + 1), "other_calls": "new 1", "transfers": "2", "host": "DecodeJpeg"}
    said = "\n".join(cuda.differences([row], [moved]))
    for part in ("cublas was", "other_calls was empty, is new 1", "2 transfers", "no GPU computes DecodeJpeg"):
        assert part in said


def test_a_card_is_described_as_it_is():
    for name, card in cuda.CARDS.items():
        text = cuda.described(name)
        assert named(name) == card.capability
        assert f"major: {card.capability[0]} minor: {card.capability[1]}" in text and f"device_memory_size: {card.memory}" in text
