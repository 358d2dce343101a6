"""The options of `quartet export` and `quartet serve` that say in which form: inside a command, `asked` holds them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any

import typer

from pipelines.base.errors import ConfigError
from pipelines.config.messages import did_you_mean, listed

LOSS = 0.5  # points of the score that a converted model may lose


class Target(str, Enum):
    """What an exported model is for."""

    server = "server"
    mobile = "mobile"
    cpu = "cpu"
    onnx = "onnx"
    openvino = "openvino"


class Computing(str, Enum):
    """What computes a single input of a run."""

    auto = "auto"
    tensorflow = "tensorflow"
    litert = "litert"
    onnx = "onnx"
    openvino = "openvino"


@dataclass(frozen=True)
class Asked:
    """Attributes:
    made_for: what an export is for.
    loss: points of the validation score, of 100, that it may lose.
    serve: what computes a server's single inputs.
    """

    made_for: str = Target.server.value
    loss: float = LOSS
    serve: str = Computing.auto.value


asked = Asked()  # of the process, whichever of its threads asks: a server loads new versions in one of its own


@contextmanager
def exporting(
    *, made_for: Annotated[Target, typer.Option(
        "--for", help="server: a SavedModel; mobile: LiteRT with weights of 8 bits; cpu: the fastest form on this processor that keeps the "
        "answers; onnx, openvino.")] = Target.server,
    loss: Annotated[float, typer.Option(
        min=0, metavar="POINTS", help="Points of the validation score, of 100, that another form than server may lose.")] = LOSS,
) -> Iterator[None]:
    with _asked(made_for=_named(Target, made_for), loss=loss):
        yield


@contextmanager
def serving(
    *, form: Annotated[Computing, typer.Option(
        help="What computes a single input of a run; auto: the fastest that keeps the answers to 1e-5, measured at start."),
    ] = Computing.auto,
) -> Iterator[None]:
    with _asked(serve=_named(Computing, form)):
        yield


def _named(kind: type[Enum], given: str) -> str:
    """From Python, a name is not checked yet."""
    try:
        return str(kind(given).value)
    except ValueError:
        names = [one.value for one in kind]
        raise ConfigError(f"{given!r} is no form{did_you_mean(given, names)}; the forms are {listed(names, 'and')}") from None


@contextmanager
def _asked(**changes: Any) -> Iterator[None]:
    global asked
    before, asked = asked, replace(asked, **changes)
    try:
        yield
    finally:
        asked = before
