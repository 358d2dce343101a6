"""Heartbeats between hosts: a small process beside each host's own sends one a second and listens for those of the others.

It shares no lock with the host's Python, so a host is alive however long a library keeps Python busy; and for a host that is stopped it
sends nothing. It ends with its parent. Run as a program, without the packages that are installed: only the standard library is imported.

TensorFlow's coordination service does not replace it (2.21, three hosts, its heartbeats set to 10 s): a host that waits outside of a
collective hears nothing of a chief that is stopped, and asking the service for the hosts' states meanwhile keeps Python's lock without end;
within a collective both others fail after 7 to 13 s, and one of them does not say which host was lost.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping

EVERY = 1.0  # s between signs of life
SILENCE = 10.0  # s without one, after which a host is lost
STUCK = 120.0  # s in which no line of a host's Python has run, after which no sign is sent for it


class Heartbeats:
    """This host's end.

    Args:
        connections: number -> a connection to that host's process of this kind; they are this one's from here on.
    """

    def __init__(self, connections: Mapping[int, socket.socket]):
        import subprocess
        import threading

        own = {number: connection.fileno() for number, connection in connections.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), *(f"{number}:{place}" for number, place in own.items())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=tuple(own.values()),
            start_new_session=True)  # a Ctrl-C is the host's to handle
        for connection in connections.values():
            connection.close()
        self._closed = threading.Event()
        threading.Thread(target=self._show_python, daemon=True).start()

    def silent(self) -> Iterator[tuple[int, int]]:
        """(number of a host, seconds since its last sign), once for each that falls silent; ends when the process has ended."""
        assert self._process.stdout
        for line in self._process.stdout:
            number, seconds = line.split()
            yield int(number), int(seconds)

    def close(self) -> None:
        """Sends no more signs."""
        self._closed.set()
        self._process.kill()
        self._process.wait()

    def _show_python(self) -> None:
        assert self._process.stdin
        while not self._closed.wait(EVERY):
            try:
                os.write(self._process.stdin.fileno(), b".")
            except OSError:
                return


def stopped(process: int) -> bool:
    """Whether a process is stopped, by a signal or a debugger; where the system does not say it, no."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] in ([b"T"], [b"t"])
    except OSError:
        return False


def exchange(parent: int, others: Mapping[int, socket.socket]) -> None:
    """The process' work, until its parent ends. Hosts that fall silent are printed: number and seconds."""
    due = now = time.monotonic()
    heard, python = dict.fromkeys(others, now), now
    of = {connection.fileno(): number for number, connection in others.items()}
    arriving = select.poll()
    for place in (0, *of):
        arriving.register(place, select.POLLIN)
    while os.getppid() == parent:
        for place, _ in arriving.poll(1000 * max(0.0, due - now)):
            sign = b""
            with contextlib.suppress(OSError):
                sign = os.read(place, 4096)
            if not sign and place == 0:
                return
            if not sign:  # its process has ended, which another connection tells; if not, it is silent from here on
                arriving.unregister(place)
            elif place == 0:
                python = time.monotonic()
            else:
                heard[of[place]] = time.monotonic()
        now = time.monotonic()
        if now < due:
            continue
        if now - due > 3 * EVERY:  # it was this process that stood still: what was sent meanwhile is still to be read
            heard, python = dict.fromkeys(heard, now), now
        due = now + EVERY
        if not stopped(parent) and now - python < STUCK:
            for connection in others.values():
                with contextlib.suppress(OSError):  # silence says it
                    connection.send(b".", socket.MSG_DONTWAIT)
        for number in [number for number, last in heard.items() if now - last > SILENCE]:
            print(number, round(now - heard.pop(number)), flush=True)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # what is sent to all processes of a job
        signal.signal(ignored, signal.SIG_IGN)
    exchange(int(sys.argv[1]), {int(number): socket.socket(fileno=int(place))
                                for number, place in (each.split(":") for each in sys.argv[2:])})
