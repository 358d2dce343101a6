"""Each metric on each bootstrap resample, stored beside a report, so that runs judged on the same examples can be compared in pairs.

The same seed draws the same units: the resamples of two runs are of the same examples, one by one, and so are their differences.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipelines.base import npz
from pipelines.base.files import write_whole
from pipelines.task.results import Metric

NAME = "resamples.npz"
_MOST = 64 << 20  # bytes that are read; 1,000 resamples of 20 metrics take 80 kB


def write_resamples(folder: Path, metrics: Mapping[str, Metric]) -> None:
    """Writes the resamples of metrics, by `split/name`, as float32; no file where there are none."""
    drawn = {name: np.asarray(metric.drawn, np.float32) for name, metric in metrics.items() if metric.drawn is not None}
    if drawn:
        write_whole(folder / NAME, lambda file: np.savez(file, allow_pickle=False, **drawn))


def read_resamples(folder: Path) -> dict[str, np.ndarray]:
    """`split/name` -> [resamples] float32; empty where the file is missing or not whole."""
    try:
        with npz.opened(folder / NAME) as stored:
            headers = {name: stored.header(name) for name in sorted(stored.names)}
            if sum(header.shape[0] * 4 for header in headers.values() if len(header.shape) == 1) > _MOST:
                return {}
            return {name: stored.read(name) for name, (dtype, shape) in headers.items()
                    if dtype == np.float32 and len(shape) == 1 and shape[0]}
    except npz.Damaged:
        return {}
