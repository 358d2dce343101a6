"""Writing while other work goes on: one file at a time in a thread of its own, its outcome taken up by the thread that asked for it."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Background:
    """Works beside the thread that calls it, one thing at a time. The process does not end before what was begun is done.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str):
        self._pool = ThreadPoolExecutor(1, name)
        self._begun: tuple[Future[None], Callable[[OSError | None], None]] | None = None

    @property
    def busy(self) -> bool:
        """Whether work is under way."""
        return self._begun is not None and not self._begun[0].done()

    def start(self, work: Callable[[], None], after: Callable[[OSError | None], None]) -> None:
        """Begins `work` once that before it is done and taken up.

        Args:
            work: called in the other thread; it must not touch what this thread changes.
            after: called by `collect`, in the thread that calls that, with the OSError that ended the work, or None.
        """
        self.collect(wait=True)
        self._begun = self._pool.submit(work), after

    def collect(self, *, wait: bool = False) -> None:
        """Takes up the outcome of work that is done; with `wait`, waits for it. Raises what other than an OSError ended it."""
        if self._begun is None or (self.busy and not wait):
            return
        (future, after), self._begun = self._begun, None
        error = future.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        after(error)
