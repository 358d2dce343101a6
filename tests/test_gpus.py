"""TensorFlow's GPU 0 is the first that CUDA_VISIBLE_DEVICES names, not the machine's first."""

import subprocess

import pytest

from pipelines.machine import memory

CARDS = [("0", "GPU-aaaa-1"), ("1", "GPU-abbb-2"), ("2", "GPU-cccc-3")]


@pytest.mark.parametrize(("number", "visible", "expected"), [
    (0, None, 0), (2, None, 2), (0, "2", 2), (1, "2,0", 0), (0, " 1 , 2", 1), (1, "GPU-cccc-3,GPU-aaaa-1", 0), (0, "GPU-ab", 1)])
def test_the_card_that_is_meant(number, visible, expected):
    assert memory.card(CARDS, number, visible) == expected


@pytest.mark.parametrize(("number", "visible"), [(3, None), (1, "2"), (0, ""), (0, "-1"), (0, "MIG-aaaa"), (0, "GPU-a"), (0, "7")])
def test_a_card_that_cannot_be_told(number, visible):
    with pytest.raises(ValueError, match=f"GPU {number} "):
        memory.card(CARDS, number, visible)


def test_memory_is_that_of_the_card(monkeypatch):
    said = "0, GPU-aaaa-1, 1000, 16000\n1, GPU-abbb-2, 20000, 24000\n"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, stdout=said))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert memory.gpu_memory(0) == (20000 << 20, 24000 << 20)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert memory.gpu_memory(0) == (1000 << 20, 16000 << 20)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 9, stdout="no devices were found"))
    with pytest.raises(ValueError, match="GPU 0 "):
        memory.gpu_memory(0)
