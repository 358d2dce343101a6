"""The process that sends a run to a tracker: follows its metrics.jsonl until the run ends, or its process.

python -m extensions.tracking.follow ORDER     # as Tracking starts it

Lines of JSON on stdin: {"end": status, "metrics": {...}, "files": [...]}; its end without such a line: the training was killed. On stdout
a word and a text: `note`, `warning` (at most one), `done`. What the tracker prints goes nowhere.
"""

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from extensions.tracking import record
from extensions.tracking.trackers import Order, Status, Tracker
from pipelines.base.errors import ConfigError
from pipelines.config.yaml_text import read as read_yaml
from pipelines.machine.startup import current_folder_last

EVERY = 2.0  # s between two looks at the file
LONGEST = 60.0  # s between two attempts, where a tracker fails
PART = 1 << 20  # bytes of the file that are taken at a time
NICE = 19
SHOWN = 300  # characters of an error


class Follower:
    """Sends what is new; a failure leaves it where it is, for the next time."""

    def __init__(self, order: Order, say: Callable[[str, str], None]):
        self.order, self.say, self.folder = order, say, Path(order.folder)
        self.tracker: Tracker | None = None
        self.read, self.step, self.warned = 0, 0, False
        try:
            self.record = record.read(self.folder)
        except ConfigError as error:
            say("warning", f"{error}; the tracked run begins anew")
            self.record = None

    def send(self) -> bool:
        """Sends all lines that are there. False where the tracker fails; the first time a warning says so."""
        return self._tried(self._send)

    def finish(self, status: Status, metrics: Mapping[str, float], files: Mapping[Path, str]) -> bool:
        """What is left, then the end; False where the tracker fails."""
        def end() -> None:
            self._send()
            assert self.tracker is not None
            self.tracker.finish(status, metrics, files, self.step)

        return self._tried(end)

    def _tried(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except Exception as error:  # a tracker's package raises what it likes
            if not self.warned:
                text = " ".join(str(error).split()) or type(error).__name__
                self.say("warning", f"{text[:SHOWN]}{'...' if len(text) > SHOWN else ''}")
            self.warned = True
            return False
        return True

    def _send(self) -> None:
        if self.tracker is None:
            known = self.record.id if self.record is not None and self.record.tracker == self.order.tracker else None
            self.tracker = open_tracker(self.order, settings_of(self.folder), known)
            if self.record is None or self.tracker.id != self.record.id:
                self._keep(record.Record(tracker=self.order.tracker, id=self.tracker.id))
            self.say("note", self.tracker.place)
        while True:
            rows, end = self._rows()
            new = [row for row in rows if self.record is None or not self.record.sent(row)]
            if new:
                self.tracker.log(new)
                last = new[-1]
                self._keep(record.Record(tracker=self.order.tracker, id=self.tracker.id, step=last["step"], epoch=record.of_epoch(last)))
            self.read = end
            if not rows:
                return
            self.step = rows[-1]["step"]

    def _rows(self) -> tuple[list[dict[str, Any]], int]:
        """The next whole lines, and where they end."""
        try:
            with open(self.folder / "metrics.jsonl", "rb") as file:
                file.seek(self.read)
                content = file.read(PART)
        except FileNotFoundError:
            return [], self.read
        whole = content[:content.rfind(b"\n") + 1]
        rows = [row for line in whole.splitlines() if isinstance(row := json.loads(line), dict) and isinstance(row.get("step"), int)]
        return rows, self.read + len(whole)

    def _keep(self, one: record.Record) -> None:
        self.record = one
        with contextlib.suppress(OSError):  # a full disk is the training's to report
            record.write(self.folder, one)


def follow(order: Order, commands: Callable[[float], dict[str, Any] | None], say: Callable[[str, str], None]) -> int:
    """Until the end; returns the exit status.

    Args:
        commands: waits so many seconds; gives the end where it has come.
    """
    follower, wait = Follower(order, say), 0.0
    while (end := commands(wait)) is None:
        wait = EVERY if follower.send() else min(LONGEST, max(EVERY, 2 * wait))
    until = time.monotonic() + order.seconds
    watch = threading.Timer(order.seconds, os._exit, (1,))  # a tracker may hang where no exception reaches it
    watch.daemon = True
    watch.start()
    files = {Path(file): folder for file, folder in end.get("files", {}).items() if Path(file).is_file()}
    while not (sent := follower.finish(end["end"], end.get("metrics", {}), files)) and time.monotonic() + EVERY < until:
        time.sleep(EVERY)
    watch.cancel()
    if sent:
        say("done", "")
    return int(not sent)


def _end_after(parent: int, seconds: float) -> None:
    """Ends this process some time after its parent, also where a tracker hangs."""
    while os.getppid() == parent:
        time.sleep(1)
    time.sleep(seconds)
    os._exit(1)


def open_tracker(order: Order, settings: Mapping[str, Any], known: str | None) -> Tracker:
    """The tracked run with the id `known`, or a new one.

    Args:
        settings: by dotted name.
    """
    if order.tracker == "mlflow":
        from extensions.tracking.mlflow_run import MlflowRun

        return MlflowRun(order, settings, known)
    from extensions.tracking.wandb_run import WandbRun

    return WandbRun(order, settings, known)


def settings_of(folder: Path) -> dict[str, Any]:
    """The run's settings by dotted name, less the search's."""
    flat: dict[str, Any] = {}

    def walk(prefix: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, dict):
                walk(f"{prefix}{name}.", value)
            elif value is not None:
                flat[prefix + name] = value

    walk("", {name: value for name, value in read_yaml(folder / "experiment.yaml", "experiment.yaml").values.items() if name != "tune"})
    return flat


class _Commands:
    """The lines on stdin."""

    def __init__(self, descriptor: int):
        self._descriptor, self._rest = descriptor, b""

    def __call__(self, seconds: float) -> dict[str, Any] | None:
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return None
        data = os.read(self._descriptor, 1 << 16)
        self._rest += data
        line, ended, _ = self._rest.partition(b"\n")
        if ended:
            return dict(json.loads(line))
        return None if data else {"end": "interrupted"}  # the training was killed


def main(arguments: list[str]) -> int:
    """As a process."""
    current_folder_last()  # where wandb keeps a folder of its own name
    for number in (signal.SIGINT, signal.SIGTERM):  # the training's to handle; it tells this process how it ended
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICE)
    order = Order(**json.loads(arguments[0]))
    threading.Thread(target=_end_after, args=(os.getppid(), order.seconds), daemon=True).start()
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)

    def say(kind: str, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            print(kind, " ".join(text.split()), file=replies)

    return follow(order, _Commands(0), say)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # without what a tracker's threads would still wait for
