"""The end of a run whose loss or gradient is not finite."""

from collections.abc import Callable

from pipelines.base.errors import TrainingError
from pipelines.training.loop import Hook, Loop


class StopWhenNotFinite(Hook):
    """A loss or gradient that is not finite ends the run, naming step, rate, norm and examples. Weights stay as before the step."""

    def __init__(self, find_culprits: Callable[[int], list[str]]):
        self.find_culprits = find_culprits

    def on_steps(self, loop: Loop) -> None:
        if bool(loop.carry.finite):
            return
        rate = loop.run_steps.chain.row(loop.step)["learning_rate"]
        named = self.find_culprits(loop.step)
        where = (
            "examples whose own loss is not finite: " + ", ".join(named)
            if named
            else "every example's own loss is finite: the gradient overflowed"
        )
        raise TrainingError(
            f"the loss or gradient is not finite at step {loop.step:,} (epoch {loop.epoch + 1}): loss {float(loop.carry.loss):g}, "
            f"gradient norm {float(loop.carry.gradient_norm):g}, learning rate {rate:g}\n{where}\n"
            "Try a lower train.learning_rate.peak, a longer warm-up, train.clip.global_norm: 1.0, or train.precision: float32. "
            "The last whole checkpoint is kept."
        )
