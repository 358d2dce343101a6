"""What comes next in a running text: tokens, documents as windows, the network and its kept states, drawing, bits for each byte."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from nlp.metrics import next_tokens
from nlp.models import language, language_pretrained
from nlp.models.language import LanguageNetwork
from nlp.settings import LanguageTransformer
from nlp.settings.language import Bytes, Characters, LanguagePreset, Parts
from nlp.tasks.language_model import LanguageModelling
from nlp.tokens import units
from nlp.tokens.normalise import quoted
from pipelines.base.errors import ConfigError, DataError
from pipelines.config.load import from_dict, from_text
from pipelines.outputs.automata import compile_form
from pipelines.outputs.search import Drawn, sample
from pipelines.task.writer import Way
from tests.encoders import tiny
from tests.nlp.test_automata import needs_forms

TEXTS = ["First line.\nÄ second one: 3.5 km!\n\nLast", "", "猫が好き ok \n x"]
VERSES = [f"{first} {second} {third}.\n" for first in ("the cat", "a dog", "one bird") for second in ("sees", "likes", "has")
          for third in ("the moon", "a fish", "red shoes")][::2] * 2


def test_a_preset_cuts_texts_alike_in_a_graph_and_outside():
    import keras_hub

    from nlp.tokens import preset
    from nlp.tokens.units_preset import PresetTokens

    marks = ["<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    names = [*marks, *tiny.LETTERS, "Ġ", "ĠĠ", "ĠĠĠ", "Ċ", "ĊĠ", "Ġa"]
    alphabet = PresetTokens(preset.kept(keras_hub.models.Llama3Tokenizer(
        vocabulary={name: number for number, name in enumerate(names)}, merges=["Ġ Ġ", "ĠĠ Ġ", "Ċ Ġ", "Ġ a"])))
    texts = tf.constant(["a   a\n  b", "<|eot_id|>\n   a  ", "    a\n\n a"])
    assert alphabet.ids(texts).to_list() == tf.function(alphabet.ids)(texts).to_list()
    assert [text.decode() for text in alphabet.texts(alphabet.ids(texts).to_tensor()).numpy()] == ["a   a\n  b", "\n   a  ", "    a\n\n a"]


@pytest.mark.parametrize("settings", [Characters(name="characters"), Bytes(name="bytes"), Parts(name="pieces", vocabulary=90)])
def test_tokens_write_the_text_again(settings):
    vocabulary = units.learn(settings, [tf.constant(TEXTS)])
    alphabet = units.make(settings, {"vocabulary": vocabulary})
    ids = alphabet.ids(tf.constant(TEXTS))
    assert alphabet.end == len(alphabet.sizes) - 1 and int(tf.reduce_min(ids.flat_values)) > 1
    pieces = isinstance(settings, Parts)
    texts = [text.decode().removeprefix(" " if pieces else "") for text in alphabet.texts(ids.to_tensor(0)).numpy()]
    assert texts == ([*TEXTS[:2], "猫が好き ok\nx"] if pieces else TEXTS)
    for row, text in zip(ids.to_list(), texts):
        bytes_ = int(alphabet.sizes[row].sum())
        assert bytes_ == len(text.encode()) or (pieces and 0 <= bytes_ - len(text.encode()) <= text.count("\n") + 1)  # blanks before lines


@pytest.mark.parametrize("name", ["characters", "bytes", "pieces"])
def test_what_is_written_on_is_received_whatever_cuts_it(name, tmp_path):
    (tmp_path / "a.txt").write_text("".join(VERSES))
    more = ["tokens.vocabulary=60"] if name == "pieces" else []
    task = LanguageModelling(from_dict(settings_of(tmp_path / "a.txt", tokens={"name": name}), more))
    task.facts = task.splits().facts
    received = task.input.receive({"text": tf.constant(["the cat", "a"])})["prompt"].numpy()
    assert [task.output.texts(row[None])[0].strip() for row in received] == ["the cat", "a"]


@needs_forms
@pytest.mark.parametrize("settings", [Characters(name="characters"), Bytes(name="bytes"), Parts(name="pieces", vocabulary=90)])
def test_a_form_is_that_of_the_text_that_tokens_write(settings):
    alphabet, draw = units.make(settings, {"vocabulary": units.learn(settings, [tf.constant(TEXTS)])}), np.random.default_rng(0)
    form, texts = compile_form({"regex": r"(?s)[a-zA-Z .:!\n]+"}, alphabet.trie, alphabet.end), set()
    for _ in range(30):
        state, ids = 0, []
        while len(ids) < 12 and (token := int(draw.choice(np.flatnonzero(form.allowed(state, 12 - len(ids)))))) != alphabet.end:
            state = form.behind(state, token)
            ids.append(token)
        assert min(ids) > 1
        text = b"".join(alphabet.written[one] for one in ids).decode()
        assert alphabet.texts(tf.constant([ids])).numpy()[0].decode() == text and re.fullmatch(r"[a-zA-Z .:!\n]+", text)
        texts.add(text)
    assert len(texts) > 20 and any("\n" in text for text in texts) != isinstance(settings, Parts)


def test_a_character_that_train_lacks_is_unknown():
    settings = Characters(name="characters", most=3)
    alphabet = units.make(settings, {"vocabulary": units.learn(settings, [tf.constant(["aabbcd"])])})
    assert alphabet.ids(tf.constant(["abcd"])).to_list() == [[2, 3, 4, 1]]


def settings_of(path, **more):
    return {"task": "nlp.language_model", "data": {"source": "text", "path": str(path), "validation": 0.2, "test": 0.2},
            "model": {"name": "transformer", "length": 16, "width": 16, "depth": 1, "heads": 2, "hidden": 32}, "writing": {"most": 8},
            **more}


def test_one_text_is_cut_at_ends_of_lines_and_packed_into_windows(tmp_path):
    (tmp_path / "a.txt").write_text("".join(VERSES))
    task = LanguageModelling(from_dict(settings_of(tmp_path / "a.txt"), []))
    splits = task.splits()
    task.facts = splits.facts
    texts = {}
    for name in ("train", "validation", "test"):
        source = getattr(splits, name)
        tokens = source.gather(np.arange(len(source)))["tokens"].numpy()
        assert tokens.shape[1] == (33 if name == "train" else 17) and (tokens[0, 0] == task.input.alphabet.end)
        texts[name] = "".join(task.output.texts(tokens[:, 1:17]))
    assert "".join(texts.values()) == "".join(VERSES) and all(text.endswith(".\n") for text in texts.values())
    assert 0.1 < len(texts["test"]) / len("".join(VERSES)) < 0.3 and "ends of the text" in splits.notes[-1]
    one = splits.train.gather(np.arange(2))["tokens"].numpy()
    assert one[0, 16:].tolist() == one[1, :17].tolist()  # each second half is the next window's first


def test_files_are_documents_by_the_split_in_their_names(tmp_path):
    for name in ("train-a", "train-b", "dev", "notes", "README"):
        (tmp_path / f"{name}.txt").write_text(f"{name} " * 20)
    task = LanguageModelling(from_dict(settings_of(tmp_path), ["data.validation=validation", "data.test=null"]))
    splits = task.splits()
    task.facts = splits.facts
    assert splits.validation is not None and splits.validation.name(1).endswith("dev.txt from token 16")
    assert "notes" not in "".join(task.output.texts(splits.train.gather(np.arange(len(splits.train)))["tokens"].numpy()))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no \.txt"):
        LanguageModelling(from_dict(settings_of(tmp_path / "empty"), [])).splits()


def test_windows_of_train_begin_elsewhere_in_each_epoch_and_judged_ones_do_not(tmp_path):
    (tmp_path / "a.txt").write_text("".join(VERSES))
    task = LanguageModelling(from_dict(settings_of(tmp_path / "a.txt"), []))
    task.facts = (splits := task.splits()).facts
    examples = splits.train.gather(np.arange(4))
    drawn = [task.prepare(examples, keys=tf.constant([[number, key] for number in range(4)], tf.int32))[0]["tokens"].numpy()
             for key in (1, 1, 2)]
    plain = task.prepare(examples)[0]["tokens"].numpy()
    assert (drawn[0] == drawn[1]).all() and (drawn[0] != drawn[2]).any() and (plain == examples["tokens"].numpy()[:, :17]).all()
    whole = examples["tokens"].numpy()
    assert all(any((whole[row, at:at + 17] == drawn[0][row]).all() for at in range(16)) for row in range(4))


def network(size=30, most=6, **how):
    keras.utils.set_random_seed(1)
    settings = LanguageTransformer(name="transformer", length=16, width=16, depth=2, heads=4, groups=2, hidden=32)
    return language.build(settings, size=size, writing=Way(**{"most": most, "temperature": 0.0, **how}))


def by_hand(model: LanguageNetwork, prompt: list[int], most: int) -> list[int]:
    """The most probable tokens, each by a pass over all before it."""
    written = list(prompt)
    for _ in range(most):
        logits = model({"tokens": tf.constant([[*written, 0]])})[0, -1].numpy()
        logits[:2] = -np.inf
        if (token := int(logits.argmax())) == model.end:
            break
        written.append(token)
    return written[len(prompt):]


def test_kept_states_write_what_whole_passes_write_for_prompts_of_any_length():
    model, draw = network(), np.random.default_rng(0)
    prompts = [[29, *draw.integers(2, 29, count).tolist()] for count in (0, 5, 2, 8)]
    padded = tf.ragged.constant(prompts, dtype=tf.int32).to_tensor(0)
    written = model({"prompt": padded})["tokens"].numpy()
    for row, prompt in zip(written, prompts):
        assert [token for token in row.tolist() if token] == by_hand(model, prompt, 6)


def test_no_token_sees_what_comes_after_it():
    model, tokens = network(), np.random.default_rng(0).integers(2, 29, (1, 9))
    whole = model({"tokens": tf.constant(tokens, tf.int32)}).numpy()
    tokens[0, 5:] = 3
    np.testing.assert_allclose(model({"tokens": tf.constant(tokens, tf.int32)}).numpy()[:, :5], whole[:, :5], atol=1e-5)


def test_drawn_tokens_are_as_often_as_they_are_probable():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))[None]
    none = tf.zeros([1, 4], tf.bool)

    def shares(**how):
        return np.bincount([int(Drawn(seed=7, **how)(tf.constant(logits), none, number)[0]) for number in range(800)], minlength=4) / 800

    np.testing.assert_allclose(shares(), [0.5, 0.3, 0.15, 0.05], atol=0.06)
    np.testing.assert_allclose(shares(top_k=2), [0.625, 0.375, 0, 0], atol=0.06)
    np.testing.assert_allclose(shares(top_p=0.7), [0.625, 0.375, 0, 0], atol=0.06)
    assert shares(top_p=0.1)[0] == shares(temperature=0.0)[0] == 1.0 and shares(temperature=0.5)[0] > 0.6
    assert int(Drawn(temperature=0.0, repetition=9.0)(-tf.constant([[1.0, 1.5]]), tf.constant([[True, False]]), 0)[0]) == 1


def test_a_drawn_text_depends_on_its_seed_and_not_on_its_batch():
    model = network(temperature=1.5, top_p=0.9, repetition=1.2)
    prompts = tf.constant([[29, 4, 5, 0], [29, 4, 0, 0], [29, 4, 5, 6]])
    together = model({"prompt": prompts})
    for row, count in enumerate((3, 2, 4)):
        alone = model({"prompt": prompts[row:row + 1, :count]})
        assert alone["tokens"][0].numpy().tolist() == together["tokens"][row].numpy().tolist()
        np.testing.assert_allclose(alone["confidence"][0], together["confidence"][row], atol=1e-5)
    other = network(temperature=1.5, top_p=0.9, repetition=1.2, seed=1)({"prompt": prompts})
    assert (other["tokens"].numpy() != together["tokens"].numpy()).any()


def test_a_text_ends_where_its_end_is_drawn():
    def following(ids, at, own):
        return tf.one_hot(tf.where(ids[:, -1] == 4, 5, 4), 6) * 50.0, own

    texts, shares = sample(following, tf.constant([[2], [4]]), [tf.zeros([1, 2, 1])], lambda logits: logits, Drawn(0.0), most=4, end=5)
    assert texts.numpy().tolist() == [[4, 0, 0, 0], [0, 0, 0, 0]] and shares.numpy() == pytest.approx([1.0, 0.0])


def test_stop_texts_are_found_as_they_stand():
    for stop in ("\n\n", "a.b*(", "[INST]", "Ende…", "$^"):
        text = tf.strings.regex_replace(f"one {stop} two {stop}", f"(?s){quoted(stop)}.*", "")
        assert text.numpy() == b"one "


def test_bits_are_counted_by_bytes_and_the_baseline_by_runs(tmp_path):
    (tmp_path / "a.txt").write_text("".join(VERSES * 6))
    task = LanguageModelling(from_dict(settings_of(tmp_path / "a.txt"), []))
    task.facts = (splits := task.splits()).facts
    source = splits.test
    tokens = source.gather(np.arange(len(source)))["tokens"]
    logits = tf.random.normal([len(source), 16, task.input.alphabet.end + 1])
    answers = {name: value.numpy() for name, value in task.output.answer(lambda _: logits, {"tokens": tokens}).items()}
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tokens[:, 1:], logits).numpy() * (tokens[:, 1:].numpy() > 0)
    expected = next_tokens.summed(losses, tokens[:, 1:].numpy(), task.input.alphabet.sizes, tokens[:, 1:].numpy() > 0)
    for name, value in expected.items():
        np.testing.assert_allclose(answers[name], value, rtol=1e-5)
    report = task.output.judge(answers, {}, source)
    texts = "".join(task.output.texts(tokens[:, 1:].numpy()))
    assert report.metrics["bits_per_byte"].value == pytest.approx(losses.sum() / np.log(2) / len(texts.encode()), rel=1e-4)
    scored = task.output.scores(logits, tokens)
    assert float(task.output.statistics["bits_per_byte"](scored["bits_per_byte"].numpy().sum(0)[None])[0]) == pytest.approx(
        report.metrics["bits_per_byte"].value, rel=1e-5)
    cheap = task.output.judge(task.output.baseline(splits.train, None).answers(source), {}, source)
    assert 0.0 < cheap.metrics["bits_per_byte"].value < 1.5 < report.metrics["bits_per_byte"].value


@pytest.mark.parametrize("tied", [True, False])
def test_a_preset_gives_the_logits_that_keras_hub_gives(tmp_path, tied):
    keras_hub = pytest.importorskip("keras_hub")
    preset = LanguagePreset(name="pretrained", preset=str(tiny.llama(tmp_path / "llama", tied=tied)), lora=None)
    facts = language_pretrained.learn(preset)
    alphabet = units.make(Characters(name="characters"), facts)
    texts = ["the cat.", "TO be or\nnot to be"]
    ids = alphabet.ids(tf.constant(texts))
    assert [text.decode() for text in alphabet.texts(ids.to_tensor(0)).numpy()] == texts
    assert [int(alphabet.sizes[row].sum()) for row in ids.to_list()] == [len(text) for text in texts]
    writing = Way(most=5, temperature=0.0)
    model = language_pretrained.build(preset, size=alphabet.size, end=alphabet.end, facts=facts, writing=writing)
    backbone = keras_hub.models.Backbone.from_preset(preset.preset)
    raw = ids[1:].to_tensor(0) - 1
    hidden = backbone({"token_ids": raw, "padding_mask": tf.ones_like(raw)})
    logits = model({"tokens": tf.pad(raw + 1, [[0, 0], [0, 1]])}).numpy()
    np.testing.assert_allclose(logits[..., 1:], backbone.token_embedding(hidden, reverse=True).numpy(), atol=1e-4)
    assert (logits[..., 0] < -1e8).all()
    prompts = [[alphabet.end, *row] for row in ids.to_list()]
    given = model({"prompt": tf.ragged.constant(prompts, dtype=tf.int32).to_tensor(0)})["tokens"].numpy()
    for row, prompt in zip(given, prompts):
        assert [token for token in row.tolist() if token] == by_hand(model, prompt, 5)


@pytest.mark.parametrize("kind", ["LlamaBackbone", "MistralBackbone"])
def test_networks_of_the_same_shape_are_read(kind):
    keras_hub = pytest.importorskip("keras_hub")
    backbone = getattr(keras_hub.models, kind)(vocabulary_size=40, num_layers=2, num_query_heads=4, num_key_value_heads=2, hidden_dim=16,
                                               intermediate_dim=24)
    for number, weight in enumerate(backbone.weights):
        weight.assign(np.random.default_rng(number).normal(0.3, 0.3, weight.shape))
    config = {**backbone.get_config(), "tie_word_embeddings": backbone.token_embedding.tie_weights}
    model = LanguageNetwork(language_pretrained.shape_of(config, 0.0), 41, 2, Way(most=3))
    raw = tf.constant(np.random.default_rng(0).integers(0, 40, (2, 9)), tf.int32)
    model({"tokens": raw})
    language_pretrained._read(model, backbone)
    hidden = backbone({"token_ids": raw, "padding_mask": tf.ones_like(raw)})
    np.testing.assert_allclose(model({"tokens": tf.pad(raw + 1, [[0, 0], [0, 1]])}).numpy()[..., 1:],
                               backbone.token_embedding(hidden, reverse=True).numpy(), atol=1e-4)


def test_lora_trains_its_changes_alone_and_a_preset_of_another_shape_is_refused(tmp_path):
    pytest.importorskip("keras_hub")
    preset = LanguagePreset(name="pretrained", preset=str(tiny.llama(tmp_path / "llama")), lora=2)
    facts = language_pretrained.learn(preset)
    alphabet = units.make(Characters(name="characters"), facts)
    model = language_pretrained.build(preset, size=alphabet.size, end=alphabet.end, facts=facts, writing=Way(most=5))
    assert len(model.trainable_variables) == 2 * 4 * 2 and all("lora" in variable.name for variable in model.trainable_variables)
    other = LanguagePreset(name="pretrained", preset=str(tiny.bert(tmp_path / "bert")))
    with pytest.raises(ConfigError, match=r"model\.preset.*BertBackbone.*model\.name: transformer"):
        language_pretrained.learn(other)
    scaled = facts["backbone"]["config"] | {"rope_frequency_adjustment_factor": 8.0}
    with pytest.raises(ConfigError, match="scaled wavelengths"):
        language_pretrained.shape_of(scaled, 0.0)


@pytest.mark.parametrize(("change", "message"), [
    ("writing: {most: 300}", r"writing\.most.*model\.length is 256"), ("model: {name: transformer, width: 30}", r"model\.width.*6 heads"),
    ("model: {name: transformer, groups: 4}", r"model\.groups.*4"), ("tokens: {name: letters}", r"tokens.*characters"),
    ("data: {source: text}", r"data\.path"), ("model: {name: pretrained, preset: x}\ntokens: {name: bytes}", "brings its own tokens")])
def test_wrong_settings_are_named(change, message):
    sections = {"task": "task: nlp.language_model", "data": "data: {source: text, path: /}", "model": "model: {name: transformer}"}
    for line in change.splitlines():
        sections[line.partition(":")[0]] = line
    with pytest.raises(ConfigError, match=message):
        from_text("\n".join(sections.values()) + "\n", file="x.yaml")
