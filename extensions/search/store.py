"""Vectors and their rows in a folder, and the nearest ones of a query. Imports no TensorFlow.

    index.json       what the others are; written last, so that who opens the index sees all of the old one or all of the new
    vectors-*.npy    [rows, width] float32, each of length 1; memory-mapped
    rows-*.parquet   a row of columns for each
    graph-*.usearch  from GRAPH rows on: usearch's graph of neighbours (HNSW, Malkov and Yashunin 2018), memory-mapped

Similarity is the cosine. Below GRAPH rows, and among rows that are chosen by their columns, every row is compared.
"""

import importlib.util
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.files import write_whole
from pipelines.base.inside import refuse_links
from pipelines.config.messages import listed

MANIFEST = "index.json"
GRAPH = 100_000  # rows from which on comparing all takes longer than people wait
CONNECTIVITY, CONSTRUCTION, EXPANSION = 32, 128, 192  # of the graph: benchmarks/search.py says how many of the nearest are found
BLOCK = 65_536  # rows compared at once
TINY = 1e-12
Name = Annotated[str, Field(pattern=r"^(vectors|rows|graph)-[0-9a-f]{16}\.(npy|parquet|usearch)$")]


class Manifest(BaseModel):
    """What an index is.

    Attributes:
        encoder: the folder of a run, or a preset as `quartet embed` takes it.
        fingerprint: SHA-256 of its weights.
        reading: settings by which tables are read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    encoder: str
    fingerprint: str
    reading: list[str]
    rows: int = Field(ge=1)
    width: int = Field(ge=1)
    vectors: Name
    table: Name
    graph: Name | None = None


@dataclass(frozen=True)
class Store:
    """An index that is open. `manifest` is what was written of it."""

    folder: Path
    manifest: Manifest
    vectors: np.ndarray
    graph: Any

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """Raises ConfigError where there is none, DataError where a file of it is not what the manifest says."""
        manifest = read_manifest(folder)
        refuse_links(folder)
        try:
            vectors = np.load(folder / manifest.vectors, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{folder / manifest.vectors}: cannot be read: {error}; build the index again") from None
        if vectors.shape != (manifest.rows, manifest.width) or vectors.dtype != np.float32:
            raise DataError(f"{folder / manifest.vectors}: has not {manifest.rows} vectors of {manifest.width} numbers; build the index "
                            "again")
        return cls(folder, manifest, vectors, _open_graph(folder / manifest.graph, manifest) if manifest.graph else None)

    @cached_property
    def table(self) -> pa.Table:
        file = self.folder / self.manifest.table
        try:
            found = pq.read_table(file, memory_map=True)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{file}: cannot be read: {error}; build the index again") from None
        if found.num_rows != self.manifest.rows:
            raise DataError(f"{file}: has {found.num_rows} rows, and {self.manifest.rows} are indexed; build the index again")
        return found

    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        """The columns of rows; those without a value are left out."""
        found = self.table.take(pa.array(np.asarray(numbers, np.int64))).to_pylist()
        return [{name: value for name, value in row.items() if value is not None} for row in found]

    def matching(self, where: Mapping[str, str]) -> np.ndarray:
        """Numbers of the rows whose columns have these values, as text. Raises ConfigError for a column that is not there."""
        kept = np.ones(self.manifest.rows, bool)
        for column, value in where.items():
            if column not in self.table.column_names:
                raise ConfigError(f"the index has no column {column!r}; there are {listed(self.table.column_names, 'and')}")
            same = pc.equal(pc.cast(self.table[column], pa.string()), value)
            kept &= pc.fill_null(same, False).to_numpy(zero_copy_only=False)
        return np.flatnonzero(kept)

    def nearest(self, queries: np.ndarray, count: int, where: Mapping[str, str] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The rows nearest to each query, best first.

        Args:
            queries: [n, width] float32, of any length but 0.

        Returns:
            (numbers [n, k] int64, cosines [n, k] float32); k is `count`, or how many rows there are to choose from.
        """
        chosen = self.matching(where) if where else None
        count = min(count, self.manifest.rows if chosen is None else len(chosen))
        queries = unit(queries)
        if chosen is None and self.graph is not None:
            self.graph.expansion_search = max(EXPANSION, 2 * count)
            found = self.graph.search(queries, count)
            numbers = np.asarray(found.keys, np.int64).reshape(len(queries), -1)
            return numbers, 1.0 - np.asarray(found.distances, np.float32).reshape(numbers.shape)
        return _nearest_of_all(self.vectors, chosen, queries, count)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Of length 1, float32."""
    vectors = np.asarray(vectors, np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), TINY)


def _nearest_of_all(vectors: np.ndarray, chosen: np.ndarray | None, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    numbers, cosines = np.zeros([len(queries), 0], np.int64), np.zeros([len(queries), 0], np.float32)
    for start in range(0, len(vectors) if chosen is None else len(chosen), BLOCK):
        block = np.arange(start, min(start + BLOCK, len(vectors))) if chosen is None else chosen[start:start + BLOCK]
        part = vectors[start:start + BLOCK] if chosen is None else vectors[block]
        cosines = np.concatenate([cosines, queries @ part.T], 1)
        numbers = np.concatenate([numbers, np.broadcast_to(block, [len(queries), len(block)])], 1)
        if cosines.shape[1] > count:
            best = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
            numbers, cosines = np.take_along_axis(numbers, best, 1), np.take_along_axis(cosines, best, 1)
    order = np.lexsort((numbers, -cosines))
    return np.take_along_axis(numbers, order, 1), np.take_along_axis(cosines, order, 1)


def read_manifest(folder: Path) -> Manifest:
    """Raises ConfigError."""
    file = folder / MANIFEST
    try:
        return Manifest.model_validate_json(file.read_bytes())
    except OSError:
        raise ConfigError(f"{folder}: is no index; `quartet index RUN|PRESET INPUT... --output {folder}` makes one") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{file}: is damaged, or of another version: {'.'.join(map(str, first['loc']))}: {first['msg']}; build the index "
                          "again") from None


def write_store(folder: Path, vectors: np.ndarray, rows: Sequence[Mapping[str, Any]], encoder: str, fingerprint: str,
                reading: Sequence[str], *, more: Store | None = None) -> Manifest:
    """Writes an index, whole or not at all.

    Args:
        vectors: [n, width] float32.
        rows: n of columns.
        more: the index that these are added to, which is then replaced.

    Raises:
        DataError: another process has changed the index since it was opened.
        ConfigError: there are so many rows that usearch is needed, and it is not there.
        WriteError: the system refuses.
    """
    table, vectors = _table(rows), unit(vectors)
    if more is not None:
        table = pa.concat_tables([_as_texts(one, _mixed(more.table, table)) for one in (more.table, table)], promote_options="default")
        vectors = np.concatenate([more.vectors, vectors])
    mark = secrets.token_hex(8)
    places = f"vectors-{mark}.npy", f"rows-{mark}.parquet", f"graph-{mark}.usearch"
    graph = _build_graph(vectors, more) if len(vectors) >= GRAPH else None
    write_whole(folder / places[0], lambda file: np.save(file, vectors, allow_pickle=False))
    write_whole(folder / places[1], lambda file: pq.write_table(table, file))
    if graph is not None:
        write_whole(folder / places[2], bytes(graph.save()))
    manifest = Manifest(encoder=encoder, fingerprint=fingerprint, reading=list(reading), rows=len(vectors), width=vectors.shape[1],
                        vectors=places[0], table=places[1], graph=places[2] if graph is not None else None)
    if more is not None and read_manifest(folder) != more.manifest:
        _sweep(folder, read_manifest(folder))
        raise DataError(f"{folder}: another process has changed the index meanwhile; add the rows again")
    write_whole(folder / MANIFEST, manifest.model_dump_json(indent=1))
    _sweep(folder, manifest)
    return manifest


def _sweep(folder: Path, manifest: Manifest) -> None:
    """Removes files of an index that is no more; who has them open keeps them."""
    kept = {manifest.vectors, manifest.table, manifest.graph}
    for kind in ("vectors-*.npy", "rows-*.parquet", "graph-*.usearch"):
        for file in folder.glob(kind):
            if file.name not in kept:
                file.unlink(missing_ok=True)


def _table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Columns of all rows; what is no text or number becomes JSON, and a column of several kinds texts."""
    columns = dict.fromkeys(name for row in rows for name in row)
    found = dict[str, pa.Array]()
    for name in columns:
        values = [_plain(row.get(name)) for row in rows]
        try:
            found[name] = pa.array(values)
        except (pa.ArrowException, OverflowError):
            found[name] = pa.array([None if value is None else str(value) for value in values], pa.string())
    return pa.table(found)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, bool, int, float)) else json.dumps(value, ensure_ascii=False, default=str)


def _mixed(one: pa.Table, other: pa.Table) -> list[str]:
    """Columns of both that have other kinds of values."""
    kinds = {name: one.schema.field(name).type for name in one.column_names}
    return [name for name in other.column_names if name in kinds and other.schema.field(name).type != kinds[name]
            and pa.null() not in (kinds[name], other.schema.field(name).type)]


def _as_texts(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    for name in columns:
        table = table.set_column(table.column_names.index(name), name, pc.cast(table[name], pa.string()))
    return table


def _usearch() -> Any:
    if importlib.util.find_spec("usearch") is None:
        raise ConfigError(f"an index of {GRAPH:,} rows and more needs the extra `search`: pip install 'keras-quartet[search]'")
    import usearch.index

    return usearch.index.Index


def _build_graph(vectors: np.ndarray, more: Store | None) -> Any:
    kind = _usearch()
    graph = kind(ndim=vectors.shape[1], metric="cos", dtype="f32", connectivity=CONNECTIVITY, expansion_add=CONSTRUCTION,
                 expansion_search=EXPANSION)
    known = 0
    if more is not None and more.manifest.graph is not None:
        graph.load(str(more.folder / more.manifest.graph))
        known = more.manifest.rows
    graph.add(np.arange(known, len(vectors)), vectors[known:])
    return graph


def _open_graph(file: Path, manifest: Manifest) -> Any:
    kind = _usearch()
    try:
        said = kind.metadata(str(file)) or {}
        graph = kind.restore(str(file), view=True) if said.get("dimensions") == manifest.width else None
    except Exception as error:  # usearch raises RuntimeError and others of its own
        raise DataError(f"{file}: cannot be read: {error}; build the index again") from None
    if graph is None or len(graph) != manifest.rows:
        raise DataError(f"{file}: is not the graph of {manifest.rows:,} vectors of {manifest.width} numbers; build the index again")
    return graph
