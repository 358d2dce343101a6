"""The line of `quartet lineage` about a run's signature, and the option --key by which it is checked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from extensions.secure import signing
from pipelines.base.errors import ConfigError
from pipelines.runs.lineage import Line

_keys: list[Path] = []  # --key of the command that runs


@contextmanager
def key_option(
    *, key: Annotated[Path | None, typer.Option(
        metavar="FILE", show_default=False, help="A public key, PEM, to check the signatures with. Needs the extra `trust`.")] = None,
) -> Iterator[None]:
    """The option --key of `quartet lineage`; None leaves signatures unchecked."""
    _keys[:] = [key] if key is not None else []
    try:
        yield
    finally:
        _keys.clear()


class SignatureLine(Line):
    """The key that a signature names, by the SHA-256 of its public half, and whether it was checked."""

    def check(self, run: Path) -> None:
        if signing.signature_of(run).is_file():
            for key in _keys:
                signing.verify(run, key)

    def read(self, run: Path) -> Any:
        file = signing.signature_of(run)
        if not file.is_file():
            return None
        try:
            return {"file": file.name, "key": signing.key_of(file), "verified": bool(_keys)}
        except ConfigError:
            return {"file": file.name, "key": None, "verified": False}

    def text(self, value: Any) -> str | None:
        if value is None:
            return "signature    none"
        checked = "" if value["verified"] else ", not checked (--key)"
        return f"signature    by the key with sha256 {value['key']}{checked}"
