"""The tokenizer that an encoder was trained with: read from its preset, kept in the run's facts, rebuilt from them alone.

The tokenizers of keras-hub need tensorflow-text, in training and in the saved model.
"""

import base64
import inspect
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from nlp.tokens.base import Cut, Tokenizer, joined
from nlp.tokens.normalise import TAG
from pipelines.base.errors import ConfigError
from pipelines.encoders.locate import read_json
from pipelines.encoders.presets import Preset, description, hub, rebuilt

_SPECIAL = {"BertBackbone": "BertTokenizer", "DistilBertBackbone": "DistilBertTokenizer", "RobertaBackbone": "RobertaTokenizer"}
_MARKS = {"bos_token": "start_token", "eos_token": "end_token"}
_UNKNOWN = ("[UNK]", "<unk>")  # names of the piece that stands for what is unknown


def read(preset: Preset) -> Any:
    """The tokenizer of keras-hub for a preset. Raises ConfigError where its files are missing, damaged or of another kind."""
    try:
        if preset.form == "huggingface" and preset.backbone in _SPECIAL:
            return _converted(preset, getattr(hub().tokenizers, _SPECIAL[preset.backbone]))
        return hub().tokenizers.Tokenizer.from_preset(str(preset.folder))
    except ConfigError:
        raise
    except Exception as error:  # keras-hub raises many kinds: a missing file, a vocabulary without its marks, a bad setting
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{preset.key}: {preset.handle}: its tokenizer cannot be read ({reason}); without the one that it was trained "
                          "with, its weights mean nothing: copy the preset again, whole") from error


def _converted(preset: Preset, kind: Any) -> Any:
    """A tokenizer from Hugging Face, by tokenizer.json where it is there: keras-hub's own conversion needs the older files beside it, and
    forgets that accents are stripped."""
    files = preset.folder / "tokenizer.json", preset.folder / "tokenizer_config.json"
    whole, config = (read_json(path) if path.is_file() else {} for path in files)
    model = whole.get("model") or {}
    if "XLMRoberta" in str(config.get("tokenizer_class")) or (preset.backbone == "RobertaBackbone" and not model):
        return hub().tokenizers.Tokenizer.from_preset(str(preset.folder))
    if preset.backbone == "RobertaBackbone":
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        return kind(vocabulary=model["vocab"], merges=merges)
    if (preset.folder / "vocab.txt").is_file():
        vocabulary = (preset.folder / "vocab.txt").read_text("utf-8").splitlines()
    elif model.get("type") == "WordPiece":
        vocabulary = sorted(model["vocab"], key=model["vocab"].get)
        if [model["vocab"][piece] for piece in vocabulary] != list(range(len(vocabulary))):
            raise ConfigError(f"{preset.key}: {files[0]}: the numbers of its pieces have gaps; the file is damaged: copy the preset again")
    else:
        raise ConfigError(f"{preset.key}: {preset.folder} has neither vocab.txt nor a WordPiece vocabulary in tokenizer.json")
    stated = whole.get("normalizer")
    lower, strip = _normalised(stated) if stated else (config.get("do_lower_case", True), config.get("strip_accents"))
    return kind(vocabulary=vocabulary, lowercase=bool(lower), strip_accents=bool(lower if strip is None else strip))


def _normalised(normalizer: dict[str, Any]) -> tuple[bool, bool | None]:
    """Whether a normalizer of tokenizer.json makes letters small and strips accents; None: it strips them where it makes letters small."""
    kinds = {each.get("type"): each for each in normalizer.get("normalizers", [normalizer])}
    bert = kinds.get("BertNormalizer", {})
    return bool(bert.get("lowercase")) or "Lowercase" in kinds, bert.get("strip_accents") if bert else "StripAccents" in kinds


def kept(tokenizer: Any) -> dict[str, Any]:
    """The facts of a tokenizer: class, settings, files in base64, and whether texts are made small for it (`lower`), as in its training:
    of ALBERT's, which keras-hub's conversion forgets."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_assets(folder)
        files = {path.name: base64.b64encode(path.read_bytes()).decode() for path in sorted(Path(folder).iterdir())}
    described = description(tokenizer)
    for name, kept_as in _MARKS.items():  # which keras-hub leaves out of a tokenizer's settings
        if name in inspect.signature(type(tokenizer).__init__).parameters and hasattr(tokenizer, kept_as):
            described["config"].setdefault(name, getattr(tokenizer, kept_as))
    return {**described, "files": files, "lower": knows(tokenizer, "taxi") and not knows(tokenizer, "TAXI")}


def knows(tokenizer: Any, word: str) -> bool:
    """Whether a word has no unknown part."""
    unknown = {*_UNKNOWN, getattr(tokenizer, "oov_token", None)}
    return unknown.isdisjoint(tokenizer.id_to_token(int(number)) for number in tokenizer([word])[0])


def restored(kept_facts: dict[str, Any]) -> Any:
    """The tokenizer of keras-hub of these facts."""
    with tf.init_scope(), tempfile.TemporaryDirectory() as folder:  # its tables must not belong to the current graph
        preset = rebuilt(hub().tokenizers, kept_facts)
        for name, content in kept_facts["files"].items():
            (Path(folder) / Path(name).name).write_bytes(base64.b64decode(content))
        preset.load_assets(folder)
    return preset


def make(kept_facts: dict[str, Any], limit: int, *, html: bool = False) -> Tokenizer:
    """The tokenizer of these facts, with its marks at both ends; `html`: tags are left out. Numbers are the preset's plus 1, so that 0 is
    always padding."""
    preset = restored(kept_facts)
    start, end = (getattr(preset, f"{name}_token_id", None) for name in ("cls", "sep"))
    start = start if start is not None else getattr(preset, "start_token_id", None)
    end = end if end is not None else getattr(preset, "end_token_id", None)
    marks = (start is not None) + (end is not None)

    def words(texts: tf.Tensor) -> tf.RaggedTensor:
        return tf.strings.split(texts)

    def cut(texts: tf.Tensor) -> Cut:
        texts = tf.strings.regex_replace(texts, TAG, " ") if html else texts
        ids = preset(tf.strings.lower(texts, "utf-8") if kept_facts.get("lower") else texts)
        if not isinstance(ids, tf.RaggedTensor):  # outside of a graph it gives lists
            ids = tf.ragged.constant(ids, dtype=tf.int32, ragged_rank=1)
        ids = tf.cast(ids, tf.int32)[:, : limit - marks] + 1
        ends = [None if mark is None else tf.RaggedTensor.from_tensor(tf.fill([ids.nrows(), 1], mark + 1)) for mark in (start, end)]
        (ids,) = joined([[part] for part in (ends[0], ids, ends[1]) if part is not None])
        nothing = ids.with_flat_values(tf.zeros_like(ids.flat_values))
        return Cut(ids, nothing, nothing)

    held = [one for one in tf.train.TrackableView(preset).descendants() if isinstance(one, tf.saved_model.experimental.TrackableResource)]
    return Tokenizer(int(preset.vocabulary_size()) + 1, words, cut, marks=(int(start is not None), int(end is not None)),
                     resources=tuple(held))
