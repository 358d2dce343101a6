"""POST /v1/search of a server: the nearest rows of an index.

    {"query": "how do I cancel?", "count": 5, "where": {"language": "en"}}  ->  {"hits": [{"similarity": 0.81, "row": {...}}, ...]}

A query is what the encoder reads: a text, an object of columns, or bytes as {"b64": ...}. With a reader a text is also answered from the
rows that were found: {"answers": [{"answer": "by mail", "score": 0.7, "sentence": "...", "row": {...}, ...}, ...], "hits": [...]}.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extensions.search.options import chosen
from pipelines.base.errors import ConfigError, DataError
from pipelines.commands.shell import finished
from pipelines.config import guard
from pipelines.serving.options import Options
from pipelines.serving.protocol import ServerProtocol, Site

if TYPE_CHECKING:
    from starlette.routing import Route

    from extensions.search.index import Hit, Index
    from extensions.search.reading import Reader

PATH = "/v1/search"
MOST = 1_000  # rows of an answer


class Searching(ServerProtocol):
    """The route, where an index was named."""

    def __init__(self) -> None:
        self.folder, self.run = chosen().index, chosen().reader
        self._index: Index | None = None
        self._reader: Reader | None = None
        self._one = asyncio.Lock()
        self._read = ExitStack()

    def prepare(self, options: Options) -> Options:
        if self.run is not None and self.folder is None:
            raise ConfigError("--reader: answers from an index; name one with --index")
        if self.folder is not None:
            from extensions.search.store import Store

            self.folder = self._read.enter_context(guard.opened(self.folder))
            Store.open(self.folder)
        return options

    def close(self) -> None:
        self._read.close()

    async def start(self, site: Site) -> None:
        if self.folder is not None:
            from extensions.search.index import open_index
            from extensions.search.reading import Reader

            self._index = await asyncio.to_thread(open_index, self.folder)
            await asyncio.to_thread(self._index.predictor.warm_up)
            if self.run is not None:
                self._reader = await asyncio.to_thread(Reader, finished(Path("runs"), str(self.run)))
                await asyncio.to_thread(self._reader.predictor.warm_up)
            site.say(f"search       {PATH}: {len(self._index):,} rows of {self.folder}")

    def _answers(self, query: Any, hits: "list[Hit]") -> dict[str, Any]:
        if self._reader is None or self._index is None:
            return {}
        return {"answers": [vars(one) for one in self._reader.answer(query, hits, self._index.text_of)]}

    def routes(self, site: Site) -> "Sequence[Route]":
        if self.folder is None:
            return ()
        from starlette.requests import Request
        from starlette.responses import Response

        from pipelines.serving.http.app import Json, route
        from pipelines.serving.http.bodies import Refused, Share, body_of, json_of
        from pipelines.task.requests import decoded

        async def search(request: Request) -> Response:
            with Share(site.memory) as share:
                asked = _checked(json_of(await body_of(request, site.options.limit, share), share), Refused)
                query = decoded(asked["query"])
                if isinstance(query, DataError):
                    raise Refused(f"query: {query}")
                request.scope["exchange"].inputs = 1
                assert self._index is not None
                async with self._one:  # one at a time has all processors
                    try:
                        hits = await asyncio.to_thread(self._index.search, query, asked.get("count", 5), where=asked.get("where"))
                        answers = await asyncio.to_thread(self._answers, query, hits)
                    except (ConfigError, DataError) as error:
                        raise Refused(str(error)) from None
            return Json({**answers, "hits": [vars(hit) for hit in hits]})

        return [route(PATH, search, "POST")]


def _checked(asked: Any, refused: type[DataError]) -> dict[str, Any]:
    """What was sent. Raises `refused`."""
    if not isinstance(asked, dict) or "query" not in asked:
        raise refused('the request has no query: {"query": "...", "count": 5, "where": {"column": "value"}}')
    unknown = sorted(set(asked) - {"query", "count", "where"})
    if unknown:
        raise refused(f"{unknown[0]!r} is none of query, count, where")
    count, where = asked.get("count", 1), asked.get("where", {})
    if type(count) is not int or not 1 <= count <= MOST:
        raise refused(f"count: is {count!r:.40}; a whole number from 1 to {MOST:,} is asked for")
    if not isinstance(where, dict) or not all(isinstance(value, str) for value in where.values()):
        raise refused('where: is an object of columns and their values as texts: {"column": "value"}')
    return asked
