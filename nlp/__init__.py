"""Text classification on the shared input layer and training harness."""
