"""Text classifiers as functional Keras models, from token numbers to logits.

Every model takes [batch, time] int32 (0 is padding) and gives [batch, classes] float32 logits whatever the precision. It has two layers:
`embedding`, from numbers to vectors, and `encoder`, a model from [vectors, numbers] to logits; so that what a word weighed can be
asked of any of them. Padding at the end changes no result. `build` is the one door.
"""

from typing import TYPE_CHECKING, Any

from nlp.settings import MODELS
from pipelines.config.schema import Section

if TYPE_CHECKING:
    import keras

def build(settings: Section, *, size: int, classes: int, limit: int, letters: int | None = None,
          facts: dict[str, Any] | None = None) -> "keras.Model":
    """A new model under the current Keras precision policy, with fresh weights drawn from Keras' global seed.

    Args:
        settings: the experiment's model section.
        size: rows of the embedding; every token number is below it.
        classes: number of logits.
        limit: most tokens of a text, for models that number places.
        letters: the tokenizer's, see nlp.tokens.
        facts: the task's, of which `pretrained` takes what its preset says.
    """
    return MODELS.build(settings, size=size, classes=classes, limit=limit, letters=letters, facts=facts or {})
