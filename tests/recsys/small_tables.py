"""Small tables of interactions."""

from pathlib import Path
from typing import Any

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
