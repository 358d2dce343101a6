"""RPCs as requests: counted, logged and bounded as those of HTTP are, with gRPC's codes in place of HTTP's."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from extensions.gateway.access import Access
from pipelines.base.errors import ConfigError, DataError
from pipelines.serving.http.bodies import Memory, Refused, Share
from pipelines.serving.http.hosting import Hosted, Models
from pipelines.serving.http.observing import Exchange, Observed, failed

CODES = {400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED, 404: grpc.StatusCode.NOT_FOUND,
         408: grpc.StatusCode.DEADLINE_EXCEEDED, 413: grpc.StatusCode.RESOURCE_EXHAUSTED, 429: grpc.StatusCode.RESOURCE_EXHAUSTED,
         503: grpc.StatusCode.UNAVAILABLE}
MESSAGE_SECONDS = 60.0  # for a request's message, whole
PUSHBACK = "grpc-retry-pushback-ms"  # gRPC's own name for Retry-After: clients with a retry policy heed it


@dataclass
class Call:
    """What answers an RPC: the models, what is known of the request, and the memory that it holds."""

    models: Models
    exchange: Exchange
    share: Share
    draining: bool

    def hosted(self, model: str, version: str = "") -> Hosted:
        """The model and version asked for; an empty name is the first, an empty version the newest. Raises Refused."""
        hosted = self.models.get(model or None, version or None)
        self.exchange.model, self.exchange.version = hosted.name, str(hosted.version)
        return hosted


Answer = Callable[[Any, Call], Awaitable[Any]]


def _headers(context: Any) -> list[tuple[bytes, bytes]]:
    return [tuple(one.encode() if isinstance(one, str) else one for one in pair)  # type: ignore[misc]
            for pair in context.invocation_metadata() or ()]


def _address(peer: str) -> str:
    """The address in ipv4:127.0.0.1:4711 or ipv6:[::1]:4711, which gRPC may have escaped."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


def _message(parse: Callable[[bytes], Any], request: bytes) -> Any:
    """Here and not by gRPC, which would log a traceback for what a client sent. Raises Refused."""
    try:
        return parse(request)
    except DecodeError as error:
        raise Refused(f"the request is no message of this method ({error})") from None


async def _received(context: Any) -> bytes:
    """The request's one message. Raises Refused where it does not come."""
    try:
        request = await asyncio.wait_for(context.read(), MESSAGE_SECONDS)
    except asyncio.TimeoutError:
        raise Refused(f"the request's message is not complete after {MESSAGE_SECONDS:g} s", status=408) from None
    if request is grpc.aio.EOF:
        raise Refused("the request has no message")
    return bytes(request)


def _certified(context: Any) -> str:
    return next(iter(context.auth_context().get("x509_common_name", ())), b"").decode("utf-8", "replace")


def service(name: str, methods: dict[str, tuple[Answer, Any, Any]], models: Models, observed: Observed, memory: Memory,
            access: Access) -> Any:
    """A service's handlers for grpc.aio.

    Args:
        methods: name -> (what answers it, type of the request, type of the reply).
        access: who may ask.
    """

    def handler(method: str, answer: Answer, request: Any, reply: Any) -> Any:
        return grpc.stream_unary_rpc_method_handler(  # for clients the same; only so a message can be waited for, and not for ever
            _watched(f"/{name}/{method}", answer, request.FromString, models, observed, memory, access), None, reply.SerializeToString)

    return grpc.method_handlers_generic_handler(name, {method: handler(method, *one) for method, one in methods.items()})


def _watched(route: str, answer: Answer, parse: Callable[[bytes], Any], models: Models, observed: Observed, memory: Memory,
             access: Access) -> Any:
    async def handle(_: Any, context: Any) -> Any:
        began, headers = time.perf_counter(), _headers(context)
        exchange = observed.begin(headers, method="RPC", path=route, address=_address(context.peer()))
        exchange.route = route
        code, retry, reply = grpc.StatusCode.OK, None, None
        try:
            shown = [value for name, value in headers if name == b"authorization"]
            access.admit(exchange, shown[0] if len(shown) == 1 else b"", _certified(context))
            request = await _received(context)
            with Share(memory) as share:
                share.take(2 * len(request))  # the bytes, and the message that they become
                reply = await answer(_message(parse, request), Call(models, exchange, share, observed.draining))
        except (DataError, ConfigError) as error:
            exchange.error = str(error)
            status, retry = (error.status, error.retry) if isinstance(error, Refused) else (400, None)
            code = CODES[status]
        except asyncio.CancelledError:  # the client has gone, or its deadline has passed
            code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:
            exchange.error, code = f"{type(error).__name__}: {error}", grpc.StatusCode.INTERNAL
            observed.defect(exchange.id)
        finally:
            observed.end(exchange, code.name, time.perf_counter() - began)
        context.set_trailing_metadata((("x-request-id", exchange.id), *([(PUSHBACK, str(1000 * retry))] if retry is not None else ())))
        if reply is None:
            await context.abort(code, failed(exchange) if code is grpc.StatusCode.INTERNAL else exchange.error)
        return reply

    return handle
