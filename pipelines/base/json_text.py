"""JSON that somebody else wrote: whatever is wrong with it is one ValueError that says where. Imports no TensorFlow."""

import json
from typing import Any

DEEPEST = 100  # lists and objects within one another: more than any data have, fewer than Python's stack holds wherever it is read


class TooDeep(ValueError):
    """Nobody's data: lists or objects within one another, more than any reader here has stack for."""

    def __init__(self) -> None:
        super().__init__(f"lists or objects are nested deeper than {DEEPEST} levels")


def parse_json(text: str | bytes) -> Any:
    """Raises ValueError for what is no JSON, saying where, and TooDeep."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise ValueError(f"{error.msg} at {line}column {error.colno}") from None
    except RecursionError:
        raise TooDeep from None
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
                 if isinstance(inner, (dict, list))]
        if not level:
            return value
    raise TooDeep
