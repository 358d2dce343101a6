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
    """Actors with a share of a node each.

    Args:
        actor: their class; its method `there` answers once an actor is placed.
        arguments: of its constructor.
        send: gives an actor some work; returns Ray's answer to come. Of an error that the work itself raises, `answers` raises the cause.
        count: how many actors, where there is room for them.
        ahead: pieces of work that an actor has at a time.
        name: of a piece of work, in messages; no two are alike.
        large: what may be the matter with work that loses its actors again and again.
        say: what there is to say, such as of a worker that is lost.
    """

    def __init__(self, actor: type, arguments: tuple[Any, ...], send: Callable[[Any, Work], Any], own: Share, count: int, *, ahead: int,
                 name: Callable[[Work], str], large: str, say: Callable[[str], None]):
        self._kind, self._arguments, self._send, self._share = actor, arguments, send, own
        self._ahead, self._name, self._large, self._say = ahead, name, large, say
        self._coming: dict[Any, Any] = {}  # answer to come -> actor
        self._there: list[Any] = []
        self._given: dict[Any, tuple[Any, Work]] = {}  # answer to come -> actor, work
        self._again: deque[Work] = deque()
        self._lost_by: Counter[str] = Counter()
        self._failures, self._until = 0, time.monotonic() + PLACING
        for _ in range(count):
            self._begin()

    def answers(self, works: Iterable[Work]) -> Iterator[tuple[Work, Any]]:
        """Each piece of work with its answer, in the order in which they are done; `works` is read as there is room.

        Raises:
            HostLost: there is no room for any actor.
            TrainingError: actors do not start, or a piece of work has lost too many.
        """
        for work in works:
            while self._again or self._free() is None:
                yield from self._done()
            self._give(work)
        while self._given or self._again:
            yield from self._done()

    def close(self) -> None:
        """Ends all actors."""
        import ray

        for actor in [*self._there, *self._coming.values()]:
            ray.kill(actor)

    def _begin(self) -> None:
        import ray

        actor: Any = ray.remote(self._kind)
        one = actor.options(num_cpus=self._share.cpus, num_gpus=self._share.gpus).remote(*self._arguments)
        self._coming[one.there.remote()] = one

    def _free(self) -> Any:
        """The actor with the least work; None where all have enough."""
        having = [actor for actor, _ in self._given.values()]
        least = min(self._there, key=having.count, default=None)
        return least if least is not None and having.count(least) < self._ahead else None

    def _give(self, work: Work) -> None:
        actor = self._free()
        self._given[self._send(actor, work)] = actor, work

    def _done(self) -> list[tuple[Work, Any]]:
        """Waits for some of the answers."""
        import ray

        while self._again and self._free() is not None:
            self._give(self._again.popleft())
        finished = []
        for answer in ray.wait([*self._given, *self._coming], timeout=1.0)[0]:
            actor, work = self._given.pop(answer, (self._coming.pop(answer, None), None))
            if actor is None:  # it was lost, and the work is another's
                continue
            try:
                result = ray.get(answer)
                self._failures = 0
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, Exception) else error) from None
            except ray.exceptions.RayError as error:
                self._lost(actor, work, error)
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

    def _lost(self, actor: Any, work: Work | None, error: Exception) -> None:
        why = str(error).strip().splitlines()[0][:100]
        self._failures += 1
        if self._failures > FAILURES:
            raise TrainingError(f"{self._failures} workers in a row were lost; the last: {why}")
        self._say(f"a worker is lost ({why}); another one does its work")
        self._there = [one for one in self._there if one is not actor]
        others = [answer for answer, (other, _) in self._given.items() if other is actor]
        for each in filter(None, [work, *(self._given.pop(answer)[1] for answer in others)]):
            self._lost_by[self._name(each)] += 1
            if self._lost_by[self._name(each)] > RESTARTS:
                raise TrainingError(f"{self._name(each)}: lost {RESTARTS + 1} workers; {self._large}")
            self._again.append(each)
        self._begin()
