"""The options of `quartet serve` that the gateway brings. Needs no extra."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer


def _file(words: str) -> Any:
    return typer.Option(metavar="FILE", show_default=False, help=words)


@dataclass(frozen=True)
class ServeOptions:
    """What the command line says. While one is entered, protocols of the server read it: `chosen`."""

    connections: Annotated[int, typer.Option(min=1, metavar="N", help="Connections open at the same time.")] = 1024
    delay: Annotated[float, typer.Option(min=0, metavar="MS", help="How long a batch that is not full waits for more inputs.")] = 0.0
    per_client: Annotated[int | None, typer.Option(
        min=1, metavar="N", show_default="as many as of all", help="Inputs of one client that may wait for a model.")] = None
    long: Annotated[float, typer.Option(
        min=0.1, metavar="S", help="How long an input that is large by its header may take; then it is ended.")] = 10.0
    drain: Annotated[float, typer.Option(min=1, metavar="S", help="Time from SIGTERM to the end, at most.")] = 30.0
    log: Annotated[bool, typer.Option("--log", help="A line of JSON on standard output for each request.")] = False
    versions: Annotated[int, typer.Option(min=1, metavar="N", help="Newest versions of a model that answer.")] = 1
    grpc: Annotated[int | None, typer.Option(min=0, max=65535, metavar="PORT", help="Where gRPC listens, too; 0: a free one.")] = None
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes that answer, each with the models in its own memory.")] = 1
    tokens: Annotated[Path | None, _file("Lines `NAME sha256:HASH`: only who shows such a token is answered.")] = None
    tls_cert: Annotated[Path | None, _file("The server's certificate, PEM: TLS.")] = None
    tls_key: Annotated[Path | None, _file("The key of that certificate, PEM.")] = None
    client_ca: Annotated[Path | None, _file("Authorities, PEM: only clients with a certificate of theirs are answered.")] = None
    rate: Annotated[float | None, typer.Option(
        min=0.001, metavar="N", show_default=False, help="Requests a second that one client may send, for long.")] = None
    cors: Annotated[list[str] | None, typer.Option(
        metavar="ORIGIN", show_default=False, help="Whose web pages may read answers; several times for several.")] = None
    audit: Annotated[Path | None, _file("A file that gets a line for each request: who, when, which model; no payload.")] = None

    _entered: ClassVar[list["ServeOptions"]] = []

    def __enter__(self) -> None:
        self._entered.append(self)

    def __exit__(self, *error: object) -> None:
        self._entered.pop()


def chosen() -> ServeOptions:
    """Of the command that runs."""
    return ServeOptions._entered[-1] if ServeOptions._entered else ServeOptions()
