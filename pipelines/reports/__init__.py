"""Telling: the report of a run as Markdown, HTML and JSON, its model card, and tables of predictions."""
