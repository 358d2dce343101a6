"""What `quartet serve` was asked for. Imports neither TensorFlow nor the packages of the extra `serve`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEBI = 1 << 20


@dataclass(frozen=True)
class Options:
    """How a server runs.

    Attributes:
        limit: bytes of a request.
        deadline: s that an input may wait for its batch.
        open: other machines may ask, too.
        delay: s that a batch which is not full waits for more.
        each: inputs of one client that may wait for a model; None: as many as of all.
        connections: requests answered at the same time.
        long: s that an input which is large by its header may take, in a process of its own.
        drain: s from SIGTERM to the end, at most.
        versions: newest versions of a model that answer.
        shared: other processes listen at the port, too, and another one says where.
        uvicorn: further settings of uvicorn's, such as those of TLS.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    limit: int = 64 * MEBI
    deadline: float = 30.0
    open: bool = False
    delay: float = 0.0
    each: int | None = None
    connections: int = 1024
    long: float = 10.0
    drain: float = 30.0
    versions: int = 1
    shared: bool = False
    uvicorn: Mapping[str, Any] = field(default_factory=dict)

    def address(self, port: int, scheme: str = "") -> str:
        """127.0.0.1:8000, after a scheme where one is given."""
        return f"{scheme}{f'[{self.host}]' if ':' in self.host else self.host}:{port}"

    @property
    def scheme(self) -> str:
        return "https://" if "ssl_certfile" in self.uvicorn else "http://"


@dataclass(frozen=True)
class Source:
    """A model as it was named on the command line.

    Attributes:
        folder: of a run, of an exported model, or of versions of either.
        versions: it is a folder of versions.
    """

    name: str
    folder: Path
    versions: bool
