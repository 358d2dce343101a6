"""What a report keeps to compare models by: the answer to each judged example, as a table, and the resamples of metrics."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base import npz
from pipelines.base.errors import ConfigError
from pipelines.base.files import write_whole
from pipelines.task.results import Metric

Columns = Mapping[str, Any]  # name -> a value of each example, in the order of the split
ENDINGS = (".parquet", ".csv", ".jsonl")
FILE = "predictions.parquet"


def writable(path: Path, endings: Sequence[str] = ENDINGS) -> None:
    """Raises ConfigError for an ending of another format."""
    if path.suffix.lower() not in endings:
        raise ConfigError(f"--output: {path}: give a name that ends in {', '.join(endings[:-1])} or {endings[-1]}")


def write(path: Path, columns: Columns) -> None:
    """Writes the table, whole, in the format of the ending; in CSV lists are JSON.

    Raises:
        ConfigError: another ending.
        WriteError: the system refuses.
    """
    import pyarrow as pa

    writable(path)
    table = pa.table({name: _array(values) for name, values in columns.items()})
    ending = path.suffix.lower()
    if ending == ".parquet":
        import pyarrow.parquet as pq

        write_whole(path, lambda file: pq.write_table(table, file))
    elif ending == ".csv":
        import json

        import pyarrow.csv as pv

        def plain(column: Any) -> Any:
            lists = pa.types.is_list(column.type)
            return pa.array([json.dumps(value, ensure_ascii=False) for value in column.to_pylist()]) if lists else column

        write_whole(path, lambda file: pv.write_csv(pa.table([plain(column) for column in table.columns], table.column_names), file))
    else:
        import json

        write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist()))


def _array(values: Any) -> Any:
    """A column; file names that are not UTF-8 are escaped, as in the other files of a report."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except UnicodeEncodeError:
        return pa.array([value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value for value in values])


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
