"""`quartet push`: what is sent, what never is, by Hugging Face's own client to a hub on this machine."""

import os
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from extensions.tracking.tests.hub_server import Hub
from pipelines.commands.main import app
from tests import finished_run

MAGIC = b"age-encryption.org/v1\n"  # of an encrypted file
pytestmark = [pytest.mark.slow(seconds=3), pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")]  # of the hub's client
needs_hub = pytest.mark.skipif(find_spec("huggingface_hub") is None and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                               reason="needs the extra `hub`")


@pytest.fixture
def hub(monkeypatch):
    from huggingface_hub import constants

    found = Hub()
    monkeypatch.setenv("HF_ENDPOINT", found.url)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # its files go to other servers
    yield found
    found.close()


@pytest.fixture
def run(tmp_path):
    folder = finished_run.copy(tmp_path)
    export = folder / "export"
    (export / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "quartet.json", "variables/variables.index", "model.sig"):
        (export / name).write_text(name)
    return folder


def push(*arguments):
    return CliRunner().invoke(app, ["push", *map(str, arguments)])


@needs_hub
def test_card_settings_model_and_export_are_sent(run, hub):
    done = push(run, "hf://me/digits", "--private")
    assert done.exit_code == 0, done.output
    repository = hub.repositories["me/digits"]
    assert repository["private"] and set(repository["files"]) == {
        "README.md", "experiment.yaml", "croissant.json", "model/model.keras", "model/facts.json", "export/saved_model.pb",
        "export/quartet.json", "export/variables/variables.index", "export/model.sig"}
    for name, content in repository["files"].items():
        assert content == (run / name).read_bytes()
    assert hub.tokens == {"Bearer hf_secret", None} and f"{hub.url}/me/digits" in done.stdout
    assert push(run, "hf://me/digits").exit_code == 0  # again


@needs_hub
def test_a_public_repository_gets_nothing_that_is_private(run, hub):
    hub.repositories["me/digits"] = {"private": False, "files": {}}
    done = push(run, "hf://me/digits", "--private")
    assert done.exit_code == 2 and "public" in done.stderr and not hub.repositories["me/digits"]["files"]


@needs_hub
def test_a_hub_that_cannot_be_reached(run, hub):
    hub.close()
    done = push(run, "hf://me/digits")
    assert done.exit_code == 1 and "hf://me/digits: " in done.stderr and "Traceback" not in done.output


def test_a_plan_sends_nothing(run, monkeypatch):
    monkeypatch.setattr("extensions.tracking.push.push", lambda *_, **__: pytest.fail("sent"))
    done = push(run, "hf://me/digits", "--dry-run")
    assert done.exit_code == 0 and "model/model.keras" in done.stdout and "would send" in done.stdout
    assert "predictions" not in done.stdout and "report" not in done.stdout
    for address in ("me/digits", "hf://digits", "hf://me/../x", "hf://me/a b"):
        assert push(run, address, "--dry-run").exit_code == 2


def test_data_keys_links_and_encrypted_files_are_refused(run):
    def refused(words, *options):
        done = push(run, "hf://me/digits", "--dry-run", *options)
        assert done.exit_code and words in done.stderr, done.output

    stray = run / "export" / "train.csv"
    stray.write_text("a,b")
    refused("nothing that quartet export writes")
    stray.unlink()
    asset = run / "export" / "assets" / "words.txt"
    asset.parent.mkdir()
    asset.write_text("-----BEGIN EC PRIVATE KEY-----")
    refused("private key")
    asset.unlink()
    (run / "model" / "facts.json").write_bytes(MAGIC + b"...")
    refused("is encrypted")
    assert push(run, "hf://me/digits", "--dry-run", "--encrypted").exit_code == 0
    asset.symlink_to("/etc/hostname")
    refused("is a link")
