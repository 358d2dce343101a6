"""A small prepared TFDS data set, written here without a network; and the real ones, where they are prepared."""

import contextlib
import importlib.util
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.data.tfds import list_prepared


def prepare(data_dir: Path, *, count: int = 60, shards: int = 4, file_format: str = "tfrecord", name: str = "made", sizes: bool = False,
            negative: bool = False) -> Path:
    """Writes `name` with splits train (count, in shards) and test (10): image, label (of b, a), who, and nested features.

    The pixels of example i are all i; images are 8 x 8, or 8 + i % 3 high where `sizes`. Labels of test are -1 where `negative`.
    """
    import tensorflow_datasets as tfds

    shape = (None, None, 3) if sizes else (8, 8, 3)
    label = tfds.features.ClassLabel(num_classes=2) if negative else tfds.features.ClassLabel(names=["b", "a"])
    features = {"image": tfds.features.Image(shape=shape, encoding_format="png"), "label": label, "who": tfds.features.Text(),
                "more": {"weight": np.float32, "tags": tfds.features.Sequence(np.int64)}}

    def example(number: int, test: bool) -> dict[str, Any]:
        height = 8 + number % 3 if sizes else 8
        return {"image": np.full((height, 8, 3), number, np.uint8), "label": -1 if negative and test else number % 2,
                "who": f"p{number % 7}", "more": {"weight": number / 2, "tags": list(range(number % 4))}}

    class Made(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, manager):
            return {"train": self._generate_examples(count, False), "test": self._generate_examples(10, True)}

        def _generate_examples(self, many, test):
            for number in range(many):
                yield number, example(number, test)

    Made.name = name
    builder = Made(data_dir=str(data_dir), file_format=file_format)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=shards))
    return data_dir


def need(name: str) -> None:
    """Lets a test go on where a real data set is prepared; where not, skips it, or fails it if QUARTET_REQUIRE_DATA=1 asks for the data."""
    if name in list_prepared():
        return
    if os.environ.get("QUARTET_REQUIRE_DATA") == "1":
        pytest.fail(f"{name} is not prepared, and QUARTET_REQUIRE_DATA=1 asks for it")
    pytest.skip(f"{name} is not prepared: tfds build {name}")


def require_preset(name: str, *, file: str = "config.json", extra: bool = True) -> str:
    """The folder of a real encoder with such a `file`, where it is unpacked, and keras-hub is here if it needs that `extra`; else the test
    is skipped, or fails as by `need`."""
    folder = Path.home() / ".keras" / "presets" / name  # conftest.py hides it from what does not name it
    there = not extra or all(importlib.util.find_spec(module) for module in ("keras_hub", "tensorflow_text"))
    if not (there or os.environ.get("QUARTET_REQUIRE_EXTRAS")):
        pytest.skip("needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")
    if not (folder / file).is_file():
        if os.environ.get("QUARTET_REQUIRE_DATA") == "1":
            pytest.fail(f"the encoder {name} is not unpacked, and QUARTET_REQUIRE_DATA=1 asks for it")
        pytest.skip(f"the encoder {name} is not unpacked in {folder.parent}")
    return str(folder)
