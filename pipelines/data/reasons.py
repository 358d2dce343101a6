"""Why something could not be read or decoded, in one line, from an exception of Python or TensorFlow."""

import re

_NODES = re.compile(r"\{\{(?:function_)?node [^}]*\}\}\s*")
_ASSERTED = re.compile(r"assertion failed: \[(.*?)\]\s*$", re.DOTALL)


def reason(error: BaseException) -> str:
    """`Invalid PNG data, size 50`; `No such file or directory`: without the graph's nodes and the stack."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    text = str(getattr(error, "message", None) or error)  # tf.errors.OpError has its text in `message`
    text = _NODES.sub("", re.split(r"\n\s*\[\[|\s*\[Op:", text)[0]).strip()
    if text.startswith("Graph execution error"):  # then the places in the code come first, and the cause last
        text = text.splitlines()[-1]
    asserted = _ASSERTED.search(text)
    text = asserted[1] if asserted else text
    return " ".join(text.split()) or type(error).__name__
