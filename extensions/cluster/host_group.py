"""Several hosts as one group: they meet before TensorFlow connects them, and watch each other until the end.

Every follower keeps a TCP connection to the chief, beside TensorFlow's collectives. Over it go decisions that must agree and results
that the chief gathers; heartbeats have one of their own. A host whose connection ends, or that shows no sign of life, ends the
whole group with one line and the status 75 ("start me again"): after a failed collective no weights can be trusted, and the same
command resumes from the last checkpoint. Imports no TensorFlow.
"""

import contextlib
import json
import os
import queue
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from extensions.cluster.arrays import packed, unpacked
from extensions.cluster.heartbeats import EVERY, SILENCE, Heartbeats
from extensions.cluster.hosts import Hosts
from extensions.cluster.rendezvous import DEADLINE, Met, meet
from pipelines.base.errors import HostLost, QuartetError
from pipelines.base.terminal import printable
from pipelines.machine import group

if TYPE_CHECKING:
    import tensorflow as tf

_HEAD = struct.Struct(">cQ")  # kind and length of a message
_JSON, _BYTES, _ARRAYS, _END = b"j", b"b", b"a", b"e"  # kinds of messages: values, and the end of a host


class HostGroup(group.Group):
    """Several hosts, met.

    Args:
        hosts: who.
        met: the connections between them.
    """

    def __init__(self, hosts: Hosts, met: Met):
        self.hosts, self.number, self.size = hosts, hosts.number, len(hosts.addresses)
        self._over = threading.Event()  # the end is known: nothing that becomes of the others matters
        self._ending = threading.Lock()
        self._links = {number: _Link(self, number, each) for number, each in met.words.items()}
        self._heartbeats = Heartbeats(met.heartbeats)
        for work in (self._watch, *(link.listen for link in self._links.values())):
            threading.Thread(target=work, daemon=True).start()

    def of_chief(self, value: Any) -> Any:
        if not self.chief:
            return _decoded(*self._links[0].receive())
        kind, data = _encoded(value)
        for link in self._links.values():
            link.send(kind, data)
        return _decoded(kind, data)

    def of_all(self, value: Any) -> list[Any]:
        values: list[Any] = self.of_chief(self.to_chief(value))
        return values

    def to_chief(self, value: Any) -> list[Any]:
        if self.chief:
            return [value, *(_decoded(*link.receive()) for _, link in sorted(self._links.items()))]
        self._links[0].send(*_encoded(value))
        return []

    def strategy(self, devices: tuple[str, ...]) -> "tf.distribute.Strategy":
        from extensions.cluster.strategy import over_hosts

        return over_hosts(tuple(map(tuple, self.of_all(devices))), self.hosts)

    def failed(self, error: Exception) -> None:
        if type(error).__name__ not in ("UnavailableError", "DeadlineExceededError", "AbortedError", "CancelledError", "InternalError"):
            return
        time.sleep(SILENCE + 3 * EVERY)  # whoever watches the connections knows by then which host it was, and ends this process
        if type(error).__name__ != "InternalError":
            self.end(HostLost.exit_status, f"the hosts lost each other: {str(error).strip().splitlines()[0][:300]}")

    def part(self) -> None:
        self._over.set()

    def leave(self, error: BaseException | None) -> None:
        """Says to the others that this host is done, or why it fails. A chief that is done waits a little for them to leave."""
        status = 0 if error is None else getattr(error, "exit_status", 130 if isinstance(error, KeyboardInterrupt) else 1)
        text = "" if error is None else str(error) if isinstance(error, QuartetError) else f"{type(error).__name__}: {error}"
        self._over.set()
        self._tell(status, f"host {self.number} ({self.hosts.addresses[self.number]}): {text}")
        if self.chief and error is None:
            until = time.monotonic() + SILENCE
            for link in self._links.values():
                link.closed.wait(max(0.0, until - time.monotonic()))
        self._heartbeats.close()
        for link in self._links.values():
            link.close()

    def end(self, status: int, text: str) -> None:
        """Ends this process at once, after one line, and tells the others why; only the first call has its way."""
        with self._ending:
            if self._over.is_set():
                return
            self._over.set()
            hint = "; start the same command again on all hosts, it resumes from the last checkpoint"
            if sys.stderr.isatty():
                print("\r\x1b[K\x1b[?25h", end="", file=sys.stderr)  # a progress bar hid the cursor
            print(f"host {self.number}: {printable(text)}{hint if status == HostLost.exit_status else ''}", file=sys.stderr, flush=True)
            sys.stdout.flush()
            with contextlib.suppress(OSError):  # what TensorFlow's connections say meanwhile is the same, in more lines
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            self._tell(status, text)
            os._exit(status)

    def _tell(self, status: int, text: str) -> None:
        """Sends the end to all; a connection that is full or broken holds nobody up."""
        data = json.dumps({"status": status, "text": text}).encode()
        senders = [threading.Thread(target=link.send, args=(_END, data), daemon=True) for link in self._links.values()]
        for sender in senders:
            sender.start()
        until = time.monotonic() + 2.0
        for sender in senders:
            sender.join(max(0.0, until - time.monotonic()))

    def lost(self, number: int, why: str) -> None:
        """Called where a connection ended or was silent."""
        self.end(HostLost.exit_status, f"host {number} ({self.hosts.addresses[number]}) is lost: {why}")

    def heard_end(self, data: bytes) -> None:
        """Called where another host has said that it ends."""
        message = json.loads(data)
        if message["status"]:
            self.end(message["status"], message["text"])

    def _watch(self) -> None:
        for number, seconds in self._heartbeats.silent():
            if not self._links[number].done:
                self.lost(number, f"no sign of life for {seconds} s")
        self.end(HostLost.exit_status, "the process that shows the other hosts that this one lives has ended")


def _encoded(value: Any) -> tuple[bytes, bytes]:
    """Kind and data of a value for another host."""
    if isinstance(value, bytes):
        return _BYTES, value
    if isinstance(value, dict) and value and all(isinstance(each, np.ndarray) for each in value.values()):
        return _ARRAYS, packed(value)
    return _JSON, json.dumps(value).encode()


def _decoded(kind: bytes, data: bytes) -> Any:
    return data if kind == _BYTES else unpacked(data) if kind == _ARRAYS else json.loads(data)


class _Link:
    """One connection."""

    def __init__(self, own: HostGroup, number: int, connection: socket.socket):
        self.group, self.number = own, number
        self.done = False  # the other has said that it ends
        self.closed = threading.Event()
        self._connection, self._sending = connection, threading.Lock()
        self._inbox: queue.SimpleQueue[tuple[bytes, bytes]] = queue.SimpleQueue()

    def receive(self) -> tuple[bytes, bytes]:
        """Kind and data of the next value."""
        return self._inbox.get()

    def send(self, kind: bytes, data: bytes) -> None:
        with self._sending, contextlib.suppress(OSError):  # the listener learns it, too
            self._connection.sendall(_HEAD.pack(kind, len(data)))
            self._connection.sendall(data)

    def listen(self) -> None:
        why = "its process ended"
        try:
            while True:
                kind, length = _HEAD.unpack(self._read(_HEAD.size))
                data = self._read(length)
                if kind == _END:
                    self.done = True
                    self.group.heard_end(data)
                else:
                    self._inbox.put((kind, data))
        except (OSError, EOFError) as error:
            why = why if isinstance(error, (EOFError, ConnectionResetError)) else str(error)
        self.closed.set()
        if not self.done:
            self.group.lost(self.number, why)

    def _read(self, length: int) -> bytes:
        data = bytearray(length)
        view, filled = memoryview(data), 0
        while filled < length:
            count = self._connection.recv_into(view[filled:])
            if not count:
                raise EOFError
            filled += count
        return bytes(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


@contextlib.contextmanager
def joined(hosts: Hosts, facts: Mapping[str, str], *, deadline: float = DEADLINE) -> Iterator[HostGroup]:
    """Meets the other hosts; within, `current` is their group. An error within ends all of them with it.

    Args:
        facts: name -> text that must be the same on all hosts.
        deadline: s to wait for the others.

    Raises:
        ConfigError: the facts differ, or this process has trained on several hosts before.
        HostLost: a host did not come.
    """
    own = HostGroup(hosts, meet(hosts, {"its list of hosts": "\n".join(hosts.addresses), **facts}, deadline=deadline))
    try:
        with group.within(own):
            yield own
    except BaseException as error:
        own.leave(error)
        raise
    own.leave(None)
