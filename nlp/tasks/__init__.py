"""The tasks of this domain, by name."""

from nlp.tasks.classification import Classification

TASKS = {"nlp.classification": Classification}
