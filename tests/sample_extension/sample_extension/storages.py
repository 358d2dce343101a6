"""A storage that compresses, a guard that refuses, and addresses mem://BOX/NAME."""

import gzip
import tempfile
from pathlib import Path

import quartet


class Squeezed(quartet.Storage):
    """Files below a folder that holds squeezed.txt are compressed, but for the settings."""

    marker = "squeezed.txt"

    def takes(self, inside):
        return inside.name not in (self.marker, "experiment.yaml")

    def holds(self, start):
        return start.startswith(b"\x1f\x8b")

    def write(self, write, target):
        with gzip.GzipFile(fileobj=target, mode="wb") as file:
            write(file)

    def read(self, file, path):
        plain = tempfile.TemporaryFile()  # noqa: SIM115 - handed out
        with file:
            plain.write(gzip.decompress(file.read()))
        plain.seek(0)
        return plain


class Withdrawn(quartet.Guard):
    """Nothing is read of a folder that holds WITHDRAWN."""

    def check(self, what, kind):
        if (Path(what) / "WITHDRAWN").exists():
            raise quartet.ConfigError(f"{what}: was withdrawn")


class Memory(quartet.Remote):
    """Objects of this process."""

    objects: dict[str, bytes] = {}

    def takes(self, address):
        return address.protocol == "mem"

    def copy(self, address):
        place = Path(tempfile.mkdtemp())
        found = self.sizes(address)
        if not found:
            raise quartet.DataError(f"{address}: there is nothing at this address")
        for name in found:
            file = place / address.name / name if name else place / address.name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.objects[str(address / name) if name else str(address)])
        return place / address.name

    def sizes(self, address):
        below = {name[len(str(address)):]: len(content) for name, content in sorted(self.objects.items()) if name.startswith(str(address))}
        return {name.lstrip("/"): size for name, size in below.items() if not name or name.startswith("/")}

    def read(self, address):
        return self.objects[str(address)]

    def put(self, address, content):
        self.objects[str(address)] = content.read_bytes() if isinstance(content, Path) else content

    def delete(self, addresses):
        for address in addresses:
            self.objects.pop(str(address), None)
