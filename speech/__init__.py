"""Spoken commands and speech to text on the shared input layer and training harness."""
