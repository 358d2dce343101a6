"""A model in a file of one's own: checked, searched, trained, served as ours are; a run records it, and is loaded with just that."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipelines.base.errors import ConfigError
from pipelines.base.stored import UsedExtension
from pipelines.config import extensions
from pipelines.config.load import from_text
from pipelines.config.reference import json_schema
from pipelines.config.registry import tasks
from tests.finished_run import ROOT, environment, quartet

FILE = Path(__file__).with_name("my_models.py")
EXPERIMENT = """\
task: vision.classification
data: {source: digits}
model: {name: tiny, filters: 8}
train: {epochs: 1, precision: float32, devices: cpu}
evaluate: {bootstrap: 100, baseline: false}
monitor: {tensorboard: false}
"""


@pytest.fixture(scope="module")
def used() -> Iterator[None]:
    extensions.use([FILE])
    yield
    extensions.forget("my_models.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Trained by the command line with --use, in a process of its own; returns the current folder of that."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.yaml").write_text(EXPERIMENT, encoding="utf-8")
    done = quartet("train", "mine.yaml", "--use", str(FILE), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert f"predict runs/vision/mine/default INPUT... --use {FILE}\n" in done.stdout
    for page in ("README.md", "report/report.html"):
        assert "--use my_models.py" in (folder / "runs" / "vision" / "mine" / "default" / page).read_text(encoding="utf-8")
    return folder


@pytest.mark.slow
def test_without_the_file_the_name_is_unknown(tmp_path):
    (tmp_path / "mine.yaml").write_text(EXPERIMENT, encoding="utf-8")
    done = quartet("train", "mine.yaml", cwd=tmp_path)
    message = "mine.yaml:3: model.name: 'tiny' is not one of cnn, residual, fast, vit, gradients, kernel, application or pretrained"
    assert done.returncode == 2 and message in done.stderr


@pytest.mark.parametrize(("model", "message"), [
    ("{name: tny}", "mine.yaml:3: model.name: 'tny' is not one of cnn, residual, fast, vit, gradients, kernel, application, pretrained or "
     "tiny; did you mean tiny?"),
    ("{name: tiny, filtres: 8}", "mine.yaml:3: model.filtres: no such setting of tiny, which has filters; did you mean model.filters?"),
    ("{name: tiny, filters: 0}", "mine.yaml:3: model.filters: 0 is not a whole number >= 1"),
])
def test_its_settings_are_checked_as_ours_are(used, model, message):
    with pytest.raises(ConfigError) as error:
        from_text(EXPERIMENT.replace("{name: tiny, filters: 8}", model), file="mine.yaml")
    assert message in str(error.value)


def test_its_settings_are_searched_and_in_the_schema(used):
    found = from_text(EXPERIMENT + "tune: {space: {model.filters: {int: [4, 16]}}}").experiment
    assert found.tune is not None and "model.filters" in found.tune.space
    with pytest.raises(ConfigError, match=r"model\.filters"):
        from_text(EXPERIMENT + "tune: {space: {model.filters: {int: [0, 16]}}}")
    schema = json_schema("vision.classification")
    tiny = schema["$defs"]["Tiny"]["properties"]["filters"]
    assert tiny["minimum"] == 1 and tiny["description"] == "filters of the convolution"
    assert "model.filters" in schema["$defs"]["Tune"]["properties"]["space"]["properties"]
    assert {section["$ref"].rpartition("/")[2] for section in schema["properties"]["model"]["oneOf"]} >= {"Tiny", "Cnn"}


def test_experiments_of_ours_are_as_before(used):
    cnn = from_text(EXPERIMENT.replace("{name: tiny, filters: 8}", "{name: cnn, hidden: 7}")).experiment
    assert isinstance(cnn, tasks()["vision.classification"]) and cnn.model.hidden == 7
    assert extensions.used_by(cnn) == []


@pytest.mark.slow
def test_the_run_says_what_it_used_and_not_where_it_lies(run):
    import hashlib

    (used,) = json.loads((run / "runs/vision/mine/default/environment.json").read_text())["extensions"]
    assert used == {"name": "my_models.py", "version": None, "sha256": hashlib.sha256(FILE.read_bytes()).hexdigest(),
                    "registers": ["model tiny"]}
    assert "my_models.py" in (run / "runs/vision/mine/default/report/report.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_run_predicts_with_the_file_and_says_what_to_pass_without(run):
    import tensorflow as tf

    (run / "one.png").write_bytes(tf.io.encode_png(np.zeros([8, 8, 1], np.uint8)).numpy())
    done = quartet("predict", "vision/mine/default", "one.png", "--use", str(FILE), cwd=run)
    assert done.returncode == 0 and "1 of 1 answered" in done.stderr, done.stderr
    done = quartet("predict", "vision/mine/default", "one.png", cwd=run)
    assert done.returncode == 2 and "uses model tiny of my_models.py" in done.stderr and "--use my_models.py" in done.stderr


@pytest.mark.slow
def test_the_run_is_not_loaded_with_another_file_of_that_name(run):
    other = run / "changed" / "my_models.py"
    other.parent.mkdir()
    other.write_text(FILE.read_text(encoding="utf-8").replace("1 / 16", "1 / 8"), encoding="utf-8")
    done = quartet("evaluate", "vision/mine/default", "--use", str(other), cwd=run)
    assert done.returncode == 2 and "my_models.py has changed (sha256" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_run_names_no_code_to_execute(run):
    """What its environment.json says of an extension is compared, never imported."""
    folder = run / "runs/vision/mine/default"
    file = folder / "environment.json"
    before = file.read_text(encoding="utf-8")
    (run / "evil.py").write_text("open('executed', 'w')", encoding="utf-8")
    try:
        for name in ("evil", "evil.py", str(run / "evil.py")):
            changed = json.loads(before)
            changed["extensions"] = [{"name": name, "version": None, "sha256": None, "module": "evil", "file": str(run / "evil.py")}]
            file.write_text(json.dumps(changed), encoding="utf-8")
            done = quartet("evaluate", "vision/mine/default", cwd=run)
            assert done.returncode == 2 and "is not in use here" in done.stderr
    finally:
        file.write_text(before, encoding="utf-8")
    assert not (run / "executed").exists()


@pytest.mark.slow
def test_a_search_trains_it_in_its_own_processes(run):
    done = quartet("tune", "mine.yaml", "tune={trials: 2, seeds: 0, space: {model.filters: {choice: [4, 8]}}}", "--use", str(FILE), cwd=run)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (run / "runs").rglob("best.yaml")
    assert "name: tiny" in found.read_text(encoding="utf-8")
    page = (found.parent / "report" / "report.html").read_text(encoding="utf-8")
    assert re.search("quartet train .*best.yaml --use my_models.py", page)


def test_what_a_run_used_is_required_by_name_version_and_content(used):
    experiment = from_text(EXPERIMENT).experiment
    (mine,) = extensions.used_by(experiment)
    extensions.match([mine], experiment, "run")
    for change, message in (({"version": "2"}, "run: uses my_models.py 2"), ({"sha256": "0" * 64}, "has changed"),
                            ({"name": "others.py"}, "which is not in use here")):
        with pytest.raises(ConfigError, match=message):
            extensions.match([{**mine, **change}], experiment, "run")
    with pytest.raises(ConfigError, match="does not record"):
        extensions.match([], experiment, "run")
    with pytest.raises(ConfigError, match="install sample 1"):
        extensions.require([UsedExtension(name="sample", version="1.0", registers=["model big"])], "run")


@pytest.mark.parametrize(("content", "message"), [
    ("import quartet\nquartet.register_model('vision.classificaton', quartet.Section)", ":2: ConfigError: 'vision.classificaton' is no"),
    ("class Broken(", ":1: SyntaxError"),
    ("\nimport not_installed_at_all", ":2: ModuleNotFoundError"),
    ("from typing import Literal\nimport quartet\nclass Cnn(quartet.Section):\n  'mine'\n  name: Literal['cnn']\n"
     "quartet.register_model('vision.classification', Cnn)(print)", "there is a model 'cnn' already, from Quartet itself"),
    ("from typing import Literal\nimport quartet\nclass Own(quartet.Section):\n  'mine'\n  name: Literal['own']\n  width: int = 3\n"
     "quartet.register_model('vision.classification', Own)(lambda settings: None)", "width has no meaning"),
    ("import quartet\nclass Own(quartet.Section):\n  'mine'\n"
     "quartet.register_model('vision.classification', Own)(lambda settings: None)", "needs the name by which it is chosen"),
    ("import quartet\nquartet.register_model('vision.classification', 'own')(lambda settings: None)", "is no class of settings"),
])
def test_a_wrong_file_is_one_message_with_its_line(tmp_path, content, message):
    (tmp_path / "wrong.py").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        extensions.use([tmp_path / "wrong.py"])
    assert message in str(error.value) and str(tmp_path / "wrong.py") in str(error.value)


def test_no_file_and_no_module(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no file .*nowhere\.py"):
        extensions.use([str(tmp_path / "nowhere.py")])
    with pytest.raises(ConfigError, match="no module nowhere_at_all"):
        extensions.use(["nowhere_at_all"])


def test_settings_that_need_no_tensorflow_bring_none(tmp_path):
    """Registering imports nothing heavy: a file whose builder imports Keras itself keeps the checks as quick as they are."""
    code = "import sys, quartet.extend, quartet; quartet.register_model; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"


def test_what_is_forgotten_is_unknown_again(tmp_path):
    (tmp_path / "passing.py").write_text(FILE.read_text(encoding="utf-8").replace("tiny", "passing"), encoding="utf-8")
    text = EXPERIMENT.replace("tiny", "passing")
    extensions.use([tmp_path / "passing.py"])
    from_text(text)
    extensions.forget("passing.py")
    with pytest.raises(ConfigError, match="'passing' is not one of"):
        from_text(text)
