"""The commands index and search. Import no TensorFlow until they need it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.base.errors import ConfigError
from pipelines.commands.shell import RUNS, Batch, Reading, Replace, Runs, echo, fail, finished, say, shown
from pipelines.config import guard

if TYPE_CHECKING:
    from extensions.search.index import Hit

Inputs = Annotated[list[str], typer.Argument(
    metavar="INPUT...", show_default=False, help="Files, folders or patterns; for texts also the text itself.")]


def index(
    encoder: Annotated[str, typer.Argument(
        metavar="RUN|PRESET", show_default=False, help="A run of a pretrained encoder; or the folder, name or handle of a preset.")],
    inputs: Inputs,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", show_default=False, help="The folder of the index.")],
    append: Annotated[bool, typer.Option("--append", help="Add to an index that is there.")] = False,
    replace: Replace = False,
    runs: Runs = RUNS,
    settings: Reading = None,
    batch: Batch = None,
) -> None:
    """Keep the vectors that an encoder makes of texts, pictures or recordings, so that `quartet search` finds the nearest ones."""
    from extensions.search.index import build_index
    from pipelines.base.progress import followed

    done = build_index(encoder, inputs, output, runs=runs, append=append, replace=replace, settings=settings or (), batch=batch,
                       failed=lambda one: fail(f"{one.name}: cannot be read: {one.error}"),
                       followed=lambda answers: followed(answers, say, "embedding"))
    kind = "a graph" if done.store.graph is not None else "all compared"
    echo(f"index        {shown(output)}: {len(done):,} rows, vectors of {done.store.manifest.width}, {kind}")


def search(
    folder: Annotated[Path, typer.Argument(metavar="INDEX", show_default=False, help="A folder that `quartet index` wrote.")],
    queries: Annotated[list[str], typer.Argument(
        metavar="QUERY...", show_default=False, help="Texts, or files of queries as `predict` takes them.")],
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="Rows shown of each query.")] = 5,
    where: Annotated[list[str] | None, typer.Option(
        metavar="COLUMN=VALUE", show_default=False, help="Only rows with this value; several times for several columns.")] = None,
    rerank: Annotated[str | None, typer.Option(
        metavar="RUN", show_default=False, help="A run on pairs of texts that orders the nearest rows anew: a cross-encoder.")] = None,
    candidates: Annotated[int, typer.Option("--candidates", min=1, metavar="N", help="With --rerank: rows that are ordered.")] = 50,
    judge: Annotated[str | None, typer.Option(
        metavar="COLUMN", show_default=False,
        help="Judge a table of queries: rows that have the query's value in this column should be found.")] = None,
    runs: Runs = RUNS,
    settings: Reading = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, for programs.")] = False,
) -> None:
    """Find the rows of an index that are nearest to each query."""
    with guard.opened(folder) as place:
        from extensions.search.store import Store

        conditions = dict(one.partition("=")[::2] for one in where or ())
        if wrong := next((one for one in where or () if "=" not in one), None):
            raise ConfigError(f"--where: {wrong!r} is no COLUMN=VALUE")
        known = Store.open(place).table.column_names
        for option, column in (*(("--where", name) for name in conditions), *((("--judge", judge),) if judge else ())):
            if column not in known:
                raise ConfigError(f"{option}: the index has no column {column!r}; there are {', '.join(known)}")
        other = finished(runs, rerank) if rerank else None
        from extensions.search.index import Reranker, encoding, open_index
        from extensions.search.judging import DEPTH

        found = open_index(place)
        reranker = Reranker(other) if other is not None else None
        asking = found.predictor if not settings else encoding(found.predictor.run, settings)
        values, wanted, missed = list[list[str | None]](), list[str](), 0
        for one in asking.predict(queries):
            if one.error is not None:
                fail(f"{one.name}: cannot be read: {one.error}")
                missed += 1
                continue
            row = dict(one.fields or {"input": one.name})
            query = found.text_of(row) if reranker is not None else one.name
            hits = found.of_vector(one.values["vector"], query, DEPTH if judge else count, where=conditions, rerank=reranker,
                                   candidates=candidates)
            if judge:
                if judge not in row:
                    raise ConfigError(f"--judge: the queries have no column {judge!r}; there are {', '.join(row)}")
                wanted.append(str(row[judge]))
                values.append([None if hit.row.get(judge) is None else str(hit.row[judge]) for hit in hits])
            elif as_json:
                echo(json.dumps({"query": one.name, "hits": [vars(hit) for hit in hits]}, ensure_ascii=False))
            else:
                _show(one.name, hits)
        if judge:
            _show_metrics(values, wanted, [None if value is None else str(value) for value in found.store.table[judge].to_pylist()])
        if missed:
            raise typer.Exit(1)


def _show(query: str, hits: "list[Hit]") -> None:
    echo(query)
    for hit in hits:
        told = [str(value) if len(hit.row) == 1 else f"{name}: {value}" for name, value in hit.row.items() if value != ""]
        echo(f"  {hit.similarity:5.2f}  {' '.join('; '.join(told).split())}")


def _show_metrics(found: list[list[str | None]], wanted: list[str], indexed: list[str | None]) -> None:
    from extensions.search.judging import judge
    from pipelines.base import formatting
    from pipelines.base.terminal import print_table

    rows = [[name, formatting.number(metric.value, name), formatting.bounds(metric.low, metric.high, name)]
            for name, metric in judge(found, wanted, indexed).items()]
    print_table([f"{len(wanted):,} queries", "", "95 % interval"], rows, right=(1,))
