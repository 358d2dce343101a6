"""Searching settings: Keras Tuner's oracles over any experiment, each trial a training in a process of its own."""
