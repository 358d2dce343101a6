"""What a run does besides its training: the decisions in which one run differs from another."""

from dataclasses import dataclass, field
from typing import Any

from pipelines.training.loop import Hook
from pipelines.training.transform import Kept


@dataclass(frozen=True)
class Policy:
    """By default, that of a run by itself: it does everything. A search, which trains many and compares them, leaves things out.

    Attributes:
        test: the test split is judged, once, at the end.
        baseline: a cheap model is fitted, to stand beside the scores (unless the experiment leaves it out).
        model: the model is saved, and the state that it was resumed from is dropped (unless the experiment keeps it).
        guidance: samples are shown, and warnings given of the data, of a training that goes wrong, and of scores that beat no baseline.
        details: the report holds curves, figures, explanations and arithmetic beside the metrics.
        title: the run's row in TensorBoard's table of settings; None: its name.
        settings: that stand there; None: those that differ from their defaults.
        precision: of a run that begins; None: as the experiment says.
        epochs: after which the run pauses with its state saved, to be resumed later; None: it trains to its end.
        hooks: besides the usual ones.
        kept: what transforms keep of a run that begins; where one is missing, it begins anew.
    """

    test: bool = True
    baseline: bool = True
    model: bool = True
    guidance: bool = True
    details: bool = True
    title: str | None = None
    settings: dict[str, Any] | None = None
    precision: str | None = None
    epochs: int | None = None
    hooks: tuple[Hook, ...] = ()
    kept: Kept = field(default_factory=dict)
