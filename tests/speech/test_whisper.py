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
from speech.check import check_transcripts
from speech.data.whisper_tokens import WhisperTokens, learn
from tests.encoders.tiny import whisper
from tests.speech.synthetic_recordings import tone, write

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")]


@pytest.fixture(scope="module", params=["english", "languages"])
def tiny(request, tmp_path_factory):
    languages = ("en", "de") if request.param == "languages" else ()
    return whisper(tmp_path_factory.mktemp("whisper") / "tiny", seconds=1, languages=languages, stamps=51)


def task_of(preset: Path, more: str = "", data: str = "source: none, validation: 0, test: 0", search: str = "search: greedy"):
    experiment = from_text(f"task: speech.transcription\nmodel: {{name: whisper, preset: {preset}, longest: 9{more}}}\ndata: {{{data}}}\n"
                           f"evaluate: {{{search}}}\n", check_paths=False).experiment
    return task_class(experiment.task)(experiment)


def rules(logits: np.ndarray, written: list[int], first: int, end: int) -> None:
    """OpenAI's rules of time stamps on the logits behind what is written."""
    stamps = [number for number in written if number >= first]
    if written and written[-1] >= first:
        if len(written) < 2 or written[-2] >= first:
            logits[first:] = -np.inf
        else:
            logits[np.arange(len(logits)) < first] = np.where(np.arange(first) == end, logits[:first], -np.inf)
    if stamps:
        paired = len(written) > 1 and written[-1] >= first and written[-2] < first
        logits[first:stamps[-1] + (0 if paired else 1)] = -np.inf
    if not written:
        logits[:first] = -np.inf
        logits[first + 51:] = -np.inf
    with np.errstate(divide="ignore"):
        if np.log(np.exp(logits[first:]).sum()) > logits[:first].max():
            logits[:first] = -np.inf


def uncached(task, backbone, features: np.ndarray, width: int = 1) -> tuple[list[int], float]:
    """Beam search by the backbone as KerasHub calls it, of one window; with its probabilities' sum."""
    marks = task.facts["marks"]

    def logits(numbers: list[int]) -> np.ndarray:
        ids = tf.constant([numbers])
        vectors = backbone({"encoder_features": tf.constant(features[None]), "decoder_token_ids": ids,
                            "decoder_padding_mask": tf.ones_like(ids)})["decoder_sequence_output"]
        return backbone.token_embedding(vectors[:, -1:], reverse=True).numpy()[0, 0]

    prompt = list(marks["prompt"])
    if -1 in prompt:
        heard = logits(prompt[:1])[marks["languages"]]
        prompt[prompt.index(-1)] = marks["languages"][int(heard.argmax())]
    live: list[tuple[float, float, list[int]]] = [(0.0, 0.0, [])]
    ended: list[tuple[float, float, list[int]]] = []
    for length in range(9):
        candidates = []
        for total, share, written in live:
            given = logits(prompt + written)
            given[marks["suppressed"] + ([] if written else marks["suppressed_first"])] = -np.inf
            if marks["times"]:
                rules(given, written, marks["times"], marks["end"])
            given -= np.log(np.exp(given).sum())
            candidates += [(total + given[number], share + np.exp(given[number]) * (number != marks["end"]), [*written, int(number)])
                           for number in np.argsort(-given)[:width + 1] if given[number] > -np.inf]
        live = []
        for total, share, written in sorted(candidates, key=lambda one: -one[0]):
            if written[-1] == marks["end"]:
                if len(ended) < width:
                    ended.append((total / max(length, 1), share, written[:-1]))
            else:
                live.append((total, share, written))
            if len(live) == width:
                break
        if len(ended) == width:
            break
    if len(ended) < width:
        ended += [(total / 9, share, written) for total, share, written in live]
    _, share, written = max(ended, key=lambda one: one[0])
    return written, share


SEARCHES = {"greedy": ("", "search: greedy", 1), "beam with times": (", times: true", "search: beam, beam: 3", 3)}


@pytest.mark.parametrize(("tiny", "search"), [("english", "beam with times"), ("languages", "greedy")], indirect=["tiny"])
def test_it_writes_what_the_network_gives_without_caches_window_by_window(tiny, search):
    from pipelines.encoders import presets

    more, searched, width = SEARCHES[search]
    task = task_of(tiny, more, search=searched)
    task.facts = task.splits().facts
    task.facts_schema.model_validate(task.facts)
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
    answer = tf.function(lambda given: task.output.answer(model, given), autograph=False)(inputs)
    expected = [[uncached(task, backbone, row[start:start + 100], width) for start in starts]
                for row, starts in zip(inputs["features"].numpy(), ((0,), (0, 100)))]  # the first one has no second window
    assert any(numbers for row in expected for numbers, _ in row)
    for tokens, windows in zip(answer["tokens"].numpy(), expected):
        assert [number - 1 for number in tokens if number] == [number for numbers, _ in windows for number in numbers]
    counts = [sum(len(numbers) for numbers, _ in row) for row in expected]
    if width == 1:
        means = [sum(share for _, share in row) / max(count, 1) for row, count in zip(expected, counts)]
        np.testing.assert_allclose(answer["confidence"].numpy(), means, atol=1e-5)
    texts = [text.decode() for text in task.output.respond(answer)["text"].numpy()]
    assert texts == [task.output.alphabet.text([number - 1 for number in row if number]) for row in answer["tokens"].numpy()]


@pytest.mark.parametrize("tiny", ["english"], indirect=True)
def test_phrases_begin_and_end_with_their_time_stamps(tiny):
    task = task_of(tiny, ", times: true")
    task.facts = task.splits().facts
    zero, letters = task.facts["marks"]["times"], [task.facts["tokens"].index(name) for name in ("Ġa", "b", "Ġc")]
    a, b, c = letters
    windows = [[zero + 5, a, b, zero + 20, zero + 25, c, 0], [zero, c, c, zero + 10, 0, 0, 0]]  # each as the tokens of one window
    tokens = np.array([[number + 1 if number else 0 for row in windows for number in row], [0] * 14], np.int32)
    at = np.tile(np.repeat([0, 100], 7)[None], [2, 1]).astype(np.int32)
    given = task.output.respond({"tokens": tf.constant(tokens), "at": tf.constant(at), "confidence": tf.constant([0.5, 0.5])})
    assert [text.decode() for text in given["text"].numpy()] == ["ab c c c", ""]
    assert [phrase.decode() for phrase in given["phrases"].numpy()[0]] == ["ab", "c", "c c"] and not any(given["phrases"].numpy()[1])
    np.testing.assert_allclose(given["starts"].numpy(), [[0.1, 0.5, 1.0], [-1.0] * 3], atol=1e-6)
    np.testing.assert_allclose(given["ends"].numpy(), [[0.4, -1.0, 1.2], [-1.0] * 3], atol=1e-6)
    assert set(task.output.answers.details) < set(task.output.answers.meanings) and not task_of(tiny).output.answers.details


@pytest.mark.parametrize("tiny", ["english"], indirect=True)
def test_a_short_recording_is_heard_as_long_as_it_is_alone_and_beside_longer_ones(tiny):
    task = task_of(tiny, ", silence: 0.1")
    task.facts = task.splits().facts
    model = task.model()
    sounds = [tone(0.3, 16_000), tone(0.6, 16_000, 700.0), tone(1.4, 16_000)]
    samples = np.stack([np.pad(sound * 32767, (0, 23_000 - len(sound))).astype(np.int16) for sound in sounds])
    lengths = np.array([len(sound) for sound in sounds], np.int32)

    def answers(rows: slice, width: int):
        inputs, _ = task.prepare({"samples": tf.constant(samples[rows, :width]), "length": tf.constant(lengths[rows])})
        return inputs["features"].shape[1], {name: value.numpy() for name, value in task.output.answer(model, inputs).items()}

    frames, alone = answers(slice(1), 5000)
    assert frames == 40  # 0.3 s and 0.1 s of silence
    frames, two = answers(slice(2), 10_000)
    assert frames == 70
    frames, three = answers(slice(3), 23_000)
    assert frames == 200
    for others in (two, three):
        np.testing.assert_array_equal(others["tokens"][0][:9], alone["tokens"][0])
        np.testing.assert_allclose(others["confidence"][0], alone["confidence"][0], atol=1e-5)
        assert not others["tokens"][0][9:].any()


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
    assert task.facts_error() is None
    for broken, message in (({"tokens": facts["tokens"][:-1]}, "tokens: "), ({"marks": {**facts["marks"], "end": 10_000}}, "marks: "),
                            ({"marks": {**facts["marks"], "languages": [] if facts["marks"]["languages"] else [1]}}, "marks: "),
                            ({"merges": None}, "merges: field required")):
        task.facts = {**facts, **broken}
        assert (task.facts_error() or "").startswith(message), message


@pytest.mark.parametrize("tiny", ["english"], indirect=True)
def test_all_recordings_are_judged_where_nothing_trains(tiny, tmp_path):
    for number in range(10):
        write(tmp_path / f"{number}.wav", tone(0.4, 16_000, seed=number), 16_000)
        (tmp_path / f"{number}.txt").write_text("a b")
    data = f"source: folder, path: {tmp_path}, rate: 16000"
    for test, judged in ((", test: 1", 10), ("", 10), (", test: 0.2, validation: 0", 2)):
        splits = task_of(tiny, data=data + test).splits()
        assert len(splits.test) == judged and splits.validation is None, test
    unjudged = task_of(tiny, data=f"{data}, test: null, validation: 0").splits()
    assert unjudged.test is None and len(unjudged.train) == 10
    (whole,) = (finding.text for finding in check_transcripts(task_of(tiny, data=data).experiment).findings)
    assert whole == "test: all 10 recordings, since nothing trains"
    with pytest.raises(ConfigError, match=r"data\.test: 1 leaves nothing to train on"):
        task_of(tiny, ", trains: whole", data + ", test: 1")


def test_what_does_not_suit_it(tiny):
    with pytest.raises(ConfigError, match="knows no 'fr'"):
        task_of(tiny, ", language: fr").splits()
    with pytest.raises(ConfigError, match="there is nothing to train on"):
        task_of(tiny, ", trains: whole")
    with pytest.raises(ConfigError, match=r"model\.times: transcripts have no time stamps"):
        task_of(tiny, ", trains: whole, times: true")
    with pytest.raises(ConfigError, match=r"none is for model\.name: whisper"):
        from_text("task: speech.transcription\nmodel: {name: quartz}\ndata: {source: none}\n")
    (tiny / "tokenizer.json").rename(tiny / "away")
    try:
        with pytest.raises(ConfigError, match="has no tokenizer"):
            task_of(tiny).splits()
    finally:
        (tiny / "away").rename(tiny / "tokenizer.json")


def test_a_preset_without_tokens_of_times_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"model\.times: .* has no tokens of times"):
        learn(str(whisper(tmp_path / "untimed", seconds=1)), None, True)
