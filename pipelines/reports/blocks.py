"""A report as a list of blocks, and those blocks as Markdown. `html.py` makes one HTML file of the same blocks.

Texts in blocks are plain: nothing in them is markup, so a class called `<b>` or `a|b` is shown as it is.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.base.formatting import escaped


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Plain text; the `lead` is the sentence for a reader in a hurry."""

    text: str
    lead: bool = False


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Cells as text; `right` says which columns are aligned to the right, as numbers are."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[bool]


@dataclass(frozen=True)
class Picture:
    """A figure: `name` of its file without folder, its bytes, and a description for those who cannot see it."""

    name: str
    png: bytes
    alt: str


@dataclass(frozen=True)
class Code:
    """Commands or YAML, shown as they are."""

    text: str
    language: str = "sh"


Block = Heading | Paragraph | Bullets | Table | Picture | Code


def markdown(blocks: Sequence[Block], *, pictures: str = "figures") -> str:
    """The blocks as Markdown (GitHub's tables); pictures are links into the folder `pictures` beside it."""
    return "\n\n".join(_block(block, pictures) for block in blocks) + "\n"


def _block(block: Block, pictures: str) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {escaped(block.text)}"
    if isinstance(block, Paragraph):
        return f"**{escaped(block.text)}**" if block.lead else escaped(block.text)
    if isinstance(block, Bullets):
        return "\n".join(f"- {escaped(item)}" for item in block.items)
    if isinstance(block, Picture):
        return f"![{escaped(block.alt)}]({pictures}/{block.name})"
    if isinstance(block, Code):
        fence = "`" * max(3, max((len(run) for run in re.findall("`+", block.text)), default=0) + 1)
        return f"{fence}{block.language}\n{block.text}\n{fence}"
    head, *body = ([escaped(cell).replace("|", "\\|") for cell in line] for line in (block.columns, *block.rows))
    rule = ["--:" if right else ":--" for right in block.right]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))
