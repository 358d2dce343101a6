"""Recommendation on the shared input layer and training harness: retrieval, next item, ranking."""
