"""What is at addresses, such as s3://BUCKET/PATH, comes from remote stores that extensions bring (the other face of the door `storage`).

The core asks for a copy of data on this machine, for a folder of this machine in which a run is trained, and for writing results. Imports
no TensorFlow.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from pipelines.base.errors import ConfigError
from pipelines.stores.address import Address


class Remote(ABC):
    """A store of objects: files at addresses, each written whole or not at all, without folders of their own.

    Raises:
        QuartetError: from any method, where the store refuses or does not answer; names the address.
    """

    def takes(self, address: Address) -> bool:
        """Whether it is asked about an address; the store that was added last is asked first."""
        return True

    @abstractmethod
    def copy(self, address: Address) -> Path:
        """A copy on this machine of an object, or of all below an address, as the store has it now; DataError where nothing is there."""

    @abstractmethod
    def sizes(self, address: Address) -> dict[str, int]:
        """Name below the address -> bytes of all objects there, in order; "" of the object at the address itself."""

    @abstractmethod
    def read(self, address: Address) -> bytes:
        """An object."""

    @abstractmethod
    def put(self, address: Address, content: bytes | Path) -> None:
        """Writes an object: bytes, or a file of this machine."""

    @abstractmethod
    def delete(self, addresses: Iterable[Address]) -> None:
        """Removes objects, in this order; those that are gone already do not matter."""

    def work_folder(self, address: Address, names: Sequence[str], *, fresh: bool, say: Callable[[str], None],
                    writes: bool) -> AbstractContextManager[Path]:
        """The folder of this machine in which a run or a search at an address works: it begins with what the store has, and is sent there
        so that at every moment another process could resume it.

        Args:
            names: of its folder, and of those beside it that belong to it.
            fresh: what is in the store is moved aside to <name>~1, <name>~2, ...
            writes: whether this process does; of several hosts, the chief alone.
        """
        raise ConfigError(f"{address}: runs cannot be kept there; give --runs a folder of this machine")

    def runs(self, address: Address) -> dict[str, int]:
        """Run -> bytes, of all runs below an address, by their names there."""
        names = self.sizes(address)
        runs = [name.rpartition("/")[0] for name in names if name.endswith("/experiment.yaml")]
        return {run: sum(size for name, size in names.items() if name.startswith(f"{run}/")) for run in runs}

    def listing(self, address: Address) -> tuple[Path, set[str]]:
        """A copy of what a listing of the runs below an address reads, and which of them are being trained."""
        return self.copy(address), set()

    def run(self, address: Address) -> Path:
        """A copy of a finished run, to be used."""
        return self.copy(address)

    def put_back(self, folder: Path, address: Address) -> None:
        """Sends what was added to the copy of a run."""
        raise ConfigError(f"{address}: nothing can be written to it")


_installed: Callable[[], Sequence[Remote]] = tuple


def install(remotes: Callable[[], Sequence[Remote]]) -> None:
    """Says where the stores of extensions are asked for."""
    global _installed
    _installed = remotes


def remote_of(address: Address) -> Remote:
    """The store that has an address. Raises ConfigError where no extension takes it."""
    for remote in reversed(_installed()):
        if remote.takes(address):
            return remote
    raise ConfigError(f"{address}: no extension is there that reads such addresses; give a path of this machine")
