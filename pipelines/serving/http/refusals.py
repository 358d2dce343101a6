"""Why a request gets no answer, and the status that says so."""

from pipelines.base.errors import DataError


class Refused(DataError):
    """A request that is not answered.

    Attributes:
        status: of HTTP.
        retry: seconds after which the client may try again; None: the same request will be refused again.
    """

    def __init__(self, message: str, *, status: int = 400, retry: int | None = None):
        super().__init__(message)
        self.status, self.retry = status, retry


class Busy(Refused):
    """The server cannot answer now, whoever asks: its memory is full, or the request has waited for too long."""

    def __init__(self, message: str, *, retry: int = 1):
        super().__init__(message, status=503, retry=retry)


class TooMany(Refused):
    """The queue is full: whoever sends should send less often. Nothing of the request was computed."""

    def __init__(self, message: str, *, retry: int = 1):
        super().__init__(message, status=429, retry=retry)


class TooLarge(Refused):
    """A request over a limit."""

    def __init__(self, message: str):
        super().__init__(message, status=413)


class Gone(Exception):
    """The client closed its connection before the request was complete."""
