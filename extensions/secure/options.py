"""The options --require-signature, --sandbox, --age-key and --encrypt, and what they say while their command runs. Import no TensorFlow.

A key is named by an environment variable, so that the processes that a command starts have it, too.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from extensions.secure.encryption import VARIABLE, given_key, require_key
from pipelines.base.errors import ConfigError
from pipelines.base.regular import check_regular

SIGNATURE = "QUARTET_REQUIRE_SIGNATURE"  # the path of a public key
_sandboxed = _encrypting = False

RequireSignature = Annotated[Path | None, typer.Option(
    "--require-signature", metavar="KEY", show_default=False,
    help="A public key, PEM: refuse what it has not signed, before any file of it is read. Needs the extra `trust`.")]
AgeKey = Annotated[Path | None, typer.Option(
    "--age-key", metavar="FILE", show_default="QUARTET_AGE_KEY", help="The key of encrypted runs (age-keygen). Needs the extra `trust`.")]
Encrypt = Annotated[bool, typer.Option(
    "--encrypt", help="Encrypt a new run or search with the key of --age-key: weights, checkpoints, report, exports. Needs `trust`.")]
Sandbox = Annotated[bool, typer.Option(
    "--sandbox", help="No connections, and no writing but of the command's result; Linux 6.2 or later.")]


@contextmanager
def require_signature(*, require_signature: RequireSignature = None) -> Iterator[None]:
    """Inside, what is opened has to be signed with that key; None changes nothing."""
    with variable(SIGNATURE, require_signature):
        yield


@contextmanager
def age_key(*, age_key: AgeKey = None) -> Iterator[None]:
    """Inside, encrypted files are read and written with that key. Raises ConfigError where it is none."""
    if age_key is None:
        yield
        return
    with variable(VARIABLE, Path(age_key).expanduser().absolute()):
        check_regular(age_key, "--age-key", ConfigError)
        given_key()
        yield


@contextmanager
def sandbox(*, sandbox: Sandbox = False) -> Iterator[None]:
    """Inside, the process is confined once it has found what it reads."""
    global _sandboxed
    before, _sandboxed = _sandboxed, sandbox
    try:
        yield
    finally:
        _sandboxed = before


@contextmanager
def encrypt(*, encrypt: Encrypt = False) -> Iterator[None]:
    """Inside, a new run or search is encrypted. Raises Encrypted where there is no key."""
    global _encrypting
    if encrypt:
        require_key("--encrypt: what is new")
    before, _encrypting = _encrypting, encrypt
    try:
        yield
    finally:
        _encrypting = before


def encrypting() -> bool:
    """Whether --encrypt is given."""
    return _encrypting


def sandboxed() -> bool:
    """Whether --sandbox is given."""
    return _sandboxed


@contextmanager
def variable(name: str, value: Path | str | None) -> Iterator[None]:
    """Inside, an environment variable has that value; None changes nothing."""
    if value is None:
        yield
        return
    before, os.environ[name] = os.environ.get(name), str(value)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
