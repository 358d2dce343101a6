"""A recommendation experiment for somebody's interactions: columns, protocol and task chosen from what is there. Imports no TensorFlow."""

from pathlib import Path

import pyarrow as pa

from pipelines.config.dump import inline
from pipelines.config.new import Draft
from pipelines.data.tables import read_table
from pipelines.errors import DataError
from recsys.reading import times_of

USERS = ("user", "user_id", "userid", "uid", "customer", "customer_id", "visitor_id", "visitorid", "session", "session_id", "reviewerid")
ITEMS = (
    "item",
    "item_id",
    "itemid",
    "iid",
    "movie",
    "movie_id",
    "movieid",
    "product",
    "product_id",
    "productid",
    "asin",
    "article_id",
    "song_id",
    "book_id",
    "isbn",
    "sku",
)
TIMES = ("timestamp", "time", "date", "datetime", "ts", "created_at", "t_dat", "event_time", "unixreviewtime")
RATINGS = ("rating", "ratings", "score", "stars", "user_rating", "overall", "weight", "count")
CLICKS = ("click", "clicked", "clicks", "is_click", "label", "target", "converted")
TITLES = ("title", "name", "movie_title", "item_title", "product_name")
MOST = 30  # values of a text column that is taken as a category


def draft(path: Path) -> Draft:
    """Looks at a table of interactions, or at a folder with one table of them. Raises DataError for what it does not understand."""
    path = _table(path)
    table = read_table(path)
    names = table.column_names
    user, item = _named(names, USERS), _named(names, ITEMS)
    click, rating, time = _named(names, CLICKS), _named(names, RATINGS), _named(names, TIMES)
    if click is not None and not _binary(table[click]):
        click = None
    if item is None and click is None:
        raise DataError(
            f"{path}: no column is called like an item ({', '.join(ITEMS[:6])}, ...), nor like a click ({', '.join(CLICKS[:3])}, "
            f"...); it has {', '.join(names)}. Rename a column, or write the experiment by hand from configs/recsys/table.yaml"
        )
    if user is None and click is None:
        raise DataError(
            f"{path}: no column is called like a user ({', '.join(USERS[:5])}, ...); it has {', '.join(names)}. Rename a column, or "
            "write the experiment by hand from configs/recsys/table.yaml"
        )
    title = _named(names, TITLES)
    used = {user, item, click, rating, time, title}
    numbers = [name for name in names if name not in used and _is_number(table[name])]
    categories = [name for name in names if name not in used and not _is_number(table[name]) and _few(table[name])]
    found = [f"Found: {table.num_rows:,} rows; columns {', '.join(names)}."]
    for what, name in (("users", user), ("items", item)):
        if name:
            found.append(f"{len(table[name].unique()):,} {what} in column {name}.")
    if time is not None and times_of(table[time])[1]:
        found.append(f"Column {time} is not taken as the time: {len(times_of(table[time])[1]):,} of its values are none.")
        time = None
    lines = (
        _ranking(path, user, item, click, time, numbers, categories) if click else _lists(path, user, item, rating, time, title, categories)
    )
    return Draft(f"Recommendation from {path.name}.", tuple(found), "\n".join(lines))


def _lists(
    path: Path, user: str | None, item: str | None, rating: str | None, time: str | None, title: str | None, categories: list[str]
) -> list[str]:
    lines = [
        "task: recsys.sequential       # which item next; recsys.retrieval: which items for a user; recsys.ranking: how much",
        "data:",
        "  source: table",
        f"  path: {inline(str(path))}",
        f"  user_key: {inline(user)}",
        f"  item_key: {inline(item)}",
    ]
    if time:
        lines.append(f"  time_key: {inline(time)}")
    else:
        lines.append("  # no column of times was found: the order of the rows counts as the order of the events (data.time_key)")
    if rating:
        lines += [
            f"  rating_key: {inline(rating)}",
            "  positive_from: null         # ratings from this value on count as positive; null: all",
        ]
    if title:
        lines.append(f"  title_key: {inline(title)}")
    lines += [
        "  protocol: leave_last_out    # each user's last event is test; or time, random",
        "model:",
        "  name: gru                   # or sasrec",
        "  length: 100                 # latest items of a history that count",
        "  width: 64",
        "  dropout: 0.3",
        "  taste: true                 # what these have in common counts beside the last ones",
        "loss: {name: sampled, negatives: 1000}",
        "train:",
        "  epochs: 20",
        "  batch_size: 64",
        "  optimizer: {name: adamw, weight_decay: 0.1}",
        "  learning_rate: {peak: 0.003, schedule: cosine, warmup: 0.05}",
        "  early_stopping: {patience: 4}",
    ]
    return lines


def _ranking(
    path: Path,
    user: str | None,
    item: str | None,
    click: str,
    time: str | None,
    numbers: list[str],
    categories: list[str],
) -> list[str]:
    return [
        "task: recsys.ranking",
        "data:",
        "  source: table",
        f"  path: {inline(str(path))}",
        f"  user_key: {inline(user)}",
        f"  item_key: {inline(item)}",
        f"  rating_key: {inline(click)}",
        *([f"  time_key: {inline(time)}"] if time else []),
        f"  numbers: {inline(numbers)}",
        f"  categories: {inline(categories)}",
        f"  protocol: {'time' if time else 'random'}{'               # the latest events are test' if time else ''}",
        "  validation: 0.1",
        "  test: 0.1",
        "model:",
        "  name: dcn                   # or dlrm",
        "  width: 16",
        "loss: {name: click}",
        "train:",
        "  epochs: 3",
        "  batch_size: 1024",
        "  optimizer: {name: adamw, weight_decay: 0.01}",
        "  learning_rate: {peak: 0.001, schedule: cosine}",
    ]


def _table(path: Path) -> Path:
    if path.is_file():
        return path
    tables = sorted(file for file in path.iterdir() if file.suffix.lower() in (".csv", ".tsv", ".jsonl", ".parquet"))
    if len(tables) != 1:
        raise DataError(f"{path}: holds {len(tables)} tables (.csv, .tsv, .jsonl, .parquet); name the one with the interactions")
    return tables[0]


def _named(names: list[str], usual: tuple[str, ...]) -> str | None:
    plain = {name.lower().replace(" ", "_").replace("-", "_"): name for name in reversed(names)}
    return next((plain[name] for name in usual if name in plain), None)


def _is_number(values: pa.ChunkedArray) -> bool:
    return pa.types.is_integer(values.type) or pa.types.is_floating(values.type)


def _binary(values: pa.ChunkedArray) -> bool:
    return set(values.unique().to_pylist()) <= {0, 1}


def _few(values: pa.ChunkedArray) -> bool:
    return pa.types.is_string(values.type) and len(values.unique()) <= MOST
