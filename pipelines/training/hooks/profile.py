"""What a training shows in TensorBoard besides its log: samples of its data, and a profile of some steps (extra `profile`)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf

from pipelines.base.inside import make
from pipelines.training.loop import Hook, Loop


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


class Profile(Hook):
    """Records what processor and devices do from one step to another. A failure to record is reported, and training continues."""

    def __init__(self, folder: Path, steps: Sequence[int], say: Callable[[str], None]):
        """
        Args:
            folder: TensorBoard's run that the profile belongs to.
            steps: [first, last]: recorded are the steps after `first` steps are done, until `last` are.
            say: is given where the profile is, or why there is none.
        """
        self.folder, self.say = folder, say
        self.first, self.last = steps
        self.recording = False

    def next_stop(self, loop: Loop) -> int | None:
        return self.first if loop.step < self.first else self.last if loop.step < self.last else None

    def on_start(self, loop: Loop) -> None:
        self._look(loop)

    def on_steps(self, loop: Loop) -> None:
        self._look(loop)

    def on_end(self, loop: Loop) -> None:
        self._stop(loop)

    def _look(self, loop: Loop) -> None:
        if loop.step == self.first and not self.recording:
            try:
                make(self.folder)
                tf.profiler.experimental.start(str(self.folder))
                self.recording = True
            except (tf.errors.OpError, OSError, RuntimeError) as error:
                self.say(f"monitor.profile: the steps cannot be recorded: {error}")
        elif loop.step >= self.last:
            self._stop(loop)

    def _stop(self, loop: Loop) -> None:
        if not self.recording:
            return
        self.recording = False
        with loop.meter.part("callbacks"):
            try:
                tf.profiler.experimental.stop()
                self.say(f"profile of steps {self.first:,} to {loop.step:,} written; TensorBoard shows it with the extra `profile` (xprof)")
            except (tf.errors.OpError, OSError, RuntimeError) as error:
                self.say(f"monitor.profile: the profile could not be written: {error}")
