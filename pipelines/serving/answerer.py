"""What a server needs of a model: a run in this process has it (Predictor), and an exported one (exported.py). Imports
no TensorFlow."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pipelines.base.errors import DataError
from pipelines.serving.output import Prediction
from pipelines.task.form import Field

if TYPE_CHECKING:
    import tensorflow as tf


class Answerer(Protocol):
    """A model that answers batches of raw examples.

    Attributes:
        title, task: its name, and the kind of task it does.
        batch: examples answered at a time.
        inputs, outputs: name -> spec with its batch.
        columns: name -> rank of each output.
        classes: names of the entries of its vector of probabilities.
        form: what a person enters who tries it.
        sends: what a client sends for an input, in words; `meanings`: of inputs and outputs by name.
        decodes: `take` takes time.
        details, ranked, kinds: as a task's answers have them.
    """

    title: str
    task: str
    batch: int
    inputs: "dict[str, tf.TensorSpec]"
    outputs: "dict[str, tf.TensorSpec]"
    columns: dict[str, int]
    classes: list[str] | None
    form: Sequence[Field]
    sends: str
    meanings: Mapping[str, str]
    decodes: bool
    details: Sequence[str]
    ranked: Sequence[str]
    kinds: Mapping[str, str]

    def take(self, sent: Any) -> dict[str, Any]:
        """What a client sent for one input, bytes or a JSON value, as a raw example. Raises DataError."""

    def large(self, row: dict[str, Any]) -> bool:
        """Whether decoding a raw example takes so long that others should not wait for it: a cheap look."""

    def heavy(self, sent: bytes) -> bool:
        """Whether `take` takes so long for a file: a look at its header. Where `decodes`."""

    def together(self, read: list[Any]) -> list[Prediction]:
        """Answers (name, raw example) in one batch. Raises where the model fails."""

    def warm_up(self) -> None:
        """Answers an example alone and in a full batch, so that the first input waits for nothing."""


def taken(model: Answerer, sent: Any) -> "dict[str, Any] | DataError":
    """What a client sent for one input as a raw example, or why it is none: its own fault, which costs others nothing."""
    if isinstance(sent, DataError):
        return sent
    try:
        return model.take(sent)
    except DataError as error:
        return error
    except Exception as error:
        return DataError(f"cannot be read ({type(error).__name__}: {error})")
