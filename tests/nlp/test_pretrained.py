"""A keras-hub encoder: a tiny one with random weights, built here, trained further, judged again and exported without its preset."""

import importlib.util
import json
import os
import shutil

import keras
import pytest
import tensorflow as tf

from nlp.data.sources import TextSource
from nlp.models import pretrained
from nlp.settings import Pretrained, TextClassification
from nlp.tasks.classification import Classification
from nlp.tokens import preset as preset_tokens
from pipelines.base.errors import ConfigError
from pipelines.config.load import load
from pipelines.data.divide import Warned
from pipelines.encoders.presets import find
from pipelines.encoders.trainable import blocks
from pipelines.machine import compiling
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from pipelines.serving import embed
from pipelines.serving.load import load_run
from pipelines.serving.predict import Predictor
from pipelines.task.results import Judgement
from tests import processes
from tests.encoders import tiny
from tests.encoders.tiny import PIECES

pytestmark = pytest.mark.slow

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text", "safetensors"))
extra = pytest.mark.skipif(not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                           reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")
USE = """
import json
import sys
from pathlib import Path
from pipelines.runs.folder import RunFolder
from pipelines.serving.evaluate import evaluate
from pipelines.serving.load import load_run
from quartet.task_testing import check_export
run = load_run(RunFolder(Path(sys.argv[1])), where="cpu")
check_export(run, [run.task.input.requests.take(text) for text in ("the taxi please", "", "wifi 東京")], Path(sys.argv[2]))
print(json.dumps(evaluate(run).judgement.metrics["accuracy"].value))
"""


def learned(folder, **options):
    return pretrained.learn(Pretrained(name="pretrained", preset=str(folder), **{"limit": 16, **options}))


def hugging_face(folder, **config):
    """A tiny BERT as Hugging Face has it, with tokenizer.json alone."""
    import numpy as np
    from safetensors.numpy import save_file

    draw, wide, inner = np.random.default_rng(0).standard_normal, 8, 16
    shapes = {"embeddings.word_embeddings.weight": (len(PIECES), wide), "embeddings.position_embeddings.weight": (16, wide),
              "embeddings.token_type_embeddings.weight": (2, wide), "pooler.dense.weight": (wide, wide), "pooler.dense.bias": (wide,)}
    layer = "encoder.layer.0."
    for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
        shapes |= {f"{layer}{name}.weight": (wide, wide), f"{layer}{name}.bias": (wide,)}
    shapes |= {f"{layer}intermediate.dense.weight": (inner, wide), f"{layer}intermediate.dense.bias": (inner,),
               f"{layer}output.dense.weight": (wide, inner), f"{layer}output.dense.bias": (wide,)}
    for norm in ("embeddings.LayerNorm", f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"):
        shapes |= {f"{norm}.weight": (wide,), f"{norm}.bias": (wide,)}
    folder.mkdir()
    arrays = {name: draw(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({
        "model_type": "bert", "vocab_size": len(PIECES), "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": wide,
        "intermediate_size": inner, "max_position_embeddings": 16, "hidden_act": "gelu", **config}))
    (folder / "tokenizer.json").write_text(json.dumps({
        "model": {"type": "WordPiece", "vocab": {piece: number for number, piece in enumerate(PIECES)}},
        "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None}}))
    return arrays


@extra
def test_a_folder_of_hugging_face_is_read_with_its_vocabulary_accents_and_pooling(tmp_path):
    arrays = hugging_face(tmp_path / "h")
    facts, notes = learned(tmp_path / "h")
    assert facts["pool"] == "mean" and [type(note) for note in notes] == [str] and "the tanh form of GELU" in notes[0]
    (tmp_path / "h" / "1_Pooling").mkdir()
    (tmp_path / "h" / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert learned(tmp_path / "h")[0]["pool"] == "first"
    assert learned(tmp_path / "h", pool="max")[0]["pool"] == "max"
    settings = Pretrained(name="pretrained", preset=str(tmp_path / "h"), limit=6)
    ids = pretrained.tokenizer(settings, facts).ids(tf.constant(["Tàxi, the TAXI", "ab the the the the"]))
    number = {piece: place + 1 for place, piece in enumerate(PIECES)}
    assert ids.to_list()[0] == [number[piece] for piece in ("[CLS]", "taxi", "[UNK]", "the", "taxi", "[SEP]")]
    assert ids.to_list()[1] == [number[piece] for piece in ("[CLS]", "a", "##b", "the", "the", "[SEP]")]
    model = pretrained.build(settings, facts=facts, classes=3)
    table = model.get_layer("features").get_layer("backbone").get_layer("token_embedding").embeddings
    assert (table.numpy() == arrays["embeddings.word_embeddings.weight"]).all()
    padded = ids.to_tensor()
    assert padded.shape == (2, 6)
    vectors, longer = (model.get_layer("features")(tf.pad(padded, [[0, 0], [0, more]])).numpy() for more in (0, 3))
    assert vectors.shape == (2, 8) and abs(vectors - longer).max() < 1e-5 and model(padded).shape == (2, 3)


@extra
def test_the_last_layers_of_a_frozen_encoder_stand_beside_one_another(tmp_path):
    import keras_hub
    import numpy as np

    folder = tiny.bert(tmp_path / "p")
    keras_hub.models.BertBackbone(vocabulary_size=len(PIECES), num_layers=4, num_heads=2, hidden_dim=8, intermediate_dim=16,
                                  max_sequence_length=32).save_to_preset(str(folder))

    def layers(examples=1000, **options):
        settings = Pretrained.model_validate({"name": "pretrained", "preset": str(folder), "limit": 16, **options})
        facts = pretrained.learn(settings)[0]
        return settings, {**facts, **pretrained.pooling(settings, facts, examples)}

    assert [layers(**options)[1]["layers"] for options in (
        {}, {"examples": 100}, {"finetune": {"name": "frozen"}}, {"finetune": {"name": "frozen"}, "pool": "first"}, {"layers": 2},
        {"finetune": {"name": "whole"}, "examples": 100})] == [1, 3, 3, 1, 2, 1]
    with pytest.raises(ConfigError, match=r"model.layers: 5, and .* \(BertBackbone\) has 4 whose vectors can be used"):
        layers(layers=5)
    several, one = (pretrained.build(*layers(**options)[:1], facts=layers(**options)[1], classes=2) for options in ({"layers": 3}, {}))
    ids = tf.constant([[3, 7, 8, 4, 0], [3, 9, 4, 0, 0]])
    beside = several.get_layer("features")(ids).numpy()
    assert beside.shape == (2, 24) and several(ids).shape == (2, 2)
    np.testing.assert_allclose(beside[:, 16:], one.get_layer("features")(ids).numpy(), atol=1e-5)
    assert abs(beside[:, 8:16] - beside[:, 16:]).max() > 1e-4  # weights begin small
    assert len(blocks(several)) == len(blocks(one)) == 5

    assert [layers(**options)[1]["window"] for options in (
        {"limit": 500, "finetune": {"name": "frozen"}, "window": 20}, {"finetune": {"name": "frozen"}}, {"window": 8}, {"window": 16})
        ] == [20, None, 8, None]
    for options, message in (({"limit": 33}, "limit: 33 tokens"), ({"limit": 40, "window": 33}, "window: 33 tokens"),
                             ({"window": 8, "pool": "max"}, "makes a text's vector by max")):
        with pytest.raises(ConfigError, match=message):
            layers(**options)


@extra
def test_a_long_text_is_the_mean_over_its_windows_whatever_stands_beside_it(tmp_path):
    import numpy as np

    settings = Pretrained.model_validate({
        "name": "pretrained", "preset": str(tiny.bert(tmp_path / "p")), "limit": 40, "window": 8, "html": True})
    facts = pretrained.learn(settings)[0]
    facts |= pretrained.pooling(settings, facts, 1000)
    assert (facts["window"], facts["layers"]) == (8, 1)
    texts = ["the taxi <br /> please " + "abcdef the room " * 3, "the room", "", "abcdefg"]
    ids = pretrained.tokenizer(settings, facts).ids(tf.constant(texts)).to_tensor()
    first, last = ids[1, 0], ids[1, 3]
    assert ids.shape == (4, 29) and int(ids[0, 4]) == PIECES.index("a") + 1  # 27 pieces between the marks, none of them of the tag
    rows, owners = (one.numpy() for one in pretrained.Windows(8)(ids))
    assert rows.shape == (9, 8) and owners.tolist() == [0, 0, 0, 0, 0, 1, 2, 3, 3]
    body = ids[0, 1:28].numpy()
    np.testing.assert_array_equal(rows[:4], [[first, *body[start:start + 6], last] for start in range(0, 24, 6)])
    np.testing.assert_array_equal(rows[4], [first, *body[24:], last, 0, 0, 0])
    np.testing.assert_array_equal(rows[5:7, :5], [[first, *ids[1, 1:3], last, 0], [first, last, 0, 0, 0]])
    assert (rows[7:] > 0).sum(1).tolist() == [6, 5]  # seven letters: four and three
    shape = compiling.function(lambda: pretrained.Windows(8)(ids)[0], xla=True)().shape
    assert shape == (20, 8)  # with all windows that there could be
    in_training = [one.numpy() for one in pretrained.Windows(30)(ids[1:], training=True)]
    assert in_training[0].shape == (4, 16) and in_training[1].tolist() == [0, 1, 2, 0] and not in_training[0][3].any()
    vectors = tf.cast(in_training[0], tf.float32)[..., None] * [1.0, 2.0]
    mean = pretrained.WindowMean()([vectors, *in_training, ids[1:]])
    np.testing.assert_allclose(mean, tf.reduce_sum(vectors, 1)[:3] / tf.constant([[4.0], [2.0], [9.0]]))

    model = pretrained.build(settings, facts=facts, classes=2).get_layer("features")
    whole = pretrained.build(settings, facts={**facts, "window": None}, classes=2).get_layer("features")
    together = model(ids).numpy()
    np.testing.assert_allclose(compiling.function(lambda: model(ids), xla=True)().numpy(), together, atol=1e-5)
    np.testing.assert_allclose(together[1:3], whole(ids[1:3]).numpy(), atol=1e-5)  # short texts have one window
    backbone, vectors = whole.get_layer("backbone"), []
    for row in rows[:5]:
        own = row[row > 0][None] - 1
        given = {"token_ids": own, "padding_mask": np.ones_like(own), "segment_ids": np.zeros_like(own)}
        vectors.append(backbone(given)["sequence_output"][0])
    mean = np.concatenate(vectors).mean(0)
    np.testing.assert_allclose(together[0], mean / np.sqrt(np.mean(mean**2)), atol=1e-5)
    for place in range(4):
        alone = ids[place:place + 1, :int(np.count_nonzero(ids[place]))]
        np.testing.assert_allclose(model(alone).numpy()[0], together[place], atol=1e-5)


@extra
def test_windows_and_word_scores_can_be_converted_to_litert(tmp_path):
    settings = Pretrained(name="pretrained", preset=str(tiny.bert(tmp_path / "bert")), limit=30, window=8)
    facts = pretrained.learn(settings)[0] | {"layers": 1, "window": 8, "words": 2, "buckets": 1 << 12}
    model = pretrained.build(settings, facts=facts, classes=3)
    answer = tf.function(lambda ids: model(ids, training=False), input_signature=[tf.TensorSpec([None, None], tf.int32)])
    assert tf.lite.TFLiteConverter.from_concrete_functions([answer.get_concrete_function()], model).convert()


@extra
def test_a_tokenizer_that_forgets_to_strip_accents_is_named(tmp_path):
    assert learned(tiny.bert(tmp_path / "p"))[1] == []
    stated = tmp_path / "p" / "tokenizer.json"
    stated.write_text(stated.read_text().replace('"strip_accents": true', '"strip_accents": false'))
    (note,) = learned(tmp_path / "p")[1]
    assert isinstance(note, Warned) and "caf\u00e9 becomes [UNK]" in note and "set strip_accents: true" in note


@extra
def test_a_tokenizer_that_knows_small_letters_alone_gets_texts_in_them(tmp_path):
    import io

    import keras_hub
    import sentencepiece

    learning, proto = iter(["the taxi please", "book the room", "\u00e4pfel"] * 4), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=learning, model_writer=proto, vocab_size=20, model_type="WORD", hard_vocab_limit=False, pad_id=0, unk_id=1,
        bos_id=2, eos_id=3, pad_piece="<pad>", unk_piece="<unk>", bos_piece="[CLS]", eos_piece="[SEP]", user_defined_symbols="[MASK]")
    albert = keras_hub.models.AlbertTokenizer(proto=proto.getvalue())
    facts = preset_tokens.kept(albert)
    assert facts["lower"] and not preset_tokens.knows(albert, "TAXI")
    ids = preset_tokens.make(facts, 16).ids(tf.constant(["The TAXI please", "the taxi please", "\u00c4PFEL", "\u00e4pfel"])).to_list()
    assert ids[0] == ids[1] and ids[2] == ids[3] and albert.token_to_id("<unk>") + 1 not in ids[0] + ids[2]
    assert not preset_tokens.kept(keras_hub.models.BertTokenizer(vocabulary=PIECES, lowercase=True))["lower"]


@extra
def test_a_vocabulary_with_gaps_and_a_tokenizer_of_another_kind_are_refused(tmp_path):
    hugging_face(tmp_path / "h")
    for wrong, message in (({"type": "WordPiece", "vocab": {"[PAD]": 0, "a": 2}}, "have gaps"), ({"type": "Unigram"}, "neither vocab.txt"),
                           ({"type": "WordPiece", "vocab": {"a": 0}}, "its tokenizer cannot be read")):
        (tmp_path / "h" / "tokenizer.json").write_text(json.dumps({"model": wrong}))
        with pytest.raises(ConfigError, match=message):
            learned(tmp_path / "h")


@extra
def test_pieces_of_bytes_are_read_from_tokenizer_json(tmp_path):
    hugging_face(tmp_path / "h", model_type="roberta")
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "ab", "\u0120ab", "\u0120", "<mask>"]
    (tmp_path / "h" / "tokenizer.json").write_text(json.dumps({"model": {
        "type": "BPE", "vocab": {piece: number for number, piece in enumerate(vocabulary)}, "merges": [["a", "b"], "\u0120 ab"]}}))
    facts = preset_tokens.kept(preset_tokens.read(find(str(tmp_path / "h"), domain="nlp")))
    ids = preset_tokens.make(facts, 16).ids(tf.constant(["ab ab", "ba"]))
    assert [[vocabulary[number - 1] for number in row] for row in ids.to_list()] == [
        ["<s>", "ab", "\u0120ab", "</s>"], ["<s>", "b", "a", "</s>"]]


@extra
def test_a_keras_preset_whose_source_has_another_gelu_says_so(tmp_path):
    tiny.bert(tmp_path / "bert")
    assert learned(tmp_path / "bert")[1] == []
    (tmp_path / "bert" / "SOURCE.md").write_text("- Upstream: huggingface.co/somebody/bert, revision 1\n")
    (note,) = learned(tmp_path / "bert")[1]
    assert "the tanh form of GELU" in note and "3e-3 from those of huggingface.co/somebody/bert" in note
    assert not isinstance(note, Warned)  # it changes next to no answer: the report has it, the log of every run does not


@extra
def test_an_activation_that_keras_hub_does_not_have_is_warned_of(tmp_path):
    hugging_face(tmp_path / "h", hidden_act="relu")
    (note,) = learned(tmp_path / "h")[1]
    assert isinstance(note, Warned) and "its config.json states relu" in note and "fine-tune it" in note


@extra
def test_a_vocabulary_that_does_not_fit_the_encoder_is_named(tmp_path):
    tiny.bert(tmp_path / "bert")
    path = next((tmp_path / "bert" / "assets").rglob("vocabulary.txt"))
    path.write_text("".join(f"{piece}\n" for piece in PIECES[:-9]))
    _, (note,) = learned(tmp_path / "bert")
    assert isinstance(note, Warned) and f"has {len(PIECES) - 9} pieces and the encoder vectors for {len(PIECES)}" in note
    path.write_text("".join(f"{piece}\n" for piece in [*PIECES, "more"]))
    with pytest.raises(ConfigError, match=f"has {len(PIECES) + 1} pieces and the encoder vectors for {len(PIECES)}; they do not belong"):
        learned(tmp_path / "bert")


@extra
def test_a_network_that_generates_text_and_a_limit_beyond_its_places_are_refused(tmp_path):
    import keras_hub

    with pytest.raises(ConfigError, match=r"model.limit: 64 tokens, and .* takes 32 at most"):
        learned(tiny.bert(tmp_path / "p"), limit=64)
    keras_hub.models.GPT2Backbone(vocabulary_size=8, num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=4,
                                  max_sequence_length=8).save_to_preset(str(tmp_path / "g"))
    (tmp_path / "g" / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"GPT2Backbone\) generates text"):
        learned(tmp_path / "g")


def test_the_saved_model_needs_tensorflow_text_and_mistakes_have_their_text():
    task = Classification(TextClassification.model_validate({
        "task": "nlp.classification", "data": {"source": "quick"}, "model": {"name": "pretrained", "preset": "x"}}))
    assert task.input.signature.needs == ("tensorflow_text",)
    source = TextSource(tf.constant(["one", "wrong  text"]), {"label": tf.constant([0, 1])}, str, fingerprint="x")
    judgement = Judgement(tables={"worst_mistakes": [{"example": "1", "true": "b", "predicted": "a", "number": 1}]})
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, keras.layers.Embedding(4, 2, name="token_embedding")(inputs))
    task.output.explain(model, judgement, {}, {}, source)
    assert judgement.tables["worst_mistakes"] == [{"example": "1", "true": "b", "predicted": "a", "text": "wrong text"}]


@extra
def test_word_scores_stand_beside_the_vectors(tmp_path):
    tiny.bert(tmp_path / "bert")
    experiment = load("nlp/quickstart", [
        "tokens=null", f"model={{name: pretrained, preset: {tmp_path / 'bert'}, limit: 16, words: 2}}",
        "model.finetune={name: frozen, head: trained}", "data.cache=memory", "train.epochs=2", "train.batch_size=64", "train.devices=cpu",
        "evaluate.bootstrap=100"]).experiment
    train(experiment, RunFolder(tmp_path / "whole"), Call("whole", Classification, quiet=True))
    run = load_run(RunFolder(tmp_path / "whole"), where="cpu")
    features, classes = run.model.get_layer("features"), len(run.task.output.classes)
    assert features.output_shape[-1] == 16 + classes and features.get_layer("words").table.numpy().any()
    # what tells how alike texts are is the encoder's alone: vectors, neighbours, the projector
    (one,) = Predictor(run, answer=embed.answered).predict(["a taxi, please"])
    assert one.values["vector"].shape == (16,) and embed.Nearest(run, print).directions.shape[1] == 16
    (rows,), (names,) = ([path.read_text().splitlines() for path in (tmp_path / "whole").rglob(f"projector/{name}.tsv")]
                         for name in ("features", "features_names"))
    assert {len(row.split("\t")) for row in rows} == {16} and names[0].split("\t") == ["text", "class", "name"]
    assert len(names) == len(rows) + 1 and all(len(name.split("\t")[0].split()) > 1 for name in names[1:])


@extra
def test_a_preset_is_trained_further_and_not_needed_again(tmp_path):
    def run(*arguments):
        return processes.run(*arguments, check=True).stdout

    tiny.bert(tmp_path / "bert")
    table = tmp_path / "t.csv"
    rows = (f"the {('taxi', 'room')[number % 2]} please {number},{'ab'[number % 2]}\n" for number in range(60))
    table.write_text("text,label\n" + "".join(rows))
    run("-m", "nlp.train", "nlp/finetune", f"data.path={table}", f"model.preset={tmp_path / 'bert'}", "train.epochs=2", "model.limit=24",
        "train.devices=cpu", "train.precision=float32", "evaluate.bootstrap=100", "--runs", tmp_path / "runs", "--name", "one", "--quiet")
    folder = tmp_path / "runs" / "nlp" / "finetune" / "one"
    before = json.loads((folder / "report" / "report.json").read_text())["metrics"]["test/accuracy"]["value"]
    recorded = json.loads((folder / "environment.json").read_text())["encoder"]
    assert recorded["name"] == "bert" and len(recorded["checksum"]) == 64 and recorded["weights"] > 0
    assert "Encoder: bert, " in (folder / "report" / "model_card.md").read_text()
    shutil.rmtree(tmp_path / "bert")
    assert json.loads(run("-c", USE, folder, tmp_path).splitlines()[-1]) == pytest.approx(before)
    assert "import tensorflow_text" in (tmp_path / "exported" / "README.txt").read_text()
