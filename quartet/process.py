"""What every public call does: TensorFlow in somebody else's process, started when it is needed and its global settings restored
afterwards; options that extensions add; errors in the words of a call."""

import contextlib
import functools
import logging
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from pipelines.base.errors import QuartetError, expected
from pipelines.config.doors import OPTIONS

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


@contextmanager
def options_of(command: str, given: Mapping[str, Any]) -> Iterator[None]:
    """Inside, an option such as require_signature=KEY acts as it does on the command line.

    Raises:
        ConfigError: no extension adds an option of that name to the command, or it asks for processes that only a command starts.
    """
    from pipelines.base.errors import ConfigError
    from pipelines.config.doors import OPTIONS
    from pipelines.config.registry import import_extensions
    from pipelines.runs.launcher import chosen

    import_extensions()
    with OPTIONS.surround(command, dict(given)):
        if given and chosen(command).elsewhere:
            raise ConfigError(f"{', '.join(given)}: quartet.{command} works in this process; give the command quartet {command}")
        yield


_OPTIONS = {
    "--name NEW": "name=NEW", "--name": "name", "--fresh": "fresh=True", "--replace": "replace=True", "--output DIR": "path=DIR",
    "--set data.text_key=COLUMN": 'settings={"data.text_key": COLUMN}', "--set": "settings",
    "--runs DIR": "runs=DIR", "--runs": "runs", "the same command": "the same call",
}
_COLUMN = re.compile(r"--(user|item|rating|time|text|label|split|group|files?)(?![\w-])")  # of a table, as `new` asks for it
_VALUE = re.compile(r"--(task|encoder)(?: (none|lists|retrieval|sequential)\b)?(?![\w-])")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def for_python(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A public function whose expected failures name what a Python caller passes."""

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (QuartetError, OSError) as error:
            failure = expected(error)
            if failure is None:
                raise
            failure.args = tuple(translated(one) if isinstance(one, str) else one for one in failure.args)
            if failure is error:
                raise
            raise failure from error

    return call


def translated(message: str) -> str:
    """`message` with options as arguments."""
    for option, argument in _OPTIONS.items():
        message = message.replace(option, argument)
    message = _COLUMN.sub(r'columns["\1"]', message)
    message = _VALUE.sub(lambda found: f'{found[1]}="{found[2]}"' if found[2] else found[1], message)
    added = {f"--{one.name.replace('_', '-')}": one.name for entry in OPTIONS.every() for one in entry.parameters}
    return re.sub(r"--[a-z][a-z-]*", lambda option: added.get(option[0], option[0]), message)
