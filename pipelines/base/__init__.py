"""The foundation: errors, files written whole, messages for people, the terminal. Imports no TensorFlow."""
