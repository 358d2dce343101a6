"""A language model in Llama's shape as the files that Hugging Face's programs read: transformers, vLLM, and llama.cpp's converter."""

import base64
from typing import Any

import numpy as np

from nlp.models.language import LanguageNetwork
from pipelines.base.json_text import parse_json


def files(model: LanguageNetwork, facts: dict[str, Any], *, end: int, limit: int, template: str | None) -> dict[str, Any]:
    """File -> a JSON object, a text, bytes, or of model.safetensors arrays by name.

    Args:
        facts: of a preset: its tokenizer.
        end: the token that ends a text, as here.
        limit: tokens that are seen at a time.
        template: of dialogues.
    """
    kept = facts["tokenizer"]
    names = {mark: kept["config"].get(mark) for mark in ("bos_token", "eos_token")}
    assets = {name: base64.b64decode(content) for name, content in kept["files"].items()}
    found: dict[str, Any] = {"config.json": _config(model, end, limit), "model.safetensors": _weights(model)}
    described: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
                                 "model_max_length": limit}
    if "vocabulary.json" in assets:
        vocabulary = parse_json(assets["vocabulary.json"])
        marks = [mark for mark in kept["config"].get("unsplittable_tokens") or [] if mark in vocabulary]
        found["tokenizer.json"] = _byte_pairs(vocabulary, assets["merges.txt"].decode().split("\n"), marks)
        names["eos_token"] = next((name for name, number in vocabulary.items() if number == end - 1), names["eos_token"])
    else:
        described["tokenizer_class"] = "LlamaTokenizer"
        found["tokenizer.model"] = next(content for name, content in assets.items() if name.endswith(".spm"))
    found["tokenizer_config.json"] = {**described, **{mark: name for mark, name in names.items() if name}}
    how = model.how
    drawn = {"temperature": how.temperature, "top_k": how.top_k or 0, "top_p": how.top_p or 1.0} if how.temperature else {}
    found["generation_config.json"] = {"eos_token_id": end - 1, "do_sample": bool(drawn), "repetition_penalty": how.repetition, **drawn}
    if template is not None:
        found["chat_template.jinja"] = template
    return found


def _config(model: LanguageNetwork, end: int, limit: int) -> dict[str, Any]:
    shape = model.shape
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": model.size - 1, "hidden_size": shape.width,
            "intermediate_size": shape.hidden, "num_hidden_layers": shape.depth, "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.groups, "head_dim": shape.width // shape.heads, "rms_norm_eps": shape.epsilon,
            "rope_theta": shape.wavelength, "max_position_embeddings": limit, "tie_word_embeddings": shape.tied, "hidden_act": "silu",
            "attention_bias": False, "mlp_bias": False, "eos_token_id": end - 1, "dtype": "float32"}


def _weights(model: LanguageNetwork) -> dict[str, np.ndarray]:
    """By name; kernels stand the other way round. The first row of ours is that of padding."""
    shape = model.shape
    size = shape.width // shape.heads
    cuts = np.cumsum([shape.heads * size, shape.groups * size])
    found = {"model.embed_tokens.weight": np.array(model.vectors.embeddings)[1:], "model.norm.weight": np.array(model.norm.scale)}
    if model.last is not None:
        found["lm_head.weight"] = np.array(model.last.kernel).T[1:]
    for number, block in enumerate(model.blocks):
        parts = {"input_layernorm": np.array(block.norms[0].scale), "post_attention_layernorm": np.array(block.norms[1].scale),
                 "self_attn.o_proj": np.array(block.out.kernel).T, "mlp.down_proj": np.array(block.inner_out.kernel).T}
        parts |= dict(zip(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), np.split(np.array(block.mixed.kernel).T, cuts)))
        parts |= dict(zip(("mlp.gate_proj", "mlp.up_proj"), np.split(np.array(block.inner.kernel).T, 2)))
        found |= {f"model.layers.{number}.{name}.weight": value for name, value in parts.items()}
    return {name: np.ascontiguousarray(value, np.float32) for name, value in found.items()}


def _byte_pairs(vocabulary: dict[str, int], merges: list[str], marks: list[str]) -> dict[str, Any]:
    """tokenizer.json of byte-pair encoding, words cut by GPT-2's rule (Radford et al. 2019)."""
    cut = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": cut, "post_processor": None,
        "added_tokens": [{"id": vocabulary[mark], "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for mark in sorted(marks, key=vocabulary.__getitem__)],
        "decoder": cut, "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                                  "vocab": vocabulary, "merges": [line.split(" ") for line in merges if line and not line.startswith("#")]}}
