"""Tiny encoders with random weights, saved as presets."""

from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *("##" + letter for letter in LETTERS),
          "the", "room", "taxi", "please", "book", "cancel", "wifi", "towels", "breakfast"]

SCALE, OFFSET = [0.01, 0.02, 0.03], [-1.0, -0.5, 0.25]  # of pixels, red, green and blue


def bert(folder: Path, width: int = 16) -> Path:
    """A text encoder of `width` columns with its tokenizer."""
    import keras_hub

    backbone = keras_hub.models.BertBackbone(vocabulary_size=len(PIECES), num_layers=1, num_heads=2, hidden_dim=width,
                                             intermediate_dim=32, max_sequence_length=32)
    backbone.save_to_preset(str(folder))
    keras_hub.models.BertTokenizer(vocabulary=PIECES, lowercase=True, strip_accents=True).save_to_preset(str(folder))
    return folder


def llama(folder: Path, *, tied: bool = True, more: str = "") -> Path:
    """A language model of 2 layers of 16 columns, 4 heads on 2 keys and values, its norms unlike new ones, with a tokenizer of letters,
    alone or after a blank, and of `more` characters."""
    import json

    import keras
    import keras_hub
    import numpy as np

    keras.utils.set_random_seed(3)
    signs = [*LETTERS, "Ġ", "Ċ", ".", *more, *(f"Ġ{letter}" for letter in LETTERS)]
    marks = ["<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    pieces = [marks[0], *LETTERS.upper(), *signs, *marks[1:]]
    tokenizer = keras_hub.models.Llama3Tokenizer(vocabulary={piece: number for number, piece in enumerate(pieces)},
                                                 merges=[f"Ġ {letter}" for letter in LETTERS])
    backbone = keras_hub.models.Llama3Backbone(
        vocabulary_size=len(pieces), num_layers=2, num_query_heads=4, num_key_value_heads=2, hidden_dim=16, intermediate_dim=24,
        rope_max_wavelength=500.0, tie_word_embeddings=tied, layer_norm_epsilon=1e-5)
    for weight in backbone.weights:
        weight.assign(np.random.default_rng(len(weight.shape)).normal(0.5 if len(weight.shape) == 1 else 0.0, 0.3, weight.shape))
    backbone.save_to_preset(str(folder))
    tokenizer.save_to_preset(str(folder))
    described = json.loads((folder / "config.json").read_text())
    described["config"]["tie_word_embeddings"] = tied  # which keras-hub leaves out
    (folder / "config.json").write_text(json.dumps(described))
    return folder


CHAT = ("{% for one in messages %}{{ '<|start_header_id|>' + one['role'] + '<|end_header_id|>' + one['content'] + '<|eot_id|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}")


def chatting(folder: Path, more: str = "") -> Path:
    """`llama` with a template for dialogues."""
    (llama(folder, more=more) / "chat_template.jinja").write_text(CHAT)
    return folder


def whisper(folder: Path, *, seconds: int = 4, languages: tuple[str, ...] = (), stamps: int = 0) -> Path:
    """Whisper of 2 + 2 layers of 16 columns and 8 bands, for sounds of up to `seconds` s, with its tokenizer: letters, alone or after a
    blank. Of several languages where they are named; with so many time stamps."""
    import keras_hub

    names = [f"<|{name}|>" for name in languages or ("en",)]
    marks = ["<|endoftext|>", "<|startoftranscript|>", *names, "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>",
             "<|nocaptions|>", "<|notimestamps|>"]
    pieces = [*LETTERS, "Ġ", *(f"Ġ{letter}" for letter in LETTERS)]
    numbers = {piece: number for number, piece in enumerate([*pieces, *marks])}
    own = {mark: numbers[mark] for mark in names}
    keras_hub.models.WhisperTokenizer(
        vocabulary={piece: numbers[piece] for piece in pieces}, merges=[f"Ġ {letter}" for letter in LETTERS],
        special_tokens={mark: numbers[mark] for mark in marks if mark not in own or not languages},
        language_tokens=own if languages else None).save_to_preset(str(folder))
    keras_hub.models.WhisperBackbone(
        vocabulary_size=len(numbers) + stamps, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32, num_mels=8,
        max_encoder_sequence_length=100 * seconds, max_decoder_sequence_length=32).save_to_preset(str(folder))
    keras_hub.layers.WhisperAudioConverter(num_mels=8, max_audio_length=seconds).save_to_preset(str(folder))
    return folder


def moonshine(folder: Path) -> Path:
    """Moonshine of 2 + 2 layers of 16 columns, its norms unlike new ones."""
    import keras
    import keras_hub
    import numpy as np

    keras.utils.set_random_seed(2)
    backbone = keras_hub.models.MoonshineBackbone(
        vocabulary_size=32, filter_dim=16, encoder_num_layers=2, decoder_num_layers=2, hidden_dim=16, intermediate_dim=32,
        encoder_num_heads=2, decoder_num_heads=2, initializer_range=0.3)
    for weight in backbone.group_norm.weights:
        weight.assign(np.random.default_rng(0).uniform(0.5, 1.5, weight.shape))
    backbone.save_to_preset(str(folder))
    keras_hub.layers.MoonshineAudioConverter(do_normalize=True).save_to_preset(str(folder))
    return folder


def efficientnet(folder: Path, *, widths: tuple[int, ...] = (8, 16)) -> Path:
    """An image encoder for 64 px, whose statistics of batches and treatment of pixels are unlike the usual; each stage halves the size."""
    import keras
    import keras_hub
    import numpy as np

    keras.utils.set_random_seed(1)
    stages = {name: [value] * len(widths) for name, value in {
        "kernel_sizes": 3, "num_repeats": 1, "expansion_ratios": 2, "squeeze_and_excite_ratios": 0, "block_types": "unfused",
        "width_coefficients": 1.0, "depth_coefficients": 1.0, "force_input_filters": 0}.items()}
    backbone = keras_hub.models.EfficientNetBackbone(
        **{f"stackwise_{name}": value for name, value in stages.items()}, stackwise_strides=[2] * len(widths),
        stackwise_input_filters=[8, *widths[:-1]], stackwise_output_filters=list(widths), depth_divisor=4, dropout=0.2, activation="relu6")
    for variable in backbone.weights:
        if "moving" in variable.path or variable.name == "beta":  # without the latter ReLU6 would give zeros alone
            variable.assign(np.random.default_rng(len(variable.path)).uniform(0.5, 1.5, variable.shape))
    backbone.save_to_preset(str(folder))
    keras_hub.layers.EfficientNetImageConverter(
        image_size=(64, 64), scale=SCALE, offset=OFFSET, interpolation="bicubic").save_to_preset(str(folder))
    return folder


def pyramid(folder: Path) -> Path:
    """`efficientnet` with features of a half to a thirty-second of the size."""
    return efficientnet(folder, widths=(8, 8, 16, 16))


def roberta(folder: Path) -> Path:
    """A text encoder with pieces of bytes (BPE)."""
    import keras_hub
    from tokenizers.pre_tokenizers import ByteLevel

    pieces = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "th", "the", "Ġthe", "<mask>"]
    keras_hub.models.RobertaBackbone(vocabulary_size=len(pieces), num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32,
                                     max_sequence_length=64).save_to_preset(str(folder))
    keras_hub.models.RobertaTokenizer(vocabulary={piece: number for number, piece in enumerate(pieces)},
                                      merges=["t h", "th e", "Ġ the"]).save_to_preset(str(folder))
    return folder


def albert(folder: Path) -> Path:
    """A text encoder with pieces of SentencePiece."""
    import keras_hub

    proto = sentence_pieces(bos_piece="[CLS]", eos_piece="[SEP]", user_defined_symbols=["[MASK]"])
    tokenizer = keras_hub.models.AlbertTokenizer(proto=proto)
    keras_hub.models.AlbertBackbone(vocabulary_size=tokenizer.vocabulary_size(), num_layers=1, num_heads=2, num_groups=1,
                                    num_inner_repetitions=1, embedding_dim=8, hidden_dim=16, intermediate_dim=32,
                                    max_sequence_length=64).save_to_preset(str(folder))
    tokenizer.save_to_preset(str(folder))
    return folder


def xlm_roberta(folder: Path) -> Path:
    """A text encoder with pieces of SentencePiece whose marks are numbered otherwise."""
    import keras_hub

    tokenizer = keras_hub.models.XLMRobertaTokenizer(proto=sentence_pieces())
    keras_hub.models.XLMRobertaBackbone(vocabulary_size=tokenizer.vocabulary_size(), num_layers=1, num_heads=2, hidden_dim=16,
                                        intermediate_dim=32, max_sequence_length=64).save_to_preset(str(folder))
    tokenizer.save_to_preset(str(folder))
    return folder


def sentence_pieces(**marks) -> bytes:
    """A model of SentencePiece with some 60 pieces."""
    import io

    import sentencepiece

    texts = ["book the taxi please", "the room has wifi and towels", "cancel my breakfast , over 3 cafes now"] * 20
    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=proto, vocab_size=60, hard_vocab_limit=False, minloglevel=2, unk_id=1, pad_id=0,
        bos_id=2, eos_id=3, pad_piece="<pad>", unk_piece="<unk>", **marks)
    return proto.getvalue()


def yamnet(folder: Path) -> Path:
    """YAMNet with random weights, some of 8 bits, that knows three sounds."""
    import numpy as np

    from speech.models.yamnet import FILTERS

    draw, arrays, before = np.random.default_rng(4), {}, 1
    for number, filters in enumerate(FILTERS, 1):
        parts = {"depthwise_conv": (3, 3, before, 1), "pointwise_conv": (1, 1, before, filters)}
        parts = {"conv": (3, 3, 1, filters)} if number == 1 else parts
        for name, shape in parts.items():
            of_depth = name == "depthwise_conv"
            inputs, channels = (9, (1, 1, before, 1)) if of_depth else (9 if number == 1 else before, (1, 1, 1, filters))
            arrays[f"layer{number}/{name}/kernel"] = draw.normal(0, 64, shape).clip(-127, 127).astype(np.int8)
            arrays[f"layer{number}/{name}/kernel:scale"] = np.full(channels, np.sqrt(2 / inputs) / 64, np.float32)
            arrays[f"layer{number}/{name}/bias"] = draw.normal(0, 0.1, before if of_depth else filters).astype(np.float32)
        before = filters
    arrays |= {"logits/kernel": draw.normal(0, 0.1, (before, 3)).astype(np.float32), "logits/bias": np.zeros(3, np.float32)}
    folder.mkdir(parents=True)
    np.savez(folder / "weights.npz", **arrays)
    (folder / "yamnet_class_map.csv").write_text('index,mid,display_name\n0,/m/1,Speech\n1,/m/2,"Bell, gong"\n2,/m/3,Rain\n')
    return folder
