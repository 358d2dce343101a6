"""What a training begins from - a teacher, weights, a preset - is to be signed, too, where a signature is required."""

import json

import pytest

from pipelines.commands.main import app
from pipelines.runs.signed import require_named
from pipelines.trust.signing import Untrusted, sign, verify
from tests.trust.keys import needs_trust, pair

pytestmark = needs_trust


@pytest.fixture
def run(tmp_path):
    """A folder with what makes it a run."""
    folder = tmp_path / "runs" / "toy" / "one" / "default"
    (folder / "model").mkdir(parents=True)
    (folder / "experiment.yaml").write_text("task: toy\n")
    (folder / "environment.json").write_text(json.dumps({"data": {"train": "x"}, "fingerprints": 2, "quartet": "0"}))
    (folder / "model" / "model.keras").write_bytes(b"weights")
    return folder


def test_runs_and_files_that_settings_name(run, tmp_path):
    key, public = pair()
    file = tmp_path / "own.weights.h5"
    file.write_bytes(b"weights")
    teacher, weights = {"train": {"teacher": {"run": str(run)}}}, {"model": {"weights": str(run / "model" / "model.keras")}}
    for settings, what in ((teacher, run), (weights, run), ({"model": {"weights": str(file)}}, file)):
        require_named(settings, tmp_path / "new", None)
        with pytest.raises(Untrusted, match="is not signed"):
            require_named(settings, tmp_path / "new", public)
        sign(what, key)
        require_named(settings, tmp_path / "new", public)
        with pytest.raises(Untrusted, match="was not made with the key"):
            require_named(settings, tmp_path / "new", pair("other")[1])
        (what / "model.sig" if what.is_dir() else what.with_name(f"{what.name}.sig")).unlink()
    sign(run, key)
    (run / "model" / "model.keras").write_bytes(b"others")
    for settings in (teacher, weights):
        with pytest.raises(Untrusted, match=r"model\.keras was changed"):
            require_named(settings, tmp_path / "new", public)
    require_named({"data": {"path": str(run)}, "model": {"weights": "imagenet", "hidden": 3}}, tmp_path / "new", public)


def test_presets_by_folder_and_by_name(tmp_path, monkeypatch):
    key, public = pair()
    preset = tmp_path / "presets" / "small"
    preset.mkdir(parents=True)
    (preset / "config.json").write_text("{}")
    monkeypatch.setenv("QUARTET_PRESETS", str(preset.parent))
    for name in ("small", str(preset)):
        with pytest.raises(Untrusted, match="is not signed"):
            require_named({"model": {"preset": name}}, tmp_path / "new", public)
    from typer.testing import CliRunner

    assert CliRunner().invoke(app, ["sign", str(preset), "--key", str(key)]).exit_code == 0
    for name in ("small", str(preset)):
        require_named({"model": {"preset": name}}, tmp_path / "new", public)
    with pytest.raises(Untrusted, match="is not on this machine"):
        require_named({"model": {"preset": "hf://some/where"}}, tmp_path / "new", public)


def test_a_search_and_what_its_trials_read(run, tmp_path):
    """One that is resumed or finished is to be signed, and so is each choice of a teacher or of weights in its space."""
    from typer.testing import CliRunner

    from pipelines.tuning.search_folder import SearchFolder
    from pipelines.tuning.signed import require_search

    key, public = pair()
    folder = SearchFolder(tmp_path / "runs" / "toy" / "one" / "search")
    space = {"tune": {"space": {"train.teacher.run": {"choice": [str(run)]}, "train.epochs": {"int": [1, 3]}}}}
    require_search(folder, space, None, fresh=False)
    with pytest.raises(Untrusted, match="default: is not signed"):
        require_search(folder, space, public, fresh=False)
    sign(run, key)
    require_search(folder, space, public, fresh=False)
    (folder.trials / "00").mkdir(parents=True)
    folder.search.write_text("task: toy\n")
    folder.journal.write_text("{}\n")
    with pytest.raises(Untrusted, match="search: is not signed"):
        require_search(folder, {}, public, fresh=False)
    require_search(folder, {}, public, fresh=True)
    done = CliRunner().invoke(app, ["sign", str(folder.path), "--key", str(key)])
    assert done.exit_code == 0, done.output
    (folder.path / ".lock").write_text("1")
    require_search(folder, {}, public, fresh=False)
    (folder.trials / "00" / "0.result.json").write_text("{}")
    with pytest.raises(Untrusted, match=r"added: trials/00/0\.result\.json"):
        require_search(folder, {}, public, fresh=False)


def test_an_export_has_provenance_and_a_bill_of_materials(run):
    """Of the run that it lies in: its data, code and settings, and the weights that it was made from."""
    from typer.testing import CliRunner

    from pipelines.trust.signing import digest

    key, public = pair()
    export = run / "export"
    export.mkdir()
    (export / "saved_model.pb").write_bytes(b"graph")
    done = CliRunner().invoke(app, ["sign", str(export), "--key", str(key)])
    assert done.exit_code == 0, done.output
    verify(export, public)
    statement = json.loads((export / "provenance.json").read_text())
    assert {one["name"] for one in statement["subject"]} == {"saved_model.pb", "sbom.json"}
    materials = {one["name"]: one.get("digest") for one in statement["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert materials["run/toy/one/default/model.keras"] == {"sha256": digest(run / "model" / "model.keras")}
    assert materials["data/train"] == {"quartetFingerprint2": "x"}
    assert json.loads((export / "sbom.json").read_text())["bomFormat"] == "CycloneDX"
    verify(export, public)
