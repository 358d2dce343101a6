"""A process on a node of a Ray cluster: started, listened to and signalled through an actor, with which it ends."""

import os
import queue
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import IO

from extensions.cluster.hosts import PORTS

_UNWANTED = ("OMP_NUM_THREADS", "TF_USE_LEGACY_KERAS", "TF_CONFIG")  # what Ray sets for its own, and what only one process is meant by
Line = tuple[str, str]  # "out" or "err", and a line


class RayProcess:
    """The work of an actor; every call is short."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._port: socket.socket | None = None
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._readers: list[threading.Thread] = []

    def address(self) -> str:
        """host:port of this node; the port is kept free until `start`."""
        import ray

        host = ray.util.get_node_ip_address()
        while True:
            port = random.choice(PORTS)
            self._port = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            try:
                self._port.bind(("", port))
                return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            except OSError:
                self._port.close()

    def start(self, module: str, arguments: list[str], environment: Mapping[str, str], folder: str) -> str | None:
        """Starts `python -m MODULE ARGUMENT...` in `folder`. Returns why that cannot be, None where it runs."""
        inherited = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
        if not os.path.isdir(folder):
            return f"{folder} is not on {socket.gethostname()}: all nodes need it under this name, as on a network disk"
        if self._port is not None:
            self._port.close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipelines.machine.child", module, *arguments], cwd=folder, env={**inherited, **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace",
            start_new_session=True)  # a Ctrl-C is the driver's to pass on
        assert self._process.stdout is not None and self._process.stderr is not None
        self._readers = [threading.Thread(target=self._read, args=each, daemon=True)
                         for each in (("out", self._process.stdout), ("err", self._process.stderr))]
        for reader in self._readers:
            reader.start()
        return None

    def _read(self, name: str, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put((name, line))

    def poll(self, seconds: float) -> tuple[int | None, list[Line]]:
        """(exit status, negative for a signal, None while it runs; the lines since the last call); waits so long for the end."""
        assert self._process is not None
        until, status = time.monotonic() + seconds, self._process.poll()
        while status is None and self._lines.empty() and time.monotonic() < until:
            time.sleep(0.05)
            status = self._process.poll()
        if status is not None:
            for reader in self._readers:
                reader.join(5.0)  # a grandchild may hold the pipe open
        lines = []
        while not self._lines.empty():
            lines.append(self._lines.get())
        return status, lines

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
