"""Several models, and their versions."""

import pytest

from pipelines.base.errors import ConfigError
from tests.serving.toy_server import Doubling, Spelling, needs_extra, numbers, running

pytestmark = needs_extra


def test_models_and_versions_are_chosen_by_name():
    with running(Doubling(2), versions=2) as server:
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


@pytest.mark.parametrize("given, name, versions", [
    ("export", "mine", False), ("other=export", "other", False), ("fashion", "fashion", True), ("a.b-c=fashion", "a.b-c", True),
])
def test_what_is_served_is_recognised(tmp_path, monkeypatch, given, name, versions):
    from pipelines.serving.server import source

    (tmp_path / "mine" / "export").mkdir(parents=True)
    (tmp_path / "mine" / "export" / "saved_model.pb").touch()
    (tmp_path / "mine" / "fashion" / "3").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "mine")
    found = source(given, lambda _: pytest.fail("it is no run"))
    assert (found.name, found.versions) == (name, versions)


def test_a_name_that_is_no_address_is_refused(tmp_path):
    from pipelines.serving.server import source

    def find(given):
        if given != "run":
            raise ConfigError("no such run")
        return tmp_path / "vision" / "digits" / "small"

    with pytest.raises(ConfigError, match="is no name for a model"):
        source("a/b=run", find)
    assert source("run", find).name == "digits"


def test_a_run_that_is_called_by_its_settings_is_served(tmp_path, monkeypatch):
    from pipelines.serving.server import source

    folder = tmp_path / "digits" / "epochs=3,seed=1"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder.parent)
    for given in (str(folder), folder.name, "digits/epochs=3,seed=1", f"mine={folder}"):
        found = source(given, lambda _: folder)
        assert (found.folder, found.name) == (folder, "mine" if given.startswith("mine=") else "digits")
