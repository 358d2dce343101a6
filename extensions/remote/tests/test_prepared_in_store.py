"""Prepared data at an address: sent shard by shard, and resumed from there on another machine."""

import itertools
from pathlib import Path

import pytest

from pipelines.base.errors import ConfigError
from pipelines.config import registry
from pipelines.config.load import load
from pipelines.data import shard_writing
from pipelines.task.prepared import here, prepare, splits_of


def task_of(config: str, *overrides: str):
    experiment = load(config, overrides).experiment
    return registry.task_class(experiment.task)(experiment)


class Stopped(Exception):
    """In place of a kill."""


def test_shards_arrive_one_by_one_and_the_same_command_goes_on(store, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_writing, "EXAMPLES", 500)

    def stopping(work, pieces):
        yield from itertools.islice(here(work, pieces), 2)
        raise Stopped

    task, box, address = task_of("vision/digits"), store.objects["box"], Path("s3://box/ready")
    with pytest.raises(Stopped):
        prepare(task, address, write=stopping)
    arrived = sorted(box)
    assert len(arrived) == 3 and arrived[-1] == "ready/unfinished.json"
    with pytest.raises(ConfigError, match=r"data\.prepared: s3://box/ready is not finished; give the same"):
        splits_of(task_of("vision/digits", "data.prepared=s3://box/ready"))
    assert not (tmp_path / "cache").exists()
    store.writes.clear()
    prepare(task, address)
    assert not {f"+{name}" for name in arrived} & set(store.writes)
    assert store.writes[-2:] == ["+ready/prepared.json", "-ready/unfinished.json"]
    prepare(task, tmp_path / "here")
    assert {f"ready/{path.name}": path.read_bytes() for path in (tmp_path / "here").iterdir()} == box
    found = splits_of(task_of("vision/digits", "data.prepared=s3://box/ready"))
    assert found.train.fingerprint() == task.splits().train.fingerprint()


def test_interactions_are_sent_whole(store):
    prepare(task_of("recsys/quickstart"), Path("s3://box/ready"))
    assert store.writes[-1] == "+ready/prepared.json"
    found = splits_of(task_of("recsys/quickstart", "data.prepared=s3://box/ready"))
    assert len(found.train) == len(task_of("recsys/quickstart").splits().train)
