"""Using a finished run: evaluation, prediction, export."""
