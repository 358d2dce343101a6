"""`quartet.new`: an experiment proposed for data, on the disk or in memory."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import ConfigError
from quartet.process import for_python

if TYPE_CHECKING:
    from pipelines.config.schema import Experiment

_DOMAINS = {"images": "vision", "recordings": "speech", "texts": "nlp"}  # of data in memory that can be nothing else


@dataclass(frozen=True)
class Draft:
    """A proposed experiment.

    Attributes:
        yaml: its text, with comments on the data and on the alternatives to each choice.
        name: what its runs are called: runs/<domain>/<name>/.
    """

    yaml: str
    name: str

    @property
    def experiment(self) -> "Experiment":
        """The checked settings, without the comments.

        Raises:
            ConfigError: the data are gone.
        """
        from pipelines.config.load import from_text

        return from_text(self.yaml, file=f"{self.name}.yaml").experiment

    @for_python
    def save(self, path: str | Path) -> Path:
        """Writes the YAML, whole.

        Raises:
            ConfigError: something stands there already.
            WriteError: it cannot be written.
        """
        from pipelines.base.files import write_whole

        target = Path(path)
        if target.exists():
            raise ConfigError(f"{target}: exists already; give another name, or remove it")
        write_whole(target, self.yaml)
        return target

    def __str__(self) -> str:
        return self.yaml


@for_python
def new(data: Any, domain: str | None = None, *, task: str | None = None, columns: Mapping[str, str] | None = None,
        encoder: str | None = None, name: str | None = None, runs: str | Path = "runs", minutes: float = 0.0) -> Draft:
    """Looks at data and proposes an experiment for them: how they are read and divided, a model, and how it is trained.

    Args:
        data: a file or folder, or data in memory as `quartet.train` takes them; these are kept in `runs`/data.
        domain: "vision", "speech", "nlp", "recsys", or another that is installed. Images, texts and recordings in memory need none.
        task: the last part of a task's name, such as ranking; default: by the data.
        columns: role -> column of a table, such as {"text": "body", "label": "topic"}; what is not named is guessed, "none" says that
            there is no such column.
        encoder: the pretrained encoder to begin from, as model.preset names it; "none": without; default: one that is at hand, where such
            data gain by it.
        name: what runs of it are called; default: by the file's or folder's name, or `in-memory`.
        runs: the folder of all runs.
        minutes: time for trying the few ways that fit on folds of train, as `quartet new` does for 3; the cheapest of the best is proposed.
            0: the proposal follows rules.

    Raises:
        ConfigError: no such domain, task or role; or the domain must be named.
        DataError: data that are not there or not understood.

    Example:
        >>> import numpy as np
        >>> import quartet
        >>> images = np.random.default_rng(0).integers(0, 256, [60, 16, 16], np.uint8)
        >>> draft = quartet.new((images, np.arange(60) % 3), runs="RUNS")
        >>> draft.experiment.task
        'vision.classification'
    """
    from pipelines.config.draft import look
    from pipelines.data.memory import in_memory, keep

    if in_memory(data):
        kept = keep(data, Path(runs).absolute() / "data")
        path, called, domain = kept.path, "in-memory", domain or _DOMAINS.get(kept.kind)
        if kept.kind == "texts":  # whose columns are known, whatever they hold
            columns = {**{setting.removesuffix("_key"): name for setting, name in kept.keys.items()}, **(columns or {})}
    else:
        path = Path(data)
        called = re.sub(r"[^A-Za-z0-9._-]+", "-", path.absolute().stem).strip("-.") or "data"
    if domain is None:
        raise ConfigError('domain: such data may be of several domains; name one of them: "vision", "speech", "nlp" or "recsys"')
    called = name or called
    drafted = look(domain, str(path), file=f"{called}.yaml", columns=columns, task=task, encoder=encoder)
    if not minutes:
        return Draft(drafted.text(), called)
    from quartet.process import tensorflow

    with tensorflow(training=True):
        from pipelines.tuning.proposing import propose

        return Draft(propose(drafted, minutes).text, called)
