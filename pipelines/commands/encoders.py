"""`quartet encoders`: the pretrained encoders of this machine and of KerasHub, for programs and for people."""

from collections.abc import Sequence

from pipelines.base import formatting
from pipelines.base.terminal import print_table
from pipelines.commands.shell import echo, shown
from pipelines.encoders.listing import DOMAINS, Listed
from pipelines.encoders.locate import presets_folder

_NUMBERS = (1, 2)  # columns set flush right
_HEADINGS = ["weights", "on disk", "licence", "here", "kind"]


def show(listed: Sequence[Listed]) -> None:
    """Prints a table for each domain, and what is wrong with folders that cannot be used."""
    for domain in DOMAINS:
        rows = [_row(one) for one in listed if one.domain == domain]
        if rows:
            print_table([domain, *_HEADINGS], rows, right=_NUMBERS)
            echo("")
    for one in listed:
        if one.problem:
            echo(f"not usable   {one.problem}")
    echo(f"here         in {shown(presets_folder())}, or in the cache of an earlier download; the others are KerasHub's, downloaded when "
         "model.preset names them")
    echo("licence      of those that are not here: on their pages, which --json names")


def _row(one: Listed) -> list[str]:
    return [one.name, f"{one.weights / 1e6:,.1f} M" if one.weights else "", formatting.size(one.bytes) if one.bytes else "",
            one.licence or "", "yes" if one.here else "", one.backbone.removesuffix("Backbone")]
