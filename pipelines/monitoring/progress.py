"""Progress of a training on the terminal: a bar with rate, time left and metrics, or plain lines where there is no terminal."""

import time
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from pipelines.base import formatting
from pipelines.base.terminal import Screen

_LINE_SECONDS = 10.0  # between plain lines within an epoch
_SURE_SECONDS = 5.0  # of steps after which the time left is shown
_NARROWEST = 12  # of the bar, with the space after it, columns


class Progress(Screen):
    """Shows steps, and prints notes and epochs above them. Without a terminal the state comes as a plain line every ten seconds."""

    def __init__(self, total_steps: int, steps_per_epoch: int, quiet: bool = False, *, file: TextIO | None = None, bar: bool | None = None):
        """
        Args:
            total_steps: of the whole run.
            steps_per_epoch: of one epoch.
            quiet, file, bar: see `Screen`.
        """
        self.total_steps, self.steps_per_epoch = total_steps, max(steps_per_epoch, 1)
        self._state = _State(total_steps, self.steps_per_epoch)
        super().__init__(self._state, quiet=quiet, file=file, bar=bar)
        self._said_at = time.monotonic()

    def update(self, step: int, examples_per_second: float, metrics: Mapping[str, float]) -> None:
        """The state after `step` steps; `metrics` by name, loss first, of the epoch so far."""
        self._state.update(step, examples_per_second, dict(metrics))
        if self.quiet:
            return
        if self._live:
            self._live.refresh()
        elif not self._bar and time.monotonic() - self._said_at >= _LINE_SECONDS:
            self._print(self._state.line())

    def epoch_line(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """A line that stays, for an epoch just ended: `train/loss`, `validation/accuracy`, ..."""
        if not self.quiet:
            self._print(_epoch_text(epoch, -(-self.total_steps // self.steps_per_epoch), self._state.seconds(), metrics))

    def _print(self, text: str | Text) -> None:
        self._said_at = time.monotonic()
        super()._print(text)


class _State:
    """The bar's line. The least important parts are dropped where the terminal is narrow."""

    def __init__(self, total_steps: int, steps_per_epoch: int):
        self.total_steps, self.steps_per_epoch = max(total_steps, 1), steps_per_epoch
        self.step, self.rate = 0, 0.0
        self.metrics: dict[str, float] = {}
        self._began = time.monotonic()
        self._first: tuple[float, int] | None = None  # when the first update came, and its step: compilation is over

    def update(self, step: int, rate: float, metrics: dict[str, float]) -> None:
        self.step, self.rate, self.metrics = step, rate, metrics
        if self._first is None:
            self._first = (time.monotonic(), step)

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def left(self) -> float | None:
        """Seconds to go at the mean pace since the first update, evaluation and all included; None while it is too early."""
        if self._first is None or self.step <= self._first[1]:
            return None
        since, start = self._first
        seen = time.monotonic() - since
        if seen < _SURE_SECONDS and self.step < self.total_steps:
            return None
        return seen / (self.step - start) * max(self.total_steps - self.step, 0)

    def place(self) -> str:
        epochs = -(-self.total_steps // self.steps_per_epoch)
        epoch = min(self.step // self.steps_per_epoch + 1, epochs)
        return f"epoch {epoch}/{epochs}  step {self.step:,}/{self.total_steps:,}"

    def facts(self) -> list[str]:
        """Time left, loss and metrics, rate; in order of importance."""
        left = self.left()
        measured = [f"{name} {formatting.number(float(value), name)}" for name, value in self.metrics.items()]
        # before the first evaluation the pace is too optimistic
        whole = self._first is not None and self.step // self.steps_per_epoch > self._first[1] // self.steps_per_epoch
        remaining = [f"{'' if whole else 'over '}{formatting.duration(left)} left"] if left and left >= 0.5 else []
        return [*remaining, *measured[:1], f"{self.rate:,.0f} examples/s", *measured[1:]]

    def line(self) -> str:
        return "  ".join([self.place(), *self.facts()])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = console.width - 1  # a full last column makes some terminals wrap
        if self._first is None:
            yield Text(f"preparing the first step ... {formatting.duration(self.seconds())}"[:width], style="dim")
            return
        share = min(self.step / self.total_steps, 1.0)
        text = self.place()
        if len(text) + _NARROWEST > width:
            text = f"{100 * share:.0f} %"
        for fact in self.facts():
            if len(text) + len(fact) + 2 + _NARROWEST > width:
                break
            text += f"  {fact}"
        cells = max(0, min(40, width - len(text) - 2))
        done = round(cells * share)
        full, empty = ("━", "━") if (console.encoding or "").lower().startswith("utf") else ("=", "-")
        yield Text.assemble((full * done, "cyan"), (empty * (cells - done), "bright_black"), ("  " if cells else "") + text[:width])


def _epoch_text(epoch: int, epochs: int, seconds: float, metrics: Mapping[str, float]) -> str:
    """`epoch  3/10  12.1 s  train loss 0.5121 accuracy 81.2 %  validation loss 0.6012 accuracy 78.9 %`."""
    by_split: dict[str, list[str]] = {}
    for name, value in metrics.items():
        split, metric = formatting.split_name(name)
        by_split.setdefault(split, []).append(f"{metric} {formatting.number(float(value), metric)}")
    parts = [" ".join([*([split] if split else []), *values]) for split, values in by_split.items()]
    place = f"epoch {epoch:>{len(str(epochs))}}/{epochs}" if epochs else "judged"  # without a step, once
    return "  ".join([place, formatting.duration(seconds), *parts])
