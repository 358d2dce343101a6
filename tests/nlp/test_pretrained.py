"""A keras-hub encoder: a tiny one with random weights, built here, trained further, judged again and exported without its preset."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from nlp.data.sources import TextSource
from nlp.models import pretrained
from nlp.settings import Pretrained, TextClassification
from nlp.tasks.classification import Classification
from pipelines.base.errors import ConfigError
from pipelines.task.results import Judgement
from tests.finished_run import ROOT, environment

pytestmark = pytest.mark.slow

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text"))
PRESET = """
import sys
import keras_hub
letters = "abcdefghijklmnopqrstuvwxyz"
pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters),
          "the", "room", "taxi", "please", "book", "cancel", "wifi", "towels", "breakfast"]
tokenizer = keras_hub.models.BertTokenizer(vocabulary=pieces, lowercase=True)
backbone = keras_hub.models.BertBackbone(vocabulary_size=len(pieces), num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32,
                                         max_sequence_length=32)
backbone.save_to_preset(sys.argv[1])
tokenizer.save_to_preset(sys.argv[1])
"""
USE = """
import json
import sys
from pathlib import Path
from pipelines.runs.folder import RunFolder
from pipelines.serving.evaluate import evaluate
from pipelines.serving.export import export
from pipelines.serving.load import load_run
from pipelines.serving.predict import Predictor
import numpy as np
import tensorflow as tf
run = load_run(RunFolder(Path(sys.argv[1])), where="cpu")
found = evaluate(run).judgement.metrics["accuracy"].value
texts = ["the taxi please", "", "wifi 東京"]
answers = np.stack([one.values["probabilities"] for one in Predictor(run).predict(texts)])
model = tf.saved_model.load(str(export(run, Path(sys.argv[2]))))
served = model.signatures["serving_default"](text=tf.constant(texts))["probabilities"].numpy()
print(json.dumps({"accuracy": found, "apart": float(np.abs(answers - served).max())}))
"""


def test_without_keras_hub_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(ConfigError, match=r"pip install 'keras-quartet\[pretrained\]'"):
        pretrained.learn(Pretrained(name="pretrained", preset="bert_tiny_en_uncased"))


def test_a_class_that_facts_name_must_be_one_of_keras_hub():
    class Module:
        thing = staticmethod(print)

    for name in ("thing", "missing", "__class__.x"):
        with pytest.raises(ConfigError, match="keras-hub has no"):
            pretrained._named(Module, name)


def test_the_saved_model_needs_tensorflow_text_and_mistakes_have_their_text():
    task = Classification(TextClassification.model_validate({
        "task": "nlp.classification", "data": {"source": "quick"}, "model": {"name": "pretrained", "preset": "x"}}))
    assert task.needs == ("tensorflow_text",)
    source = TextSource(tf.constant(["one", "wrong  text"]), {"label": tf.constant([0, 1])}, str, fingerprint="x")
    judgement = Judgement(tables={"worst_mistakes": [{"example": "1", "true": "b", "predicted": "a", "number": 1}]})
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, keras.layers.Embedding(4, 2, name="token_embedding")(inputs))
    task.explain(model, judgement, {}, {}, source)
    assert judgement.tables["worst_mistakes"] == [{"example": "1", "true": "b", "predicted": "a", "text": "wrong text"}]


@pytest.mark.slow
@pytest.mark.skipif(not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                    reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")
def test_a_preset_is_trained_further_and_not_needed_again(tmp_path):
    def run(*arguments):
        done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, encoding="utf-8", cwd=ROOT, timeout=600,
                              check=False, env=environment())
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-c", PRESET, tmp_path / "preset")
    table = tmp_path / "t.csv"
    rows = (f"the {('taxi', 'room')[number % 2]} please {number},{'ab'[number % 2]}\n" for number in range(60))
    table.write_text("text,label\n" + "".join(rows))
    run("-m", "nlp.train", "nlp/finetune", f"data.path={table}", f"model.preset={tmp_path / 'preset'}", "train.epochs=2",
        "train.devices=cpu", "train.precision=float32", "evaluate.bootstrap=100", "--runs", tmp_path / "runs", "--name", "one", "--quiet")
    folder = tmp_path / "runs" / "nlp" / "finetune" / "one"
    before = json.loads((folder / "report" / "report.json").read_text())["metrics"]["test/accuracy"]["value"]
    shutil.rmtree(tmp_path / "preset")
    found = json.loads(run("-c", USE, folder, tmp_path / "export").splitlines()[-1])
    assert "import tensorflow_text" in (tmp_path / "export" / "README.txt").read_text()
    assert found["accuracy"] == pytest.approx(before) and found["apart"] < 1e-5
