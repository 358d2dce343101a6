"""The ways to train a network that has a pretrained encoder. Imports no TensorFlow.

What has learned something already, the encoder and a head that was fitted to its features, trains at a small rate of its own; a new head
at `train.learning_rate`.
"""

from typing import Annotated, Literal

from pydantic import Field

from pipelines.config.schema import Section, setting

FROZEN_BELOW = 300  # training examples, of `by_examples`
SHARE = 0.7  # of the blocks of a convolutional network


class Frozen(Section):
    """The encoder stays as it is and the head alone trains. Features are computed once, so that an epoch costs what the head costs."""

    name: Literal["frozen"]
    head: Literal["linear", "trained"] = setting(
        "linear", "linear: the last layer is fitted at once by L-BFGS, its regularisation chosen on groups held out of train "
        "(data.group_by), else on a large validation split, else on folds of train, and the settings of training have no effect; "
        "trained: the head trains in epochs, as any model")
    views: int = setting(
        4, "with augmentation: versions of each training example whose features are kept, an epoch for each in turn; 0, with "
        "augmentation or without: every step computes its features anew", ge=0)


class _Trained(Section):
    """What the ways have in common in which the encoder trains."""

    learning_rate: float | None = setting(
        None, "peak learning rate of the encoder, and of a fitted head; it follows the shape of train.learning_rate. Default: 0.001 for "
        "networks with batch normalisation, 0.0001 for others (transformers), 5 x as much for lora", gt=0.0)
    head: Literal["fitted", "new"] = setting(
        "fitted", "fitted: training begins with a linear head fitted to the features as they are (Kumar et al. 2022, arXiv:2202.10054); "
        "new: with a random one, which trains at train.learning_rate, as does a head that is not linear")


class Last(_Trained):
    """The encoder's last blocks train with the head; what comes before them stays as it is."""

    name: Literal["last"]
    blocks: Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0.0, lt=1.0)] = setting(
        2, "blocks that train, counted from the encoder's output: their number, or, below 1, their share of all blocks")


class Gradual(_Trained):
    """At first the head alone trains, then one more block of the encoder after the other (Howard and Ruder 2018, arXiv:1801.06146)."""

    name: Literal["gradual"]
    epochs: int = setting(1, "epochs before one more block trains", unit="epochs", ge=1)
    decay: float = setting(0.9, "a block's learning rate as a share of the rate of the block after it", gt=0.0, le=1.0)


class Whole(_Trained):
    """All weights train, those near the input at a smaller rate than those near the output (Howard and Ruder 2018)."""

    name: Literal["whole"]
    decay: float = setting(0.9, "a block's learning rate as a share of the rate of the block after it", gt=0.0, le=1.0)


class Lora(_Trained):
    """Low-rank changes of some dense layers train with the head (Hu et al. 2021, arXiv:2106.09685). The saved model has them merged."""

    name: Literal["lora"]
    rank: int = setting(8, "rank of each change", ge=1)
    scale: float = setting(2.0, "factor on each change: alpha / rank in the paper's terms", gt=0.0)
    layers: list[str] = setting(
        lambda: ["*query", "*value"], "names of the encoder's dense layers that change, with * and ? as wildcards", min_length=1)


Finetune = Annotated[Frozen | Last | Gradual | Whole | Lora, Field(discriminator="name")]


def by_examples(examples: int, *, convolutional: bool = False) -> Frozen | Last | Whole:
    """How an encoder trains where nothing says so, by the number of training examples; benchmarks/results has what was compared.

    Args:
        convolutional: it has batch normalisation; its first blocks, which take half of the time, see edges and colours in any image.
    """
    if examples < FROZEN_BELOW:
        return Frozen(name="frozen")
    return Last(name="last", blocks=SHARE) if convolutional else Whole(name="whole")


def stated(examples: int, way: Finetune) -> str:
    """What the log and the report say of a way that the number of examples chose."""
    other = f"it trains from {FROZEN_BELOW:,} on" if way.name == "frozen" else "finetune: {name: frozen} takes one pass of the encoder"
    return f"model.finetune is not set: {way.name}, since there are {examples:,} training examples; {other}."
