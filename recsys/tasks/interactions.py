"""The input of every task on a log of interactions: users, items and what they did."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.data.source import Source
from pipelines.task.contract import Decoding, Input, PreparedForm
from recsys.data.catalogue import Catalogue
from recsys.data.log import write_log
from recsys.data.sources import read_log
from recsys.settings import Bandit, Ranking, Retrieval, Sequential


class Interactions(Input):
    """Examples are decoded as they are stored; `catalogue` has the log that `splits` has read."""

    decoding = Decoding(stored=True)
    experiment: Bandit | Ranking | Retrieval | Sequential
    catalogue: Catalogue | None = None
    validation: Source | None = None

    @property
    def closed_form(self) -> bool:
        """Whether the model is fitted before step 0, as its settings declare."""
        return getattr(self.experiment.model, "closed_form", False)

    def fitted(self, settings: Any, *, final: bool = False) -> Any:
        """A model in closed form with these settings fitted to train, with what validation chooses; `final`: to train and validation, all
        being chosen."""
        raise NotImplementedError

    @cached_property
    def prepared_form(self) -> PreparedForm:
        return KeptLog(self)


class KeptLog(PreparedForm):
    """`quartet prepare` keeps the log, from which each start divides and learns. It does not depend on the model."""

    input: Interactions

    @property
    def settings_not_in_data(self) -> tuple[str, ...]:
        return (*super().settings_not_in_data, "model")

    @property
    def own_writer(self) -> Callable[[Path], None]:
        return lambda folder: write_log(read_log(self.input.experiment.data), folder)
