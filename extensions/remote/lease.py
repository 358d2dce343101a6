"""A lock in a store, which a dead writer does not keep: an object that its holder renews, and that others take over when it is not renewed.

No clock is compared with another machine's: who waits looks whether the object changes, for as long as a lease lasts by its own clock.
The object is only ever written over the version that was read, so that of two who take it one is refused.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from extensions.remote.objects import Changed, Missing, Objects, StoreError
from pipelines.base.errors import ConfigError, QuartetError
from pipelines.base.json_text import parse_json

SECONDS = 30.0  # that a lease lasts without being renewed
NAME = ".lease"


class Leased(ConfigError):
    """Another process works in a folder of a store."""


class Lease:
    """The right to write below a prefix.

    Args:
        key: of the lease's object.
        lost: called once, in another thread, when another process has taken the lease, or the store was out of reach for too long.
    """

    def __init__(self, objects: Objects, key: str, *, seconds: float = SECONDS, lost: Callable[[], None] = lambda: None):
        self.objects, self.key, self.seconds, self._lost = objects, key, seconds, lost
        self._version, self._renewed, self._count = "", 0.0, 0
        self._end, self._gone = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def holds(self) -> bool:
        """Whether no other process can have taken it yet."""
        return not self._gone.is_set() and time.monotonic() - self._renewed < self.seconds * 0.8

    def take(self, say: Callable[[str], None] = lambda text: None) -> None:
        """Takes the lease; waits for one that is not renewed to run out.

        Raises:
            Leased: its holder lives.
            StoreError: the store cannot be reached.
        """
        said, since, seen = False, time.monotonic(), ""
        while True:
            try:
                content, version = self.objects.read(self.key)
            except Missing:
                content, version = b"", ""
            about = _parsed(content)
            if not version or _free(about) or (version == seen and time.monotonic() - since > float(about["seconds"])):
                with contextlib.suppress(Changed):
                    self._write(version)
                    break
            if seen and version and version != seen:
                raise Leased(f"{self.objects.address / self.key.rpartition('/')[0]}: another process (number {about.get('process')} on "
                             f"{about.get('host')}) is training here; wait for it, or give --name NEW")
            if not said and version:
                say(f"the run is leased to process {about.get('process')} on {about.get('host')}; waiting up to "
                    f"{about['seconds']:.0f} s to see whether it lives")
                said = True
            if version != seen:
                seen, since = version, time.monotonic()
            time.sleep(min(1.0, self.seconds / 10))
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Lets go of it; what is not renewed any more is free for others at once."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        if not self._gone.is_set() and self._version:
            with contextlib.suppress(QuartetError):
                self._write(self._version, held=False)

    def _renew(self) -> None:
        while not self._end.wait(self.seconds / 3):
            try:
                self._write(self._version)
            except Changed:
                if not self._is_mine():
                    break
            except StoreError:
                if not self.holds:
                    break
        else:
            return
        self._gone.set()
        self._lost()

    def _is_mine(self) -> bool:
        """Whether a write that seemed refused was an earlier one of this process that had arrived after all."""
        try:
            content, version = self.objects.read(self.key)
        except StoreError:
            return False
        if _parsed(content).get("number") == self._about()["number"] and _parsed(content).get("who") == _WHO:
            self._version = version
            return True
        return False

    def _write(self, over: str, *, held: bool = True) -> None:
        self._count += 1
        began = time.monotonic()
        self._version = self.objects.put(self.key, json.dumps({**self._about(), "held": held}).encode(), over=over)
        self._renewed = began

    def _about(self) -> dict[str, Any]:
        return {"who": _WHO, "host": socket.gethostname(), "process": os.getpid(), "seconds": self.seconds, "number": self._count}


def _machine() -> str:
    """This machine since it was started, as processes of one container see it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _began(process: int) -> str:
    """When a process of this machine was started, which tells it from a later one of its number; "" where there is none."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        return ""


_WHO = f"{_machine()} {os.getpid()} {_began(os.getpid())}"


def _free(about: dict[str, Any]) -> bool:
    """Whether nobody can hold it: it was let go of, or its holder was a process of this machine that has ended."""
    if not about.get("held"):
        return True
    process, machine = about.get("process"), _machine()
    if not machine or not isinstance(process, int) or not str(about.get("who")).startswith(machine):
        return False
    return about["who"] != f"{machine} {process} {_began(process)}"


def _parsed(content: bytes) -> dict[str, Any]:
    """What a lease says; what is none is held by nobody known, for as long as a lease lasts."""
    try:
        about = parse_json(content or b"{}")
        if not content:
            return {"held": False, "seconds": SECONDS}
        return {**about, "seconds": min(max(float(about["seconds"]), 1.0), 600.0)}
    except (ValueError, KeyError, TypeError):
        return {"held": True, "seconds": SECONDS}
