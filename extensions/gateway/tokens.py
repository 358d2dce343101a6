"""Tokens by which a server knows its clients: a file of names and hashes, read again when it has changed.

    # name sha256:hash of the token
    alice sha256:5e88...

A token is compared with all hashes in constant time. A file that cannot be read, or has a line that is none, admits nobody until it is
right again.
"""

import hashlib
import hmac
import logging
import os
import re
from pathlib import Path

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.inside import read_small

LINE = re.compile(r"([A-Za-z0-9_.@-]{1,100})\s+sha256:([0-9a-fA-F]{64})")
LARGEST = 1 << 20  # bytes of the file
logger = logging.getLogger("quartet.serve")


class Tokens:
    """The tokens of a file."""

    def __init__(self, path: Path):
        """Raises ConfigError where the file cannot be used, or everybody may write to it."""
        self._path = path
        self._known: dict[str, bytes] = {}
        self._seen = self._stamp()
        try:
            self._known = read(path)
        except (OSError, DataError) as error:
            raise ConfigError(f"--tokens: {getattr(error, 'strerror', None) or error}: {path}") from None
        if os.name == "posix" and path.stat().st_mode & 0o002:
            raise ConfigError(f"--tokens: {path}: everybody may write to it; chmod o-w")

    def name(self, token: bytes) -> str | None:
        """Whose token this is; None: nobody's."""
        self._refresh()
        given, found = hashlib.sha256(token).digest(), None
        for name, known in self._known.items():
            if hmac.compare_digest(given, known):
                found = name  # and on to the last, so that the time says nothing
        return found

    def _refresh(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._known = read(self._path)
            logger.warning("%s has changed: %d tokens count now", self._path, len(self._known))
        except (OSError, DataError) as error:
            self._known = {}
            logger.error("%s: cannot be used, and nobody is admitted until it can: %s", self._path, error)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def read(path: Path) -> dict[str, bytes]:
    """Name -> SHA-256. Raises OSError, and DataError where a line is none or a name stands twice."""
    known: dict[str, bytes] = {}
    for number, line in enumerate(read_small(path, LARGEST).decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = LINE.fullmatch(line.strip())
        if match is None:
            raise DataError(f"{path}, line {number}: is not `NAME sha256:HASH`")
        if match[1] in known:
            raise DataError(f"{path}, line {number}: {match[1]} stands there twice")
        known[match[1]] = bytes.fromhex(match[2])
    if not known:
        raise DataError(f"{path}: has no token")
    return known
