"""The tasks of this domain, by name."""

from recsys.tasks.ranking import RankingTask
from recsys.tasks.retrieval import RetrievalTask
from recsys.tasks.sequential import SequentialTask

TASKS = {"recsys.ranking": RankingTask, "recsys.retrieval": RetrievalTask, "recsys.sequential": SequentialTask}
