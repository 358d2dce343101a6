"""The line of `quartet lineage` about a private training: what it spent."""

from pathlib import Path
from typing import Any

from pipelines.runs.folder import RunFolder
from pipelines.runs.lineage import Line


class PrivacyLine(Line):
    """From environment.json."""

    def read(self, run: Path) -> Any:
        folder = RunFolder(run)
        return folder.read_environment().get("privacy") if folder.environment.exists() else None

    def text(self, value: Any) -> str | None:
        if not isinstance(value, dict):
            return None
        return f"privacy      epsilon {value.get('epsilon')}, delta {value.get('delta')}, for {value.get('protected')}"
