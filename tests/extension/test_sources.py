"""A source of images in a file of one's own: its arrays checked as those of a file are, divided as the data section says."""

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


@pytest.mark.parametrize(("before", "after", "message"), [
    ('"label": np', '"lable": np', "source stripes: split all has no 'label'"),
    ("[label]}}", "[label][1:]}}", "300 of image, 299 of label"),
    ("astype(np.uint8)", "astype(np.float32) - 1000", "holds values from -1000"),
])
def test_wrong_arrays_are_named(use, before, after, message):
    use(before, after)
    with pytest.raises(DataError, match=re.escape(message)):
        splits()


def test_images_are_the_arrays_that_were_given(use):
    use("settings.noise", "0.0")
    made = splits()
    values = np.unique(made.train.arrays["image"])
    assert values.tolist() == [60, 190]
