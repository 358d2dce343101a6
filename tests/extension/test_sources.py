"""Sources in a file of one's own: what they return is checked as a file is, and divided as the data section says."""

import re

import numpy as np
import pytest

from pipelines.base.errors import ConfigError, DataError
from pipelines.config import extensions
from pipelines.config.load import from_text
from tests.finished_run import ROOT

FILE = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(encoding="utf-8"), re.DOTALL)[1]
EXPERIMENT = "task: vision.classification\ndata: {source: stripes}\nmodel: {name: cnn}\n"


@pytest.fixture
def use(tmp_path):
    """Puts a changed copy of the page's file in use."""

    def changed(before: str = "", after: str = "") -> None:
        assert before in FILE
        (tmp_path / "stripes.py").write_text(FILE.replace(before, after), encoding="utf-8")
        extensions.use([tmp_path / "stripes.py"])

    yield changed
    extensions.forget("stripes.py")


def splits(text: str = EXPERIMENT):
    from vision.data.splits import load_images

    return load_images(from_text(text).experiment)


def test_it_is_divided_and_described_as_any_other(use):
    use()
    made = splits()
    assert (len(made.train), len(made.validation), len(made.test)) == (216, 24, 60)
    assert made.facts["classes"] == ["horizontal", "vertical"] and made.facts["image_size"] == [12, 12] and made.facts["channels"] == 1


def test_its_settings_stand_beside_the_shared_ones(use):
    use()
    with pytest.raises(ConfigError, match=r"data\.noise: -1\.0 is not a number >= 0"):
        from_text(EXPERIMENT.replace("stripes}", "stripes, noise: -1.0}"))
    with pytest.raises(ConfigError, match=r"did you mean data\.noise"):
        from_text(EXPERIMENT.replace("stripes}", "stripes, nois: 1.0}"))
    with pytest.raises(ConfigError, match="'stripe' is not one of digits, tfds, folder, table, npz or stripes; did you mean stripes"):
        from_text(EXPERIMENT.replace("stripes", "stripe"))
    assert from_text(EXPERIMENT.replace("stripes", "digits")).experiment.data.source == "digits"
    assert [one["registers"] for one in extensions.used_by(from_text(EXPERIMENT).experiment)] == [["source stripes"]]


def test_without_the_file_of_an_augmentation_it_says_what_to_pass():
    with pytest.raises(ConfigError, match=r"augment.own: no augmentation 'absent' is registered here; .* --use FILE"):
        from_text(f"{EXPERIMENT}augment: {{own: {{name: absent}}}}\n")


@pytest.mark.parametrize(("before", "after", "message"), [
    ('"label": np', '"lable": np', "source stripes: split all has no 'label'"),
    ("[label]}}", "[label][1:]}}", "300 of image, 299 of label"),
    ("astype(np.uint8)", "astype(np.float32) - 1000", "holds values from -1000"),
])
def test_wrong_arrays_are_named(use, before, after, message):
    use(before, after)
    with pytest.raises(DataError, match=re.escape(message)):
        splits()


OWN = """
from typing import Literal

import numpy as np

import quartet
from nlp.settings import TextData
from recsys.settings import ImplicitData
from speech.settings import CommandData, TranscriptData

SINE = np.sin(np.arange(4000) / 8).astype(np.float32) / 2


class Lines(TextData):
    'Lines.'
    source: Literal["lines"]


class Tones(CommandData):
    'Tones.'
    source: Literal["tones"]


class Spoken(TranscriptData):
    'Sentences.'
    source: Literal["spoken"]


class Clicks(ImplicitData):
    'Clicks.'
    source: Literal["clicks"]


@quartet.register_source("nlp.classification", Lines)
def lines(settings):
    return {"train": {"text": [f"line {n}" for n in range(20)], "label": np.arange(20) % 2, "group": ["a", "a", "b", "b"] * 5},
            "test": {"text": ["one", "two"], "label": [1, 0], "group": ["c", "c"]}}


@quartet.register_source("speech.classification", Tones)
def tones(settings):
    labels = np.array(["low", "high"])[np.arange(40) % 2]
    return {"all": {"samples": quartet.Recordings([SINE] * 40, rate=8000), "label": labels, "speaker": np.arange(40) // 4}}


@quartet.register_source("speech.transcription", Spoken)
def spoken(settings):
    return {"all": {"samples": [np.zeros(16000, np.int16)] * 20, "text": ["on off"] * 20}}


@quartet.register_source("recsys.retrieval", Clicks)
def clicks(settings):
    return {"user": np.arange(400) % 20, "item": np.arange(400) * 7 % 50, "time": np.arange(400)}
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    extensions.use([tmp_path / "own.py"])
    yield
    extensions.forget("own.py")


@pytest.mark.parametrize(("text", "sizes"), [
    ("task: nlp.classification\ndata: {source: lines, group_by: group, validation: 0.5}\nmodel: {name: bag}\n", (10, 10, 2)),
    ("task: speech.classification\ndata: {source: tones, rate: 16000, group_by: speaker}\nmodel: {name: ds_cnn}\n", (28, 4, 8)),
    ("task: speech.transcription\ndata: {source: spoken}\nmodel: {name: quartz}\n", (14, 2, 4)),
    ("task: recsys.retrieval\ndata: {source: clicks, time_key: time}\nmodel: {name: towers}\n", (60, 20, 20)),
    ("task: recsys.sequential\ndata: {source: clicks, time_key: time}\nmodel: {name: gru}\n", (20, 20, 20)),
])
def test_texts_recordings_and_interactions_are_divided_as_any_other(own, text, sizes):
    from pipelines.config.registry import task_class

    experiment = from_text(text).experiment
    made = task_class(experiment.task)(experiment).splits()
    assert (len(made.train), len(made.validation), len(made.test)) == sizes
    again = task_class(experiment.task)(experiment).splits()
    assert again.train.fingerprint() == made.train.fingerprint() != made.test.fingerprint()
    assert [one["name"] for one in extensions.used_by(experiment)] == ["own.py"]


def test_recordings_of_another_rate_are_resampled(own):
    from speech.data.sources import open_data

    data = from_text("task: speech.classification\ndata: {source: tones, rate: 16000}\nmodel: {name: ds_cnn}\n").experiment.data
    source = open_data(data, texts=False).load("all")
    assert len(source.load(0)) == 8000 and source.facts.lengths[0] == 8000 and 15_000 < source.load(0).max() < 17_500


def test_settings_of_a_source_derive_from_the_task_s_own(tmp_path):
    (tmp_path / "wrong.py").write_text(OWN.replace("Lines(TextData)", "Lines(CommandData)"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"Lines: the settings of a source of nlp.classification derive from nlp.settings.TextData"):
        extensions.use([tmp_path / "wrong.py"])
    extensions.forget("wrong.py")


def test_a_run_on_a_source_of_one_s_own_is_judged_on_other_data(use, tmp_path):
    """evaluate --data reads them as the shipped source does, without the settings of one's own."""
    from pipelines.serving.evaluate import experiment_for

    use()
    other = experiment_for(from_text(EXPERIMENT).experiment, {"image_size": [12, 12]}, tmp_path, None, [])
    assert other.data.source == "folder" and other.data.image_size == [12, 12] and extensions.used_by(other) == []


def test_images_are_the_arrays_that_were_given(use):
    use("settings.noise", "0.0")
    made = splits()
    values = np.unique(made.train.arrays["image"])
    assert values.tolist() == [60, 190]
