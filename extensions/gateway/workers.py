"""Several processes that answer at one port: the first one starts the others as it was started itself, and ends with them.

Each worker loads the models and listens at the port by SO_REUSEPORT, so that the kernel spreads connections over them. The first process
loads nothing; it starts a worker anew that has died, passes SIGTERM on, and its own death ends the workers. Their metrics are added up
through files (Prometheus' multiprocess mode).
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from extensions.gateway.options import chosen
from pipelines.base.errors import ConfigError
from pipelines.commands.shell import say
from pipelines.serving.options import Options
from pipelines.serving.protocol import ServerProtocol, Site
from pipelines.serving.server import bind, refusing_port

VARIABLE = "QUARTET_SERVE_WORKER"  # of a worker: the descriptors and ports that it has from the first process
METRICS = "PROMETHEUS_MULTIPROC_DIR"
AGAIN = 1.0  # s before a worker that has died is started anew
MARGIN = 5.0  # s beyond the time to drain after which a worker is killed


class Workers(ServerProtocol):
    """Has several processes answer: the first one stays here until a signal comes, and a worker tells it once it answers."""

    def prepare(self, options: Options) -> Options:
        self.worker = Worker.this()
        if self.worker is not None:
            return replace(options, port=self.worker.port, shared=True)
        if chosen().workers > 1:
            if os.name != "posix" or not hasattr(socket, "SO_REUSEPORT"):
                raise ConfigError("--workers: this system cannot share a port between processes; put a proxy before several servers")
            port = free_port(options.host, options.port, "--port")
            grpc_port = chosen().grpc
            grpc = None if grpc_port is None else free_port(options.host, grpc_port, "--grpc")

            def announce() -> None:
                if grpc is not None:
                    say(f"gRPC         {options.address(grpc)}")
                say(f"serving      {options.address(port, options.scheme)}")

            with tempfile.TemporaryDirectory(prefix="quartet-metrics-") as metrics:
                raise SystemExit(_Supervisor(chosen().workers, port, grpc, metrics, options.drain).run(announce))
        return options

    async def start(self, site: Site) -> None:
        if self.worker is not None:
            await self.worker.start()


@dataclass(frozen=True)
class Worker:
    """What a worker has from the first process.

    Attributes:
        ready: written to once it answers.
        alive: ends when the first process does.
        port, grpc: where to listen.
    """

    ready: int
    alive: int
    port: int
    grpc: int | None

    @classmethod
    @cache
    def this(cls) -> "Worker | None":
        """This process, where it is a worker."""
        given = os.environ.pop(VARIABLE, None)
        if given is None:
            return None
        ready, alive, port, grpc = (int(one) for one in given.split(","))
        return cls(ready, alive, port, grpc if grpc >= 0 else None)

    async def start(self) -> None:
        """Begins to watch the first process, and says that this one answers."""
        asyncio.get_running_loop().add_reader(self.alive, self._end_orphaned)
        os.write(self.ready, b"+")
        os.close(self.ready)

    def _end_orphaned(self) -> None:
        asyncio.get_running_loop().remove_reader(self.alive)
        os.kill(os.getpid(), signal.SIGTERM)


def free_port(host: str, port: int, option: str) -> int:
    """A port that nobody listens at, for one that binds it by itself; 0 becomes a free one. Raises ConfigError, naming the option."""
    with refusing_port(host, port, option), bind(host, port) as bound:
        return int(bound.getsockname()[1])


class _Supervisor:
    def __init__(self, count: int, port: int, grpc: int | None, metrics: str, drain: float):
        self.count, self.port, self.grpc, self.metrics, self.drain = count, port, grpc, metrics, drain
        self.ended = False
        self.workers: list[subprocess.Popen[bytes]] = []
        self.alive, self._ours = os.pipe()  # nothing is ever written: it ends with this process

    def run(self, address: Callable[[], None]) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        while len(self.workers) < self.count and not self.ended:  # one after the other: one that fails, such as for a model, says so once
            failed = self._start()
            if failed is not None:
                self._finish()
                return failed
        if not self.ended:
            address()
        while not self.ended:
            self._replace_dead()
            time.sleep(0.2)
        return self._finish()

    def _end(self, number: int, frame: Any) -> None:
        self.ended = True

    def _start(self) -> int | None:
        """Starts a worker and waits until it answers; its exit status where it never does."""
        threads = str(max(1, (os.cpu_count() or 1) // self.count))
        shared = {"TF_NUM_INTRAOP_THREADS": threads, "OMP_NUM_THREADS": threads} | dict(os.environ)
        ready, theirs = os.pipe()
        given = f"{theirs},{self.alive},{self.port},{-1 if self.grpc is None else self.grpc}"
        worker = subprocess.Popen([sys.executable, *sys.orig_argv[1:]], pass_fds=(theirs, self.alive), stdin=subprocess.DEVNULL,
                                  env=shared | {VARIABLE: given, METRICS: self.metrics}, start_new_session=True)
        os.close(theirs)
        try:
            os.set_blocking(ready, False)
            while not self.ended:
                try:
                    if os.read(ready, 1):
                        break
                    return worker.wait() or 1  # it has closed its end, which it does when it ends
                except BlockingIOError:
                    time.sleep(0.05)
        finally:
            os.close(ready)
        self.workers.append(worker)
        return None

    def _replace_dead(self) -> None:
        for worker in [one for one in self.workers if one.poll() is not None]:
            self.workers.remove(worker)
            say(f"worker {worker.pid} has ended with status {worker.returncode}; another takes its place")
            for file in Path(self.metrics).glob(f"gauge_live*_{worker.pid}.db"):
                file.unlink()  # what it counted stays
        if len(self.workers) < self.count:
            time.sleep(AGAIN)
            if not self.ended:
                self._start()

    def _finish(self) -> int:
        for worker in self.workers:
            worker.terminate()
        until = time.monotonic() + self.drain + MARGIN
        for worker in self.workers:
            try:
                worker.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        return 0
