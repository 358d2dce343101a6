"""The contracts of storages, remote stores and guards, on those of the sample package; and that what they refuse is not opened."""

import importlib.util

import pytest

from pipelines.base.errors import ConfigError
from pipelines.base.files import open_to_append
from pipelines.base.storage import owner
from pipelines.config import doors
from pipelines.stores import remote
from pipelines.stores.remote import address_of, remote_of
from quartet.testing import check_guard, check_remote, check_storage
from tests import finished_run
from tests.finished_run import ROOT


@pytest.fixture
def sample(monkeypatch):
    """The module of the sample package, registered while a test runs."""
    file = ROOT / "tests" / "sample_extension" / "sample_extension" / "storages.py"
    spec = importlib.util.spec_from_file_location("pipelines_sample_storages", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.Memory, "objects", {})
    monkeypatch.setattr(remote, "_copies", {})
    for door, name, entry in ((doors.STORAGES, "squeezed", module.Squeezed), (doors.GUARDS, "withdrawn", module.Withdrawn),
                              (doors.REMOTES, "memory", module.Memory)):
        monkeypatch.setattr(door, "_entries", {**door._entries, name: doors.Entry(name, entry, None)})
    return module


def test_the_contract_of_a_storage(sample, tmp_path):
    (tmp_path / "squeezed.txt").touch()
    check_storage(sample.Squeezed, tmp_path)
    assert owner(tmp_path / "experiment.yaml") is None
    with open_to_append(tmp_path / "metrics.jsonl") as file:  # what grows stays as it is
        file.write(b"{}\n")
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"{}\n"


def test_the_contract_of_a_remote_store(sample):
    check_remote(sample.Memory, "mem://box/here")


def test_an_address_that_nobody_takes_is_refused(sample):
    with doors.REMOTES.without("objects"), pytest.raises(ConfigError, match="no extension is there that reads such addresses"):
        remote_of(address_of("s3://box/x"))


@pytest.mark.slow
def test_the_contract_of_a_guard(sample, tmp_path):
    run, withdrawn = finished_run.copy(tmp_path / "a"), finished_run.copy(tmp_path / "b")
    (withdrawn / "WITHDRAWN").touch()
    check_guard(sample.Withdrawn, run, withdrawn)
