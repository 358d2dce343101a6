"""Buckets of objects as the core asks for them: data that are copied here, results that are sent, runs that are trained there."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from extensions.remote import runs
from extensions.remote.copies import copied
from extensions.remote.objects import Objects, objects_of
from pipelines.stores.remote import Address, Remote


class ObjectStore(Remote):
    """s3, gs and az by obstore, other protocols by fsspec."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], Objects] = {}

    def _bucket(self, address: Address) -> Objects:
        place = (address.protocol, address.bucket)
        if place not in self._buckets:
            self._buckets[place] = objects_of(address)
        return self._buckets[place]

    def copy(self, address: Address) -> Path:
        return copied(address)

    def sizes(self, address: Address) -> dict[str, int]:
        found, prefix = self._bucket(address).entries(address.key), f"{address.key}/".lstrip("/")
        return {"" if key == address.key else key.removeprefix(prefix): entry.size for key, entry in found.items()}

    def read(self, address: Address) -> bytes:
        return self._bucket(address).read(address.key)[0]

    def put(self, address: Address, content: bytes | Path) -> None:
        self._bucket(address).put(address.key, content)

    def delete(self, addresses: Iterable[Address]) -> None:
        for address in addresses:
            self._bucket(address).delete([address.key])

    def work_folder(self, address: Address, names: Sequence[str], *, fresh: bool, say: Callable[[str], None],
                    writes: bool) -> AbstractContextManager[Path]:
        return runs.work_folder(address, names, fresh=fresh, say=say, writes=writes)

    def listing(self, address: Address) -> tuple[Path, set[str]]:
        return runs.listing(address)

    def run(self, address: Address) -> Path:
        return runs.copy_of_run(address)

    def put_back(self, folder: Path, address: Address) -> None:
        runs.put_back(folder, address)
