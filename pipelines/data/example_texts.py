"""The texts of examples, for a person who is shown which ones they are: file and line alone say little."""

import tensorflow as tf

from pipelines.data.source import Source


def texts(source: Source, numbers: list[int], longest: int = 200) -> list[str | None]:
    """Of each of these examples the entry that is a text, cut to `longest` characters; None where none is: encoded images and sounds."""
    entries = [values.numpy() for values in source.gather(tf.constant(numbers, tf.int64)).values()
               if values.dtype == tf.string and values.shape.rank == 1]
    found = [[_text(encoded, longest) for encoded in values] for values in entries]
    return [next((values[place] for values in found if values[place] is not None), None) for place in range(len(numbers))]


def _text(encoded: bytes, longest: int) -> str | None:
    try:
        text = encoded.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if any(ord(sign) < 32 and not sign.isspace() for sign in text):
        return None
    return text if len(text) <= longest else text[:longest - 1] + "\u2026"
