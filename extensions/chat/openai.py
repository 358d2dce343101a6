"""OpenAI's routes of a server, so that its clients talk with models of one's own.

    GET  /v1/models             the models
    POST /v1/chat/completions   {"model", "messages", "max_tokens", "temperature", "top_p", "seed", "stop", "stream"}: of nlp.dialogue;
                                also "top_k" and "min_tokens", which others offer beside OpenAI's
                                OpenAI's "response_format": JSON, of a schema or any; vLLM's "structured_outputs": {"choice"}, {"regex"}
                                or {"json"}
    POST /v1/completions        {"model", "prompt", ...}: of nlp.language_model and nlp.dialogue, whose marks are marks in it
    POST /v1/embeddings         {"model", "input", "encoding_format"}: of runs of a pretrained encoder

https://platform.openai.com/docs/api-reference. What a request leaves out is as the run has it (`writing`); texts are written as they come,
up to ROWS at the same time, with "stream" piece by piece as server-sent events. What is not offered (n above 1, tools, logprobs) is
refused by name.
"""

import asyncio
import base64
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base.errors import ConfigError, DataError
from pipelines.serving.protocol import ServerProtocol, Site

if TYPE_CHECKING:
    from starlette.routing import Route

    from pipelines.outputs.streams import Ended, Stream, Streams
    from pipelines.serving.http.hosting import Hosted
    from pipelines.serving.predict import Predictor
    from pipelines.task.writer import Automaton, Way, Writer

STOPS = 16  # texts, at most
NOT_OFFERED = {"n": (None, 1), "best_of": (None, 1), "tools": (None, []), "functions": (None, []), "logprobs": (None, False, 0),
               "echo": (None, False), "suffix": (None, ""), "logit_bias": (None, {}), "frequency_penalty": (None, 0),
               "presence_penalty": (None, 0)}
FORMS = {"choice": "choice", "regex": "regex", "json": "json_schema"}  # vLLM's names, and ours
FORM_SIZE = 100_000  # characters of JSON
FORMS_WAIT = 16  # requests whose forms wait to be made


class OpenAI(ServerProtocol):
    """The routes above."""

    def __init__(self) -> None:
        self._streams: dict[Hosted, Streams] = {}
        self._encoders: dict[Hosted, Predictor] = {}
        self._one, self._forms = asyncio.Lock(), Forms()

    async def start(self, site: Site) -> None:
        for name in site.models.names:
            hosted = site.models.get(name)
            run = getattr(hosted.model, "run", None)
            if run is not None and run.model is not None and run.task.writer(run.model) is not None:
                await (await Text.begun(await self.streams(hosted), "?", None, None)).rest()
                site.say(f"OpenAI       {name}: /v1/chat/completions, /v1/completions")

    def close(self) -> None:
        for streams in self._streams.values():
            streams.close()

    async def streams(self, hosted: "Hosted") -> "Streams":
        """What writes with a model, made at its first request. Raises Refused."""
        from pipelines.outputs.streams import Streams
        from pipelines.serving.http.bodies import Refused

        async with self._one:
            if hosted not in self._streams:
                run = getattr(hosted.model, "run", None)
                writer = run.task.writer(run.model) if run is not None and run.model is not None else None
                if writer is None:
                    raise Refused(f"{hosted.name}: writes no texts piece by piece ({hosted.model.task}); a run of nlp.dialogue or "
                                  "nlp.language_model does, not its exports")
                for old in [one for one in self._streams if one.retired and not self._streams[one].busy]:
                    await asyncio.to_thread(self._streams.pop(old).close)
                self._streams[hosted] = await asyncio.to_thread(Streams, writer)
            return self._streams[hosted]

    async def vectors(self, hosted: "Hosted", inputs: list[Any]) -> np.ndarray:
        """Of texts, [n, width] float32. Raises Refused."""
        from pipelines.serving.embed import require_encoder, vectors
        from pipelines.serving.http.bodies import Refused
        from pipelines.serving.predict import Predictor

        run = getattr(hosted.model, "run", None)
        if run is None or run.model is None:
            raise Refused(f"{hosted.name}: makes no vectors; a run of a pretrained encoder does, not its exports")
        async with self._one:
            if hosted not in self._encoders:
                try:
                    require_encoder(run)
                except (ConfigError, AttributeError):
                    raise Refused(f"{hosted.name}: has no pretrained encoder that makes one vector of an input") from None
                self._encoders = {one: made for one, made in self._encoders.items() if not one.retired}
                self._encoders[hosted] = await asyncio.to_thread(Predictor, run, answer=vectors)
            predictor = self._encoders[hosted]
            rows = [(f"input {number}", predictor.take(one)) for number, one in enumerate(inputs)]
            answers = await asyncio.to_thread(predictor.together, rows)
        failed = next((one for one in answers if one.error is not None), None)
        if failed is not None:
            raise Refused(f"{failed.name}: {failed.error}")
        return np.stack([one.values["vector"] for one in answers])

    def routes(self, site: Site) -> "Sequence[Route]":
        from starlette.requests import Request
        from starlette.responses import Response, StreamingResponse

        from pipelines.serving.http.app import Json, route
        from pipelines.serving.http.bodies import Refused, Share, body_of, check_count, json_of

        async def asked_of(request: Request) -> "tuple[dict[str, Any], Hosted]":
            with Share(site.memory) as share:
                asked = json_of(await body_of(request, site.options.limit, share), share)
            if not isinstance(asked, dict):
                raise Refused("the request is an object")
            name = asked.get("model")
            if name is not None and not isinstance(name, str):
                raise Refused("model: is the name of a model")
            hosted = site.models.get(name)
            exchange = request.scope["exchange"]
            exchange.model, exchange.version = hosted.name, str(hosted.version)
            return asked, hosted

        async def models(request: Request) -> Response:
            return Json({"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "quartet"}
                                                    for name in site.models.names]})

        async def write(request: Request, chat: bool) -> Response:
            asked, hosted = await asked_of(request)
            with hosted:
                streams = await self.streams(hosted)
                prompts = prompts_of(asked, chat, streams.writer.dialogues)
                request.scope["exchange"].inputs = len(prompts)
                way = way_of(asked, streams.writer.way, await self._forms.of(asked, streams.writer))
                texts: list[Text] = []
                try:
                    for prompt in prompts:
                        texts.append(await Text.begun(streams, prompt, asked, way))
                except DataError:  # which is answered with its reason; those before it are not written in vain
                    for text in texts:
                        text.leave()
                    raise
                form = Form(hosted.name, chat)
                if asked.get("stream"):
                    return StreamingResponse(streamed(form, texts, hosted, asked), media_type="text/event-stream",
                                             headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
                try:
                    return Json(form.whole([await text.rest() for text in texts], texts))
                finally:
                    for text in texts:
                        text.leave()

        async def chat(request: Request) -> Response:
            return await write(request, True)

        async def complete(request: Request) -> Response:
            return await write(request, False)

        async def embed(request: Request) -> Response:
            asked, hosted = await asked_of(request)
            inputs = asked.get("input")
            inputs = inputs if isinstance(inputs, list) else [inputs]
            if not inputs or not all(isinstance(one, str) for one in inputs):
                raise Refused("input: is a text, or a list of texts")
            check_count(len(inputs), hosted.batches.room)
            request.scope["exchange"].inputs = len(inputs)
            with hosted:
                vectors = await self.vectors(hosted, inputs)
            packed = asked.get("encoding_format", "float") == "base64"
            data = [{"object": "embedding", "index": number, "embedding": coded(vector) if packed else vector}
                    for number, vector in enumerate(vectors)]
            return Json({"object": "list", "model": hosted.name, "data": data, "usage": {"prompt_tokens": 0, "total_tokens": 0}})

        return [route("/v1/models", models), route("/v1/chat/completions", chat, "POST"), route("/v1/completions", complete, "POST"),
                route("/v1/embeddings", embed, "POST")]


def coded(vector: np.ndarray) -> str:
    """A vector as OpenAI's clients ask for it."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


class Text:
    """A text that is written for a request, in the server's loop."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[tuple[str, Ended | None] | Exception] = asyncio.Queue()
        self.stream: Stream
        self.ended: Ended | None = None

    @classmethod
    async def begun(cls, streams: "Streams", prompt: Any, asked: dict[str, Any] | None, way: "Way | None") -> "Text":
        """Raises DataError for a prompt that is too long, and Refused.

        Args:
            asked: the request; None: a token, to warm up.
            way: how it wants texts written; None: as the run does, in any form.
        """
        from dataclasses import replace

        from pipelines.serving.http.bodies import TooMany

        if streams.full:
            raise TooMany("too many texts wait to be written")
        way = way or replace(streams.writer.way, form=None)
        ids = await asyncio.to_thread(streams.writer.prompt, prompt) if asked is not None else np.array([streams.writer.first], np.int32)
        if asked is None or (asked.get("max_tokens") is None and asked.get("max_completion_tokens") is None):  # as many as fit
            way = replace(way, most=2 if asked is None else max(1, min(way.most, streams.writer.limit - len(ids))))
        text, loop = cls(), asyncio.get_running_loop()

        def put(one: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(text._pieces.put_nowait, one)

        text.stream = streams.write(ids, way, lambda piece, ended: put((piece, ended)), put)
        return text

    async def pieces(self) -> AsyncIterator[str]:
        """Until it ends. Raises what writing failed with."""
        while self.ended is None:
            one = await self._pieces.get()
            if isinstance(one, Exception):
                raise one
            piece, self.ended = one
            if piece:
                yield piece

    async def rest(self) -> str:
        return "".join([piece async for piece in self.pieces()])

    def leave(self) -> None:
        """Nobody wants the rest."""
        self.stream.left = True


class Form:
    """What answers look like."""

    def __init__(self, model: str, chat: bool):
        self.chat, self.kind = chat, "chat.completion" if chat else "text_completion"
        self.head = {"id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def whole(self, written: list[str], texts: list[Text]) -> dict[str, Any]:
        def choice(number: int, text: str) -> dict[str, Any]:
            content = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
            return {"index": number, **content, "logprobs": None, "finish_reason": texts[number].ended}

        return {**self.head, "object": self.kind, "choices": [choice(*one) for one in enumerate(written)], "usage": used(texts)}

    def piece(self, number: int, text: str | None, ended: "Ended | None" = None) -> dict[str, Any]:
        """A part of a text; None: the beginning of an answer."""
        delta = {"role": "assistant", "content": ""} if text is None else {"content": text} if text else {}
        content = {"delta": delta} if self.chat else {"text": text or ""}
        return {**self.head, "object": f"{self.kind}.chunk" if self.chat else self.kind,
                "choices": [{"index": number, **content, "logprobs": None, "finish_reason": ended}]}


def used(texts: list[Text]) -> dict[str, int]:
    """Tokens."""
    read, written = sum(len(text.stream.prompt) for text in texts), sum(text.stream.used for text in texts)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


async def streamed(form: Form, texts: list[Text], hosted: "Hosted", asked: dict[str, Any]) -> AsyncIterator[bytes]:
    """Server-sent events. Where the client leaves, writing ends, too."""
    import orjson

    def event(content: Any) -> bytes:
        return b"data: " + orjson.dumps(content) + b"\n\n"

    with hosted:
        try:
            for number, text in enumerate(texts):
                if form.chat:
                    yield event(form.piece(number, None))
                async for piece in text.pieces():
                    yield event(form.piece(number, piece))
                yield event(form.piece(number, "", text.ended))
            options = asked.get("stream_options")
            if isinstance(options, dict) and options.get("include_usage"):
                yield event({**form.piece(0, ""), "choices": [], "usage": used(texts)})
            yield b"data: [DONE]\n\n"
        finally:
            for text in texts:
                text.leave()


def prompts_of(asked: dict[str, Any], chat: bool, dialogues: bool) -> list[Any]:
    """What is to be written on. Raises Refused."""
    from pipelines.serving.http.bodies import Refused

    for name, usual in NOT_OFFERED.items():
        if asked.get(name) not in usual:
            raise Refused(f"{name}: is not offered here; leave it out")
    if not chat:
        prompts = asked.get("prompt")
        prompts = prompts if isinstance(prompts, list) else [prompts]
        if not 1 <= len(prompts) <= 64 or not all(isinstance(one, str) for one in prompts):
            raise Refused("prompt: is a text, or a list of up to 64 texts")
        return prompts
    if not dialogues:
        raise Refused("this model writes running texts on, and knows no dialogues: POST /v1/completions")
    if not isinstance(asked.get("messages"), list):
        raise Refused('messages: is a list such as [{"role": "user", "content": "..."}]')
    return [asked["messages"]]


class Forms:
    """Automata of the forms that requests ask for, made one after the other."""

    def __init__(self) -> None:
        self._one, self._waiting = asyncio.Lock(), 0

    async def of(self, asked: dict[str, Any], writer: "Writer") -> "Automaton | None":
        """None: the request asks for none. Raises Refused, DataError, and TooMany."""
        from pipelines.serving.http.bodies import TooMany

        form = form_of(asked)
        if form is None:
            return None
        if self._waiting >= FORMS_WAIT:
            raise TooMany("too many forms wait to be made")
        self._waiting += 1
        try:
            async with self._one:
                return await asyncio.to_thread(writer.form, form)
        finally:
            self._waiting -= 1


def form_of(asked: dict[str, Any]) -> dict[str, Any] | None:
    """The form that a request asks for, as `writing.form` has it. Raises Refused."""
    from pipelines.serving.http.bodies import Refused

    said, own = asked.get("response_format"), asked.get("structured_outputs")
    if said not in (None, {"type": "text"}) and own is not None:
        raise Refused("response_format and structured_outputs: give one of them")
    if own is not None:
        if not isinstance(own, dict) or len(own) != 1 or next(iter(own)) not in FORMS:
            raise Refused(f'structured_outputs: is an object with one of {", ".join(FORMS)}')
        (name, value), = own.items()
        return checked_form(FORMS[name], value, f"structured_outputs.{name}")
    said = {"type": "text"} if said is None else said
    kind = said.get("type") if isinstance(said, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"json_schema": {"type": "object"}}
    if kind != "json_schema" or not isinstance(said.get("json_schema"), dict):
        raise Refused("response_format: its type is text, json_object, or json_schema with the schema in json_schema.schema")
    return checked_form("json_schema", said["json_schema"].get("schema"), "response_format.json_schema.schema")


def checked_form(kind: str, value: Any, name: str) -> dict[str, Any]:
    """Raises Refused where it is none."""
    from pipelines.serving.http.bodies import Refused

    if kind == "choice":
        if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
            raise Refused(f"{name}: is a list of texts")
    elif not isinstance(value, str if kind == "regex" else dict) or not value:
        raise Refused(f"{name}: is {'a regular expression' if kind == 'regex' else 'an object'}")
    size = len(value) if isinstance(value, str) else len(json.dumps(value))
    if size > FORM_SIZE:
        raise Refused(f"{name}: has {size:,} characters; {FORM_SIZE:,} at most")
    return {kind: value}


def way_of(asked: dict[str, Any], usual: "Way", form: "Automaton | None") -> "Way":
    """How a request wants texts written. Raises Refused."""
    from dataclasses import replace

    from pipelines.serving.http.bodies import Refused

    def number(name: str, least: float, most: float, *, whole: bool = False) -> Any:
        value = asked.get(name)
        kinds = int if whole else (int, float)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most):
            raise Refused(f"{name}: {value!r:.40} is no {'whole ' if whole else ''}number from {least:g} to {most:g}")
        return value

    limit = number("max_completion_tokens", 1, 1 << 20, whole=True) or number("max_tokens", 1, 1 << 20, whole=True)
    changes = {"most": limit, "fewest": number("min_tokens", 0, 1 << 20, whole=True), "temperature": number("temperature", 0, 10),
               "top_p": number("top_p", 1e-6, 1), "top_k": number("top_k", 1, 1 << 20, whole=True),
               "seed": number("seed", -(1 << 31), (1 << 31) - 1, whole=True)}
    stop = asked.get("stop")
    if stop is not None:
        stops = [stop] if isinstance(stop, str) else stop
        if not isinstance(stops, list) or len(stops) > STOPS or not all(isinstance(one, str) and 0 < len(one) <= 1000 for one in stops):
            raise Refused(f"stop: is a text, or a list of up to {STOPS} texts")
        changes["stop"] = tuple(stops)
    if form is not None or usual.form is not None:
        unfit = next((name for name in ("stop", "min_tokens") if asked.get(name)), None)
        if unfit is not None:
            raise Refused(f"{unfit}: a form says itself when a text ends; leave it out")
        changes["form"] = form
    return replace(usual, **{name: value for name, value in changes.items() if value is not None})
