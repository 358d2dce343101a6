"""The folders that new versions of models are put in: a version is loaded and warmed up beside the others, then requests go to it."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from pipelines.base.errors import QuartetError
from pipelines.serving.answerer import Answerer
from pipelines.serving.http.hosting import Models, versions_in
from pipelines.serving.protocol import ServerProtocol, Site

SECONDS = 1.0  # between two looks at a watched folder

logger = logging.getLogger("quartet.serve")


class Watching(ServerProtocol):
    """Watches the folders of versions that were named on the command line."""

    async def start(self, site: Site) -> None:
        self._watches = [Watch(one.name, one.folder, site.load, site.models, max(site.models.versions(one.name)))
                         for one in site.sources if one.versions]
        for watch in self._watches:
            watch.start(asyncio.get_running_loop())

    async def stop(self, seconds: float) -> None:
        for watch in self._watches:
            watch.stop()


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
