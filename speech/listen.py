"""`python -m speech.listen RUN [FILE]`: spoken commands in a long file or a live stream, with their times.

A window slides over the samples; where a class stays over the threshold in the mean of some windows, it is detected once. Live:
16-bit mono samples at the model's rate on standard input, as `arecord -t raw -f S16_LE -r 8000 | python -m speech.listen RUN`.
"""

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from pipelines.base.errors import ConfigError, DataError

SILENCE_CLASSES = ("_silence_", "_unknown_")  # never detected


@dataclass(frozen=True)
class Detection:
    """A detected command: start and end, s, of the window of highest smoothed probability, and that probability."""

    label: str
    start: float
    end: float
    confidence: float


class Detector:
    """Slides a command model over samples that come in pieces of any size.

    Args:
        run: a loaded run of speech.classification.
        hop: s from window to window.
        threshold: smoothed probability from which a command counts.
        smooth: windows over whose mean that is.
        quiet: s after a detection in which the same command is not reported again.
        floor: windows whose peak is under this share of full scale are taken for silence.
    """

    def __init__(self, run: Any, *, hop: float = 0.1, threshold: float = 0.7, smooth: int = 3, quiet: float = 0.5, floor: float = 0.003):
        import tensorflow as tf

        task = run.task
        self.rate, self.window, self.classes = task.experiment.data.rate, task.input.window, task.output.classes
        self.hop, self.threshold, self.smooth = max(1, round(hop * self.rate)), threshold, smooth
        self.quiet, self.floor = quiet, floor
        self._held = np.zeros(0, np.float32)
        self._start = 0  # number of the first sample held
        self._recent: deque[np.ndarray] = deque(maxlen=smooth)
        self._best: Detection | None = None
        self._last: dict[str, float] = {}

        @tf.function(input_signature=[tf.TensorSpec([None, self.window], tf.float32)], autograph=False)
        def answer(windows: tf.Tensor) -> tf.Tensor:
            lengths = tf.fill([tf.shape(windows)[0]], self.window)
            inputs, _ = task.prepare(task.input.receive({"samples": windows, "length": lengths}))
            return task.output.answer(lambda batch: run.model(batch, training=False), inputs)["probabilities"]

        self._answer = answer

    def feed(self, samples: np.ndarray) -> Iterator[Detection]:
        """Takes further samples, float32 [n] of full scale -1 to 1; yields what is detected by now."""
        self._held = np.concatenate([self._held, np.asarray(samples, np.float32)])
        count = (len(self._held) - self.window) // self.hop + 1
        if count <= 0:
            return
        windows = np.lib.stride_tricks.sliding_window_view(self._held, self.window)[::self.hop][:count]
        shares = np.concatenate([self._answer(np.ascontiguousarray(windows[at:at + 64])).numpy() for at in range(0, count, 64)])
        for number in range(count):
            loud = float(np.abs(windows[number]).max()) >= self.floor
            yield from self._window(self._start + number * self.hop, shares[number] if loud else np.zeros(len(self.classes)))
        self._held = self._held[count * self.hop:]
        self._start += count * self.hop

    def finish(self) -> Iterator[Detection]:
        """What is detected in the rest, with silence behind it."""
        yield from self.feed(np.zeros(self.window + self.hop * self.smooth, np.float32))
        if self._best:
            yield self._report()

    def _window(self, first: int, shares: np.ndarray) -> Iterator[Detection]:
        self._recent.append(shares)
        mean = np.mean(self._recent, axis=0) if len(self._recent) == self.smooth else np.zeros(len(self.classes))
        label = int(mean.argmax())
        # the windows averaged end with this one: the middle one says when
        start = (first - self.hop * (self.smooth - 1) / 2) / self.rate
        candidate = Detection(self.classes[label], max(start, 0.0), start + self.window / self.rate, float(mean[label]))
        sure = candidate.confidence >= self.threshold and candidate.label not in SILENCE_CLASSES
        if self._best and (not sure or candidate.label != self._best.label):
            yield self._report()
        reported = candidate.start < self._last.get(candidate.label, -1e9)
        if sure and not reported and (self._best is None or candidate.confidence > self._best.confidence):
            self._best = candidate

    def _report(self) -> Detection:
        assert self._best is not None
        best, self._best = self._best, None
        self._last[best.label] = best.start + self.quiet
        return best


def detect(run: Any, samples: np.ndarray, **options: Any) -> list[Detection]:
    """All detections in samples at the model's rate; options as Detector."""
    detector = Detector(run, **options)
    return [*detector.feed(samples), *detector.finish()]


def stream(run: Any, pieces: Iterable[np.ndarray], **options: Any) -> Iterator[Detection]:
    """Detections as they come, from pieces of samples; options as Detector."""
    detector = Detector(run, **options)
    for piece in pieces:
        yield from detector.feed(piece)
    yield from detector.finish()


def standard_input(rate: int) -> Iterator[np.ndarray]:
    """Pieces of a tenth of a second of 16-bit samples from standard input."""
    while content := sys.stdin.buffer.read(2 * (rate // 10)):
        yield np.frombuffer(content[:len(content) // 2 * 2], "<i2").astype(np.float32) / 32768.0


def recording(file: Path, data: Any) -> Iterator[np.ndarray]:
    """A file in stretches of at most data.max_seconds, float32 [samples] at the model's rate. Raises DataError."""
    from speech.data import audio

    at, end = 0.0, None
    try:
        while end is None or at < end:
            end = audio.header(file).seconds if end is None else end
            more = end - at > data.max_seconds
            yield audio.read(file, data.rate, channel=data.channel, start=at, duration=data.max_seconds if more else None,
                             longest=data.max_seconds)
            at += data.max_seconds
    except DataError as error:
        raise DataError(f"{file}: {error}") from None


def main(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run of speech.classification.", show_default=False)],
    file: Annotated[Path | None, typer.Argument(
        metavar="FILE", help="A sound file; without one, 16-bit samples from standard input.", show_default=False)] = None,
    hop: Annotated[float, typer.Option(min=0.01, help="Seconds from window to window.")] = 0.1,
    threshold: Annotated[float, typer.Option(min=0.0, max=1.0, help="Smoothed probability from which a command counts.")] = 0.7,
    smooth: Annotated[int, typer.Option(min=1, help="Windows over whose mean that is.")] = 3,
) -> None:
    """Find spoken commands in a long recording or a live stream; prints a JSON line for each."""
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.runs.folder import RunFolder
    from pipelines.serving.load import load_run

    loaded: Any = load_run(RunFolder(run), where=1)
    if loaded.experiment.task != "speech.classification":
        raise ConfigError(f"{run}: is a run of {loaded.experiment.task}; only speech.classification listens for commands")
    data = loaded.experiment.data
    if file is not None:
        pieces: Iterable[np.ndarray] = recording(file, data)
    else:
        pieces = standard_input(data.rate)
    for detection in stream(loaded, pieces, hop=hop, threshold=threshold, smooth=smooth):
        print(json.dumps({"label": detection.label, "start": round(detection.start, 3), "end": round(detection.end, 3),
                          "confidence": round(detection.confidence, 4)}), flush=True)


if __name__ == "__main__":
    from pipelines.commands.shell import reported

    typer.run(reported(main))
