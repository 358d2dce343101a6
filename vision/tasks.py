"""The tasks of this domain, by name."""

from vision.classification import Classification

TASKS = {"vision.classification": Classification}
