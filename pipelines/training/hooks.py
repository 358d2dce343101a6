"""What happens during training besides the steps: validation, logs, the best weights, checkpoints, callbacks."""

import fnmatch
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError, TrainingError
from pipelines.base.files import why
from pipelines.base.stored import Count, Record, Text, checked
from pipelines.config.schema import Freeze, Train
from pipelines.training import state
from pipelines.training.carry import Carry
from pipelines.training.embedding_tables import Table
from pipelines.training.evaluation import Evaluator
from pipelines.training.loop import Hook, Loop, Unjudged
from pipelines.training.schedules import learning_rate
from pipelines.training.totals import means


class StopWhenNotFinite(Hook):
    """A loss or gradient that is not finite ends the run, naming step, rate, norm and examples. Weights stay as before the step."""

    def __init__(self, find_culprits: Callable[[int], list[str]]):
        self.find_culprits = find_culprits

    def on_steps(self, loop: Loop) -> None:
        if bool(loop.carry.finite):
            return
        rate = rate_at(loop, loop.step)
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


class Validation(Hook):
    """Judges the validation split at the end of epochs, with the averaged weights where there are any."""

    def __init__(self, evaluator: Evaluator | None, every: int):
        self.evaluator, self.every = evaluator, every

    def on_epoch(self, loop: Loop) -> None:
        if loop.steps:
            loop.epoch_metrics.update({f"train/{name}": value for name, value in loop.train_metrics().items()})
        if self.evaluator and (loop.epoch % self.every == 0 or loop.step >= loop.steps):
            with loop.meter.part("evaluation"):
                scores = self.evaluator.scores(lambda: loop.interrupted is not None)
            if scores is None:
                raise Unjudged
            loop.epoch_metrics.update({f"validation/{name}": value for name, value in scores.items()})


class KeepBest(Hook):
    """Keeps the weights of the best epoch on the watched metric, and stops early when asked to."""

    name = "best"

    class Kept(Record):
        best: float | None
        epoch: Count
        last_gain: Count
        reference: float | None

    def __init__(self, folder: Path, watch: str, direction: str, groups: dict[str, list[keras.Variable]], train: Train,
                 say: Callable[[str], None]):
        self.folder, self.watch, self.sign, self.groups, self.say = folder, watch, 1.0 if direction == "max" else -1.0, groups, say
        self.early, self.keep = train.early_stopping, train.keep
        self.best: float | None = None
        self.epoch, self.last_gain = 0, 0
        self.reference: float | None = None  # what early stopping compares with; moves only by min_delta or more

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "epoch": self.epoch, "last_gain": self.last_gain, "reference": self.reference}

    def restore(self, state: dict[str, Any]) -> None:
        self.best, self.epoch, self.last_gain, self.reference = (state[key] for key in ("best", "epoch", "last_gain", "reference"))

    @property
    def file(self) -> Path:
        return self._file(self.epoch)

    def _file(self, epoch: int) -> Path:
        # named by epoch: a kill between this file and the next checkpoint must not spoil the one the checkpoint means
        return self.folder / f"best-{epoch:05d}.npz"

    def _keep(self, loop: Loop, value: float) -> bool:
        """Saves the weights where they are wanted; False where the disk does not take them, and the best so far stays."""
        if self.keep == "best":
            try:
                with loop.meter.part("checkpoint"):
                    state.save(self._file(loop.epoch), self.groups, {}, {"epoch": loop.epoch, self.watch: value * self.sign})
            except OSError as error:
                before = f"the weights of epoch {self.epoch} stay the best that are kept" if self.best is not None else "none are kept yet"
                self.say(f"{self._file(loop.epoch)}: the best weights so far, of epoch {loop.epoch}, could not be saved: "
                         f"{why(error)}; {before}. Free some space")
                return False
        return True

    def on_epoch(self, loop: Loop) -> None:
        value = loop.epoch_metrics.get(self.watch)
        if value is None:
            return
        value *= self.sign
        finite = bool(np.isfinite(value))
        # of equals, the later: it has trained longer
        if finite and (self.best is None or value >= self.best) and self._keep(loop, value):
            self.best, self.epoch = value, loop.epoch
        if self.early is None:
            return
        if finite and (self.reference is None or value > self.reference + self.early.min_delta):
            self.reference, self.last_gain = value, loop.epoch
        if loop.epoch - self.last_gain >= self.early.patience:
            loop.stopping = f"no gain in {self.watch} for {self.early.patience} epochs"

    def restore_best(self) -> int | None:
        """Puts the best epoch's weights back; returns that epoch, None where the last weights stay."""
        if self.keep != "best" or self.best is None:
            return None
        state.load(self.file, self.groups)
        return self.epoch


class Unfreeze(Hook):
    """Freezes layers by name, and frees them after some epochs."""

    def __init__(self, freeze: Freeze, model: keras.Model):
        self.freeze = freeze
        layers = [layer for layer in model._flatten_layers(include_self=False) if layer.weights or isinstance(layer, Table)]
        self.layers = [layer for layer in layers if any(fnmatch.fnmatchcase(layer.name, pattern) for pattern in freeze.layers)]
        unmatched = [p for p in freeze.layers if not any(fnmatch.fnmatchcase(layer.name, p) for layer in layers)]
        if unmatched:
            raise ConfigError(
                f"train.freeze.layers: {unmatched[0]!r} matches no layer; the model has {', '.join(layer.name for layer in layers)}"
            )
        frozen = {id(weight) for layer in self.layers for weight in layer.trainable_weights}
        if all(id(weight) in frozen for weight in model.trainable_weights):
            raise ConfigError("train.freeze.layers: every layer with weights is frozen; nothing would train")

    def on_start(self, loop: Loop) -> None:
        self._set(loop, self.freeze.epochs is not None and loop.epoch >= self.freeze.epochs)

    def on_epoch(self, loop: Loop) -> None:
        if self.freeze.epochs is not None and loop.epoch == self.freeze.epochs:
            self._set(loop, True)

    def _set(self, loop: Loop, trainable: bool) -> None:
        for layer in self.layers:
            layer.trainable = trainable
        loop.run_steps.retrace()


class Log(Hook):
    """A line in metrics.jsonl, TensorBoard and the terminal every `every` steps, and one for each epoch."""

    name = "log"

    class Kept(Record):
        totals: list[float]

    def __init__(self, *, every: int, log: Any, writers: dict[str, Any], progress: Any):
        self.every, self.log, self.writers, self.progress = every, log, writers, progress
        self.totals: list[float] = []
        self._when, self._step, self._waited = time.perf_counter(), 0, 0.0
        self._failed = False

    def state(self) -> dict[str, Any]:
        return {"totals": self.totals}

    def restore(self, state: dict[str, Any]) -> None:
        self.totals = state["totals"]

    def next_stop(self, loop: Loop) -> int:
        return (loop.step // self.every + 1) * self.every

    def on_start(self, loop: Loop) -> None:
        self._when, self._step, self._waited = time.perf_counter(), loop.step, float(loop.carry.waited)
        self.totals = self.totals if len(self.totals) == len(loop.carry.totals) else [0.0] * len(loop.carry.totals)

    def on_steps(self, loop: Loop) -> None:
        now = loop.meter.summary()
        self.progress.update(loop.step, now["examples_per_second"], loop.train_metrics())
        if loop.step % self.every:
            return
        totals = loop.carry.totals.numpy()
        recent = means(totals - np.asarray(self.totals), loop.run_steps.score_names)
        seconds = max(time.perf_counter() - self._when, 1e-9)
        rate = (loop.step - self._step) * loop.plan.batch / seconds
        waited = float(loop.carry.waited) - self._waited
        row = {
            **{f"train/{name}": value for name, value in recent.items()},
            "learning_rate": rate_at(loop, loop.step - 1),
            "gradient_norm": float(loop.carry.gradient_norm),
        }
        if loop.run_steps.machine.precision == "float16":
            row["loss_scale"] = float(loop.carry.loss_scale)
        speed = {"examples_per_second": rate, "input_wait_fraction": min(1.0, waited / seconds), "memory_bytes": memory(),
                 **device_memory(loop.run_steps.machine.devices)}
        with loop.meter.part("callbacks"):
            self._append({"step": loop.step, "epoch": loop.step / loop.plan.steps_per_epoch, "time_s": loop.seconds, **row, **speed})
            if "train" in self.writers:
                charts = {name.removeprefix("train/"): value for name, value in row.items()}
                self.writers["train"].scalars(charts | {f"speed/{name}": value for name, value in speed.items()}, loop.step)
        self.totals = totals.tolist()
        self._when, self._step, self._waited = time.perf_counter(), loop.step, float(loop.carry.waited)

    def on_epoch(self, loop: Loop) -> None:
        metrics = dict(loop.epoch_metrics)
        with loop.meter.part("callbacks"):
            self._append(
                {
                    "step": loop.step,
                    "epoch": loop.epoch,
                    "time_s": loop.seconds,
                    **{name.replace("train/", "epoch/", 1): value for name, value in metrics.items()},
                }
            )
            for split in ("train", "validation"):
                values = {f"epoch/{name.partition('/')[2]}": value for name, value in metrics.items() if name.startswith(f"{split}/")}
                if values and split in self.writers:
                    self.writers[split].scalars(values, loop.step)
                    self.writers[split].flush()
        self.progress.epoch_line(loop.epoch, metrics)
        self.totals = [0.0] * len(self.totals)
        self._when, self._step, self._waited = time.perf_counter(), loop.step, float(loop.carry.waited)


    def _append(self, row: dict[str, Any]) -> None:
        """Writes a line; where the disk does not take it, says so once and lets training go on without."""
        try:
            self.log.append(row)
        except OSError as error:
            if not self._failed:
                self.progress.warning(f"{self.log.path}: a line could not be written: {why(error)}; training goes on, "
                                      "and its curves have a gap")
            self._failed = True


class WarnOfWaiting(Hook):
    """Says once when the device waits for input for more than the share allowed, and what would mend it."""

    ENOUGH = 30.0  # s of steps measured after which the share is judged within an epoch

    def __init__(self, limit: float, say: Callable[[str], None], remedy: str):
        self.limit, self.say, self.remedy, self.said = limit, say, remedy, False

    def on_steps(self, loop: Loop) -> None:
        if loop.meter.seconds["input"] + loop.meter.seconds["step"] >= self.ENOUGH:
            self.on_epoch(loop)

    def on_epoch(self, loop: Loop) -> None:
        share = loop.meter.input_wait_fraction
        if share > self.limit and not self.said:
            self.said = True
            self.say(f"{share:.0%} of the time goes into waiting for input. {self.remedy}")


class Remarks(Hook):
    """Says once what the task has to say of an epoch, given its metrics."""

    def __init__(self, remark: Callable[[dict[str, float]], str | None], say: Callable[[str], None]):
        self.remark, self.say = remark, say
        self.said: set[str] = set()

    def on_epoch(self, loop: Loop) -> None:
        text = self.remark(loop.epoch_metrics)
        if text and text not in self.said:
            self.said.add(text)
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


class Samples(Hook):
    """Lets the task show a training batch as the model sees it, at the start and after each epoch."""

    def __init__(self, show: Callable[[Loop], None]):
        self.show = show

    def on_start(self, loop: Loop) -> None:
        if loop.step == 0:
            self._show(loop)

    def on_epoch(self, loop: Loop) -> None:
        if loop.step < loop.steps:
            self._show(loop)

    def _show(self, loop: Loop) -> None:
        with loop.meter.part("callbacks"):
            self.show(loop)


class Checkpoint(Hook):
    """Saves the whole state every `seconds`, at the end, and when interrupted. Stands last among the hooks.

    Where a checkpoint is due at the end of an epoch, it is saved before the epoch is judged, which may take long, as well as after.
    """

    def __init__(
        self,
        folder: Path,
        groups: dict[str, list[keras.Variable]],
        *,
        seconds: float,
        say: Callable[[str], None],
        identity: dict[str, Any],
        meter: Any,
    ):
        """`identity`: what must not change over the life of a run, kept with each checkpoint (precision, data)."""
        self.folder, self.groups, self.seconds, self.say, self.identity, self.meter = folder, groups, seconds, say, identity, meter
        self.file = folder / "resume.npz"
        self._saved_at, self._saved_step, self._saved_unjudged = time.perf_counter(), -1, False

    def load(self, loop: Loop) -> bool:
        """Restores the loop and its hooks from the last checkpoint; False where there is none."""
        if not self.file.exists():
            return False
        like = {name: value.numpy() for name, value in loop.carry._asdict().items()}
        states: dict[str, dict[str, Any]] = {}

        def accept(about: state.About) -> None:
            if about.step > loop.steps:
                raise TrainingError(f"{self.file}: is of step {about.step:,} of {loop.steps:,}; start anew with --fresh")
            for hook in loop.hooks:
                if hook.name in about.hooks:
                    states[hook.name] = checked(about.hooks[hook.name], hook.Kept, f"{self.file}: hooks.{hook.name}").model_dump()

        carry, about = state.load(self.file, self.groups, carry=like, schema=state.About, accept=accept)
        loop.carry = Carry(*(tf.constant(carry[name]) for name in Carry._fields))
        loop.step, loop.seconds_before = about.step, about.seconds
        loop.stopping, loop.unjudged = about.stopping, about.unjudged
        self.meter.restore(about.meter.model_dump())
        for hook in loop.hooks:
            if hook.name in states:
                hook.restore(states[hook.name])
                prefix = f"{hook.name}/"
                hook.restore_arrays({name.removeprefix(prefix): value for name, value in carry.items() if name.startswith(prefix)})
        self._saved_step, self._saved_unjudged = loop.step, loop.unjudged
        return True

    def on_start(self, loop: Loop) -> None:
        self._saved_at = time.perf_counter()

    def on_steps(self, loop: Loop) -> None:
        if loop.unjudged and self._due():
            self.save(loop)

    def on_rest(self, loop: Loop) -> None:
        done = loop.step >= loop.last or loop.stopping or loop.interrupted is not None
        if done or self._saved_unjudged or self._due():
            self.save(loop)

    def _due(self) -> bool:
        return time.perf_counter() - self._saved_at >= self.seconds

    def save(self, loop: Loop) -> None:
        """Writes the checkpoint. A full disk is said and keeps the one before; when interrupted, it is an error."""
        if (self._saved_step, self._saved_unjudged) == (loop.step, loop.unjudged):
            return
        about = {
            **self.identity,
            "step": loop.step,
            "seconds": loop.seconds,
            "stopping": loop.stopping,
            "unjudged": loop.unjudged,
            "meter": self.meter.state(),
            "hooks": {hook.name: hook.state() for hook in loop.hooks if hook.name},
        }
        carry = {name: value.numpy() for name, value in loop.carry._asdict().items()}
        carry |= {f"{hook.name}/{name}": value for hook in loop.hooks if hook.name for name, value in hook.arrays().items()}
        try:
            with loop.meter.part("checkpoint"):
                state.save(self.file, self.groups, carry, about)
        except OSError as error:
            kept = f"the checkpoint of step {self._saved_step:,} is whole and kept" if self._saved_step >= 0 else "there is none yet"
            message = f"{self.file}: the checkpoint of step {loop.step:,} could not be saved: {why(error)}; {kept}"
            if loop.interrupted is not None:
                raise TrainingError(message) from error
            self.say(message)
        else:
            self._saved_step, self._saved_unjudged = loop.step, loop.unjudged
            self._prune(loop)
        self._saved_at = time.perf_counter()

    def _prune(self, loop: Loop) -> None:
        """Removes best weights that the checkpoint just written no longer means."""
        wanted = {hook.file.name for hook in loop.hooks if isinstance(hook, KeepBest)}
        for file in self.folder.glob("best-*.npz"):
            if file.name not in wanted:
                file.unlink(missing_ok=True)


def rate_at(loop: Loop, step: int) -> float:
    """The learning rate of a step: the schedule's, times the optimizer's own, which is 1 unless a callback changed it."""
    scheduled = learning_rate(loop.run_steps.train.learning_rate, loop.steps, tf.constant(step))
    return float(scheduled) * float(loop.run_steps.update.optimizer.learning_rate.value.numpy())


def device_memory(devices: Sequence[str]) -> dict[str, int]:
    """device_memory_bytes: the most that any of the GPUs held so far, bytes; nothing for CPUs, and where TensorFlow does not count."""
    try:
        peaks = [tf.config.experimental.get_memory_info(name)["peak"] for name in devices if name.startswith("GPU")]
    except (ValueError, tf.errors.OpError):
        return {}
    return {"device_memory_bytes": max(peaks)} if peaks else {}


def memory() -> int:
    """Resident memory of this process, bytes (0 where the system does not say)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0
