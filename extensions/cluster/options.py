"""The option --ray of train, tune, predict and prepare, which may stand without an address, and those that go with it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from extensions.cluster.ray_cluster import LOCAL, is_address
from pipelines.base.errors import ConfigError

Address = Annotated[str | None, typer.Option(
    "--ray", metavar="[ADDRESS]", show_default=False,
    help="Work on a Ray cluster: auto (this machine is a node of it), HOST:PORT of its head, or alone for a Ray of this machine.")]


@dataclass(frozen=True)
class Asked:
    """What the command that runs was told of a cluster.

    Attributes:
        workers: at most; None: not said.
        restarts: of a training.
    """

    address: str
    workers: int | None = None
    restarts: int = 0


_asked: Asked | None = None


def asked() -> Asked | None:
    """The cluster that the command is to work on; None: it works here."""
    return _asked


def with_address(arguments: Sequence[str]) -> list[str]:
    """`--ray` that no address follows becomes `--ray local`."""
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    for place in reversed(range(end)):
        if given[place] == "--ray" and not (place + 1 < end and is_address(given[place + 1])):
            given.insert(place + 1, LOCAL)
    return given


@contextmanager
def train(
    ray: Address = None,
    workers: Annotated[int | None, typer.Option(
        min=1, metavar="N", show_default="1", help="With --ray: hosts that train together.")] = None,
    restarts: Annotated[int, typer.Option(
        min=0, metavar="N", help="With --ray: times that all are started again from the last checkpoint where one is lost.")] = 3,
) -> Iterator[None]:
    """Of `quartet train`."""
    with _asking(ray, workers, restarts, "--workers: needs --ray; other launchers start the command on each host (docs/cluster.md)"):
        yield


@contextmanager
def tune(ray: Address = None) -> Iterator[None]:
    """Of `quartet tune`, whose own --workers says how many trials there are at a time."""
    with _asking(ray):
        yield


@contextmanager
def predict(
    ray: Address = None,
    workers: Annotated[int | None, typer.Option(
        min=1, metavar="N", show_default="one for each GPU, or else for each node", help="With --ray: how many answer.")] = None,
) -> Iterator[None]:
    """Of `quartet predict`."""
    with _asking(ray, workers, refusal="--workers needs --ray, and --output a folder"):
        yield


@contextmanager
def prepare(
    ray: Address = None,
    workers: Annotated[int | None, typer.Option(
        min=1, metavar="N", show_default="one a node", help="With --ray: processes that write.")] = None,
) -> Iterator[None]:
    """Of `quartet prepare`."""
    with _asking(ray, workers, refusal="--workers: goes with --ray; without it, this process writes"):
        yield


@contextmanager
def _asking(address: str | None, workers: int | None = None, restarts: int = 0, refusal: str = "") -> Iterator[None]:
    global _asked
    if workers is not None and address is None:
        raise ConfigError(refusal)
    _asked = Asked(address, workers, restarts) if address is not None else None
    try:
        yield
    finally:
        _asked = None
