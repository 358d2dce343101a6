"""The page of the shipped experiments, from the comments that open their files: what each trains, what it costs, what it scores."""

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from pipelines.config.load import shipped
from pipelines.config.yaml_text import header

_OPENING = """\
# Shipped experiments

Generated from the headers of the files in `configs/` by `python -m pipelines.config.reference docs`; change the headers, not this page.

`quartet train NAME` trains one, from a checkout or an installed wheel; `quartet train NAME train.epochs=3` changes a setting. Each fits one
screen: copy it and change it. Figures are from one seed unless stated, on two cores of an AMD EPYC; brackets hold 95 % bootstrap intervals
over the test examples. Experiments without a score need data that cannot be downloaded freely, or your own.
"""


def experiments_page(domains: Iterable[str]) -> str:
    """The whole page as Markdown, a table for each domain."""
    parts = [_OPENING]
    for domain in domains:
        rows = [_row(name, path) for name, path in shipped().items() if name.startswith(f"{domain}/")]
        parts += [f"## {domain}\n", "\n".join(["| experiment | what it trains | cost and score |", "|---|---|---|", *rows]) + "\n"]
    return "\n".join(parts).rstrip() + "\n"


def _row(name: str, path: Path) -> str:
    what, command, cost = _parts(header(path.read_text(encoding="utf-8")))
    settings = command.partition(name)[2].strip()
    place = path.relative_to(Path(__file__).parents[2]).as_posix()
    example = f"[`{name}`](../{place})" + (f"<br>with `{settings}`" if settings else "")
    return f"| {example} | {what} | {cost} |"


def _parts(text: str) -> tuple[str, str, str]:
    """(what it trains, command, cost and score) of a header: prose, the command indented, then prose and perhaps more indented code."""
    blocks = groupby(text.splitlines(), lambda line: line.startswith("  "))
    what, command, *rest = [(code, " ".join(map(str.strip, lines))) for code, lines in blocks]
    return _cell(what[1]), command[1], " ".join(f"`{part}`" if code else _cell(part) for code, part in rest)


def _cell(text: str) -> str:
    return re.sub(r"([|<*])", r"\\\1", text)
