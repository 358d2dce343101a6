"""Models that are fitted at once, no step training them: the same as models and as baselines. Imports no TensorFlow."""
