"""What lies at addresses, as copies on this machine: what reads files reads the copy; what is said of it, is said with the address."""

from collections.abc import Iterable
from pathlib import Path

from pipelines.stores.remote import Address, address_of, remote_of

_copies: dict[Address, Path] = {}  # those that this process has looked at


def local(path: str | Path, *, folder: bool = False) -> Path:
    """A path of this machine as it is; of an address, the copy, which is brought up to date once for each process.

    Args:
        folder: files beside an object belong to it, such as the recordings that a table names: its whole folder is fetched.

    Raises:
        QuartetError: the store cannot be read, nothing is there, or this machine's disk has no room.
    """
    address = address_of(path)
    if address is None:
        return Path(path)
    if folder and "." in address.name and address.key.count("/"):
        return local(str(address.parent)) / address.name
    if address not in _copies:
        _copies[address] = remote_of(address).copy(address)
    return _copies[address]


def named(text: str) -> str:
    """A message, with addresses in place of the paths of their copies."""
    for address, path in _copies.items():
        text = text.replace(str(path), str(address))
    return text


def origin(path: Path) -> Address | None:
    """The address of a copy."""
    return next((address for address, copy in _copies.items() if copy == path), None)


def called(path: Path, address: Address) -> None:
    """From now on, `named` gives this folder of this machine its address."""
    _copies[address] = path


def inputs(given: Iterable[str]) -> list[str]:
    """What a person named to be read, addresses as the copies' paths; with * or ? in the last part, of the folder above."""
    paths = []
    for one in given:
        address = address_of(one) if "://" in one and " " not in one else None
        if address is None:
            paths.append(one)
        elif set(address.key) & set("*?["):
            parts = address.key.split("/")
            first = next(place for place, part in enumerate(parts) if set(part) & set("*?["))
            above = Address(address.protocol, address.bucket, "/".join(parts[:first]))
            paths.append(str(local(str(above)) / "/".join(parts[first:])))
        else:
            paths.append(str(local(one)))
    return paths
