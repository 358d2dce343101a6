"""The line of `quartet lineage` about a tracked run: at which tracker, under which id."""

from pathlib import Path
from typing import Any

from extensions.tracking import record
from pipelines.runs.lineage import Line


class TrackedLine(Line):
    """From tracking.json."""

    def read(self, run: Path) -> Any:
        found = record.read(run)
        return {"tracker": found.tracker, "id": found.id} if found else None

    def text(self, value: Any) -> str | None:
        return f"tracked      in {value['tracker']}, run {value['id']}" if value else None
