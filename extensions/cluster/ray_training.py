"""One training on the workers of a Ray cluster: `quartet train` as a process of each, with TF_CONFIG, as any launcher would start it.

Where a worker is lost, or ends with 75 or by a signal that nobody sent here, all are started again, a stated number of times, and resume
from the last checkpoint: with fewer workers where a node is gone, with more where it is back. The result does not depend on it.
Imports no TensorFlow.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from extensions.cluster.ray_cluster import Share, gpus_wanted, nodes, share
from extensions.cluster.ray_process import Line, RayProcess
from pipelines.base.errors import ConfigError, HostLost
from pipelines.base.signals import handling
from pipelines.base.terminal import printable
from pipelines.config.train_settings import Train, accumulation_of, device_count

PLACING = 120.0  # s in which the cluster has to have room
PARTING = 60.0  # s for the others after one worker has ended, and for all after a signal
_POLL = 0.5  # s

Room = tuple[Share, int]


class RayTraining:
    """Starts a training's workers, as often as is needed."""

    def __init__(self, train: Train, arguments: Sequence[str], *, folder: str, workers: int, restarts: int, say: Callable[[str], None]):
        """
        Args:
            train: the experiment's section; it says which GPUs a worker has, and which numbers of workers its batch divides over.
            arguments: of `quartet`.
            folder: the current folder, which all nodes have.
            workers: at most.
            restarts: after which a lost worker ends the training.
            say: what there is to say besides what the workers print.
        """
        self.train, self.arguments, self.folder, self.say = train, list(arguments), folder, say
        self.workers, self.restarts = workers, restarts
        self.share: Share | None = None
        self.signalled: int | None = None

    def run(self) -> int:
        """Returns the exit status.

        Raises:
            HostLost: the cluster has no room, or its head is gone.
        """
        with handling(self._on_signal):
            left = self.restarts
            while True:
                room = self._room()
                statuses = self._attempt(room) if self.signalled is None else None
                if self.signalled is not None:
                    return 0 if statuses and statuses[0] == 0 else 128 + self.signalled
                if statuses is None:  # what the cluster has changed before all were placed
                    continue
                status = outcome(statuses)
                if status is not None:
                    return status
                if not left:
                    self.say(f"a worker was lost again after {self.restarts} restarts; the same command resumes from the last checkpoint")
                    return HostLost.exit_status
                left -= 1
                self.say(f"starting again from the last checkpoint ({self.restarts - left} of {self.restarts} restarts)")

    def _room(self) -> Room:
        """What each worker has, which stays as it was at first, and how many there can be now."""
        until = time.monotonic() + PLACING
        while True:
            there = nodes()
            self.share = self.share or share(there, self.workers, gpus_wanted(self.train, there))
            room = min(self.workers, self.share.places(there))
            if room or self.signalled is not None:
                return self.share, dividing(self.train, room, self.share.gpus)
            if time.monotonic() > until:
                raise HostLost(f"no node of the Ray cluster has {self._wanted(self.share)} for a worker")
            time.sleep(_POLL)

    def _attempt(self, room: Room) -> list[int | None] | None:
        """The exit status of each worker, None of one that is lost; None where they could not all be placed."""
        import ray

        own, count = room
        with self._placed(room) as actors:
            if not actors:
                return None
            try:
                addresses = ray.get([actor.address.remote() for actor in actors], timeout=PLACING)
                environments = [self._environment(own, addresses, number) for number in range(count)]
                refused = ray.get([actor.start.remote("quartet", self.arguments, each, self.folder)
                                   for actor, each in zip(actors, environments)], timeout=PLACING)
            except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
                self.say(f"a worker did not start: {str(error).strip().splitlines()[0]}")
                return [None] * count
            for reason in filter(None, refused):
                raise ConfigError(reason)
            self.say(f"training on {count} worker{'s' * (count > 1)} of {self._wanted(own)}: {', '.join(addresses)}")
            return self._followed(actors, addresses)

    @contextlib.contextmanager
    def _placed(self, room: Room) -> Iterator[list[Any]]:
        """An actor for each worker; none where room or purpose went before. They end with the context."""
        import ray
        from ray.util import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Placed

        own, count = room
        group, until = placement_group([own.resources] * count, strategy="SPREAD"), time.monotonic() + PLACING
        actors: list[Any] = []
        try:
            while not (there := group.wait(timeout_seconds=_POLL)) and self.signalled is None and self._room() == room:
                if time.monotonic() > until:
                    raise HostLost(f"the Ray cluster has not had {count} x {self._wanted(own)} free within {PLACING:.0f} s: other work "
                                   "has them; fewer --workers need less")
            if there and self.signalled is None:
                actor = ray.remote(RayProcess)
                actors = [actor.options(num_cpus=own.cpus, num_gpus=own.gpus, scheduling_strategy=Placed(group, number)).remote()
                          for number in range(count)]
            yield actors
        finally:
            for one in actors:
                ray.kill(one)
            remove_placement_group(group)

    def _environment(self, own: Share, addresses: list[str], number: int) -> dict[str, str]:
        cluster = {"worker": addresses} if len(addresses) > 1 else {}
        config = {"cluster": cluster, "task": {"type": "worker", "index": number}}
        return {"TF_CONFIG": json.dumps(config), **own.environment(nodes(), len(addresses))}

    def _followed(self, actors: list[Any], addresses: list[str]) -> list[int | None]:
        """Shows what the workers print, passes signals on, and waits for the end of all."""
        import ray

        statuses: list[int | None] = [None] * len(actors)
        asked = {actor.poll.remote(_POLL): number for number, actor in enumerate(actors)}
        told, until = False, float("inf")
        while asked and time.monotonic() < until:
            if self.signalled is not None and not told:
                for actor in actors:
                    actor.signal.remote(self.signalled)
                told, until = True, min(until, time.monotonic() + PARTING)
            for answer in ray.wait(list(asked), timeout=_POLL)[0]:
                number = asked.pop(answer)
                try:
                    status, lines = ray.get(answer)
                except ray.exceptions.RayError:
                    self.say(f"worker {number} ({addresses[number]}) is lost: Ray's process there ended")
                else:
                    show(number, lines)
                    if status is None:
                        asked[actors[number].poll.remote(_POLL)] = number
                        continue
                    statuses[number] = status
                    if status < 0 and not told:
                        self.say(f"worker {number} ({addresses[number]}) is lost: killed by signal {-status}")
                until = min(until, time.monotonic() + PARTING)
        return statuses

    def _wanted(self, own: Share) -> str:
        return f"{own.cpus} CPU{'s' * (own.cpus > 1)}" + (f" and {own.gpus} GPU{'s' * (own.gpus > 1)}" if own.gpus else "")

    def _on_signal(self, number: int, frame: Any) -> None:
        if self.signalled is not None:  # asked twice
            raise KeyboardInterrupt
        self.signalled = number


def outcome(statuses: Sequence[int | None]) -> int | None:
    """The exit status of a training whose workers ended so; None where starting them again may help."""
    if statuses[0] == 0:
        return 0
    lasting = [status for status in statuses if status is not None and 0 < status < 128 and status != HostLost.exit_status]
    return lasting[0] if lasting else None


def dividing(train: Train, most: int, gpus: int) -> int:
    """The largest number of workers, at most `most`, that the global batch divides over; `most` where there is none: training says why."""
    for count in range(most, 0, -1):
        with contextlib.suppress(ConfigError):
            accumulation_of(train, count * (gpus or device_count(train) or 1))
            return count
    return most


def show(number: int, lines: Sequence[Line]) -> None:
    """What a worker printed: the chief's as it is, the others' with their number before it, on stderr."""
    for name, line in lines:
        text = printable(line.rstrip("\n"))
        if number == 0:
            print(text, file=sys.stdout if name == "out" else sys.stderr, flush=True)
        else:
            print(f"[{number}] {text}", file=sys.stderr, flush=True)
