"""The baseline of image tasks."""
