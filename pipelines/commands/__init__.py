"""The command line. Imports no TensorFlow until a command needs it."""
