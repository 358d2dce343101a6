"""Good experiments: names and paths, overrides, defaults, round trips; and what importing them must not import."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.load import from_dict, from_text, load, resolved_yaml, shipped
from pipelines.config.registry import domains, experiment_class, tasks
from vision.settings import ImageClassification

ROOT = Path(__file__).parents[2]
BASE = "task: vision.classification\ndata: {source: digits}\nmodel: {name: cnn}\n"
GOOD = {
    "least": BASE,
    "empty sections": BASE + "train:\naugment:\n  # flip: true\n",
    "other model": "task: vision.classification\ndata: {source: tfds, name: cifar10}\nmodel: {name: vit, width: 64, heads: 4}\n",
    "network of Keras": BASE.replace("name: cnn", "name: application, architecture: resnet50, weights: null"),
    "unions": BASE + "train: {devices: [GPU:0, GPU:1]}\nloss: {class_weights: {cat: 2, dog: 0.5, 3: 1}}\n",
    "whole number for a number": BASE + "train: {learning_rate: {peak: 1}, clip: {norm: 1}}\n",
    "nullable section": BASE + (
        "augment: {rand_augment: {magnitude: 0.3}}\n"
        "train: {freeze: {layers: ['conv*']}, early_stopping: {patience: 3}}\n"),
    "options": BASE + "train: {optimizer: {name: AdamW, options: {beta_2: 0.95, amsgrad: true, epsilon: 1e-6}}}\n",
    "search": BASE + (
        "tune:\n  algorithm: bayesian\n  space:\n    train.learning_rate.peak: {float: [1e-4, 1e-2], scale: log}\n"
        "    model.widths: {choice: [[32, 64], [64, 128]]}\n    train.ema: {choice: [null, 0.99]}\n    model.batch_norm: {boolean: true}\n"
        "    train.batch_size: {int: [32, 128], step: 2, scale: log}\n"),
    "search over models": BASE + (
        "tune:\n  space:\n    model.name: {choice: [cnn, residual, vit]}\n    model.dropout: {float: [0, 0.5]}\n"
        "    model.depth: {int: [1, 3], when: {model.name: [residual, vit]}}\n"),
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_good_and_round(text: str) -> None:
    """The resolved YAML says everything and gives the very same experiment by itself."""
    experiment = from_text(text).experiment
    resolved = resolved_yaml(experiment)
    again = from_text(resolved).experiment
    assert again == experiment
    assert resolved_yaml(again) == resolved
    assert from_dict(experiment.model_dump()) == experiment


@pytest.mark.parametrize("name", sorted(shipped()))
def test_shipped(name: str, tmp_path: Path) -> None:
    """Every shipped experiment is right, opens with its command, fits a screen, and survives the round trip."""
    path = shipped()[name]
    (tmp_path / "data").mkdir()
    own_data = "data.path=" in path.read_text(encoding="utf-8")
    loaded = load(name, [f"data.path={tmp_path / 'data'}"] if own_data else [])
    assert loaded.name == name and loaded.path == path
    assert loaded.experiment.task.partition(".")[0] == name.partition("/")[0]
    assert f"python -m {name.partition('/')[0]}.train {name}" in loaded.header
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 50
    assert from_text(resolved_yaml(loaded.experiment)).experiment == loaded.experiment


def test_names_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(None, domain="vision").name == "vision/digits"
    assert load("digits", domain="vision").name == "vision/digits"
    assert load(ROOT / "configs/vision/digits.yaml").name == "vision/digits"
    mine = tmp_path / "mine.yml"
    mine.write_text("# My own.\n#   how\n\n" + BASE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    loaded = load("mine.yml")
    assert (loaded.name, loaded.header) == ("mine", "My own.\n  how")
    assert loaded.where("data.source") == "mine.yml:5"
    assert loaded.where("train.epochs") == "mine.yml:4"


@pytest.mark.parametrize(("config", "says"), [
    ("vision/digts", "vision/digts: there is no shipped experiment and no file of that name; did you mean vision/digits?"),
    ("digits", "did you mean vision/digits?"),
    ("configs/vision/digit.yaml", "there is no such file; did you mean configs/vision/digits.yaml?"),
    ("nowhere/mine.yaml", "there is no such file, nor a folder nowhere"),
    ("configs/vision", "is a folder; did you mean configs/vision/"),
])
def test_no_such_experiment(config: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(ConfigError) as caught:
        load(config)
    assert says in str(caught.value)


def test_domain_must_fit() -> None:
    with pytest.raises(ConfigError, match="is not a task of speech"):
        load("vision/digits", domain="speech")
    with pytest.raises(ConfigError, match="name an experiment"):
        load(None)


def test_overrides() -> None:
    experiment = from_text(BASE, [
        "train.epochs=3", "train.epochs=4", "train.learning_rate.peak=1e-3", "model.widths=[8, 16]", "train.freeze.layers=[conv*, 'a?']",
        "train.optimizer={name: rmsprop, momentum: 0.9}", "train.optimizer.options.rho=0.9", "train.watch=a: b #c",
        "tune.space.train.learning_rate.peak={float: [1e-4, 1e-2]}", "loss.class_weights.cat=2", "data.group_by='1'", " seeds = 2 ",
    ]).experiment
    assert isinstance(experiment, ImageClassification)
    train = experiment.train
    assert (train.epochs, train.learning_rate.peak, experiment.model.widths, experiment.seeds) == (4, 1e-3, [8, 16], 2)
    assert train.freeze is not None and train.freeze.layers == ["conv*", "a?"]
    assert (train.optimizer.name, train.optimizer.options, train.watch) == ("rmsprop", {"rho": 0.9}, "a: b #c")
    assert experiment.tune is not None and list(experiment.tune.space) == ["train.learning_rate.peak"]
    assert experiment.loss.class_weights == {"cat": 2}
    assert experiment.data.group_by == "1"


def test_null_takes_out_or_sets_null() -> None:
    text = BASE + "train: {epochs: 3, ema: 0.9, early_stopping: {patience: 3}}\ntune: {space: {train.seed: {int: [1, 5]}}}\n"
    experiment = from_text(text, ["train.epochs=null", "train.ema=null", "train.early_stopping=", "data.test=null", "tune=null"]).experiment
    assert (experiment.train.epochs, experiment.train.ema, experiment.train.early_stopping, experiment.tune) == (10, None, None, None)
    assert isinstance(experiment, ImageClassification) and experiment.data.test is None
    assert from_text(text, ["tune.space.train.epochs={int: [1, 5]}", "tune.space.train.seed=null"]).experiment.tune.space == {
        "train.epochs": {"int": [1, 5]}}
    assert from_text(BASE + "train:\n", ["train.epochs=3"]).experiment.train.epochs == 3


def test_override_of_the_task_chooses_the_schema() -> None:
    with pytest.raises(ConfigError, match=r"override 'task=vision.clasification': task: "):
        from_text(BASE, ["task=vision.clasification"])


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    text = "task: vision.classification\ndata: {source: folder, path: ~/images}\nmodel: {name: cnn}\n"
    experiment = from_text(text).experiment
    assert isinstance(experiment, ImageClassification) and experiment.data.path == str(tmp_path / "images")
    with pytest.raises(ConfigError, match="did you mean"):
        from_text(text, ["data.path=~/imges"])
    assert from_text(text, ["data.path=~/imges"], check_paths=False).experiment.data.path == str(tmp_path / "imges")


def test_domains() -> None:
    assert "vision" in domains()
    assert experiment_class("vision.classification") is ImageClassification
    assert set(tasks("vision")) <= set(tasks())
    with pytest.raises(ConfigError, match=r"did you mean vision\.classification"):
        experiment_class("vision.clasification")


def test_a_broken_domain_is_not_taken_for_an_absent_one(tmp_path: Path) -> None:
    """A domain without a package is absent; one whose settings import what is not there says so."""
    package = tmp_path / "recsys"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "settings.py").write_text("import not_installed_at_all\n", encoding="utf-8")
    code = "from pipelines.config.registry import tasks; tasks('recsys')"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}, cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert "not_installed_at_all" in done.stderr


def test_no_tensorflow() -> None:
    """Nothing of this, nor a config error, imports TensorFlow or Keras."""
    code = (
        "import sys\n"
        "from pipelines.config import draft, load, reference, registry, space\n"
        "import vision.settings, vision.new\n"
        "try: load.load('vision/digits', ['train.optimizer.name=adamm', 'data.path=nowhere'])\n"
        "except Exception as error: print(error)\n"
        "load.resolved_yaml(load.load('vision/digits').experiment); reference.pages(); reference.json_schema()\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'tensorflow', 'keras', 'jax', 'sklearn', 'matplotlib'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "did you mean adam?" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_from_an_installed_wheel(tmp_path: Path) -> None:
    """Shipped experiments are found beside the package's own code, from any folder."""
    site = tmp_path / "site"
    for package in ("pipelines", "vision"):
        shutil.copytree(ROOT / package, site / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "configs", site / "pipelines/configs")
    code = "from pipelines.config.load import load; loaded = load('vision/digits'); print(loaded.name, loaded.path)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True,
                          text=True, check=True)
    assert done.stdout.split() == ["vision/digits", str(site / "pipelines/configs/vision/digits.yaml")]
