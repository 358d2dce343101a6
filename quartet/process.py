"""TensorFlow in somebody else's process: started when it is needed, its global settings restored afterwards."""

import contextlib
import logging
import random
import threading
from collections.abc import Iterator

from pipelines.base.errors import QuartetError

_BUSY, _TRAINING = threading.RLock(), threading.RLock()


def _worth_saying(record: logging.LogRecord) -> bool:
    """Each run traces its functions anew, which TensorFlow takes for a mistake from the fifth in a process on."""
    return "tf.function retracing" not in record.getMessage()


@contextlib.contextmanager
def tensorflow(*, devices: bool = True, training: bool = False) -> Iterator[None]:
    """Inside, a run may set Keras' precision, TensorFlow's determinism and the seeds of Python and NumPy; on leaving these are as before.

    These are one for all threads, so that one thread at a time is inside and the others wait. TensorFlow's own random seed cannot be read,
    and stays as the run set it.

    Args:
        devices: False leaves them alone, where other processes will use them.
        training: the work takes minutes to days: a second one is refused, where it would wait for the first.

    Raises:
        QuartetError: another thread of this process trains at the moment, and this one wants to.
    """
    with contextlib.ExitStack() as held:
        if training:
            if not _TRAINING.acquire(blocking=False):
                raise QuartetError("another thread of this process trains at the moment; wait for it, or use a process of its own")
            held.callback(_TRAINING.release)
        held.enter_context(_BUSY)
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
