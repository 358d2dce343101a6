"""Drawing for TensorBoard takes time: a grid of pictures a quarter of a second, as long as an epoch of a thousand small images."""

from time import perf_counter


class DrawingBudget:
    """Whether to draw now: always at first, then when drawing has taken under a tenth of the time, so that short epochs stay short."""

    def __init__(self, share: float = 0.1):
        self.share, self.began, self.spent = share, perf_counter(), 0.0

    def due(self) -> bool:
        return self.spent <= self.share * (perf_counter() - self.began)

    def __enter__(self) -> None:
        self._entered = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.spent += perf_counter() - self._entered
