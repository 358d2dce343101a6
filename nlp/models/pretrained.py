"""A pretrained text encoder and a linear layer on its pooled vectors. Needs the extra `pretrained`.

The model is two: `features`, from token numbers to pooled vectors [batch, width] float32, in which the encoder of keras-hub stands as
`backbone`; and `head`, from these to logits. The facts hold the encoder's settings and tokenizer, so that a finished run is rebuilt
without the preset.
"""

import re
from typing import Any

import keras
import tensorflow as tf

from nlp.models.parts import PAD, Mask, MaxPool, MeanPool, logits
from nlp.models.word_scores import WordScores, buckets_for
from nlp.settings import AnswerEncoder, PairEncoder, PlaceEncoder, Pretrained, TagEncoder
from nlp.tokens import preset as preset_tokens
from nlp.tokens.base import Tokenizer
from pipelines.base.errors import ConfigError
from pipelines.data.divide import Warned
from pipelines.encoders.finetune import FROZEN_BELOW, by_examples
from pipelines.encoders.locate import read_json
from pipelines.encoders.presets import Preset, description, find, hub, load, rebuilt, record, subclasses
from pipelines.encoders.transformer_layers import simplify
from pipelines.machine.compiling import for_xla
from pipelines.training.weight_limits import bounded

_TANH_GELU = ("AlbertBackbone", "BertBackbone")  # of keras-hub, whatever config.json states
_HUGGING_FACE = re.compile(r"(?:https?://)?huggingface\.co/|hf://")
_BY_LAYER = ("BertBackbone", "DistilBertBackbone", "RobertaBackbone", "XLMRobertaBackbone")  # each layer's vectors can be had
_SPARE = 0.05  # of an encoder's rows that a whole tokenizer may leave unused
LAYERS, WINDOW, WORDS = 3, 128, 2  # of a frozen encoder: benchmarks/results/texts-layers.csv, -windows, -words
PASSAGES = 384  # tokens of a question and a part of its passage
WORDS_FROM = 10  # texts of a class, on average, that classifiers of words need


def learn(settings: Pretrained | PairEncoder | PlaceEncoder) -> tuple[dict[str, Any], list[str]]:
    """Reads the preset, but none of its weights.

    Returns:
        The facts, and notes for the report: `encoder` (where it came from), `backbone` (class and settings), `tokenizer` (class, settings
        and files in base64), `pool`.

    Raises:
        ConfigError: see `pipelines.encoders.presets.find`; or the preset generates text, or model.limit is more than it takes.
    """
    preset = find(settings.preset, domain="nlp")
    _require_encoder(preset)
    own_tokens = preset_tokens.read(preset)
    with bounded(f"{preset.key}: {preset.handle}"):
        backbone = load(preset, weights=False)
    facts = {"encoder": record(preset), "backbone": description(backbone), "tokenizer": preset_tokens.kept(own_tokens),
             "pool": settings.pool if settings.pool != "auto" else trained_pool(preset)}
    if settings.layers is not None and settings.layers > _layers_there(facts):
        raise ConfigError(f"model.layers: {settings.layers}, and {settings.preset} ({preset.backbone}) has {_layers_there(facts)} whose "
                          "vectors can be used")
    if settings.window is not None and not _has_windows(facts):
        raise ConfigError(f"model.window: {settings.preset} ({preset.backbone}) makes a text's vector by {facts['pool']}; windows are for "
                          "the mean of BERT, DistilBERT, RoBERTa and XLM-RoBERTa")
    longest, name = getattr(backbone, "max_sequence_length", None), "limit" if settings.window is None else "window"
    seen = min(settings.limit, pooling(settings, facts, FROZEN_BELOW)["window"] or settings.limit)
    if longest is not None and seen > longest:
        raise ConfigError(f"model.{name}: {seen} tokens, and {settings.preset} takes {longest} at most")
    missing = _vocabulary(preset, own_tokens, backbone)
    return facts, [*_differences(preset), *map(Warned, (*missing, *_accents(preset, own_tokens)))]


def _layers_there(facts: dict[str, Any]) -> int:
    return int(facts["backbone"]["config"]["num_layers"]) if facts["backbone"]["class"] in _BY_LAYER else 1


def _has_windows(facts: dict[str, Any]) -> bool:
    return facts["pool"] == "mean" and facts["backbone"]["class"] in _BY_LAYER


def pooling(settings: Pretrained | PairEncoder | PlaceEncoder, facts: dict[str, Any], examples: int) -> dict[str, Any]:
    """The facts `layers`, how many stand beside one another, and `window`, None where the encoder sees a text at once; of an encoder that
    is trained on so many examples. Pairs are compared by the last layer, of whole texts."""
    if isinstance(settings, PairEncoder):
        return {"layers": 1, "window": None}
    if isinstance(settings, TagEncoder):
        window = settings.window or facts["backbone"]["config"].get("max_sequence_length") or settings.limit
        return {"layers": 1, "window": window if window < settings.limit else None}
    if isinstance(settings, AnswerEncoder):
        return {"layers": 1, "window": _window_of_passages(settings, facts)}
    frozen = (settings.finetune or by_examples(examples)).name == "frozen" and _has_windows(facts)
    layers = settings.layers or (min(LAYERS, _layers_there(facts)) if frozen else 1)
    longest = facts["backbone"]["config"].get("max_sequence_length") or WINDOW
    window = settings.window or (min(WINDOW, longest) if frozen else settings.limit)
    return {"layers": layers, "window": window if window < settings.limit else None}


def _window_of_passages(settings: AnswerEncoder, facts: dict[str, Any]) -> int | None:
    """Raises ConfigError for a window without room for a question and a passage."""
    window = settings.window or min(PASSAGES, facts["backbone"]["config"].get("max_sequence_length") or PASSAGES)
    if window >= settings.limit:
        return None
    if window < settings.question + (settings.overlap or 0) + 8:
        raise ConfigError(f"model.question: {settings.question} tokens, and the encoder sees {window} at a time: there is no room for a "
                          "passage; lower it (model.window, model.overlap)")
    return window


def scoring(settings: Pretrained | PairEncoder | PlaceEncoder, examples: int, classes: int, private: bool) -> dict[str, Any]:
    """The facts `words`, the longest run of tokens by which a text is scored beside the encoder, 0 for none, and `buckets`."""
    buckets = buckets_for(examples, classes)
    if settings.words and buckets is None:
        raise ConfigError(f"model.words: {classes:,} classes are too many to have classifiers of words; set it to 0")
    frozen = (settings.finetune or by_examples(examples)).name == "frozen"
    known = buckets is not None and examples >= WORDS_FROM * classes
    words = settings.words if settings.words is not None else WORDS if frozen and known and not private else 0
    return {"words": words, "buckets": buckets if words else None}


def _require_encoder(preset: Preset) -> None:
    """Raises ConfigError for a network that generates text, or turns one text into another."""
    models = hub().models
    for base in (models.CausalLM, models.Seq2SeqLM):
        if any(getattr(kind, "backbone_cls", None) is getattr(models, preset.backbone) for kind in subclasses(base)):
            raise ConfigError(f"{preset.key}: {preset.handle} ({preset.backbone}) generates text; a text's vector comes from an encoder, "
                              "such as one of BERT's family")


def trained_pool(preset: Preset) -> str:
    """How the encoder was trained to make one vector of a text: mean, first or max; mean where the preset does not state it."""
    stated = preset.folder / "1_Pooling" / "config.json"  # of sentence-transformers
    if stated.is_file():
        config = read_json(stated)
        return "first" if config.get("pooling_mode_cls_token") else "max" if config.get("pooling_mode_max_tokens") else "mean"
    task = preset.folder / "task.json"  # of keras-hub
    mode = read_json(task).get("config", {}).get("pooling_mode") if task.is_file() else None
    return {"cls": "first", "max": "max"}.get(str(mode), "mean")


def _vocabulary(preset: Preset, tokenizer: Any, backbone: Any) -> list[str]:
    """Whether the tokenizer lacks pieces that the encoder knows; some encoders have rows to spare.

    Raises:
        ConfigError: it has pieces that the encoder has no vectors for.
    """
    pieces, rows = int(tokenizer.vocabulary_size()), getattr(backbone, "vocabulary_size", None)
    if rows is None or rows * (1 - _SPARE) <= pieces <= rows:
        return []
    said = f"{preset.key}: {preset.handle}: its tokenizer has {pieces:,} pieces and the encoder vectors for {rows:,}"
    if pieces > rows:
        raise ConfigError(f"{said}; they do not belong together, or a file is damaged: copy the preset again")
    return [f"{said}: a part of the tokenizer's file may be missing, and what it does not know is lost"]


def _differences(preset: Preset) -> list[str]:
    """What keras-hub is known to compute differently from the network that the weights come from; Warned where answers differ."""
    tanh = preset.backbone in _TANH_GELU
    if preset.form == "huggingface":
        stated = preset.config.get("hidden_act", preset.config.get("activation", "gelu"))
        where = "the original's"
    elif preset.form == "keras" and preset.backbone == "BertBackbone" and _HUGGING_FACE.match(preset.source or ""):
        stated, where = "gelu", f"those of {preset.source}"
    else:
        return []
    if stated in (("gelu_new", "gelu_pytorch_tanh", "gelu_fast") if tanh else ("gelu",)):
        return []
    form = "the tanh form of GELU" if tanh else "GELU"
    if stated == "gelu":  # it changes next to no answer, so no run is to warn of it
        return [f"{preset.name}: keras-hub computes it with {form}, so its vectors differ by some 3e-3 from {where}"]
    return [Warned(f"{preset.name}: keras-hub computes it with {form}, and its config.json states {stated}: its vectors differ from the "
                   "original's; fine-tune it, or take another encoder")]


def _accents(preset: Preset, tokenizer: Any) -> list[str]:
    """Whether words are unknown for their accents alone, which encoders of small letters were trained without."""
    unknown = getattr(tokenizer, "oov_token", None)
    if unknown is None or not preset_tokens.knows(tokenizer, "cafe") or preset_tokens.knows(tokenizer, "caf\u00e9"):
        return []
    return [f"{preset.name}: its tokenizer knows no letters with accents and does not strip them: caf\u00e9 becomes {unknown}. The network "
            "was probably trained without accents, which keras-hub's conversion forgets: set strip_accents: true in the preset's "
            "tokenizer.json"]


def tokenizer(settings: Pretrained | PairEncoder | PlaceEncoder, facts: dict[str, Any]) -> Tokenizer:
    """The preset's tokenizer, from the facts."""
    return preset_tokens.make(facts["tokenizer"], settings.limit, html=settings.html)


def build(settings: Pretrained, *, facts: dict[str, Any], classes: int) -> keras.Model:
    """From token numbers (the preset's plus 1) to logits; with the preset's weights where settings.weights says so."""
    ids = keras.Input((None,), dtype="int32", name="tokens")
    scores = WordScores(facts["words"], classes, facts["buckets"], name="words") if facts.get("words") else None
    features = _features(encoder(settings, facts), facts["pool"], facts.get("layers") or 1, facts.get("window"), scores)
    return keras.Model(ids, head(features, classes, settings.dropout)(features(ids)), name="pretrained")


def encoder(settings: Pretrained | PairEncoder | PlaceEncoder, facts: dict[str, Any]) -> Any:
    """The backbone, with the preset's weights where settings.weights says so."""
    backbone = load(find(settings.preset, domain="nlp")) if settings.weights == "preset" else rebuilt(hub().models, facts["backbone"])
    simplify(backbone)
    return backbone


def head(features: keras.Model, classes: int, dropout: float) -> keras.Model:
    """The last layer, from what `features` gives to logits."""
    inputs = keras.Input((features.output_shape[-1],), dtype="float32", name="features")
    return keras.Model(inputs, logits(inputs, classes, dropout), name="head")


def _features(backbone: Any, pool: str, layers: int, window: int | None, scores: WordScores | None) -> keras.Model:
    ids = keras.Input((None,), dtype="int32", name="tokens")
    rows, texts = Windows(window, name="windows")(ids) if window else (ids, None)
    vectors = [_pooled([sequence, rows, texts, ids], pool, f"_{place}" if place else "")
               for place, sequence in enumerate(sequences(backbone, rows, layers))]
    vectors += [scores(ids)] if scores else []
    return keras.Model(ids, keras.layers.Concatenate(dtype="float32")(vectors) if len(vectors) > 1 else vectors[0], name="features")


def sequences(backbone: Any, rows: keras.KerasTensor, layers: int = 1, segments: keras.KerasTensor | None = None,
              ) -> list[keras.KerasTensor]:
    """Vectors [rows, time, width] of the tokens `rows` [rows, time], of each of the last layers.

    Args:
        segments: [rows, time] int32, 1 where the second text of a pair stands; None: rows hold one text each.
    """
    inputs = {"token_ids": Shifted(name="token_ids")(rows), "padding_mask": Mask(name="padding_mask")(rows)}
    wanted = {tensor.name.split(":")[0] for tensor in keras.tree.flatten(backbone.input)}
    if "segment_ids" in wanted:
        inputs["segment_ids"] = keras.ops.zeros_like(inputs["token_ids"]) if segments is None else segments
    if layers > 1:
        last = [layer.output for layer in backbone.transformer_layers[-layers:]]
        backbone = keras.Model(backbone.input, last, name="backbone")
    outputs = backbone({name: value for name, value in inputs.items() if name in wanted})
    outputs = outputs["sequence_output"] if isinstance(outputs, dict) else outputs
    return list(outputs) if layers > 1 else [outputs]


def pooled(sequence: keras.KerasTensor, rows: keras.KerasTensor, pool: str) -> keras.KerasTensor:
    """One vector of each row's tokens, [rows, width] float32 of root mean square 1."""
    return _pooled([sequence, rows, None, rows], pool, "")


def _pooled(given: list[keras.KerasTensor | None], pool: str, suffix: str) -> keras.KerasTensor:
    """One vector of the tokens' vectors of a layer; `given` are these, the tokens of windows, their texts, and the tokens of whole
    texts."""
    sequence, rows, _, ids = given
    if pool == "first":
        pooled = First(name=f"first{suffix}")(sequence)
    elif pool == "max":
        pooled = MaxPool(name=f"max{suffix}", dtype="float32")([sequence, ids])
    elif rows is ids:
        pooled = MeanPool(name=f"mean{suffix}")([sequence, ids])
    else:
        pooled = WindowMean(name=f"mean{suffix}")(given)
    return Directed(name=f"directed{suffix}")(pooled)


class Windows(keras.layers.Layer):
    """Texts between a first and a last mark, [batch, time] int32, as windows of `size` tokens at most, each between marks of its own.

    A text's windows are as few as can be and of one length, but for the last. Gives the windows, [windows, time of one], and the place
    in the batch of each one's text, [windows] int32. Where a whole model is compiled by XLA, which wants to know their number, and in
    training up to a multiple of `MULTIPLES`, so that few shapes are compiled, empty windows stand among or behind them.
    """

    MULTIPLES = 4, 8  # windows, and tokens of each

    def __init__(self, size: int, **options):
        super().__init__(**options)
        self.size = size

    def call(self, ids, training=False):
        lengths = tf.reduce_sum(tf.cast(ids != PAD, tf.int32), 1)
        inner = tf.maximum(lengths - 2, 0)  # between the marks
        count = tf.maximum(-(-inner // (self.size - 2)), 1)
        each = tf.maximum(-(-inner // count), 1)
        time = tf.reduce_max(each)
        if training:
            time = tf.minimum(-(-(time + 2) // self.MULTIPLES[1]) * self.MULTIPLES[1], self.size) - 2
        window, place = tf.range(tf.reduce_max(count))[None, :, None], tf.range(time)
        within = window * each[:, None, None] + place
        there = (place < each[:, None, None]) & (within < inner[:, None, None])
        tokens = tf.gather(ids, tf.where(there, within + 1, 0), batch_dims=1) * tf.cast(there, tf.int32)
        begun = tf.cast(tf.reduce_any(there, 2, keepdims=True) | (window == 0), tf.int32)
        own = tf.concat([tf.expand_dims(ids[:, :1], 2) * begun, tokens, tf.zeros_like(begun)], 2)
        last = tf.gather(ids, tf.maximum(lengths - 1, 0), batch_dims=1)[:, None, None] * begun
        behind = tf.range(time + 2) == tf.reduce_sum(tf.cast(there, tf.int32), 2, keepdims=True) + 1
        rows = tf.reshape(tf.where(behind, last, own), [-1, time + 2])
        texts = tf.reshape(tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, None], tf.shape(begun)[:2]), [-1])
        if for_xla():
            return rows, texts
        filled = tf.where(tf.reshape(begun, [-1]) > 0)[:, 0]
        rows, texts = tf.gather(rows, filled), tf.gather(texts, filled)
        if training:
            more = -tf.shape(rows)[0] % self.MULTIPLES[0]
            rows, texts = tf.pad(rows, [[0, more], [0, 0]]), tf.pad(texts, [[0, more]])
        return rows, texts

    def compute_output_spec(self, ids, training=False):
        return keras.KerasTensor((None, None), "int32"), keras.KerasTensor((None,), "int32")


class WindowMean(keras.layers.Layer):
    """[vectors of windows, tokens of windows, place of their texts, tokens of texts] -> the mean over all of a text's tokens,
    [batch, width] float32."""

    def __init__(self, **options):
        super().__init__(**{"dtype": "float32", **options})
        self.supports_masking = True

    def call(self, inputs):
        vectors, rows, texts, ids = inputs
        mask = tf.cast(rows != PAD, vectors.dtype)
        sums = tf.linalg.matmul(tf.expand_dims(mask, 1), vectors)[:, 0]
        own = tf.one_hot(texts, tf.shape(ids)[0], dtype=vectors.dtype)
        count = tf.linalg.matmul(own, tf.reduce_sum(mask, 1, keepdims=True), transpose_a=True)
        return tf.linalg.matmul(own, sums, transpose_a=True) / tf.maximum(count, 1.0)

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((inputs[3].shape[0], inputs[0].shape[2]), "float32")


class Shifted(keras.layers.Layer):
    """Our numbers as the preset's; padding becomes 0, and is masked."""

    def call(self, ids):
        return tf.where(ids == PAD, 0, ids - 1)


class Directed(keras.layers.Layer):
    """Vectors scaled to a root mean square of 1, float32: sentence encoders are trained on the direction alone, and the length of a mean is
    mostly noise (frozen MiniLM on CLINC150, validation: out-of-scope AUROC 0.94 to 0.97)."""

    def __init__(self, **options):
        super().__init__(**{"dtype": "float32", **options})

    def call(self, vectors):
        return vectors * tf.math.rsqrt(tf.reduce_mean(tf.square(vectors), -1, keepdims=True) + 1e-12)


class First(keras.layers.Layer):
    """The vector of the first token, float32."""

    def __init__(self, **options):
        super().__init__(**{"dtype": "float32", **options})

    def call(self, sequence):
        return sequence[:, 0]
