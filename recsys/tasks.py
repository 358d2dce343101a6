"""The tasks of this domain, by name."""

from recsys.ranking import RankingTask

TASKS = {"recsys.ranking": RankingTask}
