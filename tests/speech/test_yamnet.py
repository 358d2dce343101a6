"""YAMNet: what its original gives, as an encoder whose layers stand beside cepstra, and used as it is, piece by piece."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tensorflow as tf

import quartet
from pipelines.base.errors import ConfigError
from pipelines.config.draft import new
from pipelines.config.load import from_text
from pipelines.encoders import arrays, listing, presets
from pipelines.encoders.trainable import blocks
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from pipelines.serving.export import export
from pipelines.serving.exported import ExportedModel
from pipelines.serving.load import load_run, task_class
from speech.check import CHECKS
from speech.data.yamnet import YamnetFrontEnd, class_names, mel_filters
from speech.models import yamnet
from speech.settings import Yamnet
from tests import numbers_made
from tests.data.prepared import require_preset
from tests.encoders import tiny

pytestmark = pytest.mark.slow

SOUNDS = """task: speech.classification
data: {source: none, labels: many, seconds: 0.975}
model: {name: yamnet, preset: PRESET}
evaluate: {piece: 0.975}
train: {precision: float32, devices: cpu}
"""
TONES = """task: speech.classification
data: {source: folder, path: TONES, rate: 16000, seconds: 1.2, validation: 0, test: 0.25}
model: MODEL
train: {precision: float32, devices: cpu}
"""


def preset():
    return require_preset("yamnet", file="weights.npz", extra=False)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return tiny.yamnet(tmp_path_factory.mktemp("presets") / "small")


def trained(text, folder):
    known = from_text(text, [], file="test")
    report = train(known.experiment, RunFolder(folder / "runs" / "one"), Call("test", task_class(known.experiment.task), quiet=True))
    return load_run(RunFolder(folder / "runs" / "one"), where="cpu"), report


def tones(folder: Path, draw=None) -> Path:
    """Twelve recordings each of low, middle and high tones, of 0.2 to 2 s."""
    draw = draw or np.random.default_rng(0)
    for name, hertz in (("low", 250), ("middle", 700), ("high", 2000)):
        (folder / name).mkdir(parents=True)
        for number in range(12):
            times = np.arange(int(draw.uniform(0.2, 2.0) * 16_000)) / 16_000
            wave = 0.3 * np.sin(2 * np.pi * hertz * draw.uniform(0.8, 1.25) * times) + 0.01 * draw.normal(size=len(times))
            soundfile.write(folder / name / f"{number}.wav", wave, 16_000)
    return folder


def test_it_gives_what_the_original_gives():
    reference, filters = np.load(Path(preset()) / "reference.npz"), np.load(Path(preset()) / "weights.npz")["frontend/mel"]
    np.testing.assert_allclose(mel_filters()[0], filters, atol=1e-6)
    found = presets.find(preset())
    whole = yamnet.backbone(found, (14,))
    model = yamnet.sounds(Yamnet(name="yamnet", preset=preset()), frames=96, width=64, classes=521, facts={}, describe=None)
    for name in ("speech", "tones", "noise"):
        wave = tf.constant(reference[f"{name}_wave"])[None]
        log_mel = YamnetFrontEnd()(wave, tf.constant([15_600]))
        assert log_mel.shape == (1, 96, 64)
        np.testing.assert_allclose(log_mel[0], reference[f"{name}_float_log_mel"], atol=2e-3)
        vectors = tf.reduce_mean(whole(yamnet.patched(log_mel)[:, 0, ..., None]), [1, 2])
        np.testing.assert_allclose(vectors[0], reference[f"{name}_float_embedding"], atol=1e-3)
        np.testing.assert_allclose(tf.sigmoid(model(log_mel))[0], reference[f"{name}_float_scores"], atol=1e-3)
    kernel = model.get_layer("backbone").get_layer("block_7_pointwise_conv").kernel
    kernel.assign(kernel * 1.05)
    assert np.abs(tf.sigmoid(model(log_mel))[0] - reference["noise_float_scores"]).max() > 1e-3


def test_more_silence_behind_changes_nothing(small):
    sound = np.pad(np.random.default_rng(0).normal(0, 0.1, 15_600).astype(np.float32), (0, 48_000 - 15_600))
    log_mel = YamnetFrontEnd()(tf.constant(sound)[None], tf.constant([48_000]))
    found = [yamnet.encoder(presets.find(str(small)), frames=frames)(log_mel[:, :frames])[0] for frames in (192, 298)]
    assert sum(yamnet.blocks()) == len(found[0]) == 5120
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


def test_the_mean_of_patches_is_that_of_probabilities():
    layer = yamnet.MeanOfPatches(96 + 48)
    logits = tf.constant([[2.0, -30.0], [-1.0, -50.0], [0.5, 60.0], [0.5, -60.0]])
    expected = tf.sigmoid(logits).numpy().reshape(2, 2, 2).mean(1)
    np.testing.assert_allclose(tf.sigmoid(layer(logits)), expected, rtol=1e-5)


def test_as_it_is_it_names_sounds_with_their_times(small, tmp_path):
    own = shutil.copytree(small, tmp_path / "own")
    run, report = trained(SOUNDS.replace("PRESET", str(own)), tmp_path)
    shutil.rmtree(own)
    assert run.task.output.classes == ["Speech", "Bell, gong", "Rain"]
    assert "metrics" not in report or not report["metrics"]
    sound = np.random.default_rng(1).normal(0, 0.1, 32_000).astype(np.float32)  # 2 s: two pieces and 50 ms, which are no piece
    soundfile.write(tmp_path / "noise.wav", sound, 16_000)
    answers = list(quartet.load(str(tmp_path / "runs" / "one")).predict([str(tmp_path / "noise.wav")], top=2))
    assert [one["input"].rpartition("#")[2] for one in answers] == ["t=0.00,0.97", "t=0.97,1.95"]
    assert all(len(one["top"]) == 2 for one in answers)
    assert run.task.splits().facts["classes"] == run.task.output.classes
    again = load_run(RunFolder(tmp_path / "runs" / "one"), where="cpu")
    weights = again.model.get_layer("logits").kernel.numpy()
    np.testing.assert_array_equal(weights, run.model.get_layer("logits").kernel.numpy())


def test_a_kernel_machine_on_its_layers_learns_and_needs_no_preset_afterwards(small, tmp_path):
    own = shutil.copytree(small, tmp_path / "own")
    text = TONES.replace("TONES", str(tones(tmp_path / "tones"))).replace("MODEL", f"{{name: kernel, preset: {own}}}")
    run, report = trained(text, tmp_path)
    assert report["metrics"]["test/accuracy"]["value"] >= 0.8
    assert run.model.get_layer("machine").examples.shape[-1] == 5120 + 168
    shutil.rmtree(own)
    again = load_run(RunFolder(tmp_path / "runs" / "one"), where="cpu")
    heard = [str(tmp_path / "tones" / name / "3.wav") for name in ("low", "middle", "high")]
    answers = [one["label"] for one in quartet.load(str(tmp_path / "runs" / "one")).predict(heard)]
    assert answers == ["low", "middle", "high"]
    wave = soundfile.read(heard[1], dtype="float32")[0]
    (answer,) = ExportedModel(export(again, tmp_path / "exported")).together([("middle", {"samples": wave, "length": len(wave)})])
    assert answer.values["label"] == "middle"
    facts = again.task.facts
    assert facts["backbone"] == {"class": "YAMNet", "config": {}} and facts["encoder"]["name"] == "own"


def test_its_last_blocks_train_under_a_new_head(small, tmp_path):
    model = f"{{name: pretrained, preset: {small}, finetune: {{name: last, blocks: 2, head: new}}}}"
    text = TONES.replace("TONES", str(tones(tmp_path / "tones"))).replace("MODEL", model)
    text = text.replace("train: {", "train: {epochs: 1, batch_size: 9, ")
    run, _ = trained(text, tmp_path)
    assert len(blocks(run.model)) == 14
    begun = yamnet.backbone(presets.find(str(small)))
    backbone = run.model.get_layer("features").get_layer("backbone")

    def moved(number: int) -> float:
        name = f"block_{number}_pointwise_conv"
        return float(np.abs(backbone.get_layer(name).kernel.numpy() - begun.get_layer(name).kernel.numpy()).max())

    assert moved(12) == 0.0 < moved(14)


def test_it_is_listed_and_found_by_its_arrays(small, monkeypatch):
    monkeypatch.setenv("QUARTET_PRESETS", str(small.parent))
    found = listing.at_hand("speech")
    assert [(one.name, one.backbone, one.form) for one in found] == [("small", arrays.YAMNET.name, "arrays")]
    (there,) = [one for one in listing.listed("speech") if one.name == "small"]
    assert there.here and there.problem is None
    with pytest.raises(ConfigError, match="is for speech"):
        presets.find("small", domain="vision")


@pytest.mark.parametrize(("text", "said"), [
    ("model: {name: yamnet}\ndata: {source: synthetic}", "set source: none"),
    ("model: {name: kernel}\ndata: {source: none}", "none is for model.name: yamnet"),
    ("model: {name: yamnet}\ndata: {source: none}", "set labels: many"),
    ("model: {name: kernel, preset: yamnet}\ndata: {source: synthetic}\nfrontend: {mels: 20}", "front end of its own"),
])
def test_wrong_experiments(text, said):
    with pytest.raises(ConfigError, match=said):
        from_text(f"task: speech.classification\n{text}", check_paths=False)


def test_another_rate_and_damaged_presets(small, tmp_path):
    text = TONES.replace("16000", "8000").replace("TONES", str(tmp_path)).replace("MODEL", f"{{name: kernel, preset: {small}}}")
    experiment = from_text(text, check_paths=False).experiment
    with pytest.raises(ConfigError, match=r"data\.rate: 16000"):
        task_class(experiment.task)(experiment)
    broken = shutil.copytree(small, tmp_path / "broken")
    (broken / "yamnet_class_map.csv").write_text("index,mid,display_name\n0,a,Rain\n1,b,Rain\n")
    with pytest.raises(ConfigError, match="each sound once"):
        class_names(broken)
    (broken / "yamnet_class_map.csv").unlink()
    with pytest.raises(ConfigError, match=r"no yamnet_class_map\.csv"):
        presets.find(str(broken))
    stored = dict(np.load(small / "weights.npz"))
    stored["layer9/pointwise_conv/kernel"] = stored["layer9/pointwise_conv/kernel"][..., :5]
    other = tmp_path / "other"
    shutil.copytree(small, other)
    np.savez(other / "weights.npz", **stored)
    with pytest.raises(ConfigError, match="no weights of YAMNet"):
        yamnet.backbone(presets.find(str(other)))


def test_a_table_of_what_it_heard(small, tmp_path):
    """As a person reads it: one row a piece."""
    trained(SOUNDS.replace("PRESET", str(small)), tmp_path)
    soundfile.write(tmp_path / "a.wav", np.random.default_rng(1).normal(0, 0.1, 20_000).astype(np.float32), 16_000)
    from typer.testing import CliRunner

    from pipelines.commands.main import app

    asked = ["predict", tmp_path / "runs" / "one", tmp_path / "a.wav", "--output", tmp_path / "a.csv"]
    done = CliRunner().invoke(app, [str(one) for one in asked])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [row["input"].rpartition("=")[2] for row in rows] == ["0.00,0.97", "0.97,1.25"]


def test_check_says_that_there_are_no_data(small):
    experiment = from_text(SOUNDS.replace("PRESET", str(small))).experiment
    found = CHECKS["speech.classification"](experiment)
    assert any("no data" in one.text for one in found.findings) and not any(one.level == "error" for one in found.findings)


def test_it_is_refused_for_words_and_others_in_its_place(small, tmp_path):
    words = f"task: speech.transcription\ndata: {{source: synthetic}}\nmodel: {{name: pretrained, preset: {small}}}"
    other = f"task: speech.classification\ndata: {{source: synthetic}}\nmodel: {{name: kernel, preset: {tmp_path}}}"
    for text, said in ((words, "knows sounds, not words"), (other, "no preset of YAMNet")):
        experiment = from_text(text, check_paths=False).experiment
        with pytest.raises(ConfigError, match=said):
            task_class(experiment.task)(experiment)


def test_numbers_are_proposed_with_it(small, tmp_path, monkeypatch):
    monkeypatch.setenv("QUARTET_PRESETS", str(small.parent))
    numbers_made.tones(tmp_path)
    assert "preset: small" in new("speech", tmp_path / "tones.csv")
    assert "preset" not in new("speech", tmp_path / "tones.csv", encoder="none")
