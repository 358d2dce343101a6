"""New versions that take over while requests are answered; and what the server says of all its routes."""

import asyncio
import threading

import pytest

from extensions.gateway import versions as watching
from extensions.gateway.tests.gateway_server import running
from pipelines.base.errors import ConfigError
from tests.serving.toy_server import Doubling, Spelling, answer, needs_extra, numbers, request
from tests.waiting import until

pytestmark = needs_extra


class Versions:
    """A watched folder whose versions are files that say by what they multiply."""

    def __init__(self, folder):
        self.folder, self.loaded = folder, []

    def put(self, version, factor):
        staging = self.folder / f"{version}.part"
        staging.mkdir()
        (staging / "factor").write_text(str(factor))
        staging.rename(self.folder / str(version))

    def load(self, path):
        text = (path / "factor").read_text()
        if not text.isdecimal():
            raise ConfigError(f"{path}: {text} is no factor")
        model = Doubling(int(text))
        self.loaded.append(model)
        return model


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """(server, its folder of versions); version 1, of factor 1, answers."""
    monkeypatch.setattr(watching, "SECONDS", 0.05)
    versions = Versions(tmp_path)
    versions.put(1, 1)
    with running(versions.load(tmp_path / "1")) as server:
        watch = watching.Watch("toy", tmp_path, versions.load, server.models, 1)
        ready = threading.Event()
        server.loop.call_soon_threadsafe(lambda: (watch.start(asyncio.get_running_loop()), ready.set()))
        assert ready.wait(10)
        yield server, versions
        watch.stop()


def threads():
    return sum(one.name.startswith("batches") for one in threading.enumerate())


def test_ten_reloads_under_load_lose_no_request_and_mix_none(watched):
    server, versions = watched
    stop, wrong, seen = threading.Event(), [], set()
    server.ask(numbers([1, 1, 1]))
    before = threads()

    def client():
        with server.connect() as connection:
            while not stop.is_set():
                connection.sendall(request(numbers(*[[1, 1, 1]] * 9)))
                status, _, content = answer(connection)
                factors = {row["doubled"][0] for row in content["answers"]} if status == 200 else set()
                if len(factors) != 1:
                    wrong.append((status, content))
                seen.update(factors)

    clients = [threading.Thread(target=client) for _ in range(4)]
    for one in clients:
        one.start()
    for version in range(2, 12):
        versions.put(version, version)
        until(lambda version=version: version in seen or wrong)
    stop.set()
    for one in clients:
        one.join(10)
    assert not wrong and seen == set(range(1, 12))
    metrics = server.observed.text().decode()
    assert 'quartet_model_info{model="toy",task="toy.doubling",version="11"} 1.0' in metrics and 'version="10"' not in metrics
    until(lambda: threads() == before)  # those of old versions have ended


def test_the_old_version_answers_what_it_was_asked(watched):
    server, versions = watched
    versions.loaded[0].gate.clear()
    with server.connect() as old:
        old.sendall(request(numbers([1, 1, 1])))
        until(lambda: versions.loaded[0].begun == 1)
        versions.put(2, 5)
        until(lambda: server.models.versions("toy") == [2])
        assert server.ask(numbers([1, 1, 1]))[2]["answers"][0]["doubled"] == [5, 5, 5]
        versions.loaded[0].gate.set()
        assert answer(old)[2]["answers"][0]["doubled"] == [1, 1, 1]


def test_a_version_that_cannot_be_loaded_leaves_the_one_before_it_and_is_tried_again_once_changed(watched, caplog, monkeypatch):
    server, versions = watched
    looks, look = [], watching.versions_in
    monkeypatch.setattr(watching, "versions_in", lambda folder: looks.append(folder) or look(folder))
    versions.put(2, "x")
    until(lambda: any("cannot be loaded" in record.message for record in caplog.records))
    looked = len(looks)
    until(lambda: len(looks) > looked + 3)
    assert sum("cannot be loaded" in record.message for record in caplog.records) == 1
    assert server.models.versions("toy") == [1] and server.ask(numbers([1, 1, 1]))[0] == 200
    (versions.folder / "2" / "factor").write_text("3")
    until(lambda: server.models.versions("toy") == [2])
    assert server.ask(numbers([1, 1, 1]))[2]["answers"][0]["doubled"] == [3, 3, 3]


def test_every_route_is_described_and_every_description_is_a_route():
    with running(Spelling()) as server:
        server.models.add("double", 7, Doubling())
        status, _, found = server.ask(path="/openapi.json", method="GET")
        described = {(method.upper(), path.replace("/toy", "/{model}").replace("/double", "/{model}"))
                     for path, methods in found["paths"].items() for method in methods}
        routes = {(method, one.path) for one in server.site.routes for method in one.methods - {"HEAD"}
                  if "{version}" not in one.path}
    assert status == 200 and found["openapi"].startswith("3.1") and described == routes
    row = found["paths"]["/v1/models/toy:predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(row["properties"]["instances"]["items"]["anyOf"][0]["properties"]) == {"text", "times"}
