"""A site and its server: uvicorn's by its public settings, with an end that loses no answer."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from pipelines.serving import apart
from pipelines.serving.http.app import MEMORY, make_app
from pipelines.serving.http.bodies import Memory
from pipelines.serving.http.hosting import LARGE, Models
from pipelines.serving.http.observing import Observed
from pipelines.serving.options import Options, Source
from pipelines.serving.protocol import ServerProtocol, Site

if TYPE_CHECKING:
    from pipelines.serving.answerer import Answerer

KEPT = 75  # s that a connection is kept for the next request, as nginx does
GRACE = 1.0  # s after SIGTERM in which clients still get answers on connections that they keep, with Connection: close


def make_site(options: Options, sources: Sequence[Source], load: "Callable[[Path], Answerer]", say: Callable[[str], None]) -> Site:
    """A server that has no models yet.

    Args:
        load: loads and warms up a version of a model.
    """
    observed = Observed(options.connections)
    own_process = partial(apart.Apart, seconds=options.long, threads=LARGE) if os.name == "posix" else None
    return Site(options, sources, Models(observed, options, own_process), observed, Memory(MEMORY * options.limit), load, say)


class Server(uvicorn.Server):
    """uvicorn's server, in whose loop protocols start and end, too."""

    def __init__(self, site: Site, protocols: Sequence[ServerProtocol] = (), started: Callable[[], None] = lambda: None):
        """
        Args:
            started: called once requests are taken.
        """
        super().__init__(uvicorn.Config(
            make_app(site, protocols), ws="none", lifespan="off", log_level="error", access_log=False, proxy_headers=False,
            server_header=False, timeout_keep_alive=KEPT, timeout_graceful_shutdown=max(0.0, site.options.drain - GRACE),  # type: ignore[arg-type]
            **site.options.uvicorn))
        self.site, self.protocols, self.announce = site, protocols, started
        site.observed.watch(site.observed.open, lambda: len(self.server_state.connections))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for protocol in self.protocols:
            await protocol.start(self.site)
        await super().startup(sockets)
        self.announce()

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            self.site.observed.measure()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers what has been asked: on connections that are kept, the next answer says that it is the last."""
        drain, began = self.site.options.drain, time.monotonic()
        self.site.observed.draining = True
        others = [asyncio.ensure_future(protocol.stop(drain)) for protocol in self.protocols]
        while time.monotonic() - began < min(GRACE, drain) and self.server_state.connections and not self.force_exit:
            await asyncio.sleep(0.05)
        await super().shutdown(sockets)
        await asyncio.gather(*others)
        for protocol in self.protocols:
            protocol.close()
