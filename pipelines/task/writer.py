"""What a task gives to whoever writes its texts piece by piece, as chats and servers do (`pipelines.outputs.streams`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf


NEVER = 1 << 30  # tokens to the end of a text that has none


@dataclass(frozen=True, eq=False)
class Automaton:
    """Which tokens may follow one another, so that texts have a form. The first state is the beginning, the last a dead end.

    Attributes:
        table: the state behind a token of each kind, [states, kinds] int16.
        kinds: of each token, [tokens] int32.
        left: the fewest tokens from a state to the end of a text, [states] int32; NEVER: it has none.
    """

    table: np.ndarray
    kinds: np.ndarray
    left: np.ndarray

    def allowed(self, state: int, most: int) -> np.ndarray:
        """The tokens behind which a text can be of the form with so many tokens at most, [tokens] bool."""
        fits: np.ndarray = (self.left[self.table[state]] < most)[self.kinds]
        return fits

    def behind(self, state: int, token: int) -> int:
        return int(self.table[state, self.kinds[token]])


class Steps(Protocol):
    """What says how texts may go on.

    Attributes:
        rows: texts at the same time.
        most: tokens of a text, its prompt among them.
    """

    rows: int
    most: int

    def begin(self, row: Any, ids: Any) -> "tf.Tensor":
        """A prompt [n] int32 takes the place of what stood in a row: logits of its next token, [1, tokens] float32."""

    def follow(self, tokens: Any, at: Any) -> "tf.Tensor":
        """A token for each of the first rows, [n] int32, at a place of its own, [n] int32: logits of the next, [n, tokens] float32."""


@dataclass(frozen=True)
class Way:
    """How a text is written; names as in `pipelines.outputs.search.Drawn`.

    Attributes:
        most, fewest: tokens.
        stop: texts before which it ends.
        form: that it has, whatever the model would write; then `fewest` and `stop` mean nothing.
    """

    most: int
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    fewest: int = 0
    form: Automaton | None = None


@dataclass(frozen=True)
class Writer:
    """How a task writes.

    Attributes:
        steps: makes the steps for so many rows.
        prompt: a text, or the messages of a dialogue -> tokens [n] int32. Raises DataError.
        text: tokens -> what they write.
        way: how the task itself writes.
        limit: tokens that are seen at a time.
        end: the token that ends a text.
        first: number of the first token that may be written.
        form: {"choice": ...}, {"regex": ...} or {"json_schema": ...} -> its automaton. Raises DataError.
        dialogues: `prompt` takes messages.
        hugging_face: the files of a folder that Hugging Face's programs read: name -> a JSON object, a text, bytes, or of .safetensors
            arrays by name; None: the model has no such form.
    """

    steps: Callable[[int], Steps]
    prompt: Callable[[Any], np.ndarray]
    text: Callable[[list[int]], str]
    way: Way
    limit: int
    end: int
    first: int
    form: Callable[[Mapping[str, Any]], Automaton]
    dialogues: bool = False
    hugging_face: Callable[[], dict[str, Any]] | None = None
