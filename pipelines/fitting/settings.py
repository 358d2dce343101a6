"""The settings of models that are fitted at once, which domains share. Imports no TensorFlow."""

from typing import Any, ClassVar, Literal

from pipelines.config.schema import ADDED, Experiment, Section, setting


class FittedModel(Section):
    """A model that a solver fits to train before step 0, and of which no step trains a weight."""

    fitted: ClassVar[bool] = True

    @property
    def is_baseline(self) -> bool:
        """Whether it is the cheap baseline itself, which then does not stand beside it."""
        return True


class KernelModel(FittedModel):
    """A kernel machine on features that nothing learns: the cheap baseline that stands beside every report, as a model."""

    name: Literal["kernel"]
    support: int = setting(3_000, "training examples that answers are compared with, at most; where there are more, they stand for all",
                           unit="examples", ge=1, le=20_000)


def problems_at_once(experiment: Experiment) -> list[tuple[str, str]]:
    """What a model that is fitted at once has no use for, as (setting, why and what to do)."""
    model, train = getattr(experiment, "model", None), experiment.train
    if model is None or not getattr(model, "fitted", False):
        return []
    why = f"model.name: {model.name} is fitted to train at once, and no step trains it"
    added = [name for section in ADDED.get(type(train), ()) for name in sorted(train.added(section).changed())]
    found = [(f"train.{name}", f"{why}; leave it out") for name in (*added, "teacher", "start") if getattr(train, name)]
    for name in ("loss", "augment"):
        section: Any = getattr(experiment, name, None)
        if section is not None and section != type(section)():
            found.append((name, f"{why}; leave this section out"))
    return found
