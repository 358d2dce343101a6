"""A version of a model that answers requests: what clients sent becomes raw examples, and these are answered in batches.

The models of a server stand by name and version; a version that another one replaces ends with its last answer.

Inputs of many requests answered in batches, by one thread: requests that arrive while it computes are its next batch.

What waits is bounded in number, also of one client, and in time; what nobody waits for any more is taken out. An input that spoils a batch
fails alone. All but the computing happens in the thread of the server's loop, so that nothing is locked.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.serving.answerer import Answerer, taken
from pipelines.serving.apart import Apart
from pipelines.serving.http.bodies import Busy, Refused, TooMany, check_count
from pipelines.serving.http.observing import Exchange, ModelMetrics, Observed
from pipelines.serving.options import Options
from pipelines.serving.output import Prediction, Shown

WAITING = 16  # batches that may wait; more are refused, to bound memory and time
Row = tuple[str, dict[str, Any]]


@dataclass(eq=False, slots=True)
class Job:
    """The inputs of one request."""

    rows: list[Row]
    came: float
    answers: "asyncio.Future[list[Prediction]]"
    exchange: Exchange
    begun: int = 0  # rows that are in a batch, or were
    done: list[Prediction] = field(default_factory=list)


class Batches:
    """Answers inputs for one version of a model."""

    def __init__(self, answer: Callable[[list[Row]], list[Prediction]], *, batch: int, delay: float = 0.0, deadline: float = 30.0,
                 room: int | None = None, each: int | None = None, metrics: ModelMetrics):
        """
        Args:
            answer: answers up to `batch` rows; raises where one of them spoils it.
            batch: rows answered together, at most.
            delay: s that a batch which is not full waits for more.
            deadline: s that a row may wait; a request that waits longer is refused.
            room: rows that may wait; None: WAITING batches.
            each: rows of one client that may wait; None: as many as may wait of all.
        """
        self.batch, self.room, self.delay, self.deadline = batch, room or WAITING * batch, delay, deadline
        self.each, self.waiting = each, 0
        self._answer, self._metrics = answer, metrics
        self._jobs: deque[Job] = deque()
        self._computing = False
        self._due: asyncio.Handle | None = None  # the next batch, where nothing is computing
        self._rate = 0.0  # rows/s, lately
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")

    async def answers(self, rows: list[Row], exchange: Exchange) -> list[Prediction]:
        """The answers, in order. Raises TooMany, Busy, and what the model failed with."""
        if not rows:
            return []
        if self.waiting + len(rows) > self.room:
            raise TooMany("too many inputs wait", retry=self._retry())
        if self.each is not None and self._of(exchange.client) + len(rows) > self.each:
            raise TooMany(f"over {self.each:,} inputs of one client wait", retry=self._retry())
        loop = asyncio.get_running_loop()
        job = Job(rows, loop.time(), loop.create_future(), exchange)
        self.waiting += len(rows)
        self._jobs.append(job)
        if not self._computing:
            full = self.waiting >= self.batch
            if self._due is not None and full:
                self._due.cancel()
                self._due = None
            if self._due is None:  # with what else arrives in this turn of the loop
                self._due = loop.call_soon(self._start) if full or not self.delay else loop.call_later(self.delay, self._start)
        try:
            return await job.answers
        except asyncio.CancelledError:  # who asked has gone
            self._take_out(job)
            raise

    def close(self) -> None:
        """Ends the thread; nothing may wait."""
        self._thread.shutdown(wait=False)

    def _of(self, client: str) -> int:
        """Rows of a client that wait."""
        return sum(len(job.rows) - job.begun for job in self._jobs if job.exchange.client == client)

    def _take_out(self, job: Job) -> None:
        """Whole: of those of its rows that are being computed the answers are left, and the others make room at once."""
        if job in self._jobs:
            self._jobs.remove(job)
            self.waiting -= len(job.rows) - job.begun

    def _retry(self) -> int:
        """Seconds in which half of what waits will be answered."""
        return max(1, min(30, round(self.waiting / 2 / self._rate))) if self._rate else 1

    def _start(self) -> None:
        """Begins the next batch."""
        self._due = None
        loop = asyncio.get_running_loop()
        parts = self._next(loop.time())
        self._computing = bool(parts)
        if parts:
            began = loop.time()
            self._thread.submit(self._timed, loop, parts, began)

    def _next(self, now: float) -> list[tuple[Job, list[Row]]]:
        """The rows of the next batch, by request."""
        parts: list[tuple[Job, list[Row]]] = []
        size = 0
        while self._jobs and size < self.batch:
            job = self._jobs[0]
            if now - job.came > self.deadline or job.answers.done():  # refused, failed in part, or its client has gone
                self._take_out(job)
                if not job.answers.done():
                    self._metrics.expired.inc(len(job.rows) - job.begun)
                    job.answers.set_exception(Busy(f"the inputs waited over {self.deadline:g} s", retry=self._retry()))
                continue
            rows = job.rows[job.begun:job.begun + self.batch - size]
            if job.begun == 0:
                self._metrics.waited.observe(now - job.came)
                if job.exchange.parts is not None:
                    job.exchange.parts.append(("queue", job.came, now, {}))
            job.begun += len(rows)
            size += len(rows)
            self.waiting -= len(rows)
            parts.append((job, rows))
            if job.begun == len(job.rows):
                self._jobs.popleft()
        return parts

    def _timed(self, loop: asyncio.AbstractEventLoop, parts: list[tuple[Job, list[Row]]], began: float) -> None:
        """In the thread: the answers, which the loop then hands out. One call to it for a batch."""
        start = time.perf_counter()
        answers = self._compute([row for _, some in parts for row in some])
        computed = time.perf_counter() - start
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._finish, parts, answers, computed, began)

    def _compute(self, rows: list[Row]) -> list[Prediction | Exception]:
        try:
            return list(self._answer(rows))
        except Exception as error:
            return [error] if len(rows) == 1 else [one for row in rows for one in self._compute([row])]

    def _finish(self, parts: list[tuple[Job, list[Row]]], answers: list[Prediction | Exception], computed: float,
                began: float) -> None:
        self._start()  # first, so that the thread computes while these answers are sent
        ended = asyncio.get_running_loop().time()
        seconds = ended - began
        self._metrics.batch.observe(len(answers))
        self._rate = 0.9 * self._rate + 0.1 * len(answers) / max(seconds, 1e-6) if self._rate else len(answers) / max(seconds, 1e-6)
        start, sound = 0, not any(isinstance(one, Exception) for one in answers)
        for job, some in parts:
            own = answers[start:start + len(some)]
            start += len(some)
            if job.exchange.parts is not None:
                job.exchange.parts += [("batch", ended - seconds, ended, {"inputs": len(answers), "own": len(some)}),
                                       ("model", ended - computed, ended, {})]
            if job.answers.done():
                continue
            failure = None if sound else next((one for one in own if isinstance(one, Exception)), None)
            job.done.extend(one for one in own if not isinstance(one, Exception))
            if failure is not None:
                job.answers.set_exception(failure)
            elif len(job.done) == len(job.rows):
                job.answers.set_result(job.done)


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
            if self.model.decodes and not isinstance(value, DataError):
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

    def _take(self, sent: Any) -> dict[str, Any] | bytes | DataError:
        """In a thread. A file that takes long stays as it is."""
        long = self.apart is not None and isinstance(sent, bytes) and self.model.heavy(sent)
        return sent if long else taken(self.model, sent)


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
