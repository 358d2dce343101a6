"""Watching a run: metrics.jsonl, TensorBoard events, the meter of where time goes, the progress bar."""
