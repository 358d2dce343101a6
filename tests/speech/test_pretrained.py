"""Whisper's encoder for commands: its front end is the preset's own, a sound gets one answer in any batch, and a run needs no preset."""

import importlib.util
import os
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.config.load import from_text
from pipelines.encoders.features import own_columns
from pipelines.runs.launch import task_class
from speech.data import whisper_tokens
from speech.data.pretrained import WhisperFrontEnd
from speech.data.recordings import Facts, Recordings
from speech.data.splits import merge_for
from speech.models import pretrained
from tests.encoders.tiny import whisper
from tests.speech.synthetic_recordings import class_folders, tone

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")]
CONVERTER = {"num_mels": 8, "num_fft_bins": 400, "stride": 160, "sampling_rate": 16_000}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return whisper(tmp_path_factory.mktemp("whisper") / "tiny")


def task_of(text: str, facts: dict | None = None):
    experiment = from_text(text, check_paths=False).experiment
    return task_class(experiment.task)(experiment, facts)


def commands(preset, data: str = "source: synthetic", facts: dict | None = None, more: str = ""):
    return task_of(f"task: speech.classification\nmodel: {{name: pretrained, preset: {preset}}}\ndata: {{{data}}}\n{more}", facts)


def test_the_front_end_is_the_preset_s():
    from keras_hub.layers import WhisperAudioConverter

    sound = tone(1.237, 16_000)
    expected = WhisperAudioConverter(**CONVERTER, max_audio_length=2)(sound).numpy()  # with silence up to 2 s
    front_end = WhisperFrontEnd(CONVERTER)
    features = front_end(tf.constant(np.pad(sound, (0, 500))[None]), tf.constant([len(sound)])).numpy()[0]
    own = int(front_end.frames(len(sound)))
    assert own == 124 and np.abs(features[:own] - expected[:own]).max() < 1e-4
    short = front_end(tf.constant(sound[None, :50]), tf.constant([50]))  # less than is reflected
    assert short.shape == (1, 1, 8) and np.isfinite(short.numpy()).all()


def test_a_command_gets_one_answer_in_any_batch_and_noise_behind_it_is_not_pooled(tiny):
    task = commands(tiny, "source: synthetic, seconds: 0.9")
    task.facts = {**task.input.encoder_facts, "classes": ["a", "b", "c"], "mean": [0.0] * 8, "std": [1.0] * 8}
    model = task.model()
    assert [model.get_layer(name).name for name in ("features", "head")] == ["features", "head"]
    assert model.get_layer("features").get_layer("backbone").output_shape == (None, 95, 16)  # 0.9 s and 1 s of silence
    waves = tf.constant(np.stack([tone(0.9, 16_000, hertz) for hertz in (300, 500)]))
    inputs = task.input.features(waves)
    together, alone = model(inputs).numpy(), model(inputs[1:]).numpy()
    assert np.abs(together[1] - alone[0]).max() < 1e-5
    vectors, log_mel = tf.random.normal([1, 4, 3], seed=1), np.full([1, 7, 8], -1.0, np.float32)
    log_mel[0, 2:5] = 1.0
    assert np.allclose(pretrained.SpeechMean()([vectors, log_mel]), tf.reduce_mean(vectors[:, 1:3], 1), atol=1e-6)


def test_of_the_loud_steps_the_quieter_ones_count_less():
    vectors = np.random.default_rng(1).normal(size=[2, 4, 3]).astype(np.float32)
    decibels = np.array([[0.0, -20.0, -24.5, -90.0], [-30.0, -10.0, -10.0, -22.0]], np.float32)  # of each step
    log_mel = np.repeat(decibels / 40.0, 2, 1)[:, :, None] * np.ones(8, np.float32)
    weights = np.array([[1.0, 10**-0.5, 0.0, 0.0], [10**-0.5, 1.0, 1.0, 10**-0.3]])  # the square root of the amplitude, to 24 dB below
    expected = np.sum(vectors * weights[..., None], 1) / np.sum(weights, 1)[:, None]
    assert np.allclose(pretrained.SpeechMean(by_loudness=True)([vectors, log_mel]), expected, atol=1e-5)
    moved = pretrained.SpeechMean(by_loudness=True)([vectors, log_mel - 0.5])  # the same recording, 20 dB quieter
    assert np.allclose(moved, expected, atol=1e-5)


def test_facts_rebuild_the_network_without_the_preset(tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "moved")
    root = class_folders(tmp_path / "words", {"no": 6, "yes": 6}, rate=16_000)
    task = commands(folder, f"source: folder, path: {root}, validation: 0.2, test: 0.2")
    task.facts = task.splits().facts
    task.facts_schema.model_validate(task.facts)
    model = task.model()
    shutil.rmtree(folder)
    again = commands("x, weights: null", facts=task.facts).model()
    assert [weight.shape for weight in again.weights] == [weight.shape for weight in model.weights]
    sound = task.input.features(tf.constant(tone(1.0, 16_000, 300)[None]))
    again.set_weights(model.get_weights())
    assert np.array_equal(again(sound), model(sound))
    of_before = {name: value for name, value in task.facts.items() if name != "pool"}  # a run that counts loud steps alike
    old = commands("x, weights: null", f"source: folder, path: {root}, validation: 0.2, test: 0.2", facts=of_before)
    assert "pool" not in old.splits().facts
    alike = old.model()
    alike.set_weights(model.get_weights())
    assert not np.allclose(alike(sound), model(sound), atol=1e-6)


def named(preset, root, facts: dict | None = None, weights: str = "preset", language: str = "en"):
    return task_of(f"""
task: speech.classification
model: {{name: pretrained, preset: {preset}, weights: {weights}, finetune: {{name: frozen}}, names: {language}}}
data: {{source: folder, path: {root}, validation: 0.2, test: 0.2, seconds: 0.9}}
""", facts)


def test_the_decoder_scores_the_names_of_the_classes_beside_the_mean_and_a_run_needs_no_preset(tiny, tmp_path):
    import keras_hub

    root = class_folders(tmp_path / "digits", {"3": 6, "7": 6, "no": 6}, rate=16_000)
    task = named(tiny, root)
    task.facts = task.splits().facts
    task.facts_schema.model_validate(task.facts)
    numbers = keras_hub.tokenizers.Tokenizer.from_preset(str(tiny)).vocabulary
    marks = whisper_tokens.learn(str(tiny), "en")["marks"]["prompt"]
    spelled = [numbers[letter if letter != " " else "Ġ"] for letter in "no"]
    assert task.facts["names"]["prompt"][-len(marks):] == marks and task.facts["names"]["first"][2] == numbers["Ġn"]
    before = task.facts["names"]["prompt"][:-len(marks)]
    assert before[-1] == spelled[-1] and before[1] == numbers["Ġt"]  # three seven no
    model = task.model()
    sound = task.input.features(tf.constant(np.stack([tone(0.9, 16_000, hertz) for hertz in (300, 500)])))
    vectors = model.get_layer("features")(sound).numpy()
    assert vectors.shape == (2, 16 + 3) and own_columns(model) == 16 and np.allclose(np.exp(vectors[:, 16:]).sum(1), 1.0, atol=1e-5)
    backbone = keras_hub.models.Backbone.from_preset(str(tiny))  # what KerasHub's own decoder says behind the same tokens
    x = backbone.decoder_embeddings(np.tile([task.facts["names"]["prompt"]], [2, 1]))
    heard = model.get_layer("features").get_layer("backbone")(sound)
    for layer in backbone.decoder_transformer_layers:
        x = layer(decoder_sequence=x, encoder_sequence=heard)
    logits = backbone.decoder_embeddings.token_embedding(backbone.decoder_layer_norm(x), reverse=True)[:, -1]
    expected = tf.nn.log_softmax(tf.gather(logits, task.facts["names"]["first"], axis=1))
    assert np.allclose(vectors[:, 16:], expected, atol=1e-4)
    assert not np.allclose(vectors[0, 16:], vectors[1, 16:], atol=1e-4)  # it depends on the sound
    again = named("x", root, task.facts, weights="null").model()
    again.set_weights(model.get_weights())
    assert np.array_equal(again(sound), model(sound))


def test_names_that_do_not_suit(tiny, tmp_path):
    root = class_folders(tmp_path / "words", {"no": 6, "yes": 6}, rate=16_000)
    with pytest.raises(ConfigError, match="names: is for a frozen encoder"):
        commands(f"{tiny}, names: en")
    with pytest.raises(ConfigError, match=r"model.names: .* knows no 'az'; it knows English alone"):
        named(tiny, root, language="az").splits()
    facts = named(tiny, root).splits().facts
    for names, message in ((None, "field required"), ({**facts["names"], "first": [1]}, "2 classes"),
                           ({**facts["names"], "first": [1, 9_999]}, "no such tokens")):
        assert message in named(tiny, root, {**facts, "names": names}).facts_error()
    assert named(tiny, root, facts).facts_error() is None


@pytest.mark.parametrize(("text", "message"), [
    ("data: {source: synthetic, rate: 8000}", r"hears 16,000 Hz; set data.rate: 16000"),
    ("data: {source: synthetic}\nfrontend: {mels: 80}", r"a front end of its own"),
    ("data: {source: synthetic, seconds: 3.5}", r"would hear 4.5 s; it takes 4 s at most"),
])
def test_settings_that_do_not_suit_the_preset(tiny, text, message):
    with pytest.raises(ConfigError, match=message):
        task_of(f"task: speech.classification\nmodel: {{name: pretrained, preset: {tiny}}}\n{text}\n")


def test_facts_are_checked_before_they_are_used(tiny):
    facts = commands(tiny).input.encoder_facts
    broken = {**facts, "converter": {"class": "WhisperAudioConverter", "config": {**CONVERTER, "stride": 0}}}
    with pytest.raises(ConfigError, match="stride is 0"):
        commands(tiny, facts=broken)
    with pytest.raises(ConfigError, match="backbone: field required"):
        commands(tiny, facts={"classes": ["a"]})


def transcription(preset, more: str = ""):
    return task_of(f"task: speech.transcription\nmodel: {{name: pretrained, preset: {preset}{more}}}\ndata: {{source: synthetic}}\n")


@pytest.mark.parametrize(("merge", "layers"), [(None, 1), (4, 2)])
def test_a_transcript_is_the_same_alone_and_in_a_padded_batch_also_of_sounds_longer_than_the_encoder_takes(tiny, merge, layers):
    task = transcription(tiny, f", layers: {layers}")
    task.facts = {**task.input.encoder_facts, "unit": "words", "tokens": ["one", "two"], "mean": [0.0] * 8, "std": [1.0] * 8,
                  **({"merge": merge} if merge else {})}
    model = task.model()
    for layer in range(2):  # random weights as large as trained ones
        for weight in model.get_layer("features").get_layer("backbone").get_layer(f"transformer_encoder_layer_{layer}").weights:
            weight.assign(10.0 * weight)
    sounds = [tone(seconds, 16_000) for seconds in (1.501, 9.0, 0.01)]  # the encoder takes 4 s
    samples = np.stack([np.pad(sound * 32767, (0, 148_000 - len(sound))).astype(np.int16) for sound in sounds])
    inputs, _ = task.prepare({"samples": tf.constant(samples), "length": tf.constant([len(sound) for sound in sounds])})
    together = model(inputs).numpy()
    for number, sound in enumerate(sounds):
        count = len(sound)
        alone, _ = task.prepare({"samples": tf.constant(samples[number:number + 1, :count]), "length": tf.constant([count])})
        logits = model(alone).numpy()[0]
        assert len(logits) == int(task.input.steps(alone["frames"])[0]) == -(-count // (320 * (merge or 1)))
        assert np.abs(logits - together[number, :len(logits)]).max() < 1e-5


def test_layers_stand_beside_one_another_under_the_last_layer(tiny):
    features = {}
    for layers in (1, 2):
        task = transcription(tiny, f", layers: {layers}")
        task.facts = {**task.input.encoder_facts, "unit": "words", "tokens": ["one", "two"], "mean": [0.0] * 8, "std": [1.0] * 8}
        model = task.model()
        assert model.get_layer("head").get_layer("tokens").kernel.shape[0] == 16 * layers
        features[layers] = model.get_layer("features")
    samples = tf.constant(tone(1.0, 16_000)[None] * 32767, tf.int16)
    inputs, _ = task.prepare({"samples": samples, "length": tf.constant([16_000])})
    one, two = (features[layers](inputs, training=False).numpy() for layers in (1, 2))
    np.testing.assert_allclose(two[..., 16:], one, atol=1e-6)  # the last one, normalised
    backbone = features[2].get_layer("backbone")
    first = keras.Model(backbone.inputs, backbone.get_layer("normalised").input)  # of the first of two blocks
    before = first([inputs["features"], inputs["frames"]], training=False).numpy()
    normalised = (before - before.mean(-1, keepdims=True)) / np.sqrt(before.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(two[..., :16], normalised, atol=1e-4)
    with pytest.raises(ConfigError, match=r"model\.layers: 3, and .* has 2 whose vectors can stand beside one another"):
        task = transcription(tiny, ", layers: 3")
        task.facts = {**task.input.encoder_facts, "unit": "words", "tokens": ["one", "two"], "mean": [0.0] * 8, "std": [1.0] * 8}
        task.model()


def test_steps_are_means_over_a_recording_s_own():
    steps = np.random.default_rng(0).normal(size=(2, 7, 3)).astype(np.float32)
    merged = pretrained.Merged(4, stride=2, lost=0)([tf.constant(steps), tf.constant([13, 9])]).numpy()  # 7 and 5 steps
    for row, (own, count) in enumerate(((steps[0], 7), (steps[1], 5))):
        np.testing.assert_allclose(merged[row], [own[:4].mean(0), own[4:count].mean(0)], atol=1e-6)


@pytest.mark.parametrize(("tokens", "steps", "merge"), [
    ([0, 1, 0, 1], 32, 4), ([0, 1, 0, 1], 31, 2), ([0, 0, 0, 1], 32, 2), ([0, 1, 0, 1], 15, 1),
])
def test_as_many_steps_become_one_as_the_transcripts_of_train_bear(tokens, steps, merge):
    facts = Facts(names=["a"], files=["a"], lengths=np.array([steps]))
    train = Recordings(lambda number: np.zeros(1, np.int16), facts, "x", fields={
        "tokens": np.array([[*tokens, 0]], np.int32), "token_count": np.array([len(tokens)], np.int32)})
    assert merge_for(train, lambda lengths, each: lengths // each) == merge


def test_what_a_run_was_begun_with_decides_how_steps_are_merged(tiny):
    task = transcription(tiny)
    facts = task.splits().facts
    assert facts["merge"] == 2 and task.facts_schema.model_validate(facts).merge == 2
    assert transcription(tiny, ", merge: 3").splits().facts["merge"] == 3
    text = f"task: speech.transcription\nmodel: {{name: pretrained, preset: {tiny}}}\ndata: {{source: synthetic}}\n"
    old = task_of(text, {name: value for name, value in facts.items() if name != "merge"})  # of before there was a choice
    assert "merge" not in old.splits().facts and old.input.merge == 1 and int(old.input.steps(tf.constant(100))) == 50
