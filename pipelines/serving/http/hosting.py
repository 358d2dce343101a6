"""A version of a model that answers requests: what clients sent becomes raw examples, and these are answered in batches.

The models of a server stand by name and version; a version that another one replaces ends with its last answer.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.serving.answerer import Answerer, taken
from pipelines.serving.apart import Apart
from pipelines.serving.http.batching import Batches
from pipelines.serving.http.bodies import check_count
from pipelines.serving.http.observing import Exchange, ModelMetrics, Observed
from pipelines.serving.http.refusals import Refused
from pipelines.serving.options import Options
from pipelines.serving.output import Prediction, Shown

LARGE = max(1, (os.cpu_count() or 1) // 2)  # inputs that take long to decode, answered at a time: the others have processors, too
SHOWN = 64  # ways to ask for answers that are kept
LONGEST = 500  # characters of an error: it may quote what was sent


class Hosted:
    """A version of a model."""

    decoding = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decoding")  # shared: it is bounded by the processors

    def __init__(self, name: str, version: int, model: Answerer, observed: Observed, options: Options, apart: Apart | None = None):
        """
        Args:
            apart: answers what takes long to decode; None: the model itself, in a thread.
        """
        self.name, self.version, self.model = name, version, model
        self.metrics = ModelMetrics(observed, name)
        self.users, self.retired = 0, False  # requests that it is answering; whether another version has its place
        self.batches = Batches(model.together, batch=model.batch, delay=options.delay, deadline=options.deadline, each=options.each,
                               metrics=self.metrics)
        self.shown = lru_cache(SHOWN)(lambda top, every: Shown.of(  # the parts of answers that a request asks for
            model.columns, model.classes, top=top, every=every, details=model.details, ranked=model.ranked))
        self.apart = apart
        self.large = Batches(apart.together if apart else model.together, batch=LARGE, deadline=options.deadline,
                             room=self.batches.room, each=options.each, metrics=self.metrics)
        self.metrics.watch_queue(lambda: self.batches.waiting + self.large.waiting)

    def retire(self) -> None:
        """Ends with the last request that it is answering."""
        self.retired = True
        self._end_if_unused()

    def __enter__(self) -> "Hosted":
        """For a request: the version stays until it is answered."""
        self.users += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.users -= 1
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self.retired and not self.users:
            self.batches.close()
            self.large.close()
            if self.apart is not None:
                self.apart.close()

    async def answers(self, sent: Sequence[tuple[str, Any]], exchange: Exchange) -> list[Prediction]:
        """The answer to each (name, bytes, JSON value or DataError), in order. Raises Refused, and what the model failed with."""
        check_count(len(sent), self.batches.room)
        rows: list[tuple[str, Any]] = []
        for name, value in sent:
            if self.model.decodes and isinstance(value, bytes):
                rows.append((name, await asyncio.get_running_loop().run_in_executor(self.decoding, self._take, value)))
            else:
                rows.append((name, taken(self.model, value)))
        return await self.answered(rows, exchange)

    async def answered(self, rows: Sequence[tuple[str, Any]], exchange: Exchange) -> list[Prediction]:
        """As `answers`, of raw examples, files that are taken apart, or DataErrors."""
        readable = [row for row in rows if not isinstance(row[1], DataError)]
        long = [isinstance(row, bytes) or self.model.large(row) for _, row in readable]
        try:
            if any(long):  # one after the other: where the first is refused, nothing of the rest is computed
                slow = iter(await self.large.answers([row for row, large in zip(readable, long) if large], exchange))
                quick = iter(await self.batches.answers([row for row, large in zip(readable, long) if not large], exchange))
                answered = [next(slow if large else quick) for large in long]
            else:
                answered = await self.batches.answers(readable, exchange)
        except Exception as error:
            if not isinstance(error, Refused):
                self.metrics.failed.inc(len(readable))
            raise
        if len(readable) < len(rows):
            each = iter(answered)
            answered = [Prediction(name, error=_brief(raw)) if isinstance(raw, DataError) else next(each) for name, raw in rows]
        unreadable = len([one for one in answered if one.error is not None])
        if unreadable:
            self.metrics.unreadable.inc(unreadable)
        self.metrics.answered.inc(len(answered) - unreadable)
        return answered

    def _take(self, sent: bytes) -> dict[str, Any] | bytes | DataError:
        """In a thread. A file that takes long stays as it is."""
        return sent if self.apart is not None and self.model.heavy(sent) else taken(self.model, sent)


def _brief(error: DataError) -> str:
    text = str(error)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


class Models:
    """Changed by the thread of the server's loop alone, once it runs."""

    def __init__(self, observed: Observed, options: Options, apart: Callable[[Path], Apart] | None = None):
        """
        Args:
            apart: for the folder of a version, what answers its inputs that take long; None: the version itself.
        """
        self._observed, self._options, self._apart = observed, options, apart
        self._models: dict[str, dict[int, Hosted]] = {}

    def add(self, name: str, version: int, model: Answerer, folder: Path | None = None) -> None:
        """A version that is warm, and where it was loaded from; requests without a version go to the newest."""
        versions = self._models.setdefault(name, {})
        versions[version] = Hosted(name, version, model, self._observed, self._options,
                                   apart=self._apart(folder) if self._apart and folder else None)
        self._observed.versions.labels(name, version, model.task).set(1)
        for old in sorted(versions)[:-self._options.versions]:
            self._observed.ended(name, old, versions[old].model.task)
            versions.pop(old).retire()

    @property
    def names(self) -> list[str]:
        return list(self._models)

    def versions(self, name: str) -> list[int]:
        """Ascending. Raises Refused."""
        return sorted(self._of(name))

    def get(self, name: str | None = None, version: str | None = None) -> Hosted:
        """A model, the first by default; its newest version by default. Raises Refused."""
        name = name or next(iter(self._models))
        versions = self._of(name)
        if version is None:
            return versions[max(versions)]
        found = versions.get(int(version)) if version.isdecimal() and len(version) < 19 else None
        if found is None:
            raise Refused(f"{name} has no version {version:.20}; it has {', '.join(map(str, sorted(versions)))}", status=404)
        return found

    def _of(self, name: str) -> dict[int, Hosted]:
        if name not in self._models:
            raise Refused(f"there is no model {name:.60}; there is {', '.join(self.names)}", status=404)
        return self._models[name]


def versions_in(folder: Path) -> dict[int, Path]:
    """The versions below a folder: subfolders with whole numbers as names."""
    return {int(path.name): path for path in folder.iterdir() if path.name.isdecimal() and len(path.name) < 19 and path.is_dir()}
