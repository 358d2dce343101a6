"""Small and fast forms of a run: its numeric core converted, judged beside the model, and answered without TensorFlow."""
