"""The door `protocol`: what an extension adds to a server. Each entry is a class of `ServerProtocol`, made once for a server.

Imports neither TensorFlow nor the packages of the extra `serve`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.config.doors import PROTOCOLS
from pipelines.serving.options import Options, Source

if TYPE_CHECKING:
    from starlette.routing import Route

    from pipelines.serving.answerer import Answerer
    from pipelines.serving.http.bodies import Memory
    from pipelines.serving.http.hosting import Models
    from pipelines.serving.http.observing import Observed

@dataclass(frozen=True)
class Site:
    """A server that has its models.

    Attributes:
        models: by name and version; `get(name, version)` is one, which answers raw examples in batches.
        observed: counts and logs; recorders that are added there hear of each request.
        memory: that the bodies of all requests share.
        routes: of all protocols.
        load: loads a version of a model and warms it up; raises ConfigError.
        say: a line for whoever has started the server.
    """

    options: Options
    sources: Sequence[Source]
    models: "Models"
    observed: "Observed"
    memory: "Memory"
    load: "Callable[[Path], Answerer]"
    say: Callable[[str], None]
    routes: "list[Route]" = field(default_factory=list)


class ServerProtocol:
    """What is overridden is added to the server; by default nothing is."""

    def prepare(self, options: Options) -> Options:
        """Called first, before TensorFlow is imported and models are loaded: checks what was asked for, and may change the options.

        Raises:
            ConfigError: it cannot be done as it was asked for.
        """
        return options

    def routes(self, site: Site) -> "Sequence[Route]":
        """Routes, such as `pipelines.serving.http.app.route` makes them; the first that matches answers."""
        return ()

    def wrap(self, app: Any, site: Site) -> Any:
        """The ASGI application around that of all routes; `scope["exchange"]` is what is known of the request."""
        return app

    async def start(self, site: Site) -> None:
        """Called in the server's loop, once the models are there and before requests are taken."""

    async def stop(self, seconds: float) -> None:
        """Called in the loop when the end begins; ends within that time, while requests are still answered."""

    def close(self) -> None:
        """Called after the last answer."""


def prepared(options: Options) -> tuple[Options, list[ServerProtocol]]:
    """The options after all protocols had their say, and the protocols. Raises ConfigError."""
    protocols = [entry.load()() for entry in PROTOCOLS.entries()]
    for one in protocols:
        options = one.prepare(options)
    return options, protocols
