"""Who has asked which version of which model, and when: a line of JSON for each request, without what was sent or answered."""

import logging
from datetime import datetime, timezone
from pathlib import Path

import orjson

from pipelines.base.files import append_whole, open_to_append
from pipelines.serving.http.observing import Exchange

logger = logging.getLogger("quartet.serve")


class Audit:
    """A file that only grows."""

    def __init__(self, path: Path):
        """Raises WriteError where it cannot be written, Linked where it is a link."""
        self._path, self._file, self._failing = path, open_to_append(path), False

    def write(self, exchange: Exchange, status: int | str, *, client: str, method: str, path: str) -> None:
        """A request that has ended. Where the disk is full answers go on, and the log says so once."""
        line = {"time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), "id": exchange.id, "who": exchange.who,
                "client": client, "method": method, "path": path, "model": exchange.model, "version": exchange.version,
                "inputs": exchange.inputs, "status": status}
        try:
            append_whole(self._file, orjson.dumps(line) + b"\n")
            self._failing = False
        except OSError as error:
            if not self._failing:
                logger.error("%s: requests are not audited: %s", self._path, error.strerror or error)
            self._failing = True
