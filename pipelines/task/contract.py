"""The one contract that a domain fills; everything else in pipelines/ works on it alone.

What a task says: what its examples are, how a stored example becomes what the model sees, the model, the
loss, how answers are judged, and the signature that takes what a user has and answers in the user's words.
"""

from pipelines.task.answering import Answering, Read
from pipelines.task.judging import Condensed, Features
from pipelines.task.learning import Splits

__all__ = ["Condensed", "Features", "Read", "Splits", "Task"]


class Task(Answering):
    """What a domain says about one kind of learning. Built anew, from experiment and facts, in every process; it holds no weights.

    Its parts are learning, judging and answering, each in a module of its own. A small task defines `watch`, `splits`, `model`, `loss`,
    `scores` and `raw_spec`; everything else has a default, and is defined where a task does better.
    """
