"""The options --require-signature, --sandbox, --age-key and --encrypt, and what they say while their command runs. Import no TensorFlow.

What is said holds for the thread that says it. The threads and processes of a command have its keys, too, by environment variables; that of
signatures only the main thread sets, so that no thread of somebody's program takes another one's away.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from extensions.secure.encryption import VARIABLE, given_key, require_key
from pipelines.base.errors import ConfigError
from pipelines.base.inside import check_regular

SIGNATURE = "QUARTET_REQUIRE_SIGNATURE"  # the path of a public key
_required: ContextVar[Path | None] = ContextVar("required", default=None)
_encrypting: ContextVar[bool] = ContextVar("encrypting", default=False)
_sandboxed: ContextVar[bool] = ContextVar("sandboxed", default=False)
Value = TypeVar("Value")

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
    if require_signature is None:
        yield
        return
    key, main = Path(require_signature), threading.current_thread() is threading.main_thread()
    with _set(_required, key), _variable(SIGNATURE, key) if main else nullcontext():
        yield


def required_key() -> Path | None:
    """The key of --require-signature, if one is given."""
    named = os.environ.get(SIGNATURE)
    return _required.get() or (Path(named) if named else None)


@contextmanager
def age_key(*, age_key: AgeKey = None) -> Iterator[None]:
    """Inside, encrypted files are read and written with that key. Raises ConfigError where it is none."""
    if age_key is None:
        yield
        return
    with _variable(VARIABLE, Path(age_key).expanduser().absolute()):
        check_regular(age_key, "--age-key", ConfigError)
        given_key()
        yield


@contextmanager
def sandbox(*, sandbox: Sandbox = False) -> Iterator[None]:
    """Inside, the process is confined once it has found what it reads."""
    with _set(_sandboxed, sandbox):
        yield


@contextmanager
def encrypt(*, encrypt: Encrypt = False) -> Iterator[None]:
    """Inside, a new run or search is encrypted. Raises Encrypted where there is no key."""
    if encrypt:
        require_key("--encrypt: what is trained")
    with _set(_encrypting, encrypt):
        yield


def encrypting() -> bool:
    """Whether --encrypt is given."""
    return _encrypting.get()


def sandboxed() -> bool:
    """Whether --sandbox is given."""
    return _sandboxed.get()


@contextmanager
def _set(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


@contextmanager
def _variable(name: str, value: Path) -> Iterator[None]:
    before, os.environ[name] = os.environ.get(name), str(value)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
