"""The models of a server by name and version, and the folder that new versions are put in.

A version is loaded and warmed up beside the others; then requests go to it, and the version that it replaces ends with its last answer.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from pipelines.base.errors import QuartetError
from pipelines.serving.answerer import Answerer
from pipelines.serving.apart import Apart
from pipelines.serving.http.hosting import Hosted
from pipelines.serving.http.observing import Observed
from pipelines.serving.http.refusals import Refused

SECONDS = 1.0  # between two looks at a watched folder

logger = logging.getLogger("quartet.serve")


class Models:
    """Changed by the thread of the server's loop alone, once it runs."""

    def __init__(self, observed: Observed, *, delay: float = 0.0, deadline: float = 30.0, each: int | None = None, kept: int = 1,
                 apart: Callable[[Path], Apart] | None = None):
        """
        Args:
            delay, deadline: of batches, s.
            each: inputs of one client that may wait for a model.
            kept: newest versions of a model that answer.
            apart: for the folder of a version, what answers its inputs that take long; None: the version itself.
        """
        self._observed, self._delay, self._deadline, self._kept = observed, delay, deadline, kept
        self._each, self._apart = each, apart
        self._models: dict[str, dict[int, Hosted]] = {}

    def add(self, name: str, version: int, model: Answerer, folder: Path | None = None) -> None:
        """A version that is warm, and where it was loaded from; requests without a version go to the newest."""
        versions = self._models.setdefault(name, {})
        versions[version] = Hosted(name, version, model, self._observed, delay=self._delay, deadline=self._deadline,
                                   each=self._each, apart=self._apart(folder) if self._apart and folder else None)
        self._observed.versions.labels(name, version, model.task).set(1)
        for old in sorted(versions)[:-self._kept]:
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


class Watch:
    """Looks for new versions of a model in a folder, and loads them in a thread of its own."""

    def __init__(self, name: str, folder: Path, load: Callable[[Path], Answerer], models: Models, newest: int):
        """
        Args:
            load: loads and warms up a version; raises QuartetError.
            newest: the version that is loaded already.
        """
        self._name, self._folder, self._load, self._models, self._newest = name, folder, load, models, newest
        self._failed: dict[int, float] = {}
        self._ended = threading.Event()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        threading.Thread(target=self._run, args=(loop,), daemon=True, name=f"watch {self._name}").start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._ended.wait(SECONDS):
            try:
                newer = {version: path for version, path in versions_in(self._folder).items() if version > self._newest}
            except OSError:  # for a moment, perhaps
                continue
            for version in sorted(newer, reverse=True):
                if self._try(version, newer[version], loop):
                    break

    def _try(self, version: int, path: Path, loop: asyncio.AbstractEventLoop) -> bool:
        """Loads a version; one that failed again only once its files have changed."""
        changed = max((entry.stat().st_mtime for entry in (path, *path.iterdir())), default=0.0)
        if self._failed.get(version) == changed:
            return False
        try:
            model = self._load(path)
        except (QuartetError, OSError) as error:
            logger.error("version %d of %s cannot be loaded, and the one before it stays: %s", version, self._name, error)
            self._failed[version] = changed
            return False
        self._newest = version
        loop.call_soon_threadsafe(self._models.add, self._name, version, model, path)
        logger.warning("version %d of %s answers now", version, self._name)
        return True
