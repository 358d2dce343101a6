"""A run behind HTTP: concurrent requests are answered in batches, with the same functions as `predict`.

    GET  /          the run, its inputs and outputs
    GET  /health    200 once it answers
    POST /predict   one file as the body, several as multipart/form-data, or {"inputs": [...]} as JSON

One thread computes. Requests that arrive meanwhile are the next batch, so a lone one never waits, and many fill the device.
An input that cannot be read gets its error as the answer. A client never names a file or an address of the server's.
"""

import asyncio
import base64
import binascii
import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, Full, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import ConfigError, DataError
from pipelines.serving.output import Prediction, Shown, as_object
from pipelines.serving.predict import Predictor

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

MEBI = 1 << 20
BACKLOG = 2048  # connections that may wait to be accepted, as uvicorn has it
WAITING = 16  # batches that may wait; more are refused, to bound memory


class Busy(Exception):
    """Too many inputs wait already."""


@dataclass(frozen=True)
class Sent:
    """An input that waits for its answer."""

    name: str
    raw: dict[str, Any]
    answer: "Future[Prediction]"


class Answering:
    """Answers inputs from any thread, waiting ones together in a batch."""

    def __init__(self, predictor: Predictor):
        self.predictor = predictor
        self.room = WAITING * predictor.batch
        self._waiting: Queue[Sent] = Queue(self.room)
        Thread(target=self._work, daemon=True).start()

    def submit(self, name: str, raw: dict[str, Any]) -> "Future[Prediction]":
        """A future answer. Raises Busy where too many wait."""
        sent = Sent(name, raw, Future())
        try:
            self._waiting.put_nowait(sent)
        except Full:
            raise Busy from None
        return sent.answer

    def _work(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while len(batch) < self.predictor.batch:
                try:
                    batch.append(self._waiting.get_nowait())
                except Empty:
                    break
            self._answer([sent for sent in batch if sent.answer.set_running_or_notify_cancel()])

    def _answer(self, batch: list[Sent]) -> None:
        try:
            predictions = self.predictor.together([(one.name, one.raw) for one in batch])
        except Exception as error:  # its client gets the error, the others their answers
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
                return
            for sent in batch:
                self._answer([sent])
            return
        for sent, prediction in zip(batch, predictions, strict=True):
            sent.answer.set_result(prediction)


def make_app(predictor: Predictor, *, limit: int = 64 * MEBI) -> "Starlette":
    """The application.

    Args:
        predictor: of the run.
        limit: bytes that a request may have.

    Raises:
        ConfigError: the extra `serve` is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import JSONResponse, PlainTextResponse
        from starlette.routing import Route
    except ImportError as error:
        raise ConfigError(f"quartet serve needs the extra: pip install 'keras-quartet[serve]' ({error})") from error
    task = predictor.run.task
    answering = Answering(predictor)

    async def about(request: "Request") -> "Response":
        return JSONResponse(described(predictor))

    async def health(request: "Request") -> "Response":
        return PlainTextResponse("ready\n")

    async def predict(request: "Request") -> "Response":
        try:
            shown = Shown.of(predictor.columns, predictor.classes, top=_count(request, "top"), every=_flag(request, "probabilities"),
                             details=task.details, ranked=task.ranked)
            inputs = await _inputs(request, limit)
            if len(inputs) > answering.room:
                raise _TooLarge(f"{len(inputs):,} inputs are too many for one request; send {answering.room:,} at most")
        except (DataError, ConfigError) as error:
            return JSONResponse({"error": str(error)}, status_code=413 if isinstance(error, _TooLarge) else 400)

        def take(value: Any) -> dict[str, Any] | DataError:
            try:
                return task.take(value)
            except DataError as error:
                return error

        answers: list[Any] = []
        try:
            for name, value in inputs:
                raw = await run_in_threadpool(take, value)
                answers.append(Prediction(name, error=str(raw)) if isinstance(raw, DataError) else answering.submit(name, raw))
        except Busy:
            for one in answers:
                if isinstance(one, Future):
                    one.cancel()
            return JSONResponse({"error": "too many requests wait; try again in a second"}, status_code=503, headers={"Retry-After": "1"})
        done = [await asyncio.wrap_future(one) if isinstance(one, Future) else one for one in answers]
        return JSONResponse({"answers": [as_object(one, shown) for one in done]})

    routes = [Route("/", about), Route("/health", health), Route("/predict", predict, methods=["POST"])]
    return Starlette(routes=routes)


def described(predictor: Predictor) -> dict[str, Any]:
    """The description of the run for clients."""
    run = predictor.run
    meanings = run.task.meanings
    return {
        "run": f"{run.name}/{run.folder.path.name}", "task": run.task.experiment.task, "send": run.task.sends,
        "gives": {name: meanings.get(name, "") for name in predictor.columns},
        **({"classes": list(predictor.classes)} if predictor.classes else {}),
    }


class _TooLarge(DataError):
    """A request over the limit of bytes."""


async def _inputs(request: "Request", limit: int) -> list[tuple[str, Any]]:
    """(name, bytes or JSON value) of each input of a request. Raises DataError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _TooLarge(f"the request has over {limit // MEBI:,} MiB; send less at a time (quartet serve --limit sets it)")
    if kind == "multipart/form-data":
        return await _parts(request, bytes(body))
    if kind != "application/json":
        if not body:
            raise DataError('the request is empty: send a file as its body, or {"inputs": [...]} as application/json')
        return [("input", bytes(body))]
    try:
        content = json.loads(bytes(body))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"the request is not JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("inputs"), list) or not content["inputs"]:
        raise DataError('the request has no inputs: {"inputs": [...]}, a value for each')
    return [(f"input {number}", _plain(value)) for number, value in enumerate(content["inputs"], 1)]


async def _parts(request: "Request", body: bytes) -> list[tuple[str, Any]]:
    from starlette.datastructures import UploadFile
    from starlette.formparsers import MultiPartException, MultiPartParser

    async def stream() -> Any:
        yield body

    try:
        form = await MultiPartParser(request.headers, stream()).parse()
    except (MultiPartException, KeyError) as error:
        raise DataError(f"the request is no multipart/form-data: {error}") from None
    files = [(value.filename or name, await value.read()) if isinstance(value, UploadFile) else (name, value)
             for name, value in form.multi_items()]
    if not files:
        raise DataError("the request has no file")
    return files


def _plain(value: Any) -> Any:
    """Bytes in place of {"b64": ...}, as TensorFlow Serving's REST interface has them."""
    if isinstance(value, dict) and set(value) == {"b64"}:
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise DataError(f"b64: {error}") from None
    return value


def _count(request: "Request", name: str) -> int:
    given = request.query_params.get(name, "0")
    if not given.isdecimal():
        raise DataError(f"{name}={given}: a number of classes is wanted")
    return int(given)


def _flag(request: "Request", name: str) -> bool:
    return request.query_params.get(name, "false").lower() in ("1", "true", "yes", "")


def bind(host: str, port: int) -> socket.socket:
    """A socket at that address, which does not listen yet; port 0 takes a free one.

    Answers go out at once: asyncio switches Nagle's algorithm off only for a socket that names its protocol, which socket.create_server
    leaves out, and then a small answer waits for the client's delayed acknowledgement, some 40 ms.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # on Windows it would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def serve(predictor: Predictor, *, host: str, port: int, limit: int, say: Any) -> None:
    """Answers until a signal comes. `say` gets the address once the server is warm; port 0 takes any.

    Raises:
        ConfigError: the port is in use, the address is not of this machine, or the extra `serve` is not installed.
    """
    app = make_app(predictor, limit=limit)
    import uvicorn

    with _refusal(host, port):
        bound = bind(host, port)
    with bound:
        predictor.warm_up()
        with _refusal(host, port):
            bound.listen(BACKLOG)
        name = f"[{host}]" if ":" in host else host
        say(f"serving      http://{name}:{bound.getsockname()[1]}")
        uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off")).run(sockets=[bound])


@contextmanager
def _refusal(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--host {host} --port {port}: {error.strerror or error}; name another") from None
