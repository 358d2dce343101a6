"""Whisper whole: what it writes is what its network gives without caches, token by token; its tokens; used without data."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.config.load import from_text
from pipelines.runs.launch import task_class
from speech.data.whisper_tokens import WhisperTokens, learn
from tests.encoders.tiny import whisper
from tests.speech.synthetic_recordings import tone

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")]


@pytest.fixture(scope="module", params=[(), ("en", "de")], ids=["english", "languages"])
def tiny(request, tmp_path_factory):
    return whisper(tmp_path_factory.mktemp("whisper") / "tiny", seconds=1, languages=request.param)


def task_of(preset: Path, more: str = "", data: str = "source: none, validation: 0, test: 0"):
    experiment = from_text(f"task: speech.transcription\nmodel: {{name: whisper, preset: {preset}, longest: 9{more}}}\ndata: {{{data}}}\n",
                           check_paths=False).experiment
    return task_class(experiment.task)(experiment)


def uncached(task, backbone, features: np.ndarray) -> tuple[list[int], float]:
    """Greedy decoding by the backbone as KerasHub calls it, of one window."""
    marks, shares = task.facts["marks"], []

    def logits(numbers: list[int]) -> np.ndarray:
        ids = tf.constant([numbers])
        vectors = backbone({"encoder_features": tf.constant(features[None]), "decoder_token_ids": ids,
                            "decoder_padding_mask": tf.ones_like(ids)})["decoder_sequence_output"]
        return backbone.token_embedding(vectors[:, -1:], reverse=True).numpy()[0, 0]

    prompt = list(marks["prompt"])
    if -1 in prompt:
        heard = logits(prompt[:1])[marks["languages"]]
        prompt[prompt.index(-1)] = marks["languages"][int(heard.argmax())]
    written: list[int] = []
    while len(written) < 9:
        given = logits(prompt + written)
        given[marks["suppressed"] + ([] if written else marks["suppressed_first"])] = -np.inf
        if int(given.argmax()) == marks["end"]:
            break
        written.append(int(given.argmax()))
        shares.append(float(np.exp(given.max() - np.log(np.exp(given).sum()))))
    return written, float(np.mean(shares)) if shares else 0.0


def test_it_writes_what_the_network_gives_without_caches_window_by_window(tiny):
    from pipelines.encoders import presets

    task = task_of(tiny)
    task.facts = task.splits().facts
    task.kept.model_validate(task.facts)
    model, backbone = task.model(), presets.load(presets.find(str(tiny)))
    rng = np.random.default_rng(0)
    for mine, theirs in ((model.embedding, backbone.decoder_embeddings), (model.encoder.layers[-1], backbone.encoder_layer_norm),
                         *zip(model.layers_of_decoder, backbone.decoder_transformer_layers)):
        for weight, other in zip(mine.weights, theirs.weights):  # random weights as large as trained ones
            weight.assign(weight + rng.normal(0.0, 0.7, weight.shape).astype(np.float32))
            other.assign(weight)
    sounds = [tone(0.7, 16_000), tone(1.6, 16_000, 700.0)]  # the encoder takes 1 s
    samples = np.stack([np.pad(sound * 32767, (0, 30_000 - len(sound))).astype(np.int16) for sound in sounds])
    inputs, targets = task.prepare({"samples": tf.constant(samples), "length": tf.constant([len(sound) for sound in sounds])})
    assert targets is None and inputs["features"].shape == (2, 200, 8)
    answer = tf.function(lambda given: task.answer(model, given), autograph=False)(inputs)
    expected = [[uncached(task, backbone, row[start:start + 100]) for start in (0, 100)] for row in inputs["features"].numpy()]
    assert any(numbers for row in expected for numbers, _ in row)
    for tokens, windows in zip(answer["tokens"].numpy(), expected):
        assert [number - 1 for number in tokens if number] == [number for numbers, _ in windows for number in numbers]
    counts = [sum(len(numbers) for numbers, _ in row) for row in expected]
    means = [sum(len(numbers) * share for numbers, share in row) / max(count, 1) for row, count in zip(expected, counts)]
    np.testing.assert_allclose(answer["confidence"].numpy(), means, atol=1e-5)
    texts = [text.decode() for text in task.respond(answer)["text"].numpy()]
    assert texts == [task.alphabet.text([number - 1 for number in row if number]) for row in answer["tokens"].numpy()]


def test_texts_become_tokens_and_come_back(tiny):
    facts = learn(str(tiny), None)
    tokens = WhisperTokens(facts)
    numbers = tokens.encode("a cab")
    assert [facts["tokens"][number] for number in numbers] == ["Ġa", "Ġc", "a", "b"] and tokens.alphabet.text(numbers) == "a cab"
    assert tokens.alphabet.text([facts["marks"]["end"]]) == "" and tokens.encode("") == []
    assert facts["tokens"].index("<|startofprev|>") in facts["marks"]["suppressed"]


def test_facts_that_do_not_belong_together_are_found_before_the_network_is_built(tiny):
    task = task_of(tiny)
    facts = task.splits().facts
    task.facts = facts
    assert task.unfit() is None
    for broken, message in (({"tokens": facts["tokens"][:-1]}, "tokens: "), ({"marks": {**facts["marks"], "end": 10_000}}, "marks: "),
                            ({"marks": {**facts["marks"], "languages": [] if facts["marks"]["languages"] else [1]}}, "marks: "),
                            ({"merges": None}, "merges: field required")):
        task.facts = {**facts, **broken}
        assert (task.unfit() or "").startswith(message), message


def test_what_does_not_suit_it(tiny):
    with pytest.raises(ConfigError, match="knows no 'fr'"):
        task_of(tiny, ", language: fr").splits()
    with pytest.raises(ConfigError, match="there is nothing to train on"):
        task_of(tiny, ", trains: whole")
    with pytest.raises(ConfigError, match=r"none is for model\.name: whisper"):
        from_text("task: speech.transcription\nmodel: {name: quartz}\ndata: {source: none}\n")
    (tiny / "tokenizer.json").rename(tiny / "away")
    try:
        with pytest.raises(ConfigError, match="has no tokenizer"):
            task_of(tiny).splits()
    finally:
        (tiny / "away").rename(tiny / "tokenizer.json")
