"""Kinds of answers that images alone have: where something is."""
