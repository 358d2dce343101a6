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
    from extensions.search.reading import Answer

ANSWERS = "answers"  # the column of the true ones
SOURCE = ("file", "passage", "title", "url", "id", "input")  # columns that say where a row is from
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
    reader: Annotated[str | None, typer.Option(
        metavar="RUN", show_default=False,
        help="A run that finds answers in passages (nlp.question_answering): queries are questions, answered from the rows.")] = None,
    judge: Annotated[str | None, typer.Option(
        metavar="COLUMN", show_default=False,
        help="Judge a table of queries: rows that have the query's value in this column should be found. With --reader also its "
             "column answers, as SQuAD or a table has them.")] = None,
    runs: Runs = RUNS,
    settings: Reading = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, for programs.")] = False,
) -> None:
    """Find the rows of an index that are nearest to each query, or the answer to it in them."""
    with guard.opened(folder) as place:
        from extensions.search.store import Store

        conditions = dict(one.partition("=")[::2] for one in where or ())
        if wrong := next((one for one in where or () if "=" not in one), None):
            raise ConfigError(f"--where: {wrong!r} is no COLUMN=VALUE")
        known = Store.open(place).table.column_names
        for option, column in (*(("--where", name) for name in conditions), *((("--judge", judge),) if judge else ())):
            if column not in known:
                raise ConfigError(f"{option}: the index has no column {column!r}; there are {', '.join(known)}")
        other, reading = (finished(runs, run) if run else None for run in (rerank, reader))
        from extensions.search.index import Reranker, encoding, open_index
        from extensions.search.judging import DEPTH
        from extensions.search.reading import Reader

        found = open_index(place)
        reranker = Reranker(other) if other is not None else None
        answering = Reader(reading) if reading is not None else None
        asking = found.predictor if not settings else encoding(found.predictor.run, settings)
        values, wanted, answered, missed = list[list[str | None]](), list[str](), list[tuple[float, float]](), 0
        for one in asking.predict(queries):
            if one.error is not None:
                fail(f"{one.name}: cannot be read: {one.error}")
                missed += 1
                continue
            row = dict(one.fields or {"input": one.name})
            query = found.text_of(row) if reranker is not None or answering is not None else one.name
            hits = found.of_vector(one.values["vector"], query, DEPTH if judge else count, where=conditions, rerank=reranker,
                                   candidates=candidates)
            answers = [] if answering is None else answering.answer(query, hits[:count], found.text_of)
            if judge:
                missing = next((name for name in (judge, *((ANSWERS,) if answering else ())) if name not in row), None)
                if missing:
                    raise ConfigError(f"--judge: the queries have no column {missing!r}; there are {', '.join(row)}")
                if answering is not None:
                    answered.append(answering.compare(answers[0].answer if answers else "", row[ANSWERS]))
                wanted.append(str(row[judge]))
                values.append([None if hit.row.get(judge) is None else str(hit.row[judge]) for hit in hits])
            elif as_json:
                more = {} if answering is None else {"answers": [vars(answer) for answer in answers]}
                echo(json.dumps({"query": one.name, **more, "hits": [vars(hit) for hit in hits]}, ensure_ascii=False))
            elif answering is not None:
                _show_answers(one.name, answers)
            else:
                _show(one.name, hits)
        if judge:
            _show_metrics(values, wanted, [None if value is None else str(value) for value in found.store.table[judge].to_pylist()],
                          answered)
        if missed:
            raise typer.Exit(1)


def _show(query: str, hits: "list[Hit]") -> None:
    echo(query)
    for hit in hits:
        told = [str(value) if len(hit.row) == 1 else f"{name}: {value}" for name, value in hit.row.items() if value != ""]
        echo(f"  {hit.similarity:5.2f}  {' '.join('; '.join(told).split())}")


def _show_answers(query: str, answers: "list[Answer]") -> None:
    echo(query)
    if not answers:
        echo("  no answer")
    for one in answers:
        source = "; ".join(f"{name}: {value}" for name, value in one.row.items() if name in SOURCE)
        echo(f"  {one.score:5.2f}  {one.answer}  ({source + ': ' if source else ''}{' '.join(one.sentence.split())})")


def _show_metrics(found: list[list[str | None]], wanted: list[str], indexed: list[str | None], answered: list[tuple[float, float]]) -> None:
    from extensions.search.judging import judge, judge_answers
    from pipelines.base import formatting
    from pipelines.base.terminal import print_table

    rows = [[name, formatting.number(metric.value, name), formatting.bounds(metric.low, metric.high, name)]
            for name, metric in (judge(found, wanted, indexed) | (judge_answers(answered) if answered else {})).items()]
    print_table([f"{len(wanted):,} queries", "", "95 % interval"], rows, right=(1,))
