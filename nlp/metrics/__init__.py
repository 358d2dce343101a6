"""Metrics of text tasks, and their baselines."""
