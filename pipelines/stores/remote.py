"""What is at addresses, such as s3://BUCKET/PATH, comes from remote stores that extensions bring (the other face of the door `storage`).

The core asks for a copy of data on this machine, for a folder of this machine in which a run is trained, and for writing results. Imports
no TensorFlow.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.errors import ConfigError

_FORM = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}(.*)", re.DOTALL)  # one slash: what pathlib makes of two


@dataclass(frozen=True)
class Address:
    """Some objects of a store.

    Attributes:
        protocol: s3, gs, az or another.
        bucket: the first part of the path: a bucket, a container, a host.
        key: the rest, without slashes at its ends; may be empty.
    """

    protocol: str
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.protocol}://{self.bucket}" + (f"/{self.key}" if self.key else "")

    def __truediv__(self, name: str) -> "Address":
        return Address(self.protocol, self.bucket, f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        return (self.key or self.bucket).rpartition("/")[2]

    @property
    def parent(self) -> "Address":
        return Address(self.protocol, self.bucket, self.key.rpartition("/")[0])


def address_of(given: str | Path) -> Address | None:
    """The address that a person gave, also where it has gone through a Path; None for a path of this machine.

    Raises:
        ConfigError: an address without a bucket.
    """
    form = _FORM.fullmatch(str(given))
    if form is None or form[1] == "file":
        return None
    bucket, _, key = form[2].partition("/")
    if not bucket:
        raise ConfigError(f"{given}: names no bucket; write {form[1]}://BUCKET/PATH")
    if ".." in key.split("/"):
        raise ConfigError(f"{given}: has .. in it; write the path itself")
    return Address(form[1], bucket, re.sub(r"/+", "/", key).strip("/"))


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
