"""A language model as a folder of Hugging Face's: read back by keras-hub and by the library tokenizers, it is the same."""

import json

import numpy as np
import pytest
import tensorflow as tf

from extensions.convert.huggingface import HuggingFace
from extensions.convert.options import exporting
from pipelines.base.errors import ConfigError
from pipelines.serving.presets import of_preset
from tests.encoders import tiny

pytestmark = pytest.mark.slow(seconds=20)
WORDS = "say a b. c\nd<|eot_id|>e"


@pytest.mark.parametrize("tied", [True, False])
def test_logits_and_tokens_are_the_same(tmp_path, tied):
    import keras_hub
    import tokenizers

    tiny.llama(tmp_path / "preset", tied=tied)
    (tmp_path / "preset" / "chat_template.jinja").write_text(tiny.CHAT)
    run, said = of_preset(str(tmp_path / "preset"), "talk", what="language model"), []
    for block in run.model.blocks:
        block.out.enable_lora(2)
        block.out.lora_kernel_b.assign(tf.random.stateless_normal(block.out.lora_kernel_b.shape, [1, 2]))
    with exporting(made_for="huggingface"):
        assert HuggingFace("huggingface").wanted()
    HuggingFace("huggingface").export(run, tmp_path / "out", replace=False, say=said.append)
    ids = run.task.input.cut(WORDS)
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).encode(WORDS).ids == (ids - 1).tolist()
    backbone = keras_hub.models.LlamaBackbone.from_preset(str(tmp_path / "out"))
    vectors = backbone({"token_ids": ids[None] - 1, "padding_mask": np.ones([1, len(ids)], bool)})
    logits = backbone.token_embedding(vectors, reverse=True).numpy()[0]
    ours = run.model({"tokens": tf.constant([[*ids, 0]])}).numpy()[0, :, 1:]
    np.testing.assert_allclose(logits, ours, atol=2e-4)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    described = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert config["tie_word_embeddings"] is tied and config["eos_token_id"] == run.task.input.alphabet.end - 1
    assert described["eos_token"] == "<|eot_id|>" and (tmp_path / "out" / "chat_template.jinja").read_text() == tiny.CHAT
    assert "vllm serve out" in (tmp_path / "out" / "README.txt").read_text() and "transformers" in said[0]


def test_what_has_no_such_form_is_named(tmp_path):
    run = of_preset(str(tiny.bert(tmp_path / "bert")), "encode", what="encoder")
    with pytest.raises(ConfigError, match="no form that"):
        HuggingFace("huggingface").export(run, tmp_path / "out", replace=False, say=print)
    assert not (tmp_path / "out").exists()
