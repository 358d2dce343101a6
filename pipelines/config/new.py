"""`quartet new`: an experiment written for data that somebody has. The looking is each domain's own, in `<domain>/new.py`.

A domain offers `draft(path: Path) -> Draft` and raises DataError for what it does not understand. Imports no TensorFlow.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.config.check import not_there
from pipelines.config.domains import domains, part
from pipelines.config.dump import inline
from pipelines.config.load import from_text
from pipelines.config.wording import did_you_mean, listed
from pipelines.errors import ConfigError, DataError
from pipelines.regular import check_regular

Entry = tuple[str, object, str]  # setting, value, comment


@dataclass(frozen=True)
class Draft:
    """What a domain makes of data.

    Attributes:
        title: what the experiment trains, one line.
        found: what was seen in the data, a line each.
        body: the YAML, with comments.
    """

    title: str
    found: tuple[str, ...]
    body: str


def section(name: str, entries: Iterable[Entry]) -> str:
    """The lines of an experiment's section, comments in a column."""
    lines = [f"{name}:"]
    for key, value, comment in entries:
        text = f"  {key}: {inline(value)}"
        lines.append(f"{text:<30}# {comment}" if comment and len(text) < 30 else f"{text}  # {comment}" if comment else text)
    return "\n".join(lines)


def label_column(path: Path, columns: dict[str, list[Any]], rows: int, *, named: Collection[str], most: float, what: str) -> str:
    """The column of a table that holds the labels: one so named, or else the only one with few values.

    Args:
        columns: name -> values of the columns that may be it.
        named: names that such a column has, in lower case.
        most: share of the rows up to which values are few.
        what: what a label is called in messages.

    Raises:
        DataError: none or several could be it, or it has one value only.
    """
    few = [name for name, values in columns.items() if 2 <= len(set(map(str, values))) <= max(2, rows * most)]
    found = [name for name in columns if name.lower() in named][:1] or (few if len(few) == 1 else [])
    if not found:
        there = f"it may be {listed(few)}" if few else f"there are {listed(columns, 'and') if columns else 'no other columns'}"
        raise DataError(f"{path}: which column holds the {what} is not clear ({there}); call it label")
    if len(set(map(str, columns[found[0]]))) < 2:
        raise DataError(f"{path}: column {found[0]} has one value only; a classifier needs two or more classes")
    return found[0]


def new(domain: str, data: str | Path, *, file: str = "experiment.yaml") -> str:
    """YAML text of an experiment for these data, checked as `load` checks it.

    Args:
        domain: "vision", "speech", "nlp" or "recsys".
        data: file or folder, relative to the current directory or absolute; it stands in the experiment as given.
        file: name the text will have, for the command in its header.

    Raises:
        ConfigError: no such domain, or it has no such help.
        DataError: data that are not there or not understood; says what is.
    """
    if domain not in domains():
        raise ConfigError(f"{domain!r} is no domain{did_you_mean(domain, domains())}; the domains are {listed(domains(), 'and')}")
    module = part(domain, "new")
    if module is None:
        raise ConfigError(f"{domain} cannot write experiments for data; start from a shipped experiment in configs/{domain}")
    path = Path(data).expanduser()
    if not path.exists():
        raise DataError(f"{not_there(path, str(data))}")
    if not path.is_dir():
        check_regular(path)
    made: Draft = module.draft(path)
    header = [made.title, f"  python -m {domain}.train {file}", *made.found, "Every setting: docs/experiment.md"]
    text = "".join(f"# {line}\n" for line in header) + made.body.strip() + "\n"
    from_text(text, file=file)
    return text
