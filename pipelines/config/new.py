"""`quartet new`: an experiment written for data that somebody has. The looking is each domain's own, in `<domain>/new.py`.

A domain offers `draft(path: Path) -> Draft` and raises DataError for what it does not understand. Imports no TensorFlow.
"""

from dataclasses import dataclass
from pathlib import Path

from pipelines.config.check import not_there
from pipelines.config.domains import domains, part
from pipelines.config.load import from_text
from pipelines.config.wording import did_you_mean, listed
from pipelines.errors import ConfigError, DataError


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
    made: Draft = module.draft(path)
    header = [made.title, f"  python -m {domain}.train {file}", *made.found, "Every setting: docs/experiment.md"]
    text = "".join(f"# {line}\n" for line in header) + made.body.strip() + "\n"
    from_text(text, file=file)
    return text
