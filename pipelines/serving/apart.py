"""Inputs that take long to decode, answered by a process of their own, which is ended where one takes too long or too much memory.

The process is started as this one was, has the same model, and begins with the first such input; unused for a while, it ends. Whatever
ends it - the time, the memory, a decoder that crashes - costs the input that it had, and no other. It ends with this one. Imports no
TensorFlow.
"""

import json
import math
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import ConfigError, DataError
from pipelines.serving.answerer import Answerer, taken
from pipelines.serving.output import Prediction

HEAD = struct.Struct("<Q")


def pack(value: Any) -> bytes:
    """JSON values, bytes, and arrays of numbers or of such values, within lists and objects; tuples become lists."""
    blobs: list[bytes] = []

    def described(one: Any) -> Any:
        if isinstance(one, bytes):
            blobs.append(one)
            return {"bytes": len(one)}
        if isinstance(one, (np.ndarray, np.generic)):
            if one.dtype == object:
                return {"objects": [described(each) for each in one.ravel().tolist()], "shape": one.shape}
            blobs.append(one.tobytes())
            return {"array": one.dtype.str, "shape": one.shape}
        if isinstance(one, dict):
            return {"object": {key: described(each) for key, each in one.items()}}
        return [described(each) for each in one] if isinstance(one, (list, tuple)) else one

    head = json.dumps(described(value)).encode()
    return b"".join([HEAD.pack(len(head)), head, *blobs])


def unpack(packed: bytes) -> Any:
    """What was packed. Raises ValueError for anything else."""
    try:
        (length,) = HEAD.unpack_from(packed)
        place = HEAD.size + length

        def taken(count: int) -> bytes:
            nonlocal place
            if not 0 <= count <= len(packed) - place:
                raise ValueError("breaks off")
            place += count
            return packed[place - count:place]

        def value(one: Any) -> Any:
            if isinstance(one, list):
                return [value(each) for each in one]
            if not isinstance(one, dict):
                return one
            if "bytes" in one:
                return taken(one["bytes"])
            if "array" in one:
                kind = np.dtype(one["array"])
                return np.frombuffer(taken(kind.itemsize * math.prod(one["shape"])), kind).reshape(one["shape"])
            if "objects" in one:
                array = np.empty(len(one["objects"]), object)
                array[:] = [value(each) for each in one["objects"]]
                return array.reshape(one["shape"])
            return {key: value(each) for key, each in one["object"].items()}

        return value(json.loads(packed[HEAD.size:place]))
    except (struct.error, KeyError, TypeError, AttributeError, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"is no message ({type(error).__name__}: {error})") from None


VARIABLE = "QUARTET_SERVE_APART"  # of such a process: the descriptor of its connection
SECONDS = 10.0  # of one input, or of those answered together
START = 300.0  # s until the process has its model
IDLE = 900.0  # s without an input after which it ends
CLOSING = 1.0  # s that the process has to end by itself
ANSWER = 1 << 28  # bytes of an answer
MEMORY = 4 << 30  # bytes that it may take beyond what it has once it is ready
Rows = list[tuple[str, Any]]  # (name, raw example, or the bytes of a file that are to be taken as one)


class Ended(Exception):
    """The process had to be ended, or has ended by itself."""


class Untouched(Ended):
    """It ended before it had begun with what it was sent."""


class Apart:
    """The process from outside. One thread asks; any may close."""

    def __init__(self, folder: Path, *, seconds: float = SECONDS, idle: float = IDLE, memory: int = MEMORY, threads: int = 1,
                 command: Sequence[str] | None = None):
        """
        Args:
            folder: of the model that it loads.
            seconds: an input may take, once the process has its model.
            threads: that it computes with.
            command: starts a process that calls `Inside.this`; default: as this process was started.
        """
        self.folder, self.seconds, self.idle, self.memory, self.threads = folder, seconds, idle, memory, threads
        self.command = list(command or [sys.executable, *sys.orig_argv[1:]])
        self._asking, self._changing = threading.Lock(), threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._closed, self._unused = False, threading.Timer(0, self._end_unused)

    def together(self, read: Rows) -> list[Prediction]:
        """As Answerer. Raises Ended where that happened with several inputs, of which each may be asked alone; one alone has an error."""
        try:
            with self._asking:
                return self._asked(read)
        except Ended as error:
            if len(read) > 1:
                raise
            return [Prediction(read[0][0], error=str(error))]

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self._closed = True
        self._unused.cancel()
        self._end()

    def _asked(self, read: Rows) -> list[Prediction]:
        self._unused.cancel()
        asked = (pack([[name, row] for name, row in read]), self.seconds,
                 f"takes over {self.seconds:g} s to decode and answer, and was ended (quartet serve --long)")
        self._start()
        try:
            reply = self._reply(*asked)
        except Untouched:  # it was ending when it was asked: no fault of the inputs
            self._start()
            reply = self._reply(*asked)
        try:
            failure, answers = reply
            predictions = [Prediction(name, values, error) for name, values, error in answers]
        except (TypeError, ValueError) as error:
            self._end()
            raise Ended(f"cannot be decoded: the process for it gave no answer ({error})") from None
        self._unused = threading.Timer(self.idle, self._end_unused)
        self._unused.daemon = True
        self._unused.start()
        if failure is not None:
            raise RuntimeError(failure)
        return predictions

    def _reply(self, message: bytes, seconds: float, late: str) -> Any:
        """The process' answer to a message, which it acknowledges before it begins with it. Raises Ended."""
        process, connection = self._process, self._connection
        if process is None or connection is None:
            raise Ended("is not decoded: the model has another version")
        over, begun = threading.Event(), False

        def kill() -> None:
            over.set()
            process.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            connection.send_bytes(message)
            connection.recv_bytes(0)
            begun = True
            return unpack(connection.recv_bytes(ANSWER))
        except (OSError, EOFError, ValueError):
            how = self._end()
            if over.is_set():
                raise Ended(late) from None
            raise (Ended if begun else Untouched)(f"cannot be decoded: it ended the process for large inputs ({how}), for want of memory "
                                                  "or by what is in it") from None
        finally:
            timer.cancel()
            if over.is_set():
                self._end()

    def _start(self) -> None:
        """Starts the process, where there is none. Raises Ended where it cannot load its model."""
        if self._process is not None and self._process.poll() is None:
            return
        self._end()
        ours, theirs = Pipe()
        threads = {name: str(self.threads) for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")}
        with theirs, self._changing:
            if self._closed:
                return
            self._process = subprocess.Popen(
                self.command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, **threads, "MALLOC_ARENA_MAX": "4", VARIABLE: str(theirs.fileno())})
            self._connection = ours
        self._reply(pack([str(self.folder), self.memory]), START, f"waits for a process, which is not ready after {START:g} s")

    def _end_unused(self) -> None:
        if self._asking.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._asking.release()

    def _end(self) -> str:
        """Ends the process; says how it ended."""
        with self._changing:
            process, self._process = self._process, None
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if process is None:
            return "it was ended"
        try:
            status = process.wait(CLOSING)  # it ends by itself, unless it is in the middle of something
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


class Inside:
    """The process from inside."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    @classmethod
    def this(cls) -> "Inside | None":
        """This process, where it is such a one."""
        given = os.environ.pop(VARIABLE, None)
        return None if given is None else cls(Connection(int(given)))

    def run(self, load: Callable[[Path], Answerer]) -> None:
        """Answers until the other process has ended, or ends this one."""
        threading.Thread(target=self._receive, daemon=True, name="messages").start()
        folder, memory = unpack(self._next())
        try:
            model = load(Path(folder))
            model.warm_up()
        except ConfigError as error:
            raise ConfigError(f"a process for large inputs: {error}") from error
        _bound(memory)
        self._connection.send_bytes(pack(None))
        while True:
            self._connection.send_bytes(pack(_answered(model, unpack(self._next()))))

    def _next(self) -> bytes:
        """The next message, of which the other process is told that this one begins with it."""
        message = self._messages.get()
        self._connection.send_bytes(b"")
        return message

    def _receive(self) -> None:
        """In a thread: a decoder that never returns does not keep this process alive when the other one has ended."""
        while True:
            try:
                self._messages.put(self._connection.recv_bytes())
            except (OSError, EOFError):
                os._exit(0)


def _answered(model: Answerer, read: list[list[Any]]) -> tuple[str | None, list[tuple[str, dict[str, Any], str | None]]]:
    """(what the model failed with, the answers)."""
    rows = [(name, taken(model, row) if isinstance(row, bytes) else row) for name, row in read]
    try:
        answers = iter(model.together([row for row in rows if not isinstance(row[1], DataError)]) if rows else [])
    except MemoryError:  # of one of them: each is asked again alone
        os.abort()
    except Exception as error:
        return f"{type(error).__name__}: {error}", []
    predictions = [Prediction(name, error=str(row)) if isinstance(row, DataError) else next(answers) for name, row in rows]
    return None, [(one.name, one.values, one.error) for one in predictions]


def _bound(memory: int) -> None:
    """So many bytes more than there are now; native code that asks for more ends the process."""
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        most = int(file.read().split()[0]) * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
