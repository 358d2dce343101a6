"""One budget of memory for what a run keeps of its data, divided among the trainings of a machine, within its control groups' limits."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from pipelines.config.schema import Data
from pipelines.data.cache import cached
from pipelines.data.source import ArraySource
from pipelines.machine import memory


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch):
    gc.collect()
    monkeypatch.setattr(memory, "_held", {})
    monkeypatch.delenv(memory.WORKERS, raising=False)


class Kept:
    pass


def machine_of(monkeypatch, size: int) -> None:
    """A machine with so many bytes, of which is free what is not held."""
    monkeypatch.setattr(memory, "free", lambda: size - sum(memory._held.values()))


def test_all_that_is_kept_shares_one_budget(monkeypatch):
    machine_of(monkeypatch, 4000)
    kept = [Kept(), Kept()]
    assert memory.room() == 1000
    memory.hold(kept[0], 600)
    assert memory.room() == 400
    memory.hold(kept[1], 400)
    assert memory.room() == 0
    kept.pop()
    assert memory.room() == 400  # what is no longer kept is given back


def test_the_trainings_of_a_machine_divide_it(monkeypatch):
    machine_of(monkeypatch, 4000)
    monkeypatch.setenv(memory.WORKERS, "4")
    assert memory.room() == 250


def test_sources_are_kept_in_memory_until_the_budget_is_spent(monkeypatch, tmp_path):
    def asked():
        source = ArraySource({"x": np.arange(100)})
        return cached(source, lambda raw, key=None: {"x": tf.cast(raw["x"], tf.float32)}, Data(cache_folder=str(tmp_path)))  # 400 bytes

    machine_of(monkeypatch, 4000)
    kept = [asked() for _ in range(3)]
    assert [isinstance(one.arrays["x"], np.memmap) for one in kept] == [False, False, True]


@pytest.mark.parametrize(("own", "files", "expected"), [
    ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "900", "a/memory.current": "300", "memory.max": "max"}, 600),
    ("0::/\n", {"memory.max": "900", "memory.current": "300", "memory.stat": "anon 100\ninactive_file 200\n"}, 800),
    ("0::/docker/x\n", {"memory.max": "900", "memory.current": "300"}, 600),  # its path outside of the container
    ("5:cpu,memory:/a\n", {"memory/a/memory.limit_in_bytes": "900", "memory/a/memory.usage_in_bytes": "1000"}, 0),
])
def test_the_limit_of_every_control_group_counts(monkeypatch, tmp_path, own, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN", tmp_path / "own")
    assert memory.free() == expected
