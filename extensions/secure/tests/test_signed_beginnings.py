"""What a training begins from - a teacher, weights, a preset - is to be signed, too, where a signature is required."""

import json
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extensions.secure.beginnings import require_begun, require_named
from extensions.secure.options import SIGNATURE, require_signature, required_key
from extensions.secure.signing import sign, verify
from extensions.secure.tests.keys import needs_trust, pair
from pipelines.base.errors import ConfigError, Untrusted
from pipelines.base.inside import digest
from pipelines.commands.main import app
from pipelines.config import guard
from pipelines.config.load import load
from pipelines.config.problems import ExperimentError
from pipelines.config.schema import Experiment
from pipelines.tuning.search_folder import SearchFolder

pytestmark = needs_trust


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A signed folder with what makes it a finished run, vision/digits/default of the runs here."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "vision" / "digits" / "default"
    filled(folder)
    sign(folder, pair()[0])
    return folder


def filled(folder: Path, weights: bytes = b"weights") -> None:
    (folder / "model").mkdir(parents=True)
    (folder / "report").mkdir()
    (folder / "experiment.yaml").write_text("task: vision.classification\n")
    (folder / "environment.json").write_text(json.dumps({"data": {"train": "x"}, "fingerprints": 2, "quartet": "0"}))
    (folder / "model" / "facts.json").write_text("{}")
    (folder / "model" / "model.keras").write_bytes(weights)


def require(*settings: str, beside: Path = Path("runs/vision/digits/new"), key: Path | None = None) -> None:
    require_named(load("vision/digits", settings, check_paths=False).experiment, beside, key or pair()[1])


def weights(file: Path | str) -> str:
    return f"model={{name: application, architecture: MobileNetV2, weights: {file}}}"


def test_a_signed_run_is_accepted_by_path_and_by_name_and_refused_once_it_is_changed(run, tmp_path):
    ways = [f"train.{section}.run={name}" for section in ("teacher", "start") for name in (run, "vision/digits/default")]
    ways.append(weights(run / "model" / "model.keras"))
    for way in ways:
        require(way)
        with pytest.raises(Untrusted, match="was not made with the key"):
            require(way, key=pair("other")[1])
    (run / "model" / "model.keras").write_bytes(b"others")
    for way in ways:
        with pytest.raises(Untrusted, match=r"model\.keras was changed"):
            require(way)
    require(f"data.path={run}", "data.source=folder", weights("imagenet"))  # data, and what Keras checks


def test_nothing_is_read_but_what_was_verified(run, tmp_path):
    """Whatever lies around a signed run: a name means the same folder to the verification as to the training that reads it."""
    (run / "model" / "model.keras").write_bytes(b"others")
    changed = pytest.raises(Untrusted, match=r"model\.keras was changed|missing: environment\.json")
    named = "train.teacher.run=vision/digits/default"
    with changed:
        require(named, beside=tmp_path / "elsewhere" / "vision" / "digits" / "new")  # --runs elsewhere
    (run / "vision" / "digits" / "default").mkdir(parents=True)
    with changed:
        require(named, beside=run / "new")
    (run / "vision" / "digits" / "default").rmdir()
    (run / "environment.json").unlink()
    for way in (named, f"train.start.run={run}", weights(run / "model" / "model.keras")):
        with changed:
            require(way)
    shutil.rmtree(run / "model")
    with pytest.raises(Untrusted, match=r"missing: .*model/model\.keras"):
        require(named)
    shutil.rmtree(run)
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        require(named)


@pytest.mark.parametrize("place", ["pruned-0.5", "export-more", "report/later", "report/later/deeper"])
def test_what_a_signature_leaves_out_is_signed_by_itself(run, place):
    filled(run / place, b"others")
    verify(run, pair()[1])
    ways = (f"train.teacher.run={run / place}", weights(run / place / "model" / "model.keras"))
    for way in ways:
        with pytest.raises(Untrusted, match="is not signed"):
            require(way)
    (run / place / "environment.json").unlink()
    for way in ways:
        with pytest.raises(Untrusted, match="is not signed"):
            require(way)
    sign(run / place, pair()[0])
    for way in ways:
        require(way)


def test_files_of_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "own.h5").write_bytes(b"weights")
    for way in (weights(tmp_path / "own.h5"), weights("~/own.h5")):
        (tmp_path / "own.h5.sig").unlink(missing_ok=True)
        with pytest.raises(Untrusted, match=r"own\.h5: is not signed"):
            require(way)
        sign(tmp_path / "own.h5", pair()[0])
        require(way)
    with pytest.raises(ConfigError, match="there is no such file"):
        require(weights(tmp_path / "absent.h5"))


def pretrained(preset: str | Path) -> str:
    return f"model={{name: pretrained, preset: '{preset}'}}"


def test_presets_by_folder_and_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    preset = tmp_path / "presets" / "small"
    preset.mkdir(parents=True)
    (preset / "config.json").write_text("{}")
    monkeypatch.setenv("QUARTET_PRESETS", str(preset.parent))
    for name in ("small", preset):
        with pytest.raises(Untrusted, match="is not signed"):
            require(pretrained(name))
    assert CliRunner().invoke(app, ["sign", str(preset), "--key", str(pair()[0])]).exit_code == 0
    for name in ("small", preset):
        require(pretrained(name))
    shutil.copytree(preset, "hf:/some/where")  # a signed folder of that name is not what a hub would give
    shutil.copytree(preset, preset.parent / "some" / "where")
    for name in ("hf://some/where", "some/where", "bert_tiny_en_uncased"):
        with pytest.raises(Untrusted, match="is not on this machine"):
            require(pretrained(name))


def test_an_experiment_in_a_run_or_a_search_is_part_of_it(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    def opened(config: Path | str, domain: str | None = None) -> None:
        with require_signature(require_signature=pair()[1]), suppress(ExperimentError):  # of what is no whole experiment
            load(config, domain=domain)

    search = tmp_path / "search"
    search.mkdir()
    (search / "best.yaml").write_text("task: vision.classification\n")
    (tmp_path / "experiment.yaml").write_text("task: vision.classification\n")
    opened(tmp_path / "experiment.yaml")  # a person's own
    opened("digits", "vision")
    opened(run / "experiment.yaml")
    opened(search / "best.yaml")
    (search / "search.yaml").write_text("task: vision.classification\n")
    (run / "experiment.yaml").write_text("task: vision.classification # others\n")
    for config in (run / "experiment.yaml", "~/runs/vision/digits/default/experiment.yaml", search / "best.yaml"):
        with pytest.raises(Untrusted, match=r"experiment\.yaml was changed|is not signed"):
            opened(config)


def test_what_training_would_find_in_its_folder(run):
    public, folder = pair()[1], run.with_name("new")
    require_begun(folder, public)
    folder.mkdir()
    for name in (".lock", "experiment.yaml"):
        (folder / name).touch()
    require_begun(folder, public)
    filled(run.with_name("new-seed1"), b"others")
    with pytest.raises(Untrusted, match="new-seed1: is not signed"):
        require_begun(folder, public)


def test_a_search_and_what_its_trials_read(run, tmp_path):
    """One that is resumed or finished is to be signed, and so is each choice of a teacher or of weights in its space."""
    key, public = pair()
    folder = SearchFolder(tmp_path / "runs" / "vision" / "digits" / "search")

    def searched(teacher: str) -> Experiment:
        space = f"tune.space={{train.teacher.run: {{choice: ['{teacher}']}}, train.epochs: {{int: [1, 3]}}}}"
        return load("vision/digits", ["tune.algorithm=grid", space]).experiment

    def required(space: Experiment, *, fresh: bool) -> None:
        with require_signature(require_signature=public):
            guard.check_training(space, folder.path, search=True, fresh=fresh)

    space = searched("digits/default")
    required(space, fresh=False)
    filled(folder.path / "digits" / "default", b"others")  # which a trial would find first
    with pytest.raises(Untrusted, match="default: is not signed"):
        required(space, fresh=True)
    shutil.rmtree(folder.path)
    with pytest.raises(Untrusted, match="in a store, where it can change"):
        required(searched("s3://bucket/runs/vision/digits/default"), fresh=False)
    (folder.trials / "00").mkdir(parents=True)
    with pytest.raises(Untrusted, match="search: is not signed"):  # of which search.yaml was removed
        required(space, fresh=False)
    folder.search.write_text("task: toy\n")
    folder.journal.write_text("{}\n")
    required(space, fresh=True)
    done = CliRunner().invoke(app, ["sign", str(folder.path), "--key", str(key)])
    assert done.exit_code == 0, done.output
    (folder.path / ".lock").write_text("1")
    required(space, fresh=False)
    (folder.trials / "00" / "0.result.json").write_text("{}")
    with pytest.raises(Untrusted, match=r"added: trials/00/0\.result\.json"):
        required(space, fresh=False)


def test_threads_do_not_take_each_other_s_keys_away():
    """One begins with its key, the other with its own, and the first ends before."""
    steps = [threading.Event() for _ in range(3)]
    keys = []

    def first():
        with require_signature(require_signature=Path("one.pub")):
            steps[0].set()
            steps[1].wait(10)
        steps[2].set()

    def second():
        steps[0].wait(10)
        keys.append(required_key())
        with require_signature(require_signature=Path("two.pub")):
            steps[1].set()
            steps[2].wait(10)
            keys.append(required_key())
        keys.append(required_key())

    threads = [threading.Thread(target=each) for each in (first, second)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert keys == [None, Path("two.pub"), None]


def test_a_command_s_threads_and_processes_have_its_key():
    keys = []
    with require_signature(require_signature=Path("one.pub")):
        thread = threading.Thread(target=lambda: keys.append(required_key()))
        thread.start()
        thread.join()
        assert os.environ[SIGNATURE] == "one.pub"
    assert keys == [Path("one.pub")] and required_key() is None


@pytest.mark.parametrize("options", [["--ray", "auto"], ["--ray", "10.0.0.1:6379"], ["--ray", "local", "--runs", "s3://bucket/runs"]])
@pytest.mark.parametrize("command", ["train", "tune"])
def test_other_machines_read_what_nobody_verified(command, options):
    done = CliRunner().invoke(app, [command, "vision/digits", *options, "--require-signature", str(pair()[1])])
    assert done.exit_code == 2 and "what they read is not what is verified here" in " ".join(done.output.split()), done.output


def test_an_export_has_provenance_and_a_bill_of_materials(run):
    """Of the run that it lies in: its data, code and settings, and the weights that it was made from."""
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
    assert materials["run/vision/digits/default/model.keras"] == {"sha256": digest(run / "model" / "model.keras")}
    assert materials["data/train"] == {"quartetFingerprint2": "x"}
    assert json.loads((export / "sbom.json").read_text())["bomFormat"] == "CycloneDX"
    verify(export, public)


def test_a_race_looks_at_what_its_experiments_name(run, tmp_path):
    (run / "model" / "model.keras").write_bytes(b"others")
    files = []
    for name in ("one", "two"):
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text("task: vision.classification\ndata: {source: digits}\nmodel: {name: cnn}\n"
                             "train: {teacher: {run: vision/digits/default}}\n")
    done = CliRunner().invoke(app, ["race", *map(str, files), "--minutes", "1", "--require-signature", str(pair()[1])])
    assert done.exit_code == 1 and "model.keras was changed" in done.output, done.output
    done = CliRunner().invoke(app, ["race", str(files[0]), "--minutes", "1", "--require-signature", str(pair()[1])])
    assert done.exit_code == 2 and "name two experiments or more" in done.output, done.output
