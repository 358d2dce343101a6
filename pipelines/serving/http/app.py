"""The routes of a server.

    GET  /              the page to try the models in a browser; for programs, the models, their inputs and outputs as JSON
    GET  /health/live   200 while the process answers at all; /health is the same
    GET  /health/ready  200 while new requests are wanted; 503 once the end has begun
    GET  /metrics       for Prometheus
    POST /predict       one file as the body, several as multipart/form-data, or {"inputs": [...]} as JSON; ?model=, ?version=

and those of other protocols (`pipelines.serving.protocol`). An input of /predict that cannot be read gets its error as the answer. A
client never names a file or an address of the server's.
"""

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router

from pipelines.base.errors import ConfigError, DataError
from pipelines.serving import apart
from pipelines.serving.answerer import Answerer
from pipelines.serving.http.bodies import Memory, Refused, Share, inputs_of
from pipelines.serving.http.hosting import LARGE, Hosted, Models
from pipelines.serving.http.observing import Observed, answer_error
from pipelines.serving.options import Options, Source
from pipelines.serving.output import as_json, as_object
from pipelines.serving.protocol import ServerProtocol, Site

if TYPE_CHECKING:
    from pipelines.serving.answerer import Answerer


FILES = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
# nothing but its own files, what it makes itself (images and sounds that are to be sent), and requests to this server
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src blob:; connect-src 'self'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
           "Permissions-Policy": "microphone=(self), camera=(self)", "Cache-Control": "no-cache"}


def page(name: str) -> Response:
    """One of FILES."""
    return Response(_CONTENTS[name], headers={**HEADERS, "Vary": "Accept"}, media_type=FILES[name])


def wants_page(accept: str) -> bool:
    """Whether a client asks for HTML by name, as browsers do; programs get JSON."""
    return "text/html" in accept.lower()


_CONTENTS = {name: (files(__package__) / "page" / name).read_bytes() for name in FILES}


MEMORY = 8  # requests of the largest size that are held at once
Handler = Callable[[Request], Awaitable[Response]]
OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, as_json, OPTIONS)


def route(path: str, handler: Handler, method: str = "GET", *, name: str = "") -> Route:
    """A route whose refusals are answers, too. `name`: of the route in the metrics; default: its path."""
    return Route(path, Answered(name or path, handler), methods=[method])


def find_model(models: Models, request: Request) -> Hosted:
    """The model and version in a request's path or query. Raises Refused."""
    given = request.path_params or _query(request)
    hosted = models.get(given.get("model"), given.get("version"))
    exchange = request.scope["exchange"]
    exchange.model, exchange.version = hosted.name, str(hosted.version)
    return hosted


def make_app(site: Site, protocols: Sequence[ServerProtocol] = ()) -> Observed:
    """The application, watched."""
    site.routes.extend(plain_routes(site))
    for protocol in protocols:
        site.routes.extend(protocol.routes(site))
    site.observed.app = Router(site.routes, redirect_slashes=False, default=_unknown)
    for protocol in protocols:
        site.observed.app = protocol.wrap(site.observed.app, site)
    return site.observed


def plain_routes(site: Site) -> list[Route]:
    """The core's own: /predict, the page, health and metrics."""
    models, observed, limit = site.models, site.observed, site.options.limit

    async def predict(request: Request) -> Response:
        exchange = request.scope["exchange"]
        with find_model(models, request) as hosted, Share(site.memory) as share:
            shown = hosted.shown(_count(request, "top"), _flag(request, "probabilities"))
            sent = await inputs_of(request, limit, hosted.batches.room, share)
            exchange.inputs = len(sent)
            answers = await hosted.answers(sent, exchange)
        return Json({"answers": [as_object(one, shown) for one in answers]})

    async def live(request: Request) -> Response:
        return PlainTextResponse("live\n")

    async def ready(request: Request) -> Response:
        return PlainTextResponse("draining\n", 503) if observed.draining else PlainTextResponse("ready\n")

    async def metrics(request: Request) -> Response:
        return Response(observed.text(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def about(request: Request) -> Response:
        if wants_page(request.headers.get("accept", "")):
            return page("index.html")
        versions = {name: models.versions(name) for name in models.names}
        listed = [{"name": name, "versions": found, **described(models.get(name).model)} for name, found in versions.items()]
        return Json(described(models.get().model) | {"models": listed}, headers={"Vary": "Accept"})

    async def file(name: str, request: Request) -> Response:
        return page(name)

    return [route("/predict", predict, "POST"), route("/health", live), route("/health/live", live, name="/health"),
            route("/health/ready", ready), route("/metrics", metrics), route("/", about),
            *(route(f"/{name}", partial(file, name)) for name in ("page.css", "page.js"))]


async def _unknown(scope: Any, receive: Any, send: Any) -> None:
    await answer_error(send, 404, "there is nothing here; / says what there is")


class Answered:
    """A handler as an ASGI application, whose refusals are answers, too. `route` is its name in the metrics."""

    def __init__(self, route: str, handler: Handler):
        self.route, self.handler = route, handler

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        exchange = scope["exchange"]
        exchange.route = self.route
        try:
            response = await self.handler(Request(scope, receive, send))
        except (DataError, ConfigError) as error:
            exchange.error = str(error)
            status, retry = (error.status, error.retry) if isinstance(error, Refused) else (400, None)
            await answer_error(send, status, str(error), retry=retry, close=status in (408, 413))  # of which the rest is not waited for
            return
        await response(scope, receive, send)


def described(model: Answerer) -> dict[str, Any]:
    """The description of a model for clients."""
    return {
        "run": model.title, "task": model.task, "send": model.sends,
        "form": [asdict(one) for one in model.form],
        "gives": {name: model.meanings.get(name, "") for name in model.columns},
        **({"kinds": dict(model.kinds)} if model.kinds else {}),
        **({"classes": list(model.classes)} if model.classes else {}),
    }


def _query(request: Request) -> Mapping[str, str]:
    return request.query_params if request.scope["query_string"] else {}


def _count(request: Request, name: str) -> int:
    given = _query(request).get(name, "0")
    if not given.isdecimal() or len(given) > 9:
        raise Refused(f"{name}={given:.20}: a number of classes is wanted")
    return int(given)


def _flag(request: Request, name: str) -> bool:
    return _query(request).get(name, "false").lower() in ("1", "true", "yes", "")


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
