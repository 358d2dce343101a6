"""The experiment: its schema, its YAML with overrides and checks, its reference and the search space. Imports no TensorFlow."""
