"""The checkpoint from which an interrupted run resumes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from pipelines.base.errors import TrainingError
from pipelines.base.files import Background, why
from pipelines.base.stored import checked
from pipelines.training import state
from pipelines.training.hooks.best_weights import KeepBest
from pipelines.training.hooks.home import Elsewhere
from pipelines.training.loop import Hook, Loop
from pipelines.training.step import Carry
from pipelines.training.still import Still, candidates


class Checkpoint(Hook):
    """Saves the whole state every `seconds`, at the end, and when interrupted. Stands last among the hooks.

    Training waits for the copy to the host alone; a thread writes it, one checkpoint at a time, and a kill meanwhile leaves the one
    before. At the end, and when interrupted, training waits until it is written.
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
        still: Still,
        elsewhere: Elsewhere | None = None,
    ):
        """
        Args:
            identity: what must not change over the life of a run, kept with each checkpoint (precision, data).
            still: keeps what stands still.
            elsewhere: what the steps change elsewhere than in `groups`; saved when it has been brought there.
        """
        self.elsewhere, self.still = elsewhere, still
        self.folder, self.groups, self.seconds, self.say, self.identity, self.meter = folder, groups, seconds, say, identity, meter
        self.file = folder / "resume.npz"
        self._saved_at, self._begun = time.perf_counter(), (-1, False)  # step and unjudged of the last that was begun,
        self._written = self._begun  # and of the last that is whole on the disk
        self._writing, self._failure = Background("checkpoint"), ""

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

        carry, about = state.load(file, self.groups, carry=like, schema=state.About, accept=accept, still=self.still)
        loop.carry = Carry(*(tf.constant(carry[name]) for name in Carry._fields))
        loop.step, loop.seconds_before = about.step, about.seconds
        loop.stopping, loop.unjudged = about.stopping, about.unjudged
        self.meter.restore(about.meter.model_dump())
        for hook in loop.hooks:
            if hook.name in states:
                hook.restore(states[hook.name])
                prefix = f"{hook.name}/"
                hook.restore_arrays({name.removeprefix(prefix): value for name, value in carry.items() if name.startswith(prefix)})
        self._begun = self._written = loop.step, loop.unjudged
        return True

    def on_start(self, loop: Loop) -> None:
        self._saved_at = time.perf_counter()

    def on_steps(self, loop: Loop) -> None:
        with loop.meter.part("checkpoint"):
            self._writing.collect()
        if loop.unjudged and self.due():
            self.save(loop)

    def on_rest(self, loop: Loop) -> None:
        done = loop.step >= loop.last or loop.stopping or loop.interrupted is not None
        stale = self.elsewhere is not None and self.elsewhere.stale
        if done or (not stale and ((self._begun[1] and not self._writing.busy) or self.due())):
            self.save(loop)
        if done:
            self.wait(loop)

    def on_leave(self, loop: Loop) -> None:
        self._writing.collect(wait=True)

    def due(self) -> bool:
        """Whether the next checkpoint is to be saved."""
        return not self._writing.busy and time.perf_counter() - self._saved_at >= self.seconds

    def save(self, loop: Loop) -> None:
        """Begins to write a checkpoint, once the one before is written. A full disk is reported at the next stop; the one before stays."""
        state_now = loop.step, loop.unjudged
        with loop.meter.part("checkpoint"):
            self._writing.collect(wait=True)
            if self._begun == state_now:
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
            arrays, meant, step = state.snapshot(self.groups, carry, about), _best(loop), loop.step
            names = candidates(self.groups, arrays)
        self._begun, self._saved_at = state_now, time.perf_counter()

        def after(error: OSError | None) -> None:
            if error is None:
                self._written, self._failure = state_now, ""
                self._prune(meant | _best(loop))
            else:
                self._begun = self._written
                before = self._written[0]
                kept = f"the checkpoint of step {before:,} is whole and kept" if before >= 0 else "there is none yet"
                self._failure = f"{self.file}: the checkpoint of step {state_now[0]:,} could not be saved: {why(error)}; {kept}"
                if loop.interrupted is None:
                    self.say(self._failure)

        self._writing.start(lambda: state.write(self.file, arrays, self.still, names, step), after)

    def wait(self, loop: Loop) -> None:
        """Waits until what was begun is written. Raises TrainingError where an interrupted run could not be saved."""
        with loop.meter.part("checkpoint"):
            self._writing.collect(wait=True)
        if loop.interrupted is not None and self._failure:
            raise TrainingError(self._failure)

    def _prune(self, wanted: set[str]) -> None:
        """Removes best weights that neither the checkpoint just written nor the next one means, and what no checkpoint names."""
        self.still.prune()
        for file in self.folder.glob("best-*.npz"):
            if file.name not in wanted:
                file.unlink(missing_ok=True)


def _best(loop: Loop) -> set[str]:
    return {hook.file.name for hook in loop.hooks if isinstance(hook, KeepBest)}
