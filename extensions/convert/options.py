"""The options of `quartet export` and `quartet serve` that say in which form: inside a command, `asked` holds them."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from pipelines.base.errors import ConfigError
from pipelines.config.messages import did_you_mean, listed

MadeFor = Enum("MadeFor", {"server": "server", "mobile": "mobile", "cpu": "cpu", "onnx": "onnx", "openvino": "openvino",
                            "huggingface": "huggingface"})
ComputedBy = Enum("ComputedBy", {
    "auto": "auto", "tensorflow": "tensorflow", "litert": "litert", "onnx": "onnx", "openvino": "openvino"})
LOSS = 0.5  # points of the score that a converted model may lose

# of the process, whichever of its threads asks: a server loads new versions in one of its own
asked = SimpleNamespace(made_for="server", loss=LOSS, computed_by="auto")


@contextmanager
def exporting(
    *, made_for: Annotated[MadeFor, typer.Option(
        "--for", help="server: a SavedModel; mobile: LiteRT with weights of 8 bits; cpu: the fastest form on this processor that keeps the "
        "answers; onnx, openvino; huggingface: language models for transformers, vLLM and llama.cpp.")] = MadeFor.server,
    loss: Annotated[float, typer.Option(
        min=0, metavar="POINTS", help="Points of the validation score, of 100, that another form than server may lose.")] = LOSS,
) -> Iterator[None]:
    with _asked(made_for=_name(MadeFor, made_for), loss=loss):
        yield


@contextmanager
def serving(
    *, form: Annotated[ComputedBy, typer.Option(
        help="What computes a single input of a run; auto: the fastest that keeps the answers to 1e-5, measured at start."),
    ] = ComputedBy.auto,
) -> Iterator[None]:
    with _asked(computed_by=_name(ComputedBy, form)):
        yield


def _name(kind: type[Enum], given: Enum | str) -> str:
    """Of a member; from Python it comes as text, unchecked."""
    name, names = given.value if isinstance(given, Enum) else given, [one.value for one in kind]
    if name not in names:
        raise ConfigError(f"{name!r} is no form{did_you_mean(name, names)}; the forms are {listed(names, 'and')}")
    return name


@contextmanager
def _asked(**changes: Any) -> Iterator[None]:
    before = {**vars(asked)}
    vars(asked).update(changes)
    try:
        yield
    finally:
        vars(asked).update(before)
