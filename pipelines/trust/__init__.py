"""Signatures of what a person is given, and records of what it was made with."""
