"""A line of JSON for each request: a log on standard output, and an audit that says who has asked which version of which model, and when,
without what was sent or answered."""

import logging
import sys
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import orjson

from extensions.gateway.options import chosen
from pipelines.base.files import append_whole, open_to_append
from pipelines.serving.http.observing import Exchange, Recorder
from pipelines.serving.protocol import ServerProtocol, Site

logger = logging.getLogger("quartet.serve")


class Records(ServerProtocol):
    """Adds what --log and --audit ask for."""

    def wrap(self, app: Any, site: Site) -> Any:
        if chosen().log:
            site.observed.recorders.append(Log(sys.stdout))
        if (file := chosen().audit) is not None:
            site.observed.recorders.append(Audit(file))
        return app


class Log(Recorder):
    """Lines for operators."""

    def __init__(self, file: TextIO):
        self._file = file

    def end(self, exchange: Exchange, status: int | str, seconds: float) -> None:
        more = {"ms": round(1000 * seconds, 2), "trace": exchange.trace, "error": exchange.error[:1000]}
        with suppress(OSError, ValueError):  # a log that nobody reads any more ends no answers
            self._file.write(_line(exchange, status, **{name: value for name, value in more.items() if value != ""}).decode())
            self._file.flush()


class Audit(Recorder):
    """A file that only grows."""

    def __init__(self, path: Path):
        """Raises WriteError where it cannot be written, Linked where it is a link."""
        self._path, self._file, self._failing = path, open_to_append(path), False

    def end(self, exchange: Exchange, status: int | str, seconds: float) -> None:
        """Where the disk is full answers go on, and the log says so once."""
        try:
            append_whole(self._file, _line(exchange, status))
            self._failing = False
        except OSError as error:
            if not self._failing:
                logger.error("%s: requests are not audited: %s", self._path, error.strerror or error)
            self._failing = True


def _line(exchange: Exchange, status: int | str, **more: Any) -> bytes:
    return orjson.dumps({
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), "id": exchange.id, "who": exchange.who,
        "client": exchange.address, "method": exchange.method, "path": exchange.path, "status": status, "model": exchange.model,
        "version": exchange.version, "inputs": exchange.inputs, **more}) + b"\n"
