"""What is noticed of a training that goes wrong, while it happens and with the remedy: a loss that is not finite ends the run, the rest
warns once each and is kept for the report.
"""

import math
from collections.abc import Callable
from typing import Any

from pipelines.base import formatting
from pipelines.base.errors import TrainingError
from pipelines.base.stored import Record, Text
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


class WarnOfWaiting(Hook):
    """Warns once when the device waits for input for more than the share allowed, and the remedy."""

    ENOUGH = 30.0  # s of steps measured after which the share is judged within an epoch

    def __init__(self, limit: float, say: Callable[[str], None], remedy: str):
        self.limit, self.say, self.remedy, self.given = limit, say, remedy, False

    def on_steps(self, loop: Loop) -> None:
        if loop.meter.seconds["input"] + loop.meter.seconds["step"] >= self.ENOUGH:
            self.on_epoch(loop)

    def on_epoch(self, loop: Loop) -> None:
        share = loop.meter.input_wait_fraction
        if share > self.limit and not self.given:
            self.given = True
            self.say(f"{share:.0%} of the time goes into waiting for input. {self.remedy}")


class Remarks(Hook):
    """Gives each of the task's remarks on an epoch once."""

    def __init__(self, remark: Callable[[dict[str, float]], str | None], say: Callable[[str], None]):
        self.remark, self.say = remark, say
        self.given: set[str] = set()

    def on_epoch(self, loop: Loop) -> None:
        text = self.remark(loop.epoch_metrics)
        if text and text not in self.given:
            self.given.add(text)
            self.say(f"Epoch {loop.epoch}: {text}")


class Warnings(Hook):
    """The warnings of a training, which its report begins with: those given before an interruption, too."""

    name = "warnings"

    class Kept(Record):
        texts: list[Text]

    def __init__(self) -> None:
        self.texts: list[str] = []

    def state(self) -> dict[str, Any]:
        return {"texts": self.texts}

    def restore(self, state: dict[str, Any]) -> None:
        self.texts = [*state["texts"], *(text for text in self.texts if text not in state["texts"])]


PATIENCE = 3  # epochs in a row that show the same
EARLY = 0.1  # share of all epochs before which nothing is reported
LEARNED = 0.3  # of the way from chance to perfect, on train, from which a model has learned something
RISING = 0.01  # gain of validation over the last fifth of training from which it was still rising
ALIKE = 0.03  # difference of train and validation that is none

AT_CHANCE = (
    "validation is at chance level ({validation}; {chance} needs no model) while train is at {train}: what is learned does not hold "
    "for examples that were not trained on. Look for labels that were mixed up, for a validation split of another kind than train, or give "
    "more examples, stronger augmentation, a smaller network or a pretrained one; more training will hardly help"
)
NOTHING = (
    "nothing has been learned so far: {train} on train, {chance} needs no model. Try a train.learning_rate.peak ten times lower, then ten "
    "times higher, and look at the labels (quartet check) and at the inputs in TensorBoard"
)
SHORT = (
    "validation was still rising when training ended ({before} to {after} over its last fifth), and train is no better ({train}): the "
    "model underfits. Train longer (train.epochs), with a higher learning rate, a larger network or less augmentation"
)


class Diagnosis(Hook):
    """Warns of chance-level validation, of no learning at all, and of a training that ended too early; each once.

    Args:
        metric: larger is better, at most 1: "accuracy".
        chance: its value without a model, such as the share of the largest class.
        examples: of validation; 0 where there is none.
        say: takes a warning, and keeps it for the report.
    """

    name = "diagnosis"

    class Kept(Record):
        history: list[tuple[float, float | None]]
        reported: list[Text]

    def __init__(self, metric: str, chance: float, examples: int, say: Callable[[str], None]):
        self.metric, self.chance, self.say = metric, chance, say
        # two standard errors of a share: what lies nearer to chance cannot be distinguished from it
        self.margin = 2 * math.sqrt(chance * (1 - chance) / examples) if examples else 0.0
        self.history: list[tuple[float, float | None]] = []  # of each epoch: train, validation
        self.reported: set[str] = set()

    def state(self) -> dict[str, Any]:
        return {"history": self.history, "reported": sorted(self.reported)}

    def restore(self, state: dict[str, Any]) -> None:
        self.history, self.reported = [(train, validation) for train, validation in state["history"]], set(state["reported"])

    def on_epoch(self, loop: Loop) -> None:
        train = loop.epoch_metrics.get(f"train/{self.metric}")
        if train is None:
            return
        self.history.append((train, loop.epoch_metrics.get(f"validation/{self.metric}")))
        epochs = max(1, loop.steps // loop.plan.steps_per_epoch)
        recent = self.history[-PATIENCE:]
        if len(recent) < PATIENCE or loop.epoch < EARLY * epochs:
            return
        if all(self._learned(train) and self._at_chance(validation) for train, validation in recent):
            self._warn(f"Epoch {loop.epoch}: ", AT_CHANCE)
        elif all(train <= self.chance + 0.02 * (1 - self.chance) for train, _ in self.history):
            self._warn(f"Epoch {loop.epoch}: ", NOTHING)

    def on_end(self, loop: Loop) -> None:
        judged = [validation for _, validation in self.history if validation is not None]
        last = max(1, len(judged) // 5)
        if len(judged) < 5 or loop.stopping:
            return
        before, after = sum(judged[-2 * last:-last]) / last, sum(judged[-last:]) / last
        train = self.history[-1][0]
        if after - before >= max(RISING, self.margin) and train - after <= ALIKE:
            self._warn("At the end: ", SHORT, before=self._number(before), after=self._number(after))

    def _learned(self, train: float) -> bool:
        return train - self.chance >= LEARNED * (1 - self.chance)

    def _at_chance(self, validation: float | None) -> bool:
        return validation is not None and validation <= self.chance + max(self.margin, 0.02 * (1 - self.chance))

    def _number(self, value: float) -> str:
        return formatting.number(value, self.metric)

    def _warn(self, when: str, text: str, **more: str) -> None:
        if text in self.reported:
            return
        self.reported.add(text)
        train, validation = self.history[-1]
        shown = self._number(validation) if validation is not None else "–"
        self.say(when + text.format(train=self._number(train), validation=shown, chance=self._number(self.chance), **more) + ".")
