"""The routes of a server.

    GET  /              the page to try the models in a browser; for programs, the models, their inputs and outputs as JSON
    GET  /health/live   200 while the process answers at all; /health is the same
    GET  /health/ready  200 while new requests are wanted; 503 once the end has begun
    GET  /metrics       for Prometheus
    GET  /openapi.json  this, for programs
    POST /predict       one file as the body, several as multipart/form-data, or {"inputs": [...]} as JSON; ?model=, ?version=
    /v1/models/...      TensorFlow Serving's REST interface
    /v2/...             the Open Inference Protocol

An input of /predict that cannot be read gets its error as the answer. A client never names a file or an address of the server's.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import orjson
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Match, Route, Router

from pipelines.base.errors import ConfigError, DataError
from pipelines.serving.answerer import Answerer
from pipelines.serving.http import open_inference, tensorflow_rest
from pipelines.serving.http.access import Access, Guarded
from pipelines.serving.http.bodies import Memory, Share, body_of, inputs_of, json_of
from pipelines.serving.http.hosting import Hosted
from pipelines.serving.http.models import Models
from pipelines.serving.http.observing import Observed
from pipelines.serving.http.openapi import description
from pipelines.serving.http.pages import page, wants_page
from pipelines.serving.http.refusals import Refused
from pipelines.serving.output import as_json, as_object

ADDRESSES = 1_000  # of which it is kept what answers them
MEMORY = 8  # requests of the largest size that are held at once
Handler = Callable[[Request], Awaitable[Response]]
HEADERS = ["Authorization", "Content-Type", "X-Request-ID", open_inference.HEADER]  # that a page of another origin may send
OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, as_json, OPTIONS)


def make_app(models: Models, observed: Observed, *, limit: int, access: Access | None = None, origins: Sequence[str] = ()) -> Observed:
    """The application, watched.

    Args:
        models: with one at least.
        limit: bytes that a request may have.
        access: who may ask; None: everybody.
        origins: whose pages a browser may let read answers.
    """
    memory = Memory(MEMORY * limit)
    routes: list[Route] = []

    def route(path: str, methods: tuple[str, ...] = ("GET",), *more: str) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            routes.extend(Route(one, Answered(path, handler), methods=list(methods)) for one in (path, *more))
            return handler

        return add

    def asked(request: Request) -> Hosted:
        """The model and version in the path or the query. Raises Refused."""
        given = request.path_params or _query(request)
        hosted = models.get(given.get("model"), given.get("version"))
        exchange = request.scope["exchange"]
        exchange.model, exchange.version = hosted.name, str(hosted.version)
        return hosted

    @route("/predict", ("POST",))
    async def predict(request: Request) -> Response:
        with asked(request) as hosted, Share(memory) as share:
            shown = hosted.shown(_count(request, "top"), _flag(request, "probabilities"))
            sent = await inputs_of(request, limit, hosted.batches.room, share)
            request.scope["exchange"].inputs = len(sent)
            answers = await hosted.answers(sent, request.scope["exchange"].key)
        return Json({"answers": [as_object(one, shown) for one in answers]})

    @route("/v1/models/{model}:predict", ("POST",), "/v1/models/{model}/versions/{version}:predict")
    async def rest_predict(request: Request) -> Response:
        with asked(request) as hosted, Share(memory) as share:
            content = json_of(await body_of(request, limit, share), share)
            return Json(await tensorflow_rest.predict(hosted, content, request.scope["exchange"]))

    @route("/v1/models/{model}:classify", ("POST",), "/v1/models/{model}/versions/{version}:classify")
    async def rest_classify(request: Request) -> Response:
        with asked(request) as hosted, Share(memory) as share:
            content = json_of(await body_of(request, limit, share), share)
            return Json(await tensorflow_rest.classify(hosted, content, request.scope["exchange"]))

    @route("/v1/models/{model}/metadata", ("GET",), "/v1/models/{model}/versions/{version}/metadata")
    async def rest_metadata(request: Request) -> Response:
        hosted = asked(request)
        return Json(tensorflow_rest.metadata(hosted))

    @route("/v1/models/{model}", ("GET",), "/v1/models/{model}/versions/{version}")
    async def rest_status(request: Request) -> Response:
        hosted, one = asked(request), "version" in request.path_params
        return Json(tensorflow_rest.status([hosted.version] if one else models.versions(hosted.name)))

    @route("/v2/models/{model}/infer", ("POST",), "/v2/models/{model}/versions/{version}/infer")
    async def infer(request: Request) -> Response:
        with asked(request) as hosted, Share(memory) as share:
            body = await body_of(request, limit, share)
            header = request.headers.get(open_inference.HEADER)
            content, length = await open_inference.infer(hosted, body, header, share, request.scope["exchange"])
            if length is None:
                return Response(content, media_type="application/json")
            return Response(content, headers={open_inference.HEADER: str(length)}, media_type="application/octet-stream")

    @route("/v2/models/{model}/ready", ("GET",), "/v2/models/{model}/versions/{version}/ready")
    async def model_ready(request: Request) -> Response:
        hosted = asked(request)
        return Json({"name": hosted.name, "ready": not observed.draining}, 503 if observed.draining else 200)

    @route("/v2/models/{model}", ("GET",), "/v2/models/{model}/versions/{version}")
    async def model_metadata(request: Request) -> Response:
        hosted = asked(request)
        return Json(open_inference.metadata(hosted, models.versions(hosted.name)))

    @route("/v2/repository/index", ("POST",))
    async def index(request: Request) -> Response:
        return Json([{"name": name, "version": str(one), "state": "READY", "reason": ""}
                     for name in models.names for one in models.versions(name)])

    @route("/v2")
    async def server_metadata(request: Request) -> Response:
        return Json({"name": "quartet", "version": version("keras-quartet"), "extensions": ["binary_tensor_data"]})

    @route("/health", ("GET",), "/health/live")
    async def live(request: Request) -> Response:
        return PlainTextResponse("live\n")

    @route("/v2/health/live")
    async def protocol_live(request: Request) -> Response:
        return Json({"live": True})

    @route("/v2/health/ready")
    async def protocol_ready(request: Request) -> Response:
        return Json({"ready": not observed.draining}, 503 if observed.draining else 200)

    @route("/health/ready")
    async def ready(request: Request) -> Response:
        return PlainTextResponse("draining\n", 503) if observed.draining else PlainTextResponse("ready\n")

    @route("/metrics")
    async def metrics(request: Request) -> Response:
        return Response(observed.text(), media_type="text/plain; version=1.0.0; charset=utf-8")

    @route("/openapi.json")
    async def openapi(request: Request) -> Response:
        return Json(description(models, version("keras-quartet")))

    @route("/")
    async def about(request: Request) -> Response:
        if wants_page(request.headers.get("accept", "")):
            return page("index.html")
        versions = {name: models.versions(name) for name in models.names}
        listed = [{"name": name, "versions": found, **described(models.get(name).model)} for name, found in versions.items()]
        return Json(described(models.get().model) | {"models": listed}, headers={"Vary": "Accept"})

    @route("/page.css")
    async def style(request: Request) -> Response:
        return page("page.css")

    @route("/page.js")
    async def script(request: Request) -> Response:
        return page("page.js")

    observed.app = Direct(routes, redirect_slashes=False, default=_unknown)
    if access is not None:
        observed.app = Guarded(observed.app, access)
    if origins:  # outermost: a browser asks first whether it may, without a token
        observed.app = CORSMiddleware(observed.app, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=HEADERS,
                                      expose_headers=["X-Request-ID", "Retry-After", open_inference.HEADER])
    return observed


class Direct(Router):
    """Starlette's router, which looks once for what answers an address."""

    def __init__(self, *given: Any, **more: Any):
        super().__init__(*given, **more)
        self._known: dict[tuple[str, str], tuple[Any, Any]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        address = scope["method"], scope["path"]
        app, found = self._known.get(address) or self._find(address, scope)
        scope.update(found)
        await app(scope, receive, send)

    def _find(self, address: tuple[str, str], scope: Any) -> tuple[Any, Any]:
        for route in self.routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                if len(self._known) < ADDRESSES:
                    self._known[address] = route.app, found  # type: ignore[attr-defined]
                return route.app, found  # type: ignore[attr-defined]
        return self.app, {}


async def _unknown(scope: Any, receive: Any, send: Any) -> None:
    await Json({"error": "there is nothing here; / says what there is"}, 404)(scope, receive, send)


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
            response = Json({"error": str(error)}, status, {"Retry-After": str(retry)} if retry is not None else None)
        await response(scope, receive, send)


def described(model: Answerer) -> dict[str, Any]:
    """The description of a model for clients."""
    return {
        "run": model.title, "task": model.task, "send": model.sends,
        "form": [asdict(one) for one in model.form],
        "gives": {name: model.meanings.get(name, "") for name in model.columns},
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
