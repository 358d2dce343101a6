"""The tasks of this domain, by name."""

from recsys.ranking import RankingTask
from recsys.retrieval import RetrievalTask
from recsys.sequential import SequentialTask

TASKS = {"recsys.ranking": RankingTask, "recsys.retrieval": RetrievalTask, "recsys.sequential": SequentialTask}
