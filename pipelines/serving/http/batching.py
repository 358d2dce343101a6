"""Inputs of many requests answered in batches, by one thread: requests that arrive while it computes are its next batch.

What waits is bounded in number, also of one client, and in time; what nobody waits for any more is taken out. An input that spoils a batch
fails alone. All but the computing happens in the thread of the server's loop, so that nothing is locked.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pipelines.serving.http.observing import Exchange, ModelMetrics
from pipelines.serving.http.refusals import Busy, TooMany
from pipelines.serving.output import Prediction

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
