"""Vectors of inputs: of a preset alone and in a table or arrays, whatever the batch."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.base.errors import ConfigError, DataError
from pipelines.serving import embed
from pipelines.serving.output import Prediction
from pipelines.serving.predict import Predictor
from tests.data.prepared import require_preset
from tests.encoders import tiny

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text"))
TEXTS = ["the room", "please book the room and the taxi, please", "wifi"]


@pytest.mark.skipif(not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                    reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")
def test_a_text_encoder_gives_vectors_without_a_run(tmp_path):
    run = embed.of_preset(str(tiny.bert(tmp_path / "preset")))
    embed.require_encoder(run)
    whole = list(Predictor(run, answer=embed.vectors).predict(TEXTS))
    alone = [next(Predictor(run, answer=embed.vectors).predict([text])) for text in TEXTS[:2]]
    for one, other in zip(whole, alone):
        np.testing.assert_allclose(one.values["vector"], other.values["vector"], atol=1e-5)
    assert whole[0].values["vector"].shape == (16,) and np.ptp(whole[0].values["vector"] - whole[2].values["vector"]) > 0.1
    embed.write(tmp_path / "v.npz", whole)
    embed.write(tmp_path / "v.parquet", [*whole, Prediction("bad", error="it cannot be read")])
    with np.load(tmp_path / "v.npz") as stored:
        assert stored["input"].tolist() == TEXTS and stored["vector"].dtype == np.float32
        np.testing.assert_array_equal(stored["vector"], np.stack(pq.read_table(tmp_path / "v.parquet")["vector"].to_pylist()))


def test_a_real_encoder_knows_what_is_alike_and_whose_it_is():
    preset = require_preset("minilm_l6")
    run = embed.of_preset(preset)
    texts = ["the cat sat on the mat", "a feline was seated on a rug", "stock prices fell", "Café", "cafe"]
    vectors = np.stack([one.values["vector"] for one in Predictor(run, answer=embed.vectors).predict(texts)])
    cosine = vectors @ vectors.T / vectors.shape[1]  # their root mean square is 1
    assert cosine[0, 1] > 0.5 > 0.3 > cosine[0, 2] and cosine[3, 4] > 0.999  # accents are stripped
    record = run.task.facts["encoder"]
    source = (Path(preset) / "SOURCE.md").read_text()
    assert record["checksum"] in source and (record["licence"], record["weights"]) == ("Apache-2.0", 22_713_216)


def test_what_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"ends in \.npz, \.parquet, \.csv or \.jsonl"):
        embed.writable(tmp_path / "v.txt")
    with pytest.raises(DataError, match="no input could be read"):
        embed.write(tmp_path / "v.npz", [Prediction("bad", error="it cannot be read")])
