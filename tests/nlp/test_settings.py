"""Settings that do not fit together are named before any work; every shipped experiment is valid and opens with its command."""

from pathlib import Path

import pytest

from nlp import models
from pipelines.base.errors import ConfigError
from pipelines.config.load import from_text, load
from pipelines.encoders.settings import PretrainedModel

FOLDER = Path(__file__).parents[2] / "configs" / "nlp"
SHIPPED = sorted(path.stem for path in FOLDER.glob("*.yaml"))
WRONG = [
    ("data: {source: tfds}", r"data\.name.*imdb_reviews"), ("data: {source: table}", r"data\.path"),
    ("data: {source: tfds, name: x, text_key: 0}", r"data\.text_key.*by name"),
    ("tokens: {name: hashed, characters: [4, 2]}", r"tokens\.characters"),
    ("model: {name: transformer, width: 10, heads: 4}", "not a multiple of heads = 4"),
    ("model: {name: cnn}\ntokens: {name: hashed}", r"n-grams do not stand in the text's order"),
    ("model: {name: bag, naive_bayes: true, hidden: 3}", r"naive_bayes"),
    ("model: {name: bag, linear: true, hidden: 3}", r"model\.linear.*hidden"),
    ("tokens: {name: hashed, character_buckets: 9}", r"character_buckets.*no character n-grams"),
    ("reject: {}", r"needs label or splits"), ("reject: {splits: x_oos}", r"lacks \{split\}"),
    ("data: {source: quick, labels: many}\nreject: {label: x}", r"nothing is rejected"),
    ("model: {name: pretrained, preset: x}\ntokens: {name: words}", r"brings its own tokens"),
    ("model: {name: bags}", r"did you mean bag\?"),
]


@pytest.mark.parametrize("change, message", WRONG)
def test_wrong_settings_are_named(change, message):
    sections = {"task": "task: nlp.classification", "data": "data: {source: quick}", "model": "model: {name: bag}"}
    for line in change.splitlines():
        sections[line.partition(":")[0]] = line
    with pytest.raises(ConfigError, match=message):
        from_text("\n".join(sections.values()) + "\n", file="x.yaml")


def test_the_experiments_of_the_design_are_there():
    assert {"quickstart", "imdb_bag", "imdb_best", "clinc_best", "clinc_bag", "ag_news", "table", "finetune"} <= set(SHIPPED)


OWN_DATA = ("answers", "table", "finetune", "labels", "language", "numbers", "sts_bi", "find", "tags",
            "translation")  # whose path is the user's


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_experiment(name, tmp_path):
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 45
    assert text.startswith("# ") and f"\n#   python -m nlp.train nlp/{name}" in text
    experiment = load(f"nlp/{name}", [f"data.path={tmp_path}"] if name in OWN_DATA else []).experiment
    if not isinstance(experiment.model, PretrainedModel) and not hasattr(experiment, "writing"):
        outputs = 1 if name == "numbers" else 4
        assert models.build(experiment.model, size=50, classes=outputs, limit=experiment.cutting.limit).output_shape == (None, outputs)


def test_table_asks_for_its_path():
    with pytest.raises(ConfigError, match=r"data\.path"):
        load("nlp/table")
