"""A tracked run, as the training sees it: a process that is started, looked at in passing, and told how the run ended."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from extensions.tracking.trackers import Order, Status
from pipelines.base.errors import ConfigError

LARGEST = 60_000  # bytes of the last line, which a pipe takes at once
PAUSE = 0.05  # s between two looks, while the end is waited for
STOPPED = 10.0  # s at most for a run that was interrupted, whose machine may be wanted back


def require_extra(tracker: str) -> None:
    """Raises ConfigError where the extra of a tracker is not installed."""
    if find_spec(tracker) is None:
        raise ConfigError(f"monitor.track: {tracker} needs the extra: pip install 'keras-quartet[{tracker}]'")


class Tracking:
    """Nothing here waits for the tracker but `end`, for a bounded time; nothing raises.

    Args:
        note: called with where the tracked run is found.
        warn: called once where it does not work; the training continues.
    """

    def __init__(self, order: Order, note: Callable[[str], None], warn: Callable[[str], None]):
        self.order, self._note, self._warn = order, note, warn
        self._rest, self._warned, self._done = b"", False, False
        environment = {name: value for name, value in os.environ.items() if name != "QUARTET_AGE_KEY"}  # what is sent is plain
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [sys.executable, "-m", "extensions.tracking.follow", json.dumps(asdict(order))], env=environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True)
            for pipe in (self._process.stdin, self._process.stdout):
                os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]
        except OSError as error:
            self._process = None
            self._say(f"its process cannot be started: {error.strerror or error}")

    def look(self) -> None:
        """Takes up what the process has said, if anything; microseconds."""
        if self._process is None:
            return
        try:
            data = self._process.stdout.read(1 << 16)  # type: ignore[union-attr]
        except OSError:
            return
        if data is None:
            return
        if not data:
            if not self._done:
                self._say("its process has ended")
            self._close()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            kind, _, text = line.decode("utf-8", "replace").partition(" ")
            if kind == "note":
                self._note(f"tracked in {self.order.tracker}: {text}")
            elif kind == "warning":
                self._say(text)
            self._done = self._done or kind == "done"

    def end(self, status: Status, metrics: Mapping[str, float] | None = None, files: Mapping[Path, str] | None = None) -> None:
        """Says how the run ended, and waits until that was sent, for as long as the order allows.

        Args:
            metrics: of the report, by name; a run that has none was stopped, and waits for less.
            files: with the folder of each there.
        """
        if self._process is None:
            return
        line = json.dumps({"end": status, "metrics": metrics or {}, "files": {str(file): folder for file, folder in (files or {}).items()}})
        if len(line) > LARGEST:
            line = json.dumps({"end": status})
        try:
            self._process.stdin.write(f"{line}\n".encode())  # type: ignore[union-attr]
            self._process.stdin.close()  # type: ignore[union-attr]
        except OSError:  # it has ended
            pass
        seconds = self.order.seconds if metrics else min(self.order.seconds, STOPPED)
        until = time.monotonic() + seconds
        while self._process is not None and time.monotonic() < until:
            self.look()
            time.sleep(PAUSE)
        if self._process is not None:
            self._say(f"not all was sent within {seconds:g} s (monitor.track_seconds)")
            self._close()

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.kill()
            process.wait()

    def _say(self, text: str) -> None:
        if not self._warned:
            self._warn(f"monitor.track: {self.order.tracker}: {text}. The run continues; what it measures stands in "
                       f"{Path(self.order.folder) / 'metrics.jsonl'}.")
        self._warned = True
