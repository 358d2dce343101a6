"""A report as one HTML file: figures inside, no script, nothing fetched; readable in light and dark and on a phone."""

import base64
import html
import re
from collections.abc import Sequence

from pipelines.base.marked import COLOURS, MarkedText
from pipelines.reports.blocks import Block, Bullets, Code, Heading, Paragraph, Picture, Table

_CSS = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d8dee4; --paper: #ffffff; --panel: #f6f8fa; --accent: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #9aa4af; --line: #363c44; --paper: #15181c; --panel: #1e2228; --accent: #6cb8e6; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .8rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); scroll-margin-top: 1rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .5rem; }
p { margin: .7rem 0; max-width: 48rem; overflow-wrap: anywhere; }
.lead { font-size: 1.2rem; font-weight: 600; }
nav { margin: 1.2rem 0; font-size: .92rem; }
nav a { color: var(--accent); text-decoration: none; margin-right: 1.1rem; white-space: nowrap; }
nav a:hover { text-decoration: underline; }
ul { padding-left: 1.3rem; } li { margin: .25rem 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: .9rem 0; }
@media (min-width: 62rem) { .wide { width: max-content; max-width: calc(50vw + 28rem); } }
table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .34rem .9rem .34rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); vertical-align: bottom; } td { overflow-wrap: break-word; max-width: 38rem; }
td:first-child { min-width: 8rem; }
.right { text-align: right; font-variant-numeric: tabular-nums; padding-left: .9rem; } td.right { white-space: nowrap; }
figure { margin: 1rem 0; } img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
pre { background: var(--panel); padding: .8rem 1rem; border-radius: 6px; overflow-x: auto; }
code { font: .88rem/1.5 ui-monospace, Menlo, Consolas, monospace; }
mark { color: inherit; border-radius: 4px; padding: 0 .25em; background: color-mix(in srgb, var(--mark) 28%, transparent); }
mark i { font-size: .78em; font-style: normal; opacity: .75; margin-left: .35em; }
COLOUR_RULES
@media print { nav { display: none; } body { font-size: 12px; } figure, tr { break-inside: avoid; } }
""".replace("COLOUR_RULES", " ".join(f".c{number} {{ --mark: {colour}; }}" for number, colour in enumerate(
    ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7f7f"))))  # Okabe and Ito 2008

_WHOLE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def page(blocks: Sequence[Block], *, title: str) -> str:
    """The blocks as a whole HTML document; headings of level 2 make the list of contents under the first paragraphs."""
    parts, names = [], _anchors(blocks)
    contents = " ".join(f'<a href="#{names[number]}">{_text(block.text)}</a>' for number, block in enumerate(blocks)
                       if isinstance(block, Heading) and block.level == 2)
    for number, block in enumerate(blocks):
        if contents and isinstance(block, Heading) and block.level == 2:
            parts.append(f"<nav>{contents}</nav>")
            contents = ""
        parts.append(_block(block, names.get(number)))
    body = "\n".join(parts)
    return _WHOLE.format(title=html.escape(title), css=_CSS, body=body)


def _anchors(blocks: Sequence[Block]) -> dict[int, str]:
    names: dict[int, str] = {}
    for number, block in enumerate(blocks):
        if isinstance(block, Heading):
            name = re.sub(r"[^a-z0-9]+", "-", block.text.lower()).strip("-") or "part"
            names[number] = name if name not in names.values() else f"{name}-{number}"
    return names


def _block(block: Block, anchor: str | None) -> str:
    if isinstance(block, Heading):
        return f'<h{block.level} id="{anchor}">{_text(block.text)}</h{block.level}>'
    if isinstance(block, Paragraph):
        return f"<p{' class=lead' if block.lead else ''}>{_text(block.text)}</p>"
    if isinstance(block, Bullets):
        return "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in block.items) + "</ul>"
    if isinstance(block, Picture):
        data = base64.b64encode(block.png).decode()
        return f'<figure><img alt="{html.escape(block.alt)}" src="data:image/png;base64,{data}"></figure>'
    if isinstance(block, Code):
        return f"<pre><code>{html.escape(block.text)}</code></pre>"
    return _table(block)


def _table(table: Table) -> str:
    kinds = [" class=right" if right else "" for right in table.right]
    head = "".join(f"<th{kind}>{html.escape(name)}</th>" for kind, name in zip(kinds, table.columns))
    rows = ""
    for row in table.rows:
        rows += "<tr>" + "".join(f"<td{kind}>{_cell(cell)}</td>" for kind, cell in zip(kinds, row)) + "</tr>\n"
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>'


def _cell(text: str) -> str:
    if not isinstance(text, MarkedText):
        return _text(text)
    return "".join(_text(one.text) if one.colour is None else
                   f'<mark class="c{one.colour % COLOURS}">{_text(one.text)}{f"<i>{_text(one.label)}</i>" if one.label else ""}</mark>'
                   for one in text.pieces)


def _text(text: str) -> str:
    """Escaped, and a number kept on one line with its unit, as in 73.1 % and 1 min 32 s."""
    text = re.sub(r"(?<=\d) (?=%|(?:s|ms|min|h|d|B|KiB|MiB|GiB)\b)", "&nbsp;", html.escape(text))
    return re.sub(r"(?<=nbsp;)(min|h|d) (?=\d)", r"\1&nbsp;", text)
