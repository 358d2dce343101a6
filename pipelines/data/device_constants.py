"""Large arrays that functions in graph read: held once on each device, not written into every graph as a constant.

A constant of 80 MB takes TensorFlow 13 s to trace, and a graph holds 2 GB at most.
"""

import numpy as np
import tensorflow as tf


class Held:
    """An array, given as a tensor on the device on which the caller's operations run."""

    def __init__(self, values: np.ndarray):
        self.values = values
        self._copies: dict[str, tf.Tensor] = {}

    def tensor(self) -> tf.Tensor:
        """The array on the current device; copied there at the first call, by init_scope also while a function is traced."""
        here = tf.DeviceSpec.from_string(tf.zeros([]).device)
        # in graph "" where none is asked for: then TensorFlow's default one
        device = f"{here.device_type}:{here.device_index}" if here.device_type else ""
        if device not in self._copies:
            with tf.init_scope(), tf.device(device or None):
                self._copies[device] = tf.constant(self.values)
        return self._copies[device]

    def at(self, places: tf.Tensor) -> tf.Tensor:
        """Its values at `places`, in graph."""
        return tf.gather(self.tensor(), places)
