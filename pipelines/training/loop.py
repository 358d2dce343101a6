"""The loop: runs steps between the points at which some hook wants to look, and knows no feature itself."""

import contextlib
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import Interrupted, TrainingError
from pipelines.base.signals import handling
from pipelines.base.stored import Record
from pipelines.data.order import Plan
from pipelines.data.reasons import reason
from pipelines.training.step import Carry, Step

if TYPE_CHECKING:
    from pipelines.training.meter import Meter

CALL_SECONDS = 1.0  # a call's aimed duration: logging and signals are served about so often


class Unjudged(Exception):
    """A signal came while an epoch was judged: its training is saved, and its evaluation starts again when the run resumes."""


class Hook:
    """Something that happens during training. The order of the hooks is the order of their calls."""

    name = ""  # under which its state is saved; empty: it has none
    Kept: type[Record] = Record  # what `state` gives, by which a checkpoint is checked before `restore` takes it

    def state(self) -> dict[str, Any]:
        """JSON values from which `restore` makes this hook what it is now."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes the state of an interrupted run."""

    def arrays(self) -> dict[str, np.ndarray]:
        """What of this hook's state is no JSON value."""
        return {}

    def restore_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Takes the arrays of an interrupted run; called after `restore`."""

    def next_stop(self, loop: "Loop") -> int | None:
        """The next step (count of steps done) at which this hook wants `on_steps`; None where it does not care."""
        return None

    def on_start(self, loop: "Loop") -> None:
        """Before the first step of this process; the loop's state is restored by then."""

    def on_steps(self, loop: "Loop") -> None:
        """After each call of some steps."""

    def on_epoch(self, loop: "Loop") -> None:
        """After the last step of an epoch; `loop.epoch` epochs are done. Called again, from the first hook on, by the process that
        resumes a run that ended in the midst of this.

        Raises:
            Unjudged: a signal came, and what is left of the epoch can wait.
        """

    def on_rest(self, loop: "Loop") -> None:
        """Last of all at each stop, when the loop's state is whole."""

    def on_end(self, loop: "Loop") -> None:
        """Once training is over (not when it is interrupted)."""

    def on_leave(self, loop: "Loop") -> None:
        """However this process's training ended, an error included."""


class Loop:
    """Runs a training from `step` to `steps`.

    Attributes:
        step: steps done.
        epoch: epochs done.
        carry: what the last step left (sums since the epoch began, loss, gradient norm, ...).
        epoch_metrics: `train/...` and `validation/...` of the epoch just ended.
        unjudged: the last step of an epoch is done, and what follows on it (validation, ...) is not.
        stopping: why training ends early, or None.
        until: step at which this process pauses, or None; the schedule is that of all `steps`, and a later process resumes there.
    """

    def __init__(self, step: Step, *, plan: Plan, steps: int, hooks: list[Hook], meter: "Meter", until: int | None = None):
        self.run_steps, self.plan, self.steps, self.hooks, self.meter = step, plan, steps, hooks, meter
        self.until = until
        self.step = 0
        self.carry: Carry = step.fresh()
        self.epoch_metrics: dict[str, float] = {}
        self.unjudged = not steps  # nothing trains by steps: the model is judged as it is, once
        self.stopping: str | None = None
        self.interrupted: int | None = None
        self.group = step.machine.group
        self._signalled: int | None = None  # this process; `interrupted` is what all hosts agree on
        self.seconds_before = 0.0  # spent in training by the processes before this one
        self._started: float | None = None

    @property
    def epoch(self) -> int:
        return self.step // self.plan.steps_per_epoch

    @property
    def last(self) -> int:
        """The step at which this process is done."""
        return self.steps if self.until is None else min(self.until, self.steps)

    @property
    def paused(self) -> bool:
        """Training is not over, and this process has done its part of it."""
        return self.last <= self.step < self.steps and not self.stopping

    @property
    def seconds(self) -> float:
        """Seconds of training so far, over all processes; setting up and the last judging are not in it."""
        return self.seconds_before + (0.0 if self._started is None else time.perf_counter() - self._started)

    def train(self) -> None:
        """Trains to the end.

        Raises:
            TrainingError: from a hook, such as a loss that is not finite.
            Interrupted: after SIGINT or SIGTERM, when the hooks have saved.
        """
        self._started = time.perf_counter()
        with handling(self._interrupt):
            self._train()
        if self.interrupted is not None:
            self.group.of_all(None)  # the chief has saved
            self.group.part()
            raise Interrupted(self.interrupted, f"interrupted at step {self.step:,} of {self.steps:,}; the same command resumes from here")

    def _train(self) -> None:
        try:
            for hook in self.hooks:
                hook.on_start(self)
            pace = _Pace()
            feed = self.run_steps.feed
            iterator, ends = None, self.step
            if self.unjudged:
                self._rest()
            while self.step < self.last and not self.stopping and self.interrupted is None:
                if self.step == ends:
                    ends = min(self.steps, (self.epoch + 1) * self.plan.steps_per_epoch) if feed.by_epoch else self.steps
                    iterator = feed.iterator(self.step, ends)
                stop = self.group.of_chief(min(self._next_stop(), self.step + pace.steps))  # each host has a pace of its own
                began, before, waited = time.perf_counter(), self.step, float(self.carry.waited)
                try:
                    self.step, self.carry = self.run_steps(iterator, self.step, stop - self.step, self.carry)
                except tf.errors.OpError as error:
                    self.group.failed(error)
                    raise out_of_memory(error) or feed.blame(error, self.step, stop) or error from error
                seconds = time.perf_counter() - began
                self.meter.step(seconds, float(self.carry.waited) - waited, self.step - before, self.plan.usual, first=pace.first)
                pace.learn(self.step - before, seconds)
                self.unjudged = self.step % self.plan.steps_per_epoch == 0 and self.step > before
                for hook in self.hooks:
                    hook.on_steps(self)
                self._rest()
            if self.interrupted is None and not self.paused:
                for hook in self.hooks:
                    hook.on_end(self)
        finally:
            for hook in self.hooks:
                hook.on_leave(self)
            self.seconds_before, self._started = self.seconds, None

    def train_metrics(self) -> dict[str, float]:
        """Loss and scores over the epoch so far, as training saw them (augmented, with dropout)."""
        return self.run_steps.scores.metrics(self.carry.totals.numpy())

    def _rest(self) -> None:
        """What follows a call of some steps: at the end of an epoch its evaluation, and then the checkpoint."""
        if self.unjudged:
            self.epoch_metrics = {}
            with contextlib.suppress(Unjudged):
                for hook in self.hooks:
                    hook.on_epoch(self)
                self.carry = self.carry._replace(totals=tf.zeros_like(self.carry.totals))
                self.unjudged = False
        self.agree()
        for hook in self.hooks:
            hook.on_rest(self)

    def _next_stop(self) -> int:
        epoch_end = (self.epoch + 1) * self.plan.steps_per_epoch
        return min(
            [epoch_end, self.last] + [stop for hook in self.hooks if (stop := hook.next_stop(self)) is not None and stop > self.step]
        )

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._signalled is not None:  # asked twice: the person does not want to wait for the call to end
            raise KeyboardInterrupt
        self._signalled = number
        if self.group.size == 1:
            self.interrupted = number

    def agree(self) -> bool:
        """Takes over what happened on any host: a signal, or the end of training. True after a signal."""
        if self.group.size > 1:
            signals, reasons = zip(*self.group.of_all([self._signalled, self.stopping]))
            self.interrupted = next((number for number in signals if number is not None), None)
            self.stopping = next((reason for reason in reasons if reason is not None), None)
        return self.interrupted is not None


def out_of_memory(error: tf.errors.OpError) -> TrainingError | None:
    """What to do about a device that is full; None for any other error."""
    if not isinstance(error, tf.errors.ResourceExhaustedError):
        return None
    return TrainingError(
        f"the device has not enough memory for a step: {reason(error)}\nSet train.micro_batch_size (a divisor of the "
        "global batch) or a smaller model; where the data take the room, data.cache: disk."
    )


class _Pace:
    """How many steps a call takes, so that it lasts about CALL_SECONDS."""

    def __init__(self) -> None:
        self.steps, self.first = 1, True

    def learn(self, steps: int, seconds: float) -> None:
        if not self.first and steps:  # the first call compiles
            self.steps = max(1, min(int(CALL_SECONDS * steps / max(seconds, 1e-6)), 4 * self.steps + 4))
        self.first = False
