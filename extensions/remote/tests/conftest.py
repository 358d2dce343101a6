"""A server of objects for these tests, found by the variables of the environment; copies go below tmp_path."""

import importlib.util
import os

import pytest

from extensions.remote.tests.s3_server import serving
from pipelines.config import registry  # noqa: F401 - by which stores are found
from pipelines.stores import remote

if not importlib.util.find_spec("obstore") and not os.environ.get("QUARTET_REQUIRE_EXTRAS"):
    collect_ignore_glob = ["test_*.py"]  # the extra `remote` is not installed


@pytest.fixture
def store(monkeypatch, tmp_path):
    """The server; its bucket is `box`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """What was copied is looked at anew in each test."""
    monkeypatch.setattr(remote, "_copies", {})
