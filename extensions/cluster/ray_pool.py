"""Actors of one kind on a Ray cluster, and the work that each has: it goes to those that are there, and to another one where one is lost.

Imports Ray only when there is a cluster, and no TensorFlow.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from extensions.cluster.ray_cluster import Share
from pipelines.base.errors import HostLost, TrainingError

RESTARTS = 3  # of a piece of work whose actors were lost
FAILURES = 10  # actors lost one after the other without an answer
PLACING = 120.0  # s in which the cluster has to have room for one actor

Work = TypeVar("Work")


class Pool(Generic[Work]):
    """Actors with a share of a node each, used as a context: they end with it.

    Args:
        actor: their class; its method `there` answers once an actor is placed.
        arguments: of its constructor.
        send: gives an actor some work; returns Ray's answer to come. Of an error that the work itself raises, `done` raises the cause.
        count: how many actors, where there is room for them.
        ahead: pieces of work that an actor has at a time.
        calls: of an actor at a time, in threads, besides its work.
        name: of a piece of work, in messages; no two are alike.
        large: what may be the matter with work that loses its actors again and again.
        say: what there is to say, such as of a worker that is lost.
        given_up: the answer of work that has lost too many actors; None: it is an error.
    """

    def __init__(self, actor: type, arguments: tuple[Any, ...], send: Callable[[Any, Work], Any], own: Share, count: int, *, ahead: int = 1,
                 calls: int = 1, name: Callable[[Work], str], large: str = "", say: Callable[[str], None],
                 given_up: Callable[[Work], Any] | None = None):
        self._kind, self._arguments, self._send, self._share, self._calls = actor, arguments, send, own, calls
        self._ahead, self._name, self._large, self._say, self._given_up = ahead, name, large, say, given_up
        self.waiting: deque[Work] = deque()
        self._coming: dict[Any, Any] = {}  # answer to come -> actor
        self._there: list[Any] = []
        self._given: dict[Any, tuple[Any, Work]] = {}  # answer to come -> actor, work
        self._lost_by: Counter[str] = Counter()
        self._failures, self._until = 0, time.monotonic() + PLACING
        for _ in range(count):
            self._begin()

    def __enter__(self) -> "Pool[Work]":
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        for actor in [*self._there, *self._coming.values()]:
            ray.kill(actor)

    def working(self) -> list[Any]:
        """The actors that have work."""
        return [actor for actor, _ in self._given.values()]

    def answers(self, works: Iterable[Work]) -> Iterator[tuple[Work, Any]]:
        """Each piece of work with its answer, in the order in which they are done; `works` is read as there is room. Raises as `done`."""
        for work in works:
            self.waiting.append(work)
            while not self._handed_out():
                yield from self.done(1.0)
        while self._given or self.waiting:
            yield from self.done(1.0)

    def done(self, seconds: float) -> list[tuple[Work, Any]]:
        """Gives out what waits, and waits at most so long for some of the answers. Returns work with its answer.

        Raises:
            HostLost: there is no room for any actor.
            TrainingError: actors do not start, or a piece of work has lost too many.
        """
        import ray

        self._handed_out()
        finished: list[tuple[Work, Any]] = []
        if not self._given and not self._coming:
            time.sleep(seconds)
        for answer in ray.wait([*self._given, *self._coming], timeout=seconds)[0] if self._given or self._coming else []:
            actor, work = self._given.pop(answer, (self._coming.pop(answer, None), None))
            if actor is None:  # it was lost, and the work is another's
                continue
            try:
                result = ray.get(answer)
                self._failures = 0
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, Exception) else error) from None
            except ray.exceptions.RayError as error:
                finished += self._lost(actor, work, error)
                continue
            if work is None:
                self._there.append(actor)
            else:
                finished.append((work, result))
        if self._there:
            self._until = time.monotonic() + PLACING
        elif time.monotonic() > self._until:
            raise HostLost(f"no node of the Ray cluster has had {self._share.cpus} CPUs and {self._share.gpus} GPUs free within "
                           f"{PLACING:.0f} s; the same command goes on")
        return finished

    def _begin(self) -> None:
        import ray

        actor: Any = ray.remote(self._kind)
        one = actor.options(num_cpus=self._share.cpus, num_gpus=self._share.gpus, max_concurrency=self._calls).remote(*self._arguments)
        self._coming[one.there.remote()] = one

    def _handed_out(self) -> bool:
        """Gives what waits to the actors with the least work; whether nothing waits any more."""
        while self.waiting:
            having = self.working()
            actor = min(self._there, key=having.count, default=None)
            if actor is None or having.count(actor) >= self._ahead:
                return False
            work = self.waiting.popleft()
            self._given[self._send(actor, work)] = actor, work
        return True

    def _lost(self, actor: Any, work: Work | None, error: Exception) -> list[tuple[Work, Any]]:
        """Another actor begins, and its work waits for one again; returns that which is given up."""
        why, given_up = str(error).strip().splitlines()[0][:100], []
        self._failures += 1
        if self._failures > FAILURES:
            raise TrainingError(f"{self._failures} workers in a row were lost; the last: {why}")
        self._say(f"a worker is lost ({why}); another one does its work")
        self._there = [one for one in self._there if one is not actor]
        others = [answer for answer, (other, _) in self._given.items() if other is actor]
        for each in filter(None, [work, *(self._given.pop(answer)[1] for answer in others)]):
            self._lost_by[self._name(each)] += 1
            if self._lost_by[self._name(each)] <= RESTARTS:
                self.waiting.appendleft(each)
            elif self._given_up is not None:
                given_up.append((each, self._given_up(each)))
            else:
                raise TrainingError(f"{self._name(each)}: lost {RESTARTS + 1} workers; {self._large}")
        self._begin()
        return given_up
