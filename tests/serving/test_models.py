"""Several models, their versions, and new versions that take over while requests are answered."""

import asyncio
import threading

import pytest

from pipelines.base.errors import ConfigError
from tests.serving.toy_server import Doubling, Spelling, answer, needs_extra, numbers, request, running
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
    from pipelines.serving.http import models

    monkeypatch.setattr(models, "SECONDS", 0.05)
    versions = Versions(tmp_path)
    versions.put(1, 1)
    with running(versions.load(tmp_path / "1")) as server:
        watch = models.Watch("toy", tmp_path, versions.load, server.models, 1)
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
    from pipelines.serving.http import models

    server, versions = watched
    looks, look = [], models.versions_in
    monkeypatch.setattr(models, "versions_in", lambda folder: looks.append(folder) or look(folder))
    versions.put(2, "x")
    until(lambda: any("cannot be loaded" in record.message for record in caplog.records))
    looked = len(looks)
    until(lambda: len(looks) > looked + 3)
    assert sum("cannot be loaded" in record.message for record in caplog.records) == 1
    assert server.models.versions("toy") == [1] and server.ask(numbers([1, 1, 1]))[0] == 200
    (versions.folder / "2" / "factor").write_text("3")
    until(lambda: server.models.versions("toy") == [2])
    assert server.ask(numbers([1, 1, 1]))[2]["answers"][0]["doubled"] == [3, 3, 3]


def test_models_and_versions_are_chosen_by_name():
    with running(Doubling(2), kept=2) as server:
        server.models.add("toy", 2, Doubling(3))
        server.models.add("spelling", 1, Spelling())
        for query, status, factor in (("", 200, 3), ("?model=toy&version=1", 200, 2), ("?version=2", 200, 3), ("?version=3", 404, 0),
                                      ("?model=other", 404, 0), ("?version=-1", 404, 0)):
            code, _, content = server.ask(numbers([1, 1, 1]), path=f"/predict{query}")
            assert code == status and (status == 404 or content["answers"][0]["doubled"] == [factor] * 3)
            assert "version=3" not in query or content["error"] == "toy has no version 3; it has 1, 2"
        about = server.ask(path="/", method="GET")[2]
        assert [(one["name"], one["versions"]) for one in about["models"]] == [("toy", [1, 2]), ("spelling", [1])]
        server.models.add("toy", 3, Doubling(4))
        assert server.models.versions("toy") == [2, 3]


def test_every_route_is_described_and_every_description_is_a_route():
    with running(Spelling()) as server:
        server.models.add("double", 7, Doubling())
        status, _, found = server.ask(path="/openapi.json", method="GET")
        described = {(method.upper(), path.replace("/toy", "/{model}").replace("/double", "/{model}"))
                     for path, methods in found["paths"].items() for method in methods}
        routes = {(method, one.path) for one in server.observed.app.routes for method in one.methods - {"HEAD"}
                  if "{version}" not in one.path}
    assert status == 200 and found["openapi"].startswith("3.1") and described == routes
    row = found["paths"]["/v1/models/toy:predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(row["properties"]["instances"]["items"]["anyOf"][0]["properties"]) == {"text", "times"}


@pytest.mark.parametrize("given, name, watched", [
    ("export", "mine", False), ("other=export", "other", False), ("fashion", "fashion", True), ("a.b-c=fashion", "a.b-c", True),
])
def test_what_is_served_is_recognised(tmp_path, monkeypatch, given, name, watched):
    from pipelines.serving.server import source

    (tmp_path / "mine" / "export").mkdir(parents=True)
    (tmp_path / "mine" / "export" / "saved_model.pb").touch()
    (tmp_path / "mine" / "fashion" / "3").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "mine")
    found = source(given, lambda _: pytest.fail("it is no run"))
    assert (found.name, found.watched) == (name, watched)


def test_a_name_that_is_no_address_is_refused(tmp_path):
    from pipelines.serving.server import source

    with pytest.raises(ConfigError, match="is no name for a model"):
        source("a/b=run", lambda _: tmp_path / "vision" / "digits" / "small")
    assert source("run", lambda _: tmp_path / "vision" / "digits" / "small").name == "digits"
