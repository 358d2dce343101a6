"""Addresses of objects: s3://bucket/key, gs://, az://, and whatever fsspec has a protocol for. Needs nothing installed."""

import re
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
