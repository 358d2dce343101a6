"""Metrics of speech tasks, and their baselines."""
