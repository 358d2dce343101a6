"""Long recordings in pieces, cut where it is quiet."""

import numpy as np

QUIET = 0.2  # s over which loudness is measured
STEP = 0.02  # s


def pieces(samples: np.ndarray, rate: int, longest: float) -> list[tuple[int, int]]:
    """(start, end) of pieces of at most `longest` seconds, in samples, without gaps.

    Each cut is in the middle of the quietest 0.2 s of the second half of the longest possible piece; the latest of equals.

    Args:
        samples: [n] float32.
        rate: Hz.
        longest: s.
    """
    most = round(longest * rate)
    if len(samples) <= most:
        return [(0, len(samples))]
    width, step = max(1, round(QUIET * rate)), max(1, round(STEP * rate))
    energy = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    cuts, start = [], 0
    while len(samples) - start > most:
        middles = np.arange(start + most // 2, start + most - width // 2, step)
        loud = energy[middles + width // 2] - energy[middles - width // 2]
        cut = int(middles[len(middles) - 1 - np.argmin(loud[::-1])])
        cuts.append((start, cut))
        start = cut
    return [*cuts, (start, len(samples))]
