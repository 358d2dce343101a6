"""Prepared data written by the workers of a Ray cluster: each finds the experiment's data itself, and writes pieces of them.

So all nodes need the data and the folder, each under one name, as on a network disk or in an object store. What is written is byte for
byte what one machine writes. Imports no TensorFlow before the data are read.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from extensions.cluster.ray_cluster import LATE, nodes, share, uses
from extensions.cluster.ray_pool import Pool
from pipelines.base.errors import ConfigError, DataError, QuartetError
from pipelines.config import extensions, registry
from pipelines.config.load import from_text, resolved_yaml

if TYPE_CHECKING:
    from pipelines.data.shard_writing import Piece
    from pipelines.task.prepared import Work


@dataclass(frozen=True)
class Order:
    """What a worker is to write.

    Attributes:
        experiment: as YAML.
        uses: files and modules of the person's own.
        folder: the current folder, from which paths are.
        output: the folder to write into, or its address.
        data: split -> examples and fingerprint.
    """

    experiment: str
    uses: tuple[str, ...]
    folder: str
    output: str
    decoded: bool
    data: dict[str, tuple[int, str]]


class Writer:
    """The work of an actor. The data are found for the first piece, so that a failure there is that piece's answer."""

    def __init__(self, order: Order, processors: int):
        self._order, self._processors = order, processors
        self._work: Work | None = None

    def there(self) -> None:
        """Answered once the actor is placed."""

    def write(self, piece: "Piece") -> str:
        """Writes a piece; returns the name of this node."""
        self._work = self._work or self._found()
        self._work.write(piece)
        return socket.gethostname()

    def _found(self) -> "Work":
        os.environ.pop("TF_USE_LEGACY_KERAS", None)
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(self._processors))
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # files are read by processors
        order, node = self._order, socket.gethostname()
        if not os.path.isdir(order.folder):
            raise ConfigError(f"{order.folder} is not on {node}: all nodes need it under this name, as on a network disk")
        os.chdir(order.folder)
        from pipelines.machine.startup import start_tensorflow

        start_tensorflow()
        extensions.use(order.uses)
        from pathlib import Path

        from pipelines.stores.remote import OutputFolder
        from pipelines.task.prepared import Work

        try:
            experiment = from_text(order.experiment).experiment
            work = Work(registry.task_class(experiment.task)(experiment), OutputFolder(Path(order.output)), decoded=order.decoded)
        except QuartetError as error:
            raise DataError(f"on {node}: {error}") from None
        for name, own in order.data.items():
            source = work.sources.get(name)
            if source is None or (len(source), source.fingerprint()) != own:
                raise DataError(f"on {node}: the data of {name} are not those of the machine that gave the command; all nodes need the "
                                "same data under the same paths")
        return work


class RayWriters:
    """Workers of the cluster that this process is connected to.

    Args:
        workers: how many, where there is room for them; None: one for each node.
        say: what there is to say, such as of a worker that is lost.
    """

    def __init__(self, workers: int | None, say: Callable[[str], None]):
        self._workers, self._say = workers, say

    def write(self, work: "Work", pieces: Sequence["Piece"]) -> "Iterator[Piece]":
        """Writes pieces, and gives each that is written.

        Raises:
            TrainingError: a piece's workers were lost again and again.
            HostLost: there is no room for any worker.
            DataError, ConfigError: as on one machine; or a node has not the same data or folder.
        """
        if not pieces:
            return
        present = nodes()
        count = min(self._workers or sum(1 for node in present if node.get("CPU")) or 1, len(pieces))
        experiment, own = work.task.experiment, share(present, count, 0)
        order = Order(resolved_yaml(experiment), uses(experiment), os.getcwd(), work.folder.absolute, work.decoded,
                      {name: (len(source), source.fingerprint()) for name, source in work.sources.items()})
        with Pool["Piece"](Writer, (order, own.cpus), lambda actor, piece: actor.write.remote(piece), own, count, name=str,
                           large="an example there may take more memory than a worker has", say=self._say) as pool:
            for piece, node in pool.answers(pieces):
                _arrives(work, piece, node)
                yield piece


def _arrives(work: "Work", piece: "Piece", node: str) -> None:
    """Waits for a piece that another machine has written. Raises ConfigError where it is not in the folder as it is seen from here."""
    from pipelines.data.shard_writing import there

    until = time.monotonic() + LATE
    while not there(piece, work.folder.names()):
        if time.monotonic() > until:
            raise ConfigError(f"{work.folder}: {node} has written {piece} there, and it is not here; all nodes need the folder under this "
                              "name, as on a network disk; or give an address of a store")
        time.sleep(0.5)
