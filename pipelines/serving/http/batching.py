"""Inputs of many requests answered in batches, by one thread: requests that arrive while it computes are its next batch.

What waits is bounded in number and in time, and an input that spoils a batch fails alone.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipelines.serving.http.observing import ModelMetrics
from pipelines.serving.http.refusals import Busy
from pipelines.serving.output import Prediction

WAITING = 16  # batches that may wait; more are refused, to bound memory and time
Row = tuple[str, dict[str, Any]]


@dataclass
class Job:
    """The inputs of one request."""

    rows: list[Row]
    came: float
    loop: asyncio.AbstractEventLoop
    answers: "asyncio.Future[list[Prediction]]"
    begun: int = 0  # rows that are in a batch, or were
    done: list[Prediction] = field(default_factory=list)
    dropped: bool = False  # refused, or its client has gone


class Batches:
    """Answers inputs for one version of a model."""

    def __init__(self, answer: Callable[[list[Row]], list[Prediction]], *, batch: int, delay: float = 0.0, deadline: float = 30.0,
                 metrics: ModelMetrics):
        """
        Args:
            answer: answers up to `batch` rows; raises where one of them spoils it.
            batch: rows answered together, at most.
            delay: s that a batch which is not full waits for more.
            deadline: s that a row may wait; a request that waits longer is refused.
        """
        self.batch, self.room, self.delay, self.deadline = batch, WAITING * batch, delay, deadline
        self.waiting = 0
        self._answer, self._metrics = answer, metrics
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._rate = 0.0  # rows/s, lately
        metrics.queue.set_function(lambda: self.waiting)
        threading.Thread(target=self._work, daemon=True, name="batches").start()

    async def answers(self, rows: list[Row]) -> list[Prediction]:
        """The answers, in order. Raises Busy, and what the model failed with."""
        if not rows:
            return []
        loop = asyncio.get_running_loop()
        job = Job(rows, time.monotonic(), loop, loop.create_future())
        with self._changed:
            if self.waiting + len(rows) > self.room:
                raise Busy("too many inputs wait", retry=self._retry())
            self.waiting += len(rows)
            self._jobs.append(job)
            self._changed.notify()
        try:
            return await job.answers
        finally:
            job.dropped = True

    def close(self) -> None:
        """Ends the thread once what waits is answered."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _retry(self) -> int:
        """Seconds in which half of what waits will be answered."""
        return max(1, min(30, round(self.waiting / 2 / self._rate))) if self._rate else 1

    def _work(self) -> None:
        while (parts := self._next()) is not None:
            if parts:
                self._run(parts)

    def _next(self) -> list[tuple[Job, list[Row]]] | None:
        """The rows of the next batch, by request; None at the end."""
        with self._changed:
            while not self._jobs:
                if self._closed:
                    return None
                self._changed.wait()
            if self.delay:
                end = time.monotonic() + self.delay
                while self.waiting < self.batch and not self._closed and (left := end - time.monotonic()) > 0:
                    self._changed.wait(left)
            parts, size, now = [], 0, time.monotonic()
            while self._jobs and size < self.batch:
                job = self._jobs[0]
                late = now - job.came > self.deadline
                if job.dropped or late:
                    self.waiting -= len(job.rows) - job.begun
                    self._jobs.popleft()
                    if not job.dropped:
                        self._metrics.expired.inc(len(job.rows) - job.begun)
                        _settle(job, Busy(f"the inputs waited over {self.deadline:g} s", retry=self._retry()))
                    continue
                rows = job.rows[job.begun:job.begun + self.batch - size]
                if job.begun == 0:
                    self._metrics.waited.observe(now - job.came)
                job.begun += len(rows)
                size += len(rows)
                self.waiting -= len(rows)
                parts.append((job, rows))
                if job.begun == len(job.rows):
                    self._jobs.popleft()
            return parts

    def _run(self, parts: list[tuple[Job, list[Row]]]) -> None:
        rows = [row for _, some in parts for row in some]
        began = time.monotonic()
        self._metrics.batch.observe(len(rows))
        try:
            answers: list[Prediction | Exception] = list(self._answer(rows))
        except Exception as error:
            answers = [error] if len(rows) == 1 else [self._alone(row) for row in rows]
        passed = time.monotonic() - began
        self._rate = 0.9 * self._rate + 0.1 * len(rows) / passed if self._rate else len(rows) / max(passed, 1e-6)
        done: dict[asyncio.AbstractEventLoop, list[tuple[Job, Exception | None]]] = {}
        start = 0
        for job, some in parts:
            own = answers[start:start + len(some)]
            start += len(some)
            failure = next((one for one in own if isinstance(one, Exception)), None)
            job.done.extend(one for one in own if isinstance(one, Prediction))
            if failure is not None or len(job.done) == len(job.rows):
                done.setdefault(job.loop, []).append((job, failure))
        for loop, jobs in done.items():
            try:
                loop.call_soon_threadsafe(_finish, jobs)
            except RuntimeError:  # the loop has ended, and nobody waits
                return

    def _alone(self, row: Row) -> Prediction | Exception:
        try:
            return self._answer([row])[0]
        except Exception as error:
            return error


def _settle(job: Job, failure: Exception) -> None:
    job.dropped = True
    failed: list[tuple[Job, Exception | None]] = [(job, failure)]
    job.loop.call_soon_threadsafe(_finish, failed)


def _finish(jobs: list[tuple[Job, Exception | None]]) -> None:
    for job, failure in jobs:
        if job.answers.done():
            continue
        if failure is not None:
            job.dropped = True
            job.answers.set_exception(failure)
        else:
            job.answers.set_result(job.done)
