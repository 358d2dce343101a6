"""Moonshine's encoder: its vectors are KerasHub's, of a recording alone in any batch, and a run needs no preset. Random weights alone."""

import importlib.util
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.config.draft import new
from pipelines.config.load import from_text
from pipelines.encoders import listing
from pipelines.encoders.trainable import blocks
from pipelines.runs.launch import task_class
from speech.check import check_transcripts
from speech.data.pretrained import MoonshineFrontEnd
from speech.models import moonshine, pretrained
from tests import numbers_made
from tests.encoders import tiny
from tests.speech.synthetic_recordings import tone, write

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")]


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """A folder of two presets, `shine` and `whisper`."""
    root = tmp_path_factory.mktemp("presets")
    tiny.moonshine(root / "shine")
    tiny.whisper(root / "whisper", stamps=1000)  # the larger of the two
    return root


def task_of(text: str, preset, facts: dict | None = None, model: str = "pretrained"):
    experiment = from_text(f"model: {{name: {model}, preset: {preset}}}\n{text}", check_paths=False).experiment
    return task_class(experiment.task)(experiment, facts)


def commands(preset, facts: dict | None = None):
    return task_of("task: speech.classification\ndata: {source: synthetic, seconds: 0.9}", preset, facts)


def transcription(preset):
    task = task_of("task: speech.transcription\ndata: {source: synthetic}", preset)
    task.facts = {**task.input.encoder_facts, "unit": "words", "tokens": ["one", "two"], "mean": [0.0] * 127, "std": [1.0] * 127}
    return task


def test_vectors_are_keras_hub_s(presets):
    from keras_hub.models import Backbone

    sound = tone(1.237, 16_000)
    whole = Backbone.from_preset(str(presets / "shine"))
    heard = (sound - sound.mean()) / np.sqrt(sound.var() + 1e-7)
    expected = whole({
        "encoder_input_values": heard[None, :, None], "encoder_padding_mask": np.ones([1, len(sound)], bool),
        "decoder_token_ids": np.zeros([1, 1], np.int32), "decoder_padding_mask": np.ones([1, 1], bool)})["encoder_sequence_output"].numpy()
    front_end = MoonshineFrontEnd({"sampling_rate": 16_000, "do_normalize": True})
    windows = front_end(tf.constant(sound[None]), tf.constant([len(sound)]))
    assert windows.shape[1] == int(front_end.frames(len(sound))) and expected.std() > 0.1
    for encoder, given in ((moonshine.encoder(whole), [windows, tf.constant([windows.shape[1]])]),
                           (moonshine.encoder(whole, frames=windows.shape[1]), windows)):
        assert np.abs(encoder(given).numpy() - expected).max() < 1e-5


def test_a_recording_gets_the_same_answer_alone_and_in_a_padded_batch(presets):
    task = transcription(presets / "shine")
    model = task.model()
    sounds = [tone(seconds, 16_000, hertz) for seconds, hertz in ((1.501, 300), (4.0, 500), (0.01, 400))]
    samples = np.stack([np.pad(sound * 32767, (0, 70_000 - len(sound))).astype(np.int16) for sound in sounds])
    inputs, _ = task.prepare({"samples": tf.constant(samples), "length": tf.constant([len(sound) for sound in sounds])})
    together = model(inputs).numpy()
    for number, sound in enumerate(sounds):
        alone, _ = task.prepare({"samples": tf.constant(samples[number:number + 1, :len(sound)]), "length": tf.constant([len(sound)])})
        logits = model(alone).numpy()[0]
        assert len(logits) == int(task.input.steps(alone["frames"])[0]) == max(1, (len(sound) - 511) // 384)
        assert np.abs(logits - together[number, :len(logits)]).max() < 1e-5
    assert np.std(together) > 0.01


def test_its_blocks_are_known_and_all_of_it_trains(presets):
    task = transcription(presets / "shine")
    model = task.model()
    names = [[layer.name for layer in block] for block in blocks(model)]
    assert names == [["embedding", "rotary_embedding"], ["encoder_block_0"], ["encoder_block_1", "encoder_final_layer_norm"]]
    sound = (tone(1.0, 16_000) * 32767).astype(np.int16)
    inputs, _ = task.prepare({"samples": tf.constant(sound[None]), "length": tf.constant([len(sound)])})
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(inputs)[:, 3]))
    slopes = tape.gradient(loss, [weight.value for weight in model.trainable_weights])
    assert len(slopes) > 20 and all(np.abs(slope).max() > 0 for slope in slopes)


def test_bfloat16_keeps_the_order_of_the_steps_of_a_long_recording(presets):
    """KerasHub's angles of late steps, hundreds of turns, would be rounded to whole radians."""
    task = transcription(presets / "shine")
    turns = task.model().get_layer("features").get_layer("backbone").get_layer("rotary_embedding")
    angles = turns(tf.zeros([1, 1500, 16]))
    assert 6.0 < tf.reduce_max(angles) < 6.2832
    far = np.arange(1500)[:, None] * turns.rotary.inv_freq.numpy()[None]
    assert np.abs(np.sin(np.repeat(far, 2, 1)) - np.sin(tf.cast(tf.cast(angles, tf.bfloat16), tf.float32))).max() < 0.02


def test_a_command_is_the_mean_over_its_loud_part_and_facts_rebuild_the_network(presets, tmp_path):
    folder = shutil.copytree(presets / "shine", tmp_path / "moved")
    task = commands(folder)
    task.facts = {**task.input.encoder_facts, "classes": ["a", "b", "c"], "mean": [0.0] * 127, "std": [1.0] * 127}
    model = task.model()
    waves = tf.constant(np.stack([tone(0.9, 16_000, hertz) for hertz in (300, 500)]))
    inputs = task.input.features(waves)
    assert inputs.shape == (2, 224, 127)  # no silence behind it
    assert np.abs(model(inputs).numpy()[1] - model(inputs[1:]).numpy()[0]).max() < 1e-5
    windows, vectors = np.full([1, 13 + 6 * 3, 127], 1e-3, np.float32), tf.random.normal([1, 4, 3], seed=1)
    windows[0, :6] = 1.0  # heard by the first step alone
    assert np.allclose(pretrained.SpeechMean(waves=True)([vectors, windows]), vectors[:, 0], atol=1e-6)
    shutil.rmtree(folder)
    again = task_of("task: speech.classification\ndata: {source: synthetic, seconds: 0.9}", "x, weights: null", task.facts).model()
    assert [weight.shape for weight in again.weights] == [weight.shape for weight in model.weights]


@pytest.mark.parametrize(("text", "model", "message"), [
    ("task: speech.classification\ndata: {source: synthetic, rate: 8000}", "pretrained", r"hears 16,000 Hz; set data.rate: 16000"),
    ("task: speech.classification\ndata: {source: synthetic}\naugment: {warp: 0.1}", "pretrained", r"augment.warp: .*the waveform itself"),
    ("task: speech.classification\ndata: {source: synthetic}\naugment: {frequency_masks: 1}", "pretrained", r"augment.frequency_masks: "),
    ("task: speech.transcription\ndata: {source: synthetic}", "whisper", r"model.name: whisper takes Whisper's presets"),
])
def test_settings_that_do_not_suit_the_encoder(presets, text, model, message):
    with pytest.raises(ConfigError, match=message):
        task_of(text, presets / "shine", model=model)


def test_check_counts_the_encoder_s_own_steps(presets, tmp_path):
    rows = []
    for number in range(4):
        write(tmp_path / f"{number}.wav", tone(1.0, 16_000, seed=number), 16_000)
        rows.append({"path": f"{number}.wav", "text": "ab" * 22 if number else "ab", "split": "test" if number == 3 else "train"})
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def aligned(model: str, preset: str) -> bool:
        experiment = from_text(f"task: speech.transcription\nmodel: {{name: {model}, preset: {presets / preset}}}\n"
                               f"data: {{source: table, path: {tmp_path / 'm.jsonl'}, split_key: split, test: test, validation: 0}}\n"
                               "tokens: {unit: characters}").experiment
        return not any("longer than CTC can align" in one.text for one in check_transcripts(experiment).findings)

    assert aligned("pretrained", "whisper") and aligned("whisper", "whisper")  # 44 letters in 50 steps
    assert not aligned("pretrained", "shine")  # 40 steps of 24 ms


def test_facts_are_checked_before_they_are_used(presets):
    facts = commands(presets / "shine").input.encoder_facts
    with pytest.raises(ConfigError, match="sampling_rate is 0"):
        commands("x", facts={**facts, "converter": {"class": "MoonshineAudioConverter", "config": {"sampling_rate": 0}}})
    with pytest.raises(ConfigError, match="BertBackbone is no encoder of this version"):
        commands("x", facts={**facts, "backbone": {"class": "BertBackbone", "config": {}}})


def test_it_is_listed_and_proposed_behind_whisper(presets, monkeypatch):
    monkeypatch.setenv("QUARTET_PRESETS", str(presets))
    there = {one.name: one for one in listing.listed("speech") if one.here}
    assert there["shine"].backbone == "MoonshineBackbone" and there["shine"].weights < there["whisper"].weights
    assert [preset.name for preset in listing.at_hand("speech")] == ["whisper", "shine"]


def test_numbers_are_not_proposed_with_it(presets, tmp_path):
    numbers_made.tones(tmp_path)
    with pytest.raises(ConfigError, match="only YAMNet is proposed"):
        new("speech", tmp_path / "tones.csv", encoder=str(presets / "shine"))
