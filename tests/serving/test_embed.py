"""Vectors of inputs: of a preset alone and in a table or arrays, whatever the batch; and the training examples near to them."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipelines.base.errors import ConfigError, DataError
from pipelines.reports import predictions
from pipelines.runs.folder import RunFolder
from pipelines.serving import embed
from pipelines.serving.load import LoadedRun
from pipelines.serving.output import Prediction
from pipelines.serving.predict import Predictor
from pipelines.training.session import assemble
from tests.data.prepared import require_preset
from tests.encoders import tiny
from tests.speech.synthetic_recordings import tone, write
from tests.training.toy import EncoderToyTask, encoder, experiment

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


@pytest.mark.slow(seconds=10)
@pytest.mark.skipif(not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                    reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")
def test_images_and_recordings_get_vectors_without_a_run_whatever_the_batch(tmp_path):
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (40 + 10 * number, 50, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        write(tmp_path / f"{number}.wav", tone(0.5 + 2.5 * number, 16_000, 300.0 * (number + 1)), 16_000)
    presets = {"png": tiny.efficientnet(tmp_path / "images"), "wav": tiny.whisper(tmp_path / "sounds")}
    for ending, preset in presets.items():
        run, files = embed.of_preset(str(preset)), [str(tmp_path / f"{number}.{ending}") for number in range(3)]
        embed.require_encoder(run)
        whole = [one.values["vector"] for one in Predictor(run, answer=embed.vectors).predict(files)]
        alone = [next(Predictor(run, answer=embed.vectors).predict([file])).values["vector"] for file in files[:2]]
        np.testing.assert_allclose(whole[:2], alone, atol=1e-5)
        assert whole[0].ndim == 1 and not np.allclose(whole[0], whole[1], atol=1e-4)


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
        predictions.writable(tmp_path / "v.txt", embed.ENDINGS)
    with pytest.raises(DataError, match="no input could be read"):
        embed.write(tmp_path / "v.npz", [Prediction("bad", error="it cannot be read")])


def test_the_nearest_training_examples_are_those_of_the_encoder():
    made = assemble(experiment(model=encoder(name="frozen"), data={"cache": "memory"}, train={"devices": "cpu"}), EncoderToyTask)
    made.initialise()
    run = LoadedRun(made.task, made.model, made.task.experiment, RunFolder(Path("toy")), made.machine, "float32", "toy")
    near, train = embed.Nearest(run, print), made.splits.train.arrays
    images = train["image"][[17, 90]]
    answers = embed.answered(run, {"image": images, "label": train["label"][[17, 90]]})
    vectors = made.model.get_layer("features")(train["image"]).numpy()
    np.testing.assert_allclose(answers["vector"], vectors[[17, 90]], atol=1e-5)
    centred = vectors - vectors.mean(0)
    for number, vector in zip((17, 90), answers["vector"].numpy()):
        cosine = centred @ centred[number] / np.linalg.norm(centred, axis=1) / np.linalg.norm(centred[number])
        found = near.of(vector, 4)
        assert [one.name for one in found] == [f"toy1[{place}]" for place in np.argsort(-cosine)[:4]]
        assert found[0].name == f"toy1[{number}]" and found[0].similarity == pytest.approx(1, abs=1e-5) and found[0].text is None
        assert near.of(vector, 500)[-1].similarity == pytest.approx(cosine.min(), abs=1e-5)


def test_without_kept_features_there_are_no_neighbours():
    made = assemble(experiment(model=encoder(name="whole"), data={"cache": "none"}, train={"devices": "cpu"}), EncoderToyTask)
    run = LoadedRun(made.task, made.model, made.task.experiment, RunFolder(Path("toy")), made.machine, "float32", "toy")
    with pytest.raises(ConfigError, match=r"features of its training data cannot be kept"):
        embed.Nearest(run, print)
