"""The one contract that a domain fills; everything else in pipelines/ works on it alone.

What a task says: what its examples are, how a stored example becomes what the model sees, the model, the
loss, how answers are judged, and the signature that takes what a user has and answers in the user's words.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pipelines.config.schema import Experiment
from pipelines.data.source import Source, Tensors
from pipelines.task.drawing_budget import Sparingly
from pipelines.task.facts import Facts
from pipelines.task.results import Baseline, Judgement

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
# what `Task.read` gives of an input
Read = tuple[str, dict[str, Any] | Exception] | tuple[str, dict[str, Any] | Exception, dict[str, Any]]

# answers and targets, each name -> array [examples, ...]
Condensed = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]

# a source and a function in graph to the function's value of the model's inputs of each example, and the targets
Features = Callable[[Source, Callable[[Any], Any]], tuple[np.ndarray, dict[str, np.ndarray]]]


@dataclass(frozen=True)
class Splits:
    """The data of one run. Nothing in `facts` was learned from validation or test."""

    train: Source
    validation: Source | None
    test: Source | None
    facts: dict[str, Any] = field(default_factory=dict)  # JSON values: class names, statistics, vocabulary
    skipped: tuple[str, ...] = ()  # examples left out under on_bad_example: skip, each with its reason
    notes: tuple[str, ...] = ()  # for a reader of the report: how splits were made, resized from, ...; said at the start, too, if Warned
    more_skipped: int = 0  # further examples left out, so many that they are not named


class Task(ABC):
    """What a domain says about one kind of learning. Built anew, from experiment and facts, in every process.

    A task holds no weights. Methods marked "in graph" are traced into tf.functions and must be pure: their
    randomness comes from the `keys` and `seed` they are given.
    """

    watch: ClassVar[tuple[str, str]]  # the metric to follow without its split, and "max" or "min": ("accuracy", "max")
    meanings: ClassVar[dict[str, str]] = {}  # what each input and output of the saved model is, for its README
    examples: ClassVar[dict[str, str]] = {}  # of an input of the saved model, Python that makes a batch of one, for its README
    needs: Sequence[str] = ()  # modules beside TensorFlow that hold operations of the saved model
    length: ClassVar[str | None] = None  # decoded entry (int32 scalar) that counts the first dimension of entries that leave it free
    length_unit: ClassVar[int] = 1  # batches are padded to a multiple of it
    length_most: int | None = None  # no example is longer, and no batch is padded further than its multiple; None: any length
    read_at_once: ClassVar[tuple[int, int]] = (16, 64)  # inputs of `predict` decoded in one call, and answered in one
    sends: ClassVar[str] = ""  # what a client of `quartet serve` sends for one input, in words
    ranked: ClassVar[tuple[str, ...]] = ()  # lists, best first, of which an answer has the first `count` alone, which is an output too
    details: ClassVar[tuple[str, ...]] = ()  # lists too long for a table, of one length: `predict` writes them as JSON lines only
    fills: Mapping[str, Any] = {}  # raw inputs whose free length is filled up, in a batch, with something other than 0 or the empty text
    decode_batch: Any = None  # a method, raw examples [batch] to what `decode` gives for each, padded with zeros: where that is much faster
    stored_decoded: ClassVar[bool] = False  # sources hold examples as decode() gives them, so that it is not called for each of them
    mixes: ClassVar[str | None] = None  # what of the loss takes in the other examples of the micro-batch ("The softmax over the ...")
    kept: ClassVar[type[Facts]] = Facts  # what the facts must be to be taken from a file
    random_decode: bool = False  # decode() draws from its key when training, so its results are not cached

    def __init__(self, experiment: Experiment, facts: dict[str, Any] | None = None):
        """`facts` is None before `splits()` was called, and what `splits()` found afterwards (saved with a run).

        Where a run is judged again they are there already, so that `splits()` need not learn what costs time once more.
        """
        self.experiment = experiment
        self.facts = facts or {}
        self.read_notes: list[str] = []  # what `read` has to say besides its inputs, such as how many files of a folder are none
        self.drawing = Sparingly()  # for pictures in `show` and `show_epoch`; texts and numbers cost little and come each epoch

    def unfit(self) -> str | None:
        """Why facts that are sound by themselves (`kept`) do not belong to this experiment; None where they do."""
        return None

    @abstractmethod
    def splits(self) -> Splits:
        """Finds and divides the data and learns the facts from train. Raises DataError with file and remedy."""

    @abstractmethod
    def decode(self, raw: Tensors, key: "tf.Tensor | None" = None) -> Tensors:
        """One stored example into one decoded example, in graph; run in parallel, cached if not random.

        Entries have fixed shapes, but with `length` their first dimension may be free: batches are then made of examples of similar
        length, padded with zeros to the longest among them (padding must not change a result).

        Args:
            raw: a source's example, without batch dimension.
            key: int32 [2], a pure function of (seed, epoch, example), when training; None when judging.
        """

    @abstractmethod
    def prepare(self, examples: Tensors, *, keys: "tf.Tensor | None" = None, seed: "tf.Tensor | None" = None,
                epoch: "tf.Tensor | None" = None) -> tuple[Any, Any]:
        """A batch as decoded into (inputs, targets) of the model, in graph, on the device.

        Args:
            examples: name -> [batch, ...].
            keys: int32 [batch, 2], one for each example and epoch, when training; None when judging.
            seed: int32 [2], one for the micro-batch and step, when training.
            epoch: int64 scalar when training.
        """

    @abstractmethod
    def model(self) -> "keras.Model":
        """A new model that takes `inputs` and gives raw outputs (logits); normalisation stands inside it."""

    def initialise(self, model: "keras.Model", batches: Iterator[tuple[Any, Any]]) -> None:  # noqa: B027
        """Sets weights that are computed from training examples as judged (inputs, targets), before step 0."""

    def freeze(self, model: "keras.Model") -> None:  # noqa: B027
        """Called once a run is loaded: its weights are final, and what follows from them alone may be computed once and kept."""

    @abstractmethod
    def loss(self, outputs: Any, targets: Any, training: bool) -> "tf.Tensor":
        """Loss of each example, [batch] float32, in graph. Smoothing and class weights only when training."""

    def example_weights(self, targets: Any) -> "tf.Tensor | None":
        """Weight of each example in the training loss, [batch] float32, or None for 1. In graph."""
        return None

    @abstractmethod
    def scores(self, outputs: Any, targets: Any) -> Tensors:
        """Streamed metrics: name -> [batch] float32 whose mean over examples is the metric. In graph."""

    @abstractmethod
    def answer(self, model: "Any", inputs: Any) -> Tensors:
        """The model's answer as judged and as served: name -> [batch, ...]. In graph.

        Args:
            model: a callable, inputs -> outputs, with the weights being judged (test-time flips call it twice).
        """

    @abstractmethod
    def targets(self, examples: Tensors) -> Tensors:
        """What answers are compared with, name -> [batch, ...]; in graph."""

    def cannot_judge(self, source: Source) -> str | None:
        """Why a source cannot be judged, with the remedy; None where it can. Asked before anything is answered."""
        return None

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        """What is kept of a batch of answers and targets until all examples are answered: what `choose`, `judge` and `explain` need.

        It should not grow with the number of classes: all the probabilities of a million examples and classes fit no memory.
        """
        return answers, targets

    @abstractmethod
    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        """Everything the report says about one split. Rows of answers and targets, condensed, are in the order of `source`."""

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        """Facts that are chosen after training by the answers for validation, such as a threshold. They are saved with the model."""
        return {}

    def explain(self, model: "keras.Model", judgement: Judgement, answers: dict[str, np.ndarray],  # noqa: B027
                targets: dict[str, np.ndarray], source: Source) -> None:
        """Adds to a judgement what needs the model itself, such as which part of an input an answer hangs on."""

    def show_model(self, model: "keras.Model", writer: Any, step: int) -> None:  # noqa: B027
        """Writes what the trained model has learned to TensorBoard (`monitoring.tensorboard.Writer`), once at the end."""

    def show(self, source: Source, writer: Any, step: int, *, inputs: Any = None, targets: Any = None,  # noqa: B027
             split: str = "train") -> None:
        """Writes samples of a training batch as the model sees them to TensorBoard (`monitoring.tensorboard.Writer`)."""

    def show_epoch(self, model: "keras.Model", writer: Any, step: int, *, examples: Tensors, inputs: Any,  # noqa: B027
                   targets: Any) -> None:
        """Writes to TensorBoard what needs the model as it is now, or the examples before augmentation; after `show`, each epoch."""

    def chance(self) -> tuple[str, float] | None:
        """One of the scores, larger is better and 1 at most, and its value without a model: ("accuracy", share of the largest class).

        None where that is not known; with it a training that goes wrong is noticed while it runs (`training.diagnosis`).
        """
        return None

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        """A cheap model fitted on train within seconds, beside which the report puts this one; None where `judge` does that, or none fits.

        Args:
            features: (source, function in graph) -> (the function's value of the model's inputs, [n, ...]; targets, each [n, ...]).
        """
        return None

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        """The metric of `baseline` of each example, [n] float64, of answers as `condense` leaves them; NaN where one does not count."""
        raise TypeError(f"{type(self).__name__} has a baseline, and does not say how each example was answered")

    def remark(self, metrics: dict[str, float]) -> str | None:
        """What should be said of an epoch, given its metrics (`train/accuracy`, `validation/loss`); each remark is said once."""
        return None

    @abstractmethod
    def raw_spec(self) -> dict[str, "tf.TensorSpec"]:
        """What the saved model takes, by name, with batch dimension None: {"image": [None] string}."""

    @abstractmethod
    def receive(self, raw: Tensors) -> Tensors:
        """A batch of raw input into examples as `decode` gives them: name -> [batch, ...]; in graph.

        An entry `warning`, [batch] string, says of an input why its answer means little ("silence"), empty where nothing does: it stands
        beside the answer.
        """

    @abstractmethod
    def read(self, inputs: list[str]) -> Iterator[Read]:
        """What `predict` was given (paths, globs, texts) as (name, one raw example, or why it cannot be read).

        A third entry holds the columns of the row it came from, which are written beside the answer in place of the name; for a row that
        cannot be read their names, with None.
        """

    @abstractmethod
    def take(self, sent: Any) -> dict[str, Any]:
        """What a client of `quartet serve` sent for one input, the bytes of a file or a JSON value, as one raw example.

        Opens no file and no address that `sent` names. Raises DataError for what it is not.
        """

    def sample(self) -> dict[str, Any]:
        """One raw example of no meaning, to answer before the first that counts: zeros, and empty texts."""
        row = {}
        for name, spec in self.raw_spec().items():
            kind = object if spec.dtype.name == "string" else spec.dtype.as_numpy_dtype
            row[name] = np.full([1 if size is None else size for size in spec.shape[1:]], b"" if kind is object else 0, kind)[()]
        return row

    @abstractmethod
    def respond(self, answers: Tensors) -> Tensors:
        """Answers in the user's words, for the saved model: {"label": [batch] string, "probabilities": ...}; in graph."""
