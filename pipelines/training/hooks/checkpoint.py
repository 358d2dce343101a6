"""The checkpoint from which an interrupted run resumes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from pipelines.base.errors import TrainingError
from pipelines.base.files import why
from pipelines.base.stored import checked
from pipelines.training import state
from pipelines.training.carry import Carry
from pipelines.training.hooks.best_weights import KeepBest
from pipelines.training.loop import Hook, Loop


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

    def load(self, loop: Loop, file: Path | None = None) -> bool:
        """Restores the loop and its hooks from the last checkpoint, or a copy of it; False where there is none."""
        file = file or self.file
        if not file.exists():
            return False
        like = {name: value.numpy() for name, value in loop.carry._asdict().items()}
        states: dict[str, dict[str, Any]] = {}

        def accept(about: state.About) -> None:
            if about.step > loop.steps:
                raise TrainingError(f"{file}: is of step {about.step:,} of {loop.steps:,}; start anew with --fresh")
            for hook in loop.hooks:
                if hook.name in about.hooks:
                    states[hook.name] = checked(about.hooks[hook.name], hook.Kept, f"{file}: hooks.{hook.name}").model_dump()

        carry, about = state.load(file, self.groups, carry=like, schema=state.About, accept=accept)
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
