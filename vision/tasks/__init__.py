"""The tasks of this domain, by name."""

from vision.tasks.classification import Classification

TASKS = {"vision.classification": Classification}
