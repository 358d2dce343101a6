"""A Whisper preset of a few thousand random weights, with tokenizer and audio converter, written here."""

from pathlib import Path

import keras_hub

LANGUAGES = ("en", "de")
MARKS = ("<|endoftext|>", "<|startoftranscript|>", *(f"<|{name}|>" for name in LANGUAGES), "<|translate|>", "<|transcribe|>",
         "<|startoflm|>", "<|startofprev|>", "<|nocaptions|>", "<|notimestamps|>")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def preset(folder: Path, *, seconds: int = 4, layers: int = 2) -> Path:
    """Writes it. Sounds of up to `seconds` s; pieces are letters, alone or after a blank."""
    pieces = [*LETTERS, "Ġ", *(f"Ġ{letter}" for letter in LETTERS)]
    vocabulary = {piece: number for number, piece in enumerate([*pieces, *MARKS])}
    tokenizer = keras_hub.models.WhisperTokenizer(
        vocabulary=vocabulary, merges=[f"Ġ {letter}" for letter in LETTERS], special_tokens={mark: vocabulary[mark] for mark in MARKS})
    backbone = keras_hub.models.WhisperBackbone(
        vocabulary_size=len(vocabulary), num_layers=layers, num_heads=2, hidden_dim=16, intermediate_dim=32, num_mels=8,
        max_encoder_sequence_length=100 * seconds, max_decoder_sequence_length=16)
    converter = keras_hub.layers.WhisperAudioConverter(num_mels=8, max_audio_length=seconds)
    for part in (backbone, tokenizer, converter):
        part.save_to_preset(str(folder))
    return folder
