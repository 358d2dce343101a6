"""What each metric was on each bootstrap resample, kept beside a report, so that runs judged on the same examples can be compared in pairs.

The same seed draws the same units: the resamples of two runs are of the same examples, one by one, and so are their differences.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipelines.files import write_whole
from pipelines.task import Metric

NAME = "resamples.npz"
_MOST = 64 << 20  # bytes unpacked that are read; 1,000 resamples of 20 metrics take 80 kB


def write_resamples(folder: Path, metrics: Mapping[str, Metric]) -> None:
    """Writes those that metrics by `split/name` have, as float32; no file where none has."""
    drawn = {name: np.asarray(metric.drawn, np.float32) for name, metric in metrics.items() if metric.drawn is not None}
    if drawn:
        write_whole(folder / NAME, lambda file: np.savez_compressed(file, allow_pickle=False, **drawn))


def read_resamples(folder: Path) -> dict[str, np.ndarray]:
    """`split/name` -> [resamples] float32; empty where there is no such file, or none that is whole."""
    try:
        with zipfile.ZipFile(folder / NAME) as packed:
            if sum(entry.file_size for entry in packed.infolist()) > _MOST:
                return {}
        with np.load(folder / NAME, allow_pickle=False) as stored:
            found = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return {}
    return {name: values for name, values in found.items() if values.ndim == 1 and values.dtype == np.float32 and len(values)}
