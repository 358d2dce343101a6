"""The tasks of this domain, by name."""

from nlp.classification import Classification

TASKS = {"nlp.classification": Classification}
