"""Operations that TensorFlow computes for some types on CPUs alone: on a GPU each would copy its inputs to the host and back."""

import tensorflow as tf

# types of which a GPU gathers rows of a variable, but not of a tensor
NARROW = (tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.uint64)


def gpus() -> bool:
    """Whether this process sees a GPU."""
    return bool(tf.config.get_visible_devices("GPU"))


def held(value: tf.Tensor) -> tf.Tensor | tf.Variable:
    """A tensor on the current device, which is a GPU, in the form from which the GPU gathers rows."""
    return tf.Variable(value, trainable=False) if value.dtype in NARROW else value


def gather(values: tf.Tensor, places: tf.Tensor, batch_dims: int = 0) -> tf.Tensor:
    """tf.gather; of uint8 where the GPU can do it, as float16, which holds all of 0..255."""
    if values.dtype != tf.uint8 or not gpus():
        return tf.gather(values, places, batch_dims=batch_dims)
    return tf.cast(tf.gather(tf.cast(values, tf.float16), places, batch_dims=batch_dims), tf.uint8)
