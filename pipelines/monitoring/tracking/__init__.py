"""monitor.track: a run in MLflow or Weights & Biases, sent by a process beside the training.

That process follows metrics.jsonl, which the training writes anyway, so that the training waits for nothing and holds nothing back: what a
tracker cannot take yet stays in the file. It has the lowest priority, and a bounded time when the run ends.
"""
