"""Watching a run: metrics.jsonl, TensorBoard events, the progress bar."""
