"""Tiny encoders with random weights, saved as presets: `python -m tests.encoders.tiny FOLDER`."""

import sys
from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *("##" + letter for letter in LETTERS),
          "the", "room", "taxi", "please", "book", "cancel", "wifi", "towels", "breakfast"]


def bert(folder: Path) -> Path:
    """A text encoder of 16 columns with its tokenizer."""
    import keras_hub

    backbone = keras_hub.models.BertBackbone(vocabulary_size=len(PIECES), num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32,
                                             max_sequence_length=32)
    backbone.save_to_preset(str(folder))
    keras_hub.models.BertTokenizer(vocabulary=PIECES, lowercase=True).save_to_preset(str(folder))
    return folder


if __name__ == "__main__":
    bert(Path(sys.argv[1]))
