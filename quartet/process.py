"""TensorFlow in somebody else's process: started when it is needed, its global settings restored afterwards."""

import contextlib
import logging
import random
import threading
from collections.abc import Iterator

from pipelines.base.errors import QuartetError

_BUSY = threading.RLock()


def _worth_saying(record: logging.LogRecord) -> bool:
    """Each run traces its functions anew, which TensorFlow takes for a mistake from the fifth in a process on."""
    return "tf.function retracing" not in record.getMessage()


@contextlib.contextmanager
def tensorflow(*, devices: bool = True) -> Iterator[None]:
    """Inside, a run may set Keras' precision, TensorFlow's determinism and the seeds of Python and NumPy; on leaving these are as before.

    TensorFlow's own random seed cannot be read, and stays as the run set it.

    Args:
        devices: False leaves them alone, where other processes will use them.

    Raises:
        QuartetError: another thread of this process trains or loads a run at the moment; Keras' precision is one for all threads.
    """
    if not _BUSY.acquire(blocking=False):
        raise QuartetError("another thread of this process trains or uses a run at the moment; wait for it, or use a process of its own")
    try:
        from pipelines.machine.startup import start_tensorflow

        start_tensorflow(devices=devices)
        import keras
        import numpy as np
        from tensorflow.python.framework import config

        from pipelines.machine.devices import determinism

        policy, deterministic = keras.config.dtype_policy(), config.is_op_determinism_enabled()
        states = random.getstate(), np.random.get_state()
        logger = logging.getLogger("tensorflow")
        logger.addFilter(_worth_saying)
        try:
            yield
        finally:
            logger.removeFilter(_worth_saying)
            keras.config.set_dtype_policy(policy)
            determinism(deterministic)
            random.setstate(states[0])
            np.random.set_state(states[1])
    finally:
        _BUSY.release()
