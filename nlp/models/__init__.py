"""Text classifiers as functional Keras models, from token numbers to logits.

Every model takes [batch, time] int32 (0 is padding) and gives [batch, classes] float32 logits whatever the precision. It has two layers:
`embedding`, from numbers to vectors, and `encoder`, a model from [vectors, numbers] to logits; so that what a word weighed can be
asked of any of them. Padding at the end changes no result. `build` is the one door.
"""

from typing import TYPE_CHECKING

from nlp.settings import Bag, Cnn, Lstm, Pretrained, Transformer

if TYPE_CHECKING:
    import keras

ModelSettings = Bag | Cnn | Lstm | Transformer | Pretrained


def build(settings: ModelSettings, *, size: int, classes: int, limit: int, letters: int | None = None) -> "keras.Model":
    """A new model under the current Keras precision policy, with fresh weights drawn from Keras' global seed.

    Args:
        settings: the experiment's model section; `pretrained` is built by nlp.models.pretrained.
        size: rows of the embedding; every token number is below it.
        classes: number of logits.
        limit: most tokens of a text, for models that number places.
        letters: the tokenizer's, see nlp.tokens.
    """
    from nlp.models import bag, cnn, lstm, transformer

    if isinstance(settings, Bag):
        return bag.build(settings, size=size, classes=classes, letters=letters)
    if isinstance(settings, Cnn):
        return cnn.build(settings, size=size, classes=classes)
    if isinstance(settings, Lstm):
        return lstm.build(settings, size=size, classes=classes)
    if isinstance(settings, Transformer):
        return transformer.build(settings, size=size, classes=classes, limit=limit)
    raise TypeError(f"{type(settings).__name__} is built by nlp.models.pretrained")
