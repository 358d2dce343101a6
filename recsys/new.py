"""A recommendation experiment for somebody's interactions: columns, protocol and task chosen from what is there. Imports no TensorFlow.

A rating is predicted (ranking), by matrix factorisation where nothing but users and items is known of it; clicks and visits without one
make lists (retrieval): what users had next where there are times, by item kNN, and by EASE where there are none.
"""

from pathlib import Path

from pipelines.base.errors import DataError
from pipelines.config.draft import Asked, Draft, Entry, Way, section
from pipelines.config.yaml_text import inline
from pipelines.data.columns import role_of
from pipelines.data.frame import COMMENTS
from pipelines.data.kinds import first, not_used
from pipelines.data.tables import is_table
from recsys.data.inspection import ROLES as ROLES
from recsys.data.inspection import Seen, look

TASKS = ("sequential", "retrieval", "ranking", "bandit", "lists")
STEP_EVENTS = 8 * 200  # that a step of a sequential network learns from
BASKETS = 0.1  # share of users with several events at their last moment from which these are one basket
EASE_USERS, EASE_ITEMS, EASE_EVENTS = 300_000, 100_000, 20_000_000  # from any of these on EASE would take too much memory or time


def draft(path: Path, asked: Asked) -> Draft:
    """Looks at a table of interactions, or at a folder with one table of them. Raises DataError for what it does not understand."""
    path, files, rest = _table(path)
    seen = look(files.get("train", path), asked)
    seen.files = files
    seen.notes += [f"Not used: {', '.join(rest)}."] if rest else []
    task = _task(seen, asked)
    if task == "bandit":
        return _bandit(path, seen)
    if task != "ranking" and (seen.user is None or seen.item is None):
        raise DataError(f"{path}: lists need users and items; name their columns with --user and --item")
    if task == "ranking" and seen.rating is None and seen.click is None:
        raise DataError(f"{path}: ranking needs a rating or a click; name its column with --rating")
    counted = task == "sequential" and asked.task != "sequential" and _linear_fits(seen)
    rated = _factors if _bare(seen) else _ranking
    model = _knn() if counted else {"ranking": rated, "sequential": _sequential, "retrieval": _retrieval}[task](seen)
    compared = "" if task == "ranking" else "popularity, item kNN and EASE on the same test, popularity of late where there are times"
    body = _body(path, seen, "retrieval" if counted else task, model)
    return Draft(f"Recommendation from {path.name}.", tuple(_described(seen, task)), body, compared,
                 ways=lambda: _ways(path, seen, task), parts=False, stands=False)


def _body(path: Path, seen: Seen, task: str, model: list[str]) -> str:
    head = f"task: recsys.{task}".ljust(30) + f"# {_why(task, seen)}"
    return "\n".join([head, section("data", _data(path, seen, task)), *model])


def _ways(path: Path, seen: Seen, task: str) -> list[Way]:
    """Models in closed form, then networks."""
    def way(name: str, task: str, model: list[str]) -> Way:
        return Way(name, _body(path, seen, task, model))

    if task == "ranking":
        fits = seen.rating and seen.user and seen.item
        return [way("matrix factorisation", task, _factors(seen)), way("cross network", task, _ranking(seen))] if fits else []
    cheap = [way("item kNN", "retrieval", _knn()), way("EASE", "retrieval", _ease(seen))] if _linear_fits(seen) else []
    if task == "sequential":
        return [*cheap, way("attention over the latest items", task, _sequential(seen))]
    return [*cheap, way("towers", task, _towers(seen))]


def _task(seen: Seen, asked: Asked) -> str:
    lists = "sequential" if seen.time else "retrieval"
    if asked.task is not None:
        return lists if asked.task == "lists" else asked.task
    if seen.propensity is not None:
        return "bandit"
    return "ranking" if seen.rating or seen.click else lists


def _why(task: str, seen: Seen) -> str:
    if task == "ranking":
        return "what the rating will be; --task lists: which items for a user" if seen.rating else "whether there will be a click"
    if task == "sequential":
        return "which item next, by a network; --task retrieval: which items for a user"
    return "which items for a user" + ("; --task sequential: by a network" if seen.time else "; without times there is no next one")


def _described(seen: Seen, task: str) -> list[str]:
    frame = seen.frame
    lines = [f"Found: {frame.rows:,} rows; columns {first(frame.names)}." if frame.header else
             f"Found: {frame.rows:,} rows of {len(frame.names)} columns, which the file does not name."]
    for what, name in (("users", seen.user), ("actions" if task == "bandit" else "items", seen.item)):
        if name:
            lines.append(f"{frame.facts[name].distinct:,} {what} in column {seen.called(name)}.")
    features = [*seen.numbers, *seen.categories] if task in ("ranking", "bandit") else []
    rest = not_used([seen.called(name) for name in frame.names],
                    [seen.called(name) for name in (*seen.roles.values(), *features) if name is not None])
    return [*lines, *rest, *seen.notes]


def _data(path: Path, seen: Seen, task: str) -> list[Entry]:
    keys, names = seen.keys, seen.columns
    entries: list[Entry] = [("source", "table", ""), ("path", str(path), "" if path.is_absolute() else "from the current directory")]
    read = {**seen.frame.settings, **({"columns": names} if names else {})}
    entries += [(key, value, COMMENTS.get(key, "")) for key, value in read.items()]
    entries += [("user_key", keys.get("user"), ""), ("item_key", keys.get("item"), "")]
    if seen.time:
        entries.append(("time_key", keys["time"], ""))
        entries += [("time_format", seen.time_format, seen.time_comment)] if seen.time_format else []
    rating = keys.get("rating") or keys.get("click")
    if task == "ranking":
        entries.append(("rating_key", rating, ""))
        entries += [(key, value, "") for key, value in (("numbers", seen.numbers), ("categories", seen.categories)) if value]
    elif seen.rating:
        entries += [("rating_key", rating, ""),
                    ("positive_from", seen.middle, "lower ratings are no sign of liking and are left out; null: all count")]
        entries += [("title_key", keys["title"], "")] if seen.title else []
    elif seen.title:
        entries.append(("title_key", keys["title"], ""))
    if seen.frame.lost.count or seen.unread:
        entries.append(("on_bad_example", "skip", COMMENTS["on_bad_example"]))
    return entries + _division(seen, task)


def _division(seen: Seen, task: str) -> list[Entry]:
    if seen.files:
        return [("validation", seen.files["validation"].stem if "validation" in seen.files else 0.1,
                 "the data's own" if "validation" in seen.files else "share of train"),
                ("test", seen.files["test"].stem if "test" in seen.files else None, "judged once, at the end")]
    if seen.split:
        return [("split_key", seen.keys["split"], "the data's own division"),
                ("validation", seen.parts.get("validation") or 0.1, "" if seen.parts.get("validation") else "share of train"),
                ("test", seen.parts.get("test"), "judged once, at the end")]
    whole: list[Entry] = [("basket", "moment", f"{seen.together:.0%} of the users have several events at their last moment: all are test")
                          ] if seen.together >= BASKETS else []
    if task == "sequential":
        return [("protocol", "leave_last_out", "each user's last event is test, later ones of others are learned from; or time"), *whole]
    how = ("time", "the latest events are test") if seen.time and task == "ranking" and seen.click else (
        "random", "a random share; or time, leave_last_out") if not (seen.time and task == "retrieval") else (
        "leave_last_out", "each user's last event is test; or time, random")
    shares: list[Entry] = [("validation", 0.1, "share of all"), ("test", 0.1, "share of all; judged once, at the end")]
    return [("protocol", *how), *(shares if how[0] != "leave_last_out" else whole)]


def _sequential(seen: Seen) -> list[str]:
    return [
        "model:",
        "  name: hstu                  # or sasrec, gru",
        "  length: 200                 # latest items of a history that count",
        "  width: 64",
        "  dropout: 0.3",
        "  taste: true                 # what these have in common counts beside the last ones",
        "loss: {name: sampled, negatives: 256}",
        "train:",
        f"  epochs: {_epochs(seen, STEP_EVENTS, 16_000, fewest=2)}",
        "  batch_size: 8               # rows, each of as many histories as it has room for",
        "  optimizer: {name: adamw, weight_decay: 0.1}",
        "  learning_rate: {peak: 0.003, schedule: cosine, warmup: 0.05}",
        "  clip: {global_norm: 5.0}",
    ]


def _knn() -> list[str]:
    return ["model:", "  name: item_knn              # fitted at once: what users had next, or had together, by what validation likes best"]


def _retrieval(seen: Seen) -> list[str]:
    return _ease(seen) if not seen.time and _linear_fits(seen) else _towers(seen)


def _ease(seen: Seen) -> list[str]:
    users, items = (seen.frame.facts[name].distinct for name in (seen.user, seen.item) if name)
    return [
        f"# {users:,} users and {items:,} items fit a linear model of items on items, fitted at once in closed form: no epochs. From",
        f"# {EASE_ITEMS:,} items, {EASE_USERS:,} users or {EASE_EVENTS:,} events on it would be towers, trained by steps.",
        "model:",
        "  name: ease                  # its regularisation is chosen on validation; new users are answered by their histories",
    ]


def _towers(seen: Seen) -> list[str]:
    batch = 1024 if seen.frame.rows < 500_000 else 2048
    epochs = _epochs(seen, batch, 780, fewest=8 if batch == 1024 else 20)
    # without times no item of a history is its latest: a vector for each user holds more than an average of some of them
    history = "20                 # latest items of a user that count" if seen.time else (
        "0                  # users are their own vectors: without times no items are the latest")
    return [
        "model:",
        "  name: towers",
        "  width: 64",
        f"  history: {history}",
        *(["  dropout: 0.3"] if seen.time else ["  dropout: 0.1", "  temperature: 0.2"]),
        "train:",
        f"  epochs: {epochs}",
        f"  batch_size: {batch}",
        "  optimizer: {name: adamw, weight_decay: 0.01}",
        "  learning_rate: {peak: 0.01, schedule: cosine, warmup: 0.05}",
        f"  early_stopping: {{patience: {max(3, epochs // 3)}}}",
    ]


def _linear_fits(seen: Seen) -> bool:
    """Whether EASE's decomposition takes minutes and its vectors some hundred MB."""
    facts = seen.frame.facts
    return bool(seen.user and seen.item and facts[seen.user].distinct < EASE_USERS and facts[seen.item].distinct < EASE_ITEMS
                and seen.frame.rows < EASE_EVENTS)


def _epochs(seen: Seen, batch: int, steps: int, *, fewest: int) -> int:
    """So many that there are `steps` of them, within `fewest` and 40."""
    return min(40, max(fewest, round(steps * batch / max(1, seen.frame.rows))))


def _bare(seen: Seen) -> bool:
    """Nothing is known but what users think of items: a network gains by times and features (benchmarks/results/new-interactions.csv)."""
    return bool(seen.rating and seen.user and seen.item and not (seen.time or seen.numbers or seen.categories))


def _factors(seen: Seen) -> list[str]:
    return ["model:", "  name: factors               # fitted at once; or dcn, which takes features, too"]


def _ranking(seen: Seen) -> list[str]:
    if seen.click and not seen.rating:
        return [
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
    return [
        "model:",
        "  name: dcn                   # or dlrm",
        "  width: 16",
        f"  history: {32 if seen.time else 100}".ljust(30) + "# other ratings of the user that count at most",
        "  dropout: 0.2",
        "loss: {name: rating}",
        "train:",
        f"  epochs: {_epochs(seen, 512, 600, fewest=1)}",
        "  batch_size: 512",
        "  optimizer: {name: adamw, weight_decay: 0.01}",
        "  learning_rate: {peak: 0.003, schedule: cosine}",
    ]


def _table(path: Path) -> tuple[Path, dict[str, Path], list[str]]:
    """(the table, or the folder with one for each split; role -> file of these; names of other tables there)."""
    if path.is_file():
        return path, {}, []
    tables = [file for file in sorted(path.iterdir()) if is_table(file) and not file.name.startswith(".")]
    files = {role: file for file in tables if (role := role_of(file.stem))}
    if "train" in files:
        others = [file.name for file in tables if file not in files.values()]
        return (path, files, others) if len(files) > 1 else (files["train"], {}, others)
    usual = [file for file in tables if any(word in file.name.lower() for word in ("rating", "interaction", "event", "u.data"))]
    others = [file.name for file in tables if file not in usual] if len(usual) == 1 else []
    tables = usual if len(usual) == 1 else tables
    if len(tables) != 1:
        raise DataError(f"{path}: holds {len(tables)} tables ({', '.join(file.name for file in tables[:6])}); name the one with the "
                        "interactions" if tables else f"{path}: holds no table (.csv, .tsv, .dat, .jsonl, .parquet)")
    return tables[0], {}, others


def _bandit(path: Path, seen: Seen) -> Draft:
    if seen.propensity is None or seen.item is None or not (seen.click or seen.rating):
        raise DataError(f"{path}: learning from logged choices needs an action (--item), what it earned (--label, --rating) and a column "
                        "that is called like its propensity: how probable the choice was, above 0 and at most 1")
    if not (seen.numbers or seen.categories or seen.position):
        raise DataError(f"{path}: no column says in which context the choices were made; a policy needs one, such as a number, or a text "
                        "with few values")
    keys = seen.keys
    entries: list[Entry] = [("source", "table", ""), ("path", str(path), "" if path.is_absolute() else "from the current directory")]
    entries += [(key, value, COMMENTS.get(key, "")) for key, value in seen.frame.settings.items()]
    entries += [("item_key", keys["item"], "the action that was chosen"),
                ("rating_key", keys.get("click") or keys["rating"], "what it earned"),
                ("propensity_key", keys["propensity"], "how probable the choice was")]
    entries += [("user_key", keys["user"], "whose choices are drawn together for intervals")] if seen.user else []
    entries += [("time_key", keys["time"], "")] if seen.time else []
    entries += [("time_format", seen.time_format, seen.time_comment)] if seen.time and seen.time_format else []
    categories = [*([seen.position] if seen.position else []), *seen.categories]
    entries += [("position_key", seen.position, "the place in a list")] if seen.position else []
    entries += [(key, value, "the context") for key, value in (("numbers", seen.numbers), ("categories", categories)) if value]
    if seen.frame.lost.count or seen.unread:
        entries.append(("on_bad_example", "skip", COMMENTS["on_bad_example"]))
    if seen.split or seen.files:
        entries += _division(seen, "bandit")
    else:
        entries += [("protocol", "time", "the latest choices are test; or random") if seen.time else ("protocol", "random", ""),
                    ("validation", 0.2, "share of all: how far the policy leaves the log's"),
                    ("test", 0.2, "share of all; judged once, at the end")]
    training = bandit_training(seen.frame.rows)
    body = "\n".join([
        "task: recsys.bandit".ljust(30) + "# which action to choose, learned from logged choices; --task ranking: how probable a click is",
        section("data", entries), "model:", "  name: policy", "loss: {name: doubly_robust}   # or ips, direct",
        "train:", *(f"  {key}: {inline(value)}" for key, value in training.items())])
    return Draft(f"A policy from the choices logged in {path.name}.", tuple(_described(seen, "bandit")), body,
                 "the logging policy, even choices, and the best action of all, on the same test", parts=False, stands=False)


def bandit_training(rows: int) -> dict[str, object]:
    """The training of a policy on a log of so many choices."""
    batch = 64 if rows < 2_000 else 256 if rows < 50_000 else 2048
    return {"epochs": min(40, max(5, round(1500 * batch / max(1, rows)))), "batch_size": batch,
            "optimizer": {"name": "adamw", "weight_decay": 0.1}, "learning_rate": {"peak": 0.005, "schedule": "cosine", "warmup": 0.05}}
