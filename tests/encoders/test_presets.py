"""Presets by their headers: what is found, what is recorded, and one clear message for each that cannot be used, before it is read."""

import importlib.util
import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipelines.base.errors import ConfigError
from pipelines.encoders import locate, presets
from pipelines.encoders.settings import EncoderRecord, KerasObject
from pipelines.machine import memory

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text", "safetensors"))
pytestmark = pytest.mark.skipif(
    not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")
BERT = {"vocabulary_size": 12, "num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16, "max_sequence_length": 16}


def keras_preset(folder: Path, backbone: str = "BertBackbone", **config) -> Path:
    """The files of a Keras preset, with six weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "module": "keras_hub.models", "class_name": backbone, "config": config, "registered_name": f"keras_hub>{backbone}"}))
    (folder / "tokenizer.json").write_text("{}")
    with h5py.File(folder / "model.weights.h5", "w") as file:
        file["layers/dense/vars/0"] = np.zeros((2, 3), np.float16)
        file["seed_generator/vars/0"] = np.zeros(2, np.uint32)
    return folder


def hugging_face(folder: Path, **config) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "_name_or_path": "somebody/bert", **config}))
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                         "ids": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(32))
    return folder


def refusal(folder: Path, domain: str = "nlp") -> str:
    with pytest.raises(ConfigError) as caught:
        presets.find(str(folder), domain=domain)
    assert str(caught.value).count(str(folder))
    return str(caught.value)


def test_a_preset_is_known_by_its_headers(tmp_path, monkeypatch):
    folder = keras_preset(tmp_path / "presets" / "own")
    (folder / "SOURCE.md").write_text("# own\n\n- Upstream: example.org/own, revision 1\n- Licence: Apache-2.0. And more.\n")
    monkeypatch.setenv("QUARTET_PRESETS", str(tmp_path / "presets"))
    monkeypatch.setenv("HOME", str(tmp_path))
    by_name = presets.find("own", domain="nlp")
    assert (by_name.form, by_name.backbone, by_name.domain) == ("keras", "BertBackbone", "nlp")
    assert by_name.bytes == (folder / "model.weights.h5").stat().st_size
    assert EncoderRecord.model_validate(presets.record(by_name)).model_dump() == {
        "name": "own", "source": "example.org/own", "licence": "Apache-2.0", "weights": 6, "checksum": by_name.checksum, "unread": []}
    by_path = presets.find("~/presets/own")
    assert presets.record(by_path) == presets.record(by_name)


def test_a_folder_of_hugging_face_states_source_and_licence(tmp_path):
    folder = hugging_face(tmp_path / "bert")
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# BERT\n")
    preset = presets.find(str(folder), domain="nlp")
    assert (preset.form, preset.weights, preset.source, preset.licence) == ("huggingface", 6, "somebody/bert", "mit")


@pytest.mark.parametrize("backbone, domain", [
    ("BertBackbone", "nlp"), ("EfficientNetBackbone", "vision"), ("WhisperBackbone", "speech"), ("MoonshineBackbone", "speech"),
    ("CLIPBackbone", "")])
def test_a_backbone_has_a_domain(backbone, domain):
    assert presets.domain_of(getattr(presets.hub().models, backbone)) == domain


def test_a_preset_of_another_domain(tmp_path):
    assert "is for images, and the task needs an encoder for text" in refusal(keras_preset(tmp_path / "p", "EfficientNetBackbone"))
    assert "is not an encoder of one domain" in refusal(keras_preset(tmp_path / "p", "CLIPBackbone"))


def test_a_preset_of_another_kind(tmp_path):
    folder = keras_preset(tmp_path / "p")
    (folder / "config.json").write_text('{"model": "x"}')
    assert "describes no preset of KerasHub, Hugging Face or timm" in refusal(folder)
    assert "keras-hub has no Nothing" in refusal(keras_preset(tmp_path / "p", "Nothing"))
    assert "cannot convert a wav2vec2 model" in refusal(hugging_face(tmp_path / "w", model_type="wav2vec2"))
    (tmp_path / "empty").mkdir()
    assert "there is no config.json" in refusal(tmp_path / "empty")
    assert "is a file; name the folder" in refusal(folder / "config.json")


def test_a_damaged_preset(tmp_path):
    folder = keras_preset(tmp_path / "p")
    whole = (folder / "model.weights.h5").read_bytes()
    (folder / "model.weights.h5").write_bytes(whole[:-100])
    assert "model.weights.h5: cannot be read as weights" in refusal(folder)
    (folder / "model.weights.h5").unlink()
    assert "holds no weights" in refusal(folder)
    (folder / "model.weights.json").write_text('{"weight_map": {"a": "../other.h5"}}')
    assert "names ../other.h5, which is not there" in refusal(folder)
    (folder / "config.json").write_text('{"registered_name": ')
    assert "config.json: is no JSON" in refusal(folder)
    other = hugging_face(tmp_path / "h")
    content = (other / "model.safetensors").read_bytes()
    for wrong in (content[:-8], content[:20]):
        (other / "model.safetensors").write_bytes(wrong)
        assert "model.safetensors: cannot be read as weights" in refusal(other)


def test_a_preset_without_tokenizer(tmp_path):
    folder = keras_preset(tmp_path / "p")
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer" in refusal(folder)


def test_a_preset_too_large_for_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 20)
    assert "too large for this machine: its 6 weights" in refusal(keras_preset(tmp_path / "p"))


def bad_pickle(ran: Path) -> bytes:
    """Touches `ran` where something loads it."""
    class Bad:
        def __reduce__(self):
            return Path.touch, (ran,)

    return pickle.dumps(Bad())


@pytest.mark.parametrize("name", ["pytorch_model.bin", "sub/weights.pt"])
def test_a_pickle_beside_weights_is_named_and_not_read(tmp_path, name):
    folder = hugging_face(tmp_path / "p")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(bad_pickle(tmp_path / "ran"))
    preset = presets.find(str(folder), domain="nlp")
    assert EncoderRecord.model_validate(presets.record(preset)).unread == [name]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "vocab.txt"])
def test_a_pickle_in_place_of_what_is_read_is_refused_and_not_read(tmp_path, name):
    folder = hugging_face(tmp_path / "p")
    if name == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(bad_pickle(tmp_path / "ran"))
    assert "is or may be a pickle" in refusal(folder)
    assert not (tmp_path / "ran").exists()


def test_a_preset_that_is_no_regular_file(tmp_path):
    folder = keras_preset(tmp_path / "p")
    os.mkfifo(folder / "notes")
    assert "is a named pipe" in refusal(folder)


@pytest.mark.parametrize("named", [{"module": "os", "class_name": "system"}, {"module": "keras.layers", "class_name": "Lambda"}])
def test_settings_that_name_code_are_refused(tmp_path, named):
    assert "no code of a preset is executed" in refusal(keras_preset(tmp_path / "p", inner=[named]))
    with pytest.raises(ConfigError, match="no code of a preset is executed"):
        presets.rebuilt(presets.hub().models, {"class": "BertBackbone", "config": {"inner": named}})
    for name in ("missing", "__class__.x", "Backbone.from_preset"):
        with pytest.raises(ConfigError, match="keras-hub has no"):
            presets.rebuilt(presets.hub().models, {"class": name, "config": {}})


def test_what_cannot_be_had_offline_is_an_error_that_says_where_to_get_it(tmp_path, monkeypatch):
    import huggingface_hub
    import kagglehub

    def offline(*_, **__):
        raise OSError("no network")

    monkeypatch.setenv("QUARTET_PRESETS", str(tmp_path / "presets"))
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    monkeypatch.setattr(kagglehub, "model_download", offline)
    hub = "hf download somebody/tiny --exclude '*.bin' --exclude '*.pt' --local-dir tiny"
    for handle, command, folder in (("hf://somebody/tiny", hub, "tiny"),
                                    ("bert_tiny_en_uncased", "kagglehub.model_download('keras/bert", "bert_tiny_en_uncased")):
        with pytest.raises(ConfigError) as caught:
            presets.find(handle)
        text = str(caught.value)
        assert "not on this machine and cannot be downloaded (no network)" in text
        assert command in text and str(tmp_path / "presets" / folder) in text
    with pytest.raises(ConfigError, match=r"no preset 'bert_tiny_en_uncase'.*did you mean bert_tiny_en_uncased"):
        presets.find("bert_tiny_en_uncase")


def test_filled_caches_are_used_without_a_network(tmp_path, monkeypatch):
    import huggingface_hub
    import kagglehub

    path = presets.builtin()["bert_tiny_en_uncased"]["kaggle_handle"].removeprefix("kaggle://")
    keras_preset(tmp_path / "models" / path)
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
    monkeypatch.setattr(kagglehub, "model_download", None)
    preset = presets.find("bert_tiny_en_uncased", domain="nlp")
    assert (preset.name, preset.source) == ("bert_tiny_en_uncased", f"kaggle://{path}")
    folder = hugging_face(tmp_path / "snapshot")

    def only_cached(repository, local_files_only):
        assert (repository, local_files_only) == ("somebody/tiny", True)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", only_cached)
    assert presets.record(presets.find("hf://somebody/tiny"))["source"] == "hf://somebody/tiny"


def test_a_backbone_is_loaded_and_rebuilt_from_its_description(tmp_path):
    models = presets.hub().models
    backbone = models.BertBackbone(**BERT, dtype="float32")
    backbone.save_to_preset(str(tmp_path / "p"))
    preset = presets.find(str(tmp_path / "p"))
    assert preset.weights == backbone.count_params()
    loaded = presets.load(preset)
    again = presets.rebuilt(models, KerasObject.model_validate(presets.description(loaded)).model_dump(by_alias=True))
    for before, after, fresh in zip(backbone.weights, loaded.weights, again.weights, strict=True):
        assert np.array_equal(before, after) and before.shape == fresh.shape
    config = json.loads((tmp_path / "p" / "config.json").read_text())
    config["config"]["hidden_dim"] = 16
    (tmp_path / "p" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="do not belong together"):
        presets.load(presets.find(str(tmp_path / "p")))


def test_without_keras_hub_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(importlib.sys.modules, "keras_hub", None)
    with pytest.raises(ConfigError, match=r"pip install 'keras-quartet\[pretrained\]'"):
        presets.find("bert_tiny_en_uncased")


def test_the_presets_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("QUARTET_PRESETS", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert locate.presets_folder() == tmp_path / "presets"


def test_a_model_that_another_thread_builds_while_a_preset_is_read_has_drawn_weights():
    import keras

    def drawn() -> bool:
        layer = keras.layers.Dense(4)
        layer.build((1, 3))
        return bool(np.any(layer.kernel.numpy()))

    before = keras.Variable.__init__
    with presets._undrawn(), ThreadPoolExecutor(1) as other:
        assert not drawn() and other.submit(drawn).result()
    assert drawn() and keras.Variable.__init__ is before
