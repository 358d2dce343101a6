"""The ways to train a network that has a pretrained encoder, and which of them suits how many examples. Imports no TensorFlow.

The head, which is new, trains at `train.learning_rate`; the encoder, which knows something already, at a smaller rate of its own.
"""

from typing import Annotated, Literal

from pydantic import Field

from pipelines.config.schema import Section, setting


class Frozen(Section):
    """The encoder stays as it is and the head alone trains. Features are computed once, so that an epoch costs what the head costs."""

    name: Literal["frozen"]
    head: Literal["linear", "trained"] = setting(
        "linear", "linear: the last layer is fitted at once by L-BFGS, its regularisation chosen on validation, and the settings of "
        "training have no effect; trained: the head trains in epochs, as any model")
    views: int = setting(
        4, "with augmentation: versions of each training example whose features are kept, an epoch for each in turn; 0, with "
        "augmentation or without: every step computes its features anew", ge=0)


class Last(Section):
    """The encoder's last blocks train with the head; what comes before them stays as it is."""

    name: Literal["last"]
    blocks: int = setting(2, "blocks that train, counted from the encoder's output", ge=1)
    learning_rate: float = setting(1e-4, "peak learning rate of the encoder; it follows the shape of train.learning_rate", gt=0.0)


class Gradual(Section):
    """At first the head alone trains, then one more block of the encoder after the other (Howard and Ruder 2018, arXiv:1801.06146)."""

    name: Literal["gradual"]
    epochs: int = setting(1, "epochs before one more block trains", unit="epochs", ge=1)
    learning_rate: float = setting(1e-4, "peak learning rate of the encoder; it follows the shape of train.learning_rate", gt=0.0)
    decay: float = setting(0.9, "a block's learning rate as a share of the rate of the block after it", gt=0.0, le=1.0)


class Whole(Section):
    """All weights train, those near the input at a smaller rate than those near the output (Howard and Ruder 2018)."""

    name: Literal["whole"]
    learning_rate: float = setting(1e-4, "peak learning rate of the encoder; it follows the shape of train.learning_rate", gt=0.0)
    decay: float = setting(0.9, "a block's learning rate as a share of the rate of the block after it", gt=0.0, le=1.0)


class Lora(Section):
    """Low-rank changes of some dense layers train with the head (Hu et al. 2021, arXiv:2106.09685). The saved model has them merged."""

    name: Literal["lora"]
    rank: int = setting(8, "rank of each change", ge=1)
    scale: float = setting(2.0, "factor on each change: alpha / rank in the paper's terms", gt=0.0)
    layers: list[str] = setting(
        lambda: ["*query", "*value"], "names of the encoder's dense layers that change, with * and ? as wildcards", min_length=1)
    learning_rate: float = setting(1e-3, "peak learning rate of the changes; it follows the shape of train.learning_rate", gt=0.0)


Finetune = Annotated[Frozen | Last | Gradual | Whole | Lora, Field(discriminator="name")]


def default(examples: int) -> Finetune:
    """The way for a number of training examples, where the experiment names none."""
    return Frozen(name="frozen")
