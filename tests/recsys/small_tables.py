"""Small tables of interactions."""

from pathlib import Path
from typing import Any

import numpy as np

from pipelines.config.load import from_dict

ROWS = """user,item,rating,time,mood
7,a,4.0,100,good
7,b,3.5,200,bad
7,c,5.0,300,good
7,d,1.0,400,bad
9,b,2.0,150,good
9,a,4.5,250,bad
9,c,3.0,350,good
12,c,4.0,120,good
12,a,5.0,220,good
12,d,2.5,320,bad
30,d,3.0,500,good
"""


def table(folder: Path, text: str = ROWS, name: str = "events.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def experiment(path: Path, task: str = "recsys.sequential", data: dict[str, Any] | None = None, **sections: Any) -> Any:
    """A checked experiment over a table with the columns of ROWS."""
    models = {
        "recsys.sequential": {"name": "gru", "length": 4, "width": 8},
        "recsys.retrieval": {"name": "towers", "width": 8},
        "recsys.ranking": {"name": "dcn", "width": 4, "hidden": [8]},
    }
    values = {
        "task": task,
        "data": {"source": "table", "path": str(path), "time_key": "time", "rating_key": "rating", **(data or {})},
        "model": models[task],
        **sections,
    }
    return from_dict(values, [], check_paths=False)


def shop(folder: Path, *, users: int = 300, items: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """People of five groups who mostly want one of five themes, by which ratings go; a fifth of them, and of the items, in test alone.

    Returns:
        The themes [items] and groups [users], of the items i0, i1, ... and users u0, u1, ... in log.csv, items.csv and users.csv.
    """
    rng, lines = np.random.default_rng(0), ["user,item,time,split,rating"]
    themes, groups = rng.integers(0, 5, items), rng.integers(0, 5, users)
    for user in range(users):
        wanted = np.where(themes == groups[user], 12.0, 1.0)
        chosen = rng.choice(items, 14, replace=False, p=wanted / wanted.sum())
        for time, item in enumerate(chosen):
            new = item % 5 == 4 or user % 5 == 4
            part, rating = "test" if new else "validation" if time > 11 else "train", themes[item] + rng.normal() / 4
            lines.append(f"u{user},i{item},{time},{part},{rating:.2f}")
    table(folder, "\n".join(lines) + "\n", "log.csv")
    things = (f"i{number},t{theme},{rng.normal():.4f}" for number, theme in enumerate(themes))
    table(folder, "\n".join(["item,theme,price", *things]) + "\n", "items.csv")
    people = (f"u{number},{20 + group},g{group}" for number, group in enumerate(groups))
    table(folder, "\n".join(["user,age,group", *people]) + "\n", "users.csv")
    return themes, groups
