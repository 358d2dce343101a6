"""Requests' bodies within bounds: of bytes for one and for all together, of JSON's depth and number of values, and of parts.
What is refused gets a status that says why.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import orjson

from pipelines.base.errors import DataError
from pipelines.task.requests import decoded

if TYPE_CHECKING:
    from starlette.requests import Request


class Refused(DataError):
    """A request that is not answered.

    Attributes:
        status: of HTTP.
        retry: seconds after which the client may try again; None: the same request will be refused again.
    """

    def __init__(self, message: str, *, status: int = 400, retry: int | None = None):
        super().__init__(message)
        self.status, self.retry = status, retry


class Busy(Refused):
    """The server cannot answer now, whoever asks: its memory is full, or the request has waited for too long."""

    def __init__(self, message: str, *, retry: int = 1):
        super().__init__(message, status=503, retry=retry)


class TooMany(Refused):
    """The queue is full: whoever sends should send less often. Nothing of the request was computed."""

    def __init__(self, message: str, *, retry: int = 1):
        super().__init__(message, status=429, retry=retry)


class TooLarge(Refused):
    """A request over a limit."""

    def __init__(self, message: str):
        super().__init__(message, status=413)


class Gone(Exception):
    """The client closed its connection before the request was complete."""


MEBI = 1 << 20
VALUES = 1_000_000  # of JSON in one request: parsing holds up everyone else, and takes up to 0.2 s for so many
FEW = 1_000  # of them, which the garbage collector looks at no more than once
WEIGHT = 64  # bytes that a parsed value takes, at least
PIECE = 1 << 18  # bytes of a form parsed before others have their turn


class Memory:
    """The bytes that all requests together may hold."""

    def __init__(self, total: int):
        self.free = total


class Share:
    """What one request holds, until it is answered."""

    def __init__(self, memory: Memory):
        self.memory, self.taken = memory, 0

    def __enter__(self) -> "Share":
        return self

    def __exit__(self, *error: object) -> None:
        self.memory.free += self.taken

    def take(self, count: int) -> None:
        """Raises Busy where there is no room."""
        if count > self.memory.free:
            raise Busy("the requests that are being answered fill the memory set aside for them; try again in a second")
        self.memory.free -= count
        self.taken += count


def header(request: "Request", name: bytes) -> bytes:
    """A header by its name in small letters; empty without one. Starlette's mapping of headers costs more than reading a small body."""
    for key, value in request.scope["headers"]:
        if key == name:
            return bytes(value)
    return b""


async def body_of(request: "Request", limit: int, share: Share) -> bytes:
    """The body. Raises Refused, and Gone where the client has left."""
    declared = header(request, b"content-length")
    length = int(declared) if declared.isdigit() and len(declared) < 20 else 0
    if length > limit and header(request, b"expect"):
        raise _over(limit)
    body, seen, more = bytearray(), 0, True
    while more:
        event = await request.receive()
        if event["type"] == "http.disconnect":
            raise Gone
        chunk, more = event.get("body", b""), event.get("more_body", False)
        if not seen and not more and len(chunk) <= limit:  # at once, as small ones come
            share.take(len(chunk))
            return bytes(chunk)
        seen += len(chunk)
        if max(seen, length) <= limit:
            share.take(len(chunk))
            body += chunk
        elif seen > 2 * limit:  # a client reads its answer when it has sent all, so that a little too much is taken in
            raise _over(limit)
        else:
            body.clear()
    if seen > limit:
        raise _over(limit)
    return bytes(body)


def _over(limit: int) -> TooLarge:
    return TooLarge(f"the request has over {limit // MEBI:,} MiB; send less at a time (quartet serve --limit sets it)")


def json_of(body: bytes, share: Share) -> Any:
    """The value of a body of JSON: no deeper than 1,024, of at most VALUES values. Raises Refused."""
    values = body.count(b",") + body.count(b"[") + body.count(b"{")
    if values > VALUES:
        raise TooLarge(f"the request's JSON has over {VALUES:,} values; send less at a time, bytes as {{\"b64\": ...}}, or binary tensors")
    share.take(WEIGHT * values)
    collecting = values > FEW and gc.isenabled()
    if collecting:  # the garbage collector would look at all values again and again while they become more
        gc.disable()
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(f"the request is not JSON: {error}") from None
    finally:
        if collecting:
            gc.enable()


async def inputs_of(request: "Request", limit: int, most: int, share: Share) -> list[tuple[str, Any]]:
    """(name, bytes, JSON value or DataError) of each input of a request to /predict, `most` of them. Raises Refused."""
    kind = header(request, b"content-type").partition(b";")[0].strip().lower()
    body = await body_of(request, limit, share)
    if kind == b"multipart/form-data":
        return await _parts(request, body, most)
    if kind != b"application/json":
        if not body:
            raise Refused('the request is empty: send a file as its body, or {"inputs": [...]} as application/json')
        return [("input", body)]
    content = json_of(body, share)
    if not isinstance(content, dict) or not isinstance(content.get("inputs"), list) or not content["inputs"]:
        raise Refused('the request has no inputs: {"inputs": [...]}, a value for each')
    check_count(len(content["inputs"]), most)
    return [(f"input {number}", decoded(value)) for number, value in enumerate(content["inputs"], 1)]


def check_count(count: int, most: int) -> None:
    """Raises TooLarge."""
    if count > most:
        raise TooLarge(f"{count:,} inputs are too many for one request; send {most:,} at most")


async def _parts(request: "Request", body: bytes, most: int) -> list[tuple[str, Any]]:
    from starlette.datastructures import UploadFile
    from starlette.formparsers import MultiPartException, MultiPartParser

    async def stream() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(body), PIECE):
            yield body[start:start + PIECE]
            await asyncio.sleep(0)

    try:
        form = await MultiPartParser(request.headers, stream(), max_files=most, max_fields=most).parse()
    except (MultiPartException, KeyError, ValueError, LookupError) as error:
        raise Refused(f"the request is no multipart/form-data: {error}") from None
    files = [(value.filename or name, await value.read()) if isinstance(value, UploadFile) else (name, value)
             for name, value in form.multi_items()]
    await form.close()
    if not files:
        raise Refused("the request has no file")
    return files
