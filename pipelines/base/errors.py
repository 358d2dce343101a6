"""Failures that a person can fix: one message that names the file, the line, the value and the remedy.

The command line prints the message of a QuartetError and exits with its status; anything else is a
defect of the program and keeps its traceback.
"""

import errno
import os


class QuartetError(Exception):
    """An expected failure. Its text is written for the person who ran the command."""

    exit_status = 1


class ConfigError(QuartetError):
    """The call or the experiment is wrong; nothing was done."""

    exit_status = 2


class Untrusted(ConfigError):
    """Something is not as somebody trusted has signed it."""

    exit_status = 1


class DataError(QuartetError):
    """Data that cannot be used: names the file (and row) and what is wrong with it."""


_OF_A_FILE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EIO, errno.ESTALE)


def expected(error: QuartetError | OSError) -> QuartetError | None:
    """A failure that a person can fix, in words; None for a defect.

    What the system says of a file, wherever it is opened, is one: no permission, a link onto itself or to nothing, too long a name.
    """
    if isinstance(error, QuartetError):
        return error
    named = isinstance(error.filename, (str, bytes)) and error.errno in _OF_A_FILE
    return DataError(f"{os.fsdecode(error.filename)}: cannot be read: {error.strerror}") if named else None


class TrainingError(QuartetError):
    """Training cannot continue, such as for a loss that is not finite; the last whole checkpoint is kept."""


class HostLost(QuartetError):
    """Another host of this training did not come, or is lost; the same command on all hosts starts again, from the last checkpoint."""

    exit_status = 75  # "temporary failure": what launchers are told to start again


class Interrupted(QuartetError):
    """SIGINT or SIGTERM came; the state is saved and the same command resumes."""

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.exit_status = 128 + number
