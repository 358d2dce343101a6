"""Judging and telling: metrics with intervals, figures, and the report of a run as Markdown, HTML and JSON."""
