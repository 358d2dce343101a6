"""The objects of a bucket: s3, gs and az by obstore, other protocols by fsspec. Needs the extra `remote`.

An object is written whole or not at all. With obstore it can be written under a condition, too: only where none is there, or only over
the version that is known; so two writers never overwrite each other unseen.
"""

import contextlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from extensions.remote.credentials import check_credentials, of_aws_file
from pipelines.base.errors import ConfigError, QuartetError
from pipelines.base.files import write_whole
from pipelines.stores.remote import Address

CONDITIONAL = ("s3", "gs", "az")
_PART = 16 << 20  # bytes; larger files are sent in parts, unless under a condition


class StoreError(QuartetError):
    """A store that refuses or does not answer: names the address and what to do."""


class Changed(QuartetError):
    """An object is there already, or is no longer the version that was known."""


class Missing(StoreError):
    """No such object."""


@dataclass(frozen=True)
class Entry:
    """What a listing says of an object: bytes, and a mark that changes with its content."""

    size: int
    version: str
    seconds: float = 0.0  # since 1970, of its last change


class Objects(ABC):
    """The objects of one bucket, by their keys."""

    def __init__(self, address: Address):
        self.address = Address(address.protocol, address.bucket, "")

    @abstractmethod
    def entries(self, prefix: str) -> dict[str, Entry]:
        """Key -> entry of the object `prefix` and of all below `prefix`/."""

    @abstractmethod
    def read(self, key: str) -> tuple[bytes, str]:
        """(content, version). Raises Missing."""

    @abstractmethod
    def fetch(self, key: str, target: Path) -> None:
        """Writes an object to a file, whole."""

    @abstractmethod
    def put(self, key: str, content: bytes | Path, *, over: str | None = None) -> str:
        """Writes an object; returns its version.

        Args:
            over: the version that is overwritten; "": none may be there. None: whatever is there.

        Raises:
            Changed: the object is another.
        """

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects, in this order; those that are gone already do not matter."""

    @abstractmethod
    def copy(self, key: str, to: str) -> None:
        """Copies an object within the bucket."""


def objects_of(address: Address) -> Objects:
    """The bucket of an address.

    Raises:
        ConfigError: the extra or the package of the protocol is not installed, or there are no credentials.
    """
    if address.protocol in CONDITIONAL:
        return _ByObstore(address)
    return _ByFsspec(address)


class _ByObstore(Objects):
    def __init__(self, address: Address):
        super().__init__(address)
        try:
            import obstore
            from obstore import store
        except ImportError:
            raise ConfigError(f"{address}: reading and writing object stores needs the extra `remote`: "
                              "pip install 'keras-quartet[remote]'") from None
        self._calls: Any = obstore
        self._errors: Any = obstore.exceptions
        check_credentials(address)
        kinds: dict[str, Any] = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
        settings: dict[str, Any] = {}
        client: dict[str, Any] = {"connect_timeout": "10s", "timeout": "300s"}
        if address.protocol == "s3":
            settings |= of_aws_file(os.environ)
            endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT")
            if endpoint:
                settings["endpoint"] = endpoint
                client["allow_http"] = endpoint.startswith("http://")
            if not {"AWS_REGION", "AWS_DEFAULT_REGION"} & set(os.environ):
                settings.setdefault("region", "us-east-1")
        emulator = os.environ.get("STORAGE_EMULATOR_HOST")
        if address.protocol == "gs" and emulator:  # as Google's own libraries take it
            settings["service_account_key"] = json.dumps({"gcs_base_url": emulator, "disable_oauth": True, "client_email": "",
                                                          "private_key": "", "private_key_id": ""})
            client["allow_http"] = emulator.startswith("http://")
        with self._explained(""):
            self._store = kinds[address.protocol](address.bucket, client_options=client, **settings,
                                                  retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=60)})

    def entries(self, prefix: str) -> dict[str, Entry]:
        with self._explained(prefix):
            listed = self._calls.list(self._store, prefix or None, chunk_size=1000)
            found = {one["path"]: one for part in listed for one in part}
            if not found and prefix:
                with contextlib.suppress(self._errors.NotFoundError, FileNotFoundError):
                    found[prefix] = self._calls.head(self._store, prefix)
        return {key: Entry(one["size"], _version(one), one["last_modified"].timestamp()) for key, one in sorted(found.items())}

    def read(self, key: str) -> tuple[bytes, str]:
        with self._explained(key):
            answer = self._calls.get(self._store, key)
            return bytes(answer.bytes()), _version(answer.meta)

    def fetch(self, key: str, target: Path) -> None:
        with self._explained(key):
            stream = self._calls.get(self._store, key)

            def write(file: Any) -> None:
                for part in stream:
                    file.write(part)

            write_whole(target, write)

    def put(self, key: str, content: bytes | Path, *, over: str | None = None) -> str:
        options: dict[str, Any] = {"use_multipart": False}
        if over is None:
            options = {"chunk_size": _PART}
        elif over:
            tag, _, version = over.partition("\n")
            if self.address.protocol == "gs" and not version:
                version = self._generation(key, tag)
            options["mode"] = {name: value for name, value in (("e_tag", tag), ("version", version)) if value}
        else:
            options["mode"] = "create"
        with self._explained(key):
            return _version(self._calls.put(self._store, key, content, **options))

    def _generation(self, key: str, tag: str) -> str:
        """Of an object that a listing had with this tag: Google's conditions ask for it, and its listings leave it out."""
        with self._explained(key):
            found, _, version = _version(self._calls.head(self._store, key)).partition("\n")
        if found != tag:
            raise Changed(f"{self.address / key}: another process has written it")
        return version

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with self._explained(key), contextlib.suppress(self._errors.NotFoundError, FileNotFoundError):
                self._calls.delete(self._store, key)

    def copy(self, key: str, to: str) -> None:
        with self._explained(key):
            self._calls.copy(self._store, key, to)

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        where, errors = self.address / key if key else self.address, self._errors
        try:
            yield
        except (errors.AlreadyExistsError, errors.PreconditionError) as error:
            raise Changed(f"{where}: another process has written it") from error
        except (errors.BaseError, FileNotFoundError, PermissionError) as error:
            text = str(error)
            if "NoSuchBucket" in text or "ContainerNotFound" in text:
                raise StoreError(f"{self.address}: there is no such bucket; make it, or correct the address") from error
            if isinstance(error, (errors.NotFoundError, FileNotFoundError)):
                raise Missing(f"{where}: there is no such object") from error
            if isinstance(error, (errors.PermissionDeniedError, errors.UnauthenticatedError, PermissionError)):
                raise StoreError(f"{where}: the store refuses it; check the credentials and what they may do there") from error
            if "169.254" in text or "metadata.google" in text or "credential" in text.lower():
                raise StoreError(f"{where}: no credentials were found; docs/cluster.md names the variables to set") from error
            raise StoreError(f"{where}: the store does not answer: {_short(text)}") from error


class _ByFsspec(Objects):
    """Any other protocol: read and written, without conditions."""

    def __init__(self, address: Address):
        super().__init__(address)
        try:
            import fsspec
        except ImportError:
            raise ConfigError(f"{address}: reading and writing other stores needs the extra `remote`: "
                              "pip install 'keras-quartet[remote]'") from None
        try:
            self._system: Any = fsspec.filesystem(address.protocol)
        except ValueError:
            raise ConfigError(f"{address}: {address.protocol}:// is no protocol that fsspec knows; s3://, gs:// and az:// are") from None
        except ImportError as error:
            raise ConfigError(f"{address}: {error}") from None
        self._root = f"{address.bucket}/"

    def entries(self, prefix: str) -> dict[str, Entry]:
        with self._explained(prefix):
            found = self._system.find(self._root + prefix, detail=True)
        entries = {}
        for path, about in sorted(found.items()):
            key = path.lstrip("/").removeprefix(self._root)
            marks = [str(about[name]) for name in ("ETag", "etag", "md5", "mtime", "created", "LastModified") if about.get(name)]
            entries[key] = Entry(int(about.get("size") or 0), " ".join(marks))
        return entries

    def read(self, key: str) -> tuple[bytes, str]:
        with self._explained(key):
            return self._system.cat_file(self._root + key), ""

    def fetch(self, key: str, target: Path) -> None:
        def write(file: Any) -> None:
            with self._system.open(self._root + key, "rb") as source:
                while part := source.read(1 << 20):
                    file.write(part)

        with self._explained(key):
            write_whole(target, write)

    def put(self, key: str, content: bytes | Path, *, over: str | None = None) -> str:
        if over is not None:
            raise ConfigError(f"{self.address}: runs are kept in s3://, gs:// or az://, or on a disk; data may be anywhere")
        with self._explained(key):
            if isinstance(content, Path):
                self._system.put_file(str(content), self._root + key)
            else:
                self._system.pipe_file(self._root + key, content)
        return ""

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with self._explained(key), contextlib.suppress(FileNotFoundError):
                self._system.rm_file(self._root + key)

    def copy(self, key: str, to: str) -> None:
        with self._explained(key):
            self._system.cp_file(self._root + key, self._root + to)

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        try:
            yield
        except QuartetError:
            raise
        except FileNotFoundError as error:
            raise Missing(f"{self.address / key}: there is no such object") from error
        except Exception as error:  # each protocol has its own
            raise StoreError(f"{self.address / key}: the store does not answer: {_short(str(error) or type(error).__name__)}") from error


def _version(about: Any) -> str:
    tag = about.get("e_tag") or ""
    if tag and not tag.endswith('"'):  # Azure's listings leave the quotes out, which a condition needs
        tag = f'"{tag}"'
    return f"{tag}\n{about.get('version') or ''}"


def _short(text: str) -> str:
    return " ".join(text.split())[:300]
