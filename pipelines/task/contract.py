"""The one contract that a domain fills; everything else in pipelines/ works on it alone.

A task is an input and an output, and the model between them. The input says what examples are, how a stored one becomes what the model
sees, and how a user's own becomes one; the output says what is learned of them, how answers are judged, and puts them into the user's
words.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from pipelines.base.errors import ConfigError
from pipelines.config.schema import Experiment
from pipelines.config.train_settings import protected_by
from pipelines.data.divide import Splits
from pipelines.data.source import Source, Tensors
from pipelines.task.facts import Facts
from pipelines.task.form import AnswerFormat, Answers
from pipelines.task.input import Cheap, Decoding, Input, Part, PreparedForm, Signature, alone
from pipelines.task.output import Condensed, Features, Learning, Output, SetScores, kept
from pipelines.task.requests import Read, Requests

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from pipelines.task.writer import Writer


class DrawingBudget:
    """Whether to draw now: always at first, then when drawing has taken under a tenth of the time, so that short epochs stay short."""

    def __init__(self, share: float = 0.1):
        self.share, self.began, self.spent = share, perf_counter(), 0.0

    def due(self) -> bool:
        return self.spent <= self.share * (perf_counter() - self.began)

    def __enter__(self) -> None:
        self._entered = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.spent += perf_counter() - self._entered


__all__ = ["AnswerFormat", "Answers", "Cheap", "Condensed", "Decoding", "Features", "Input", "Learning", "Output", "Part", "PreparedForm",
           "Read", "Requests", "SetScores", "Signature", "Splits", "Task", "kept"]


class Task(ABC):
    """An input and an output put together, with the model between them. Built anew, from experiment and facts, in every process; it holds
    no weights. Of one's own: `input_class`, `output_class` and `model`; the rest has defaults.

    Attributes:
        facts: what `splits()` found, JSON values, saved with a run; before that empty. Where a run is judged again they are there already.
    """

    input_class: type[Input]
    output_class: type[Output]
    facts_schema: ClassVar[type[Facts]] = Facts  # what the facts must be to be taken from a file
    hub_name: ClassVar[str] = ""  # what hubs of models call this kind of task, such as image-classification; empty where they have no name

    def __init__(self, experiment: Experiment, facts: dict[str, Any] | None = None):
        self.experiment: Any = experiment
        self.facts = facts or {}
        self.drawing = DrawingBudget()  # for pictures in `show` and `show_epoch`; texts and numbers cost little and come each epoch
        self.input: Input = self.input_class(self)
        self.output: Output = self.output_class(self)

    def facts_error(self) -> str | None:
        """Why facts that are sound by themselves (`facts_schema`) do not belong to this experiment; None where they do."""
        return None

    def splits(self) -> Splits:
        """The data, divided, and what was learned from train. Raises DataError with file and remedy."""
        return self.input.splits()

    def public_facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts with which a training that protects its examples works, and that its model holds: none depends on any example.

        Raises:
            ConfigError: the model needs facts that do, such as a vocabulary.
        """
        raise ConfigError(f"{protected_by(self.experiment.train)}: {self.experiment.task} learns more of the training data than its "
                          "weights, which noise in the gradients does not protect; no private training is offered for it")

    def prepare(self, examples: Tensors, *, keys: "tf.Tensor | None" = None, seed: "tf.Tensor | None" = None,
                epoch: "tf.Tensor | None" = None) -> tuple[Any, Any]:
        """A batch as decoded into (inputs, targets) of the model, in graph, on the device; arguments as those of `Input.prepare`.

        Of a single target the tensor itself; None where there are none, as when predicting.
        """
        inputs, changes = self.input.prepare(examples, keys=keys, seed=seed, epoch=epoch)
        targets = self.output.targets(examples, changes)
        return inputs, alone(targets) if targets else None

    def passed_by(self, examples: Tensors) -> Tensors:
        """The entries of decoded examples that stand beside the model's answers (`Answers.beside`)."""
        return {name: examples[name] for name in self.output.answers.beside}

    # ---- the model

    @abstractmethod
    def model(self) -> "keras.Model":
        """A new model that takes `inputs` and gives raw outputs (logits); normalisation stands inside it."""

    def learn_fixed(self, model: "keras.Model", train: Source) -> None:  # noqa: B027
        """Sets weights that no step trains from all training examples as they are stored, before features or anything else is computed
        with the model; the same weights each time, as a run that is resumed sets them again."""

    def initialise(self, model: "keras.Model", batches: Iterator[tuple[Any, Any]]) -> None:  # noqa: B027
        """Sets weights that are computed from training examples as judged (inputs, targets), before step 0."""

    def fit_at_once(self, model: "keras.Model", train: Source, features: Features) -> str | None:
        """Fits a model that no step trains, once, before step 0; what the report says of it, None where there is no such model.

        Args:
            features: as `Output.baseline` takes it.
        """
        return None

    def cannot_judge(self, source: Source) -> str | None:
        """Why a source cannot be judged, such as one that the model has learned from, with the remedy; None where it can. Asked before
        anything is answered."""
        return None

    def refit(self, model: "keras.Model") -> None:  # noqa: B027
        """Sets the weights that are judged on test and saved, where they may be computed from train and validation together once all is
        chosen: of models in closed form. Called when the answers for validation, by the weights as they were, are there; on each host."""

    def freeze(self, model: "keras.Model") -> None:  # noqa: B027
        """Called once a run is loaded: its weights are final, and what follows from them alone may be computed once and kept. Again where
        it is to answer by other settings (`Experiment.answering`)."""

    def writer(self, model: "keras.Model") -> "Writer | None":
        """What writes answers piece by piece, for chats and servers; None: an answer is a whole."""
        return None

    # ---- TensorBoard (`monitoring.tensorboard.Writer`)

    def show(self, source: Source, writer: Any, step: int, *, inputs: Any = None, targets: Any = None,  # noqa: B027
             split: str = "train") -> None:
        """Writes samples of a training batch as the model sees them."""

    def show_epoch(self, model: "keras.Model", writer: Any, step: int, *, examples: Tensors, inputs: Any,  # noqa: B027
                   targets: Any) -> None:
        """Writes what needs the model as it is now, or the examples before augmentation; after `show`, each epoch."""

    def show_model(self, model: "keras.Model", writer: Any, step: int) -> None:  # noqa: B027
        """Writes what the trained model has learned, once at the end."""
