"""A model's answer to each judged example, as a table, to compare models example by example."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.base.files import write_whole

Columns = Mapping[str, Any]  # name -> a value of each example, in the order of the split
ENDINGS = (".parquet", ".csv", ".jsonl")
FILE = "predictions.parquet"


def writable(path: Path) -> None:
    """Raises ConfigError for an ending of another format."""
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"--output: {path}: give a name that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")


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
