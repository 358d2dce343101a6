"""A store of MLflow for tests: SQLite, in memory where the system can, since MLflow makes it in a hundred transactions."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def store() -> Iterator[str]:
    """Its address, such as sqlite:////dev/shm/.../mlflow.db. Files of runs lie below the current folder, as MLflow has it."""
    with tempfile.TemporaryDirectory(prefix="quartet-mlflow-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as place:
        yield f"sqlite:///{place}/mlflow.db"
