"""Errors in the words of a Python call: the shared code names options of the command line, a call has arguments."""

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pipelines.base.errors import QuartetError, expected
from pipelines.config.doors import OPTIONS

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
