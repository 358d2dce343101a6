"""What a task says of its examples: where they are, how a stored one becomes what the model sees, and what the saved model takes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipelines.data.divide import Splits, divide
from pipelines.data.lengths import Lengths
from pipelines.data.source import Source, Tensors
from pipelines.data.split import describe
from pipelines.task.requests import Requests
from pipelines.task.results import Judgement
from pipelines.task.units import Units, units_of

if TYPE_CHECKING:
    import tensorflow as tf

# settings on which neither `splits` nor what it learns depends, whatever the task
NOT_IN_DATA = ("train", "evaluate", "monitor", "tune", "seeds", "loss", "data.prepared", "data.cache", "data.cache_folder", "data.workers",
               "model.weights", "model.finetune", "model.dropout")


@dataclass(frozen=True)
class Decoding:
    """When stored examples are decoded.

    Attributes:
        by: what makes numbers of a file's bytes: the source when it is read (recordings), or `decode` (images), whose results have then one
            shape and can stand wherever stored examples do: decode() of them gives them unchanged. None: there are no files.
        stored: sources hold examples as decode() gives them, so that it is not called for each of them.
        random: decode() draws from its key when training, so its results are not cached.
        setting: for which it does that; null where it does not.
    """

    by: Literal["source", "decode"] | None = None
    stored: bool = False
    random: bool = False
    setting: str | None = None


@dataclass(frozen=True)
class Signature:
    """What is said of the inputs of the saved model in its README.

    Attributes:
        meanings: what each is.
        examples: of an input, Python that makes a batch of one.
        needs: modules beside TensorFlow that hold operations of the saved model.
        resources: gives the tables and the like that `Input.receive` reads and a saved model has to hold: trackable objects.
    """

    meanings: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    resources: Callable[[], Sequence[Any]] = tuple


@dataclass(frozen=True)
class Cheap:
    """What a cheap model knows of an example.

    Attributes:
        name: of the kernel machine on it, as the report calls it.
        describe: the model's inputs -> [batch, values] float32, in graph.
        blocks: widths of groups of these values that stand beside one another.
    """

    name: str
    describe: Callable[[Any], Any]
    blocks: Sequence[int] = ()


class Part:
    """A part of a task. It shares the task's experiment and facts.

    Args:
        task: a `contract.Task`.
    """

    experiment: Any

    def __init__(self, task: Any):
        self.task, self.experiment = task, task.experiment

    @property
    def facts(self) -> dict[str, Any]:
        """What was learned from train, JSON values; empty before `splits` was called."""
        facts: dict[str, Any] = self.task.facts
        return facts


@dataclass
class PreparedForm:
    """What `quartet prepare` keeps of a task's data: the examples of the splits as they are stored, with the facts; what an input keeps
    otherwise, it says here."""

    input: Any  # an `input.Input`

    @property
    def settings_not_in_data(self) -> tuple[str, ...]:
        """Settings on which neither `splits` nor what it learns depends: data that were prepared serve whatever they are."""
        return NOT_IN_DATA

    @property
    def own_writer(self) -> Callable[[Path], None] | None:
        """What writes the data into a folder in a form of the input's own, from which `splits` reads them where data.prepared names it."""
        return None

    def extras(self, source: Source) -> dict[str, list[str]]:
        """What is kept of each example beside the example itself, for `from_prepared`."""
        return {}

    def from_prepared(self, splits: Splits) -> Splits:
        """The splits as `splits` would give them, from those that were prepared; their sources are pipelines.data.shards.ShardSource."""
        return splits


class Input(Part, ABC):
    """The input of a task. Of one's own: `splits` and `raw_spec`; the rest has defaults.

    Methods marked "in graph" are traced into tf.functions and must be pure: their randomness comes from the `keys` and `seed` that they
    are given.
    """

    signature: Signature = Signature()
    decoding: Decoding = Decoding()
    # where the first dimension of decoded entries is free: the entry (int32 scalar) that counts it, and how far batches are padded
    lengths: Lengths | None = None
    decode_batch: Any = None  # a method, raw examples [batch] to what `decode` gives for each, padded with zeros: where that is much faster

    @abstractmethod
    def splits(self) -> Splits:
        """Finds and divides the data and learns the facts from train. Where facts are there already (a run is judged again) it need not
        learn once more what costs time. Raises DataError with file and remedy."""

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

    def decode(self, raw: Tensors, key: "tf.Tensor | None" = None) -> Tensors:
        """One stored example into one decoded example, in graph; run in parallel, cached if not random. As it is stored, by default.

        Entries have fixed shapes, but with `lengths` their first dimension may be free: batches are then made of examples of similar
        length, padded with zeros to the longest among them (padding must not change a result).

        Args:
            raw: a source's example, without batch dimension.
            key: int32 [2], a pure function of (seed, epoch, example), when training; None when judging.
        """
        return raw

    @property
    def decoder(self) -> "Callable[..., Tensors] | None":
        """`decode`; None where sources hold decoded examples."""
        return None if self.decoding.stored else self.decode

    def prepare(self, examples: Tensors, *, keys: "tf.Tensor | None" = None, seed: "tf.Tensor | None" = None,
                epoch: "tf.Tensor | None" = None) -> tuple[Any, Tensors]:
        """A batch as decoded into (inputs of the model, what was done to the examples that targets must follow), in graph, on the device.

        By default the entries that `raw_spec` names; of a single one the tensor itself. What was done is name -> [batch, ...], such as the
        partner of each example and its share where examples are mixed; `Output.targets` reads it.

        Args:
            examples: name -> [batch, ...].
            keys: int32 [batch, 2], one for each example and epoch, when training; None when judging.
            seed: int32 [2], one for the step, when training: for what all of its examples share.
            epoch: int64 scalar when training.
        """
        return alone({name: value for name, value in examples.items() if name in self.raw_spec()}), {}

    def frame_counts(self, inputs: Any) -> "tf.Tensor | None":
        """Where an encoder makes a vector of each moment, and not one of the whole example: how many are each example's own, [batch] int32,
        in graph; what it makes of padding is not kept (pipelines.encoders.features)."""
        return None

    @abstractmethod
    def raw_spec(self) -> "dict[str, tf.TensorSpec]":
        """What the saved model takes, by name, with batch dimension None: {"image": [None] string}."""

    def receive(self, raw: Tensors) -> Tensors:
        """A batch of raw input into examples as `decode` gives them: name -> [batch, ...]; in graph. As they are, by default.

        An entry `warning`, [batch] string, says of an input why its answer means little ("silence"), empty where nothing does: it stands
        beside the answer.
        """
        return dict(raw)

    def is_simple(self, row: dict[str, Any]) -> bool:
        """Whether `receive_simple` takes this raw example: a cheap look, in Python."""
        return False

    def receive_simple(self, raw: Tensors) -> Tensors:
        """As `receive`, to the bit, of a batch of simple examples alone, at less cost; in graph."""
        return self.receive(raw)

    def slow_to_decode(self, row: dict[str, Any]) -> bool:
        """Whether decoding this raw example takes so long that a server's other inputs should not wait for it: a cheap look, in Python."""
        return False

    # ---- what outputs ask

    def units(self, source: Source) -> Units:
        """What intervals over a source draw: groups, such as speakers, or else examples."""
        return units_of(source, self.experiment.data.group_by)

    @property
    def cheap(self) -> Cheap | None:
        """What a cheap model knows of an example; None where the output knows better."""
        return None

    def draw(self, judgement: Judgement, source: Source, numbers: Sequence[int], captions: Sequence[Sequence[str]],
             title: str) -> None:
        """Adds a figure, or sounds, of some examples, such as the worst mistakes: each with the lines of its caption."""

    # ---- from outside

    @cached_property
    def requests(self) -> Requests:
        """How what a person or a client gives becomes raw examples."""
        return Requests(self)

    @cached_property
    def prepared_form(self) -> PreparedForm:
        """What `quartet prepare` keeps of the data."""
        return PreparedForm(self)


def alone(values: Mapping[str, Any]) -> Any:
    """The value where there is one, else all by name."""
    return next(iter(values.values())) if len(values) == 1 else dict(values)
