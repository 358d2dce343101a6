"""Near copies, doubtful labels and strangers by features, and `quartet check --encoder` in each domain, with tiny random encoders."""

import importlib.util
import os

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.commands.check import check
from pipelines.config.load import from_dict
from pipelines.encoders import neighbours
from pipelines.encoders.neighbours import Part
from pipelines.runs.launch import task_class
from pipelines.training.session import assemble
from tests.encoders import tiny

CLASSES = ("cat", "dog", "owl")
extra = pytest.mark.skipif(not all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text"))
                           and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                           reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")


def clouds():
    """Train and test of three classes, each around a corner of its own."""
    random = np.random.default_rng(0)
    labels = np.arange(240) % 3
    vectors = (3.0 * np.eye(32)[labels] + 0.5 * random.standard_normal((240, 32))).astype(np.float32)
    return [Part("train", vectors[:180], labels[:180], "train:{}".format), Part("test", vectors[180:], labels[180:], "test:{}".format)]


def test_nothing_is_found_where_classes_lie_apart():
    assert neighbours.findings(clouds(), CLASSES) == []


def test_a_copy_of_train_a_wrong_label_and_a_stranger_are_named():
    train, test = clouds()
    test.vectors[4] = train.vectors[10] + 0.01
    train.labels[7] = 2  # which is 1
    train.vectors[20] = 12.0 * np.eye(32)[31]
    copies, labels, strangers = neighbours.findings([train, test], CLASSES)
    assert copies.level == "warning" and copies.details[0].startswith("test:4 (test) = train:10 (train), ") and len(copies.details) == 1
    assert labels.level == "warning" and labels.text.startswith("1 examples may have the wrong label")
    assert labels.details == ("train:7 (train) is owl, looks like dog",)
    assert strangers.level == "note" and strangers.details[0].startswith("train:20 (train), ") and len(strangers.details) == 1


def test_labels_are_left_alone_where_there_are_none_or_an_example_has_several():
    train, test = clouds()
    train.labels[7] = 2
    unlabelled = Part(train.split, train.vectors, None, train.name)
    assert neighbours.findings([unlabelled, test], CLASSES) == []
    train.labels[7] = -1  # of no class
    assert neighbours.findings([train, test], CLASSES) == []


def test_few_examples_are_compared_for_copies_alone():
    train, test = clouds()
    few = [Part(part.split, part.vectors[:4], part.labels[:4], part.name) for part in (train, test)]
    few[1].vectors[0] = few[0].vectors[1]
    (copies,) = neighbours.findings(few, CLASSES)
    assert copies.details == ("test:0 (test) = train:1 (train), 100.0% alike",)


def texts(folder):
    words = ["the room", "taxi please", "book the room", "cancel breakfast", "wifi towels"]
    rows = [f"{words[number % 5]} {chr(97 + number)},{number % 2}" for number in range(26)]
    (folder / "texts").mkdir()
    (folder / "texts" / "train.csv").write_text("\n".join(["text,label", *rows]))
    (folder / "texts" / "test.csv").write_text("text,label\nTaxi PLEASE b,1\nbreakfast wifi towels,0\n")
    return {"task": "nlp.classification", "data": {"source": "table", "path": str(folder / "texts"), "validation": 0},
            "model": {"name": "bag"}}, tiny.bert(folder / "preset")


def images(folder):
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(10):
            image = random.integers(0, 256, (8, 8, 3), np.uint8)
            (folder / "photos" / name / f"{number}.png").write_bytes(tf.io.encode_png(image).numpy())
    return {"task": "vision.classification", "data": {"source": "folder", "path": str(folder / "photos"), "validation": 0.2, "test": 0.2},
            "model": {"name": "cnn"}}, tiny.efficientnet(folder / "preset")


def sounds(folder):
    return {"task": "speech.classification", "data": {"source": "synthetic", "seconds": 0.9, "rate": 8000, "limit": 32, "validation": 0.2,
                                                "test": 0.2},
            "frontend": {"mels": 16}, "model": {"name": "ds_cnn"}}, tiny.whisper(folder / "preset")


@extra
@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("made", [texts, images, sounds])
def test_check_compares_the_examples_of_each_domain(tmp_path, made, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    values, preset = made(tmp_path)
    experiment = from_dict(values)
    found = check(experiment, str(preset))
    note = next(finding.text for finding in found.findings if "compared by the features of" in finding.text)
    sizes = [split["examples"] for split in found.splits.values()]
    assert str(preset) in note and all(f"{size} of {split}" in note for size, split in zip(sizes, found.splits))
    if made is texts:  # what differs in large letters alone is the same to this encoder
        copies = next(finding for finding in found.findings if "nearly the same by their features" in finding.text)
        assert "(test) = " in copies.details[0] and copies.details[0].endswith("100.0% alike")


@extra
@pytest.mark.slow(seconds=10)
def test_only_the_experiments_own_encoder_compares_and_training_finds_its_features(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    values, preset = texts(tmp_path)
    monkeypatch.setenv("QUARTET_PRESETS", str(tmp_path))
    assert not any("compared" in finding.text for finding in check(from_dict(values)).findings), "another one is merely at hand"
    values["model"] = {"name": "pretrained", "preset": str(preset), "limit": 16, "finetune": {"name": "frozen"}}
    experiment, said = from_dict(values), list[str]()
    assert any("26 of train, 2 of test" in finding.text for finding in check(experiment).findings)
    assemble(experiment, task_class(experiment.task), say=said.append)
    assert not said, "what was computed is kept"


@extra
def test_an_encoder_that_does_not_know_the_language_compares_nothing(tmp_path):
    values, preset = texts(tmp_path)
    train = tmp_path / "texts" / "train.csv"
    train.write_text(train.read_text().replace("room", "zimmer").replace("taxi", "mietwagen"))
    values["model"] = {"name": "pretrained", "preset": str(preset), "limit": 32, "finetune": {"name": "frozen"}}
    (note,) = (finding for finding in check(from_dict(values)).findings if "compared" in finding.text)
    assert note.level == "note" and "does not know their language: it reads a word as" in note.text
    said = [finding.text for finding in check(from_dict(values), str(preset)).findings]
    assert any("little can be said" in text for text in said) and any("26 of train" in text for text in said), "who asks is answered"


@extra
def test_an_encoder_of_another_domain_is_refused_and_none_compares_nothing(tmp_path):
    values, _ = texts(tmp_path)
    other = tiny.efficientnet(tmp_path / "images")
    with pytest.raises(ConfigError, match=r"--encoder: .* is for images, and the task needs an encoder for text"):
        check(from_dict(values), str(other))
    assert not any("compared" in finding.text for finding in check(from_dict(values), "none").findings)


def test_a_task_whose_examples_no_encoder_reads_says_so():
    experiment = from_dict({"task": "recsys.retrieval", "data": {"source": "synthetic", "user_key": "user", "item_key": "item",
                                                                 "time_key": "time", "test": 0.1}, "model": {"name": "towers", "width": 4}})
    with pytest.raises(ConfigError, match=r"--encoder: examples of recsys.retrieval are not compared"):
        check(experiment, "minilm_l6")
