"""What a task says of learning: its examples, the way of one to the model, the model and its loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pipelines.base.errors import ConfigError
from pipelines.config.schema import Experiment, protected_by
from pipelines.data.divide import divide
from pipelines.data.source import Source, Tensors
from pipelines.data.split import describe
from pipelines.task.drawing_budget import DrawingBudget

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


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


class Learning(ABC):
    """The part of a task that trains. Of one's own: `splits`, `model`, `loss`, `scores` and `raw_spec`; the rest has defaults.

    Methods marked "in graph" are traced into tf.functions and must be pure: their randomness comes from the `keys` and `seed` that they
    are given.
    """

    length: ClassVar[str | None] = None  # decoded entry (int32 scalar) that counts the first dimension of entries that leave it free
    length_unit: ClassVar[int] = 1  # batches are padded to a multiple of it
    length_most: int | None = None  # no example is longer, and no batch is padded further than its multiple; None: any length
    decode_batch: Any = None  # a method, raw examples [batch] to what `decode` gives for each, padded with zeros: where that is much faster
    # a method: `quartet prepare` has it write the data into a folder in a form of the task's own, from which `splits` reads them where
    # data.prepared names it. None: the examples of its splits are kept, with its facts
    keep: Callable[[Path], None] | None = None
    stored_decoded: ClassVar[bool] = False  # sources hold examples as decode() gives them, so that it is not called for each of them
    mixes: ClassVar[str | None] = None  # what of the loss takes in the other examples of the micro-batch ("The softmax over the ...")
    usual_output: ClassVar[int | None] = None  # with `moments`: the output that most moments have, such as CTC's blank; -1 is the last
    # settings on which neither `splits` nor what it learns depends: data that were prepared serve whatever they are
    no_matter: tuple[str, ...] = ("train", "evaluate", "monitor", "tune", "seeds", "loss", "data.prepared", "data.cache",
                                  "data.cache_folder", "data.workers", "model.weights", "model.finetune", "model.dropout")
    random_decode: bool = False  # decode() draws from its key when training, so its results are not cached
    drawn_by: ClassVar[str | None] = None  # the setting for which it does that, null where it does not
    # what makes numbers of a file's bytes: the source when it is read (recordings), or `decode` (images), whose results have then one shape
    # and can stand wherever stored examples do: decode() of them gives them unchanged. None: there are no files
    decoded_by: ClassVar[Literal["source", "decode"] | None] = None

    def __init__(self, experiment: Experiment, facts: dict[str, Any] | None = None):
        """`facts` is None before `splits()` was called, and what `splits()` found afterwards (saved with a run).

        Where a run is judged again they are there already, so that `splits()` need not learn what costs time once more.
        """
        self.experiment = experiment
        self.facts = facts or {}
        self.drawing = DrawingBudget()  # for pictures in `show` and `show_epoch`; texts and numbers cost little and come each epoch

    @abstractmethod
    def splits(self) -> Splits:
        """Finds and divides the data and learns the facts from train. Raises DataError with file and remedy."""

    def divided(self, data: Source | Mapping[str, Source], place: str = "the data", **facts: Any) -> Splits:
        """Splits as the experiment's `data` section asks for them.

        Args:
            data: all examples, or those of each of the data's own splits, such as {"train": ..., "test": ...}.
            place: what the data are called in messages.
            facts: what was learned from train, JSON values.

        Raises:
            DataError: a split that is asked for is not there, or is used twice.
        """
        sources = {"all": data} if isinstance(data, Source) else dict(data)
        train, validation, test, notes = divide(list(sources), sources.__getitem__, self.experiment.data, place)
        parts = {"train": train, "validation": validation, "test": test}
        return Splits(train, validation, test, {**facts, "splits": describe(parts, [])}, notes=tuple(notes))

    def beside(self, source: Source) -> dict[str, list[str]]:
        """What `quartet prepare` keeps of each example beside the example itself, for `restored`."""
        return {}

    def restored(self, splits: Splits) -> Splits:
        """The splits as `splits` would give them, from those that were prepared; their sources are pipelines.data.shards.ShardSource."""
        return splits

    def public_facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts with which a training that protects its examples works, and that its model holds: none depends on any example.

        Raises:
            ConfigError: the model needs facts that do, such as a vocabulary.
        """
        raise ConfigError(f"{protected_by(self.experiment.train)}: {self.experiment.task} learns more of the training data than its "
                          "weights, which noise in the gradients does not protect; no private training is offered for it")

    def decode(self, raw: Tensors, key: "tf.Tensor | None" = None) -> Tensors:
        """One stored example into one decoded example, in graph; run in parallel, cached if not random. As it is stored, by default.

        Entries have fixed shapes, but with `length` their first dimension may be free: batches are then made of examples of similar
        length, padded with zeros to the longest among them (padding must not change a result).

        Args:
            raw: a source's example, without batch dimension.
            key: int32 [2], a pure function of (seed, epoch, example), when training; None when judging.
        """
        return raw

    def prepare(self, examples: Tensors, *, keys: "tf.Tensor | None" = None, seed: "tf.Tensor | None" = None,
                epoch: "tf.Tensor | None" = None) -> tuple[Any, Any]:
        """A batch as decoded into (inputs, targets) of the model, in graph, on the device.

        By default the entries that `raw_spec` names are the inputs and the others the targets; of a single one the tensor itself. Targets
        are None where there are none, as when predicting.

        Args:
            examples: name -> [batch, ...].
            keys: int32 [batch, 2], one for each example and epoch, when training; None when judging.
            seed: int32 [2], one for the step, when training: for what all of its examples share.
            epoch: int64 scalar when training.
        """
        inputs = {name: value for name, value in examples.items() if name in self.raw_spec()}
        targets = {name: value for name, value in examples.items() if name not in inputs}
        return alone(inputs), alone(targets) if targets else None

    def moments(self, inputs: Any) -> "tf.Tensor | None":
        """Where an encoder makes a vector of each moment, and not one of the whole example: how many are each example's own, [batch] int32,
        in graph; what it makes of padding is not kept (pipelines.encoders.features)."""
        return None

    @abstractmethod
    def model(self) -> "keras.Model":
        """A new model that takes `inputs` and gives raw outputs (logits); normalisation stands inside it."""

    def learn_fixed(self, model: "keras.Model", train: Source) -> None:  # noqa: B027
        """Sets weights that no step trains from all training examples as they are stored, before features or anything else is computed
        with the model; the same weights each time, as a run that is resumed sets them again."""

    def initialise(self, model: "keras.Model", batches: Iterator[tuple[Any, Any]]) -> None:  # noqa: B027
        """Sets weights that are computed from training examples as judged (inputs, targets), before step 0."""

    def refit(self, model: "keras.Model") -> None:  # noqa: B027
        """Sets the weights that are judged on test and saved, where they may be computed from train and validation together once all is
        chosen: of models in closed form. Called when the answers for validation, by the weights as they were, are there; on each host."""

    @abstractmethod
    def loss(self, outputs: Any, targets: Any, training: bool) -> "tf.Tensor":
        """Loss of each example, [batch] float32, in graph. Smoothing and class weights only when training."""

    def soft_loss(self, outputs: Any, teacher: Any, temperature: float) -> "tf.Tensor":
        """Distance of outputs to a teacher's for the same inputs, [batch] float32; in graph. Raises ConfigError where there is none."""
        raise ConfigError(f"train.teacher: {self.experiment.task} has no distance to a teacher's answers")

    def example_weights(self, targets: Any) -> "tf.Tensor | None":
        """Weight of each example in the training loss, [batch] float32, or None for 1. In graph."""
        return None

    @abstractmethod
    def scores(self, outputs: Any, targets: Any) -> Tensors:
        """Streamed metrics: name -> [batch] float32 whose mean over examples is the metric. In graph."""

    @abstractmethod
    def raw_spec(self) -> dict[str, "tf.TensorSpec"]:
        """What the saved model takes, by name, with batch dimension None: {"image": [None] string}."""

    def show(self, source: Source, writer: Any, step: int, *, inputs: Any = None, targets: Any = None,  # noqa: B027
             split: str = "train") -> None:
        """Writes samples of a training batch as the model sees them to TensorBoard (`monitoring.tensorboard.Writer`)."""

    def show_epoch(self, model: "keras.Model", writer: Any, step: int, *, examples: Tensors, inputs: Any,  # noqa: B027
                   targets: Any) -> None:
        """Writes to TensorBoard what needs the model as it is now, or the examples before augmentation; after `show`, each epoch."""

    def show_model(self, model: "keras.Model", writer: Any, step: int) -> None:  # noqa: B027
        """Writes what the trained model has learned to TensorBoard (`monitoring.tensorboard.Writer`), once at the end."""

    def chance(self) -> tuple[str, float] | None:
        """One of the scores, larger is better and 1 at most, and its value without a model: ("accuracy", share of the largest class).

        None where that is not known; with it a training that goes wrong is noticed while it runs (`training.hooks.diagnosis`).
        """
        return None

    def remark(self, metrics: dict[str, float]) -> str | None:
        """What should be said of an epoch, given its metrics (`train/accuracy`, `validation/loss`); each remark is said once."""
        return None


def alone(values: Mapping[str, Any]) -> Any:
    """The value where there is one, else all by name."""
    return next(iter(values.values())) if len(values) == 1 else dict(values)
