"""What `quartet prepare` keeps of every recommendation experiment: its log, from which each start divides and learns."""

from pathlib import Path

from pipelines.task.contract import Task
from recsys.data import stored_log
from recsys.data.sources import read_log
from recsys.settings import Ranking, Retrieval, Sequential


class KeptLog(Task):
    """A task on interactions. Its data do not depend on the model."""

    experiment: Ranking | Retrieval | Sequential

    @property
    def no_matter(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().no_matter, "model")

    def keep(self, folder: Path) -> None:  # type: ignore[override]
        stored_log.write(read_log(self.experiment.data), folder)
