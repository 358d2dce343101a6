"""The routes of a server.

    GET  /              the model, its inputs and outputs
    GET  /health/live   200 while the process answers at all; /health is the same
    GET  /health/ready  200 while new requests are wanted; 503 once the end has begun
    GET  /metrics       for Prometheus
    POST /predict       one file as the body, several as multipart/form-data, or {"inputs": [...]} as JSON

An input that cannot be read gets its error as the answer. A client never names a file or an address of the server's.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router

from pipelines.base.errors import ConfigError, DataError
from pipelines.serving.answerer import Answerer
from pipelines.serving.http.bodies import Memory, inputs_of
from pipelines.serving.http.hosting import Hosted
from pipelines.serving.http.observing import Observed
from pipelines.serving.http.refusals import Refused
from pipelines.serving.output import Shown, as_object

MEMORY = 8  # requests of the largest size that are held at once
Handler = Callable[[Request], Awaitable[Response]]


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def make_app(hosted: Hosted, observed: Observed, *, limit: int) -> Observed:
    """The application, watched.

    Args:
        hosted: the model.
        limit: bytes that a request may have.
    """
    memory = Memory(MEMORY * limit)

    async def about(request: Request) -> Response:
        return Json(described(hosted.model))

    async def live(request: Request) -> Response:
        return PlainTextResponse("live\n")

    async def ready(request: Request) -> Response:
        return PlainTextResponse("draining\n", 503) if observed.draining else PlainTextResponse("ready\n")

    async def metrics(request: Request) -> Response:
        return Response(observed.text(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def predict(request: Request) -> Response:
        model = hosted.model
        shown = Shown.of(model.columns, model.classes, top=_count(request, "top"), every=_flag(request, "probabilities"),
                         details=model.details, ranked=model.ranked)
        exchange = request.scope["exchange"]
        exchange.model, exchange.version = hosted.name, str(hosted.version)
        with memory.share() as share:
            sent = await inputs_of(request, limit, hosted.batches.room, share)
            exchange.inputs = len(sent)
            answers = await hosted.answers(sent)
        return Json({"answers": [as_object(one, shown) for one in answers]})

    routes = [
        Route("/predict", _answered("/predict", predict), methods=["POST"]), Route("/health", live), Route("/health/live", live),
        Route("/health/ready", ready), Route("/metrics", metrics), Route("/", about),
    ]
    observed.app = Router(routes, redirect_slashes=False, default=_unknown)
    return observed


async def _unknown(scope: Any, receive: Any, send: Any) -> None:
    await Json({"error": "there is nothing here; / says what there is"}, 404)(scope, receive, send)


def _answered(route: str, handler: Handler) -> Handler:
    """A handler whose refusals are answers, too. `route` is its name in the metrics."""

    async def answer(request: Request) -> Response:
        request.scope["exchange"].route = route
        try:
            return await handler(request)
        except (DataError, ConfigError) as error:
            request.scope["exchange"].error = str(error)
            status, retry = (error.status, error.retry) if isinstance(error, Refused) else (400, None)
            return Json({"error": str(error)}, status, {"Retry-After": str(retry)} if retry is not None else None)

    return answer


def described(model: Answerer) -> dict[str, Any]:
    """The description of a model for clients."""
    return {
        "run": model.title, "task": model.task, "send": model.sends,
        "gives": {name: model.meanings.get(name, "") for name in model.columns},
        **({"classes": list(model.classes)} if model.classes else {}),
    }


def _count(request: Request, name: str) -> int:
    given = request.query_params.get(name, "0")
    if not given.isdecimal() or len(given) > 9:
        raise Refused(f"{name}={given:.20}: a number of classes is wanted")
    return int(given)


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "false").lower() in ("1", "true", "yes", "")
