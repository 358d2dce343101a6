"""The page of a package index, made of README.md when a wheel or sdist is built: its links lead to files of the repository, which an index
does not have, so that their text alone stays."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

NOTE = "The pages that are named here (`docs/`) are in the source distribution.\n"


class Readme(MetadataHookInterface):
    """Sets `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": f"{without_relative_links(text)}\n{NOTE}"}


def without_relative_links(text: str) -> str:
    """Markdown whose links with a scheme (https://...) stay, and of whose others the text stays."""
    return re.sub(r"!?\[([^\]]*)\]\((?![a-z]+:)[^)]*\)", r"\1", text)
