"""Why something could not be read or decoded, in one line, from an exception of Python or TensorFlow."""

import re

_NODES = re.compile(r"\{\{(?:function_)?node [^}]*\}\}\s*")
_BROKEN = re.compile(  # TensorFlow's words for an image file that its decoder cannot read to the end
    r"Invalid (JPEG|PNG|GIF)\b|(JPEG|BMP|WebP)[ :]*(?:Uncompress|content|image)|Input size should match \(header_size", re.IGNORECASE)
_ASSERTED = re.compile(r"assertion failed: \[(.*?)\]\s*$", re.DOTALL)


def broken_image(kind: str) -> str:
    """Of a file that begins as an image of that kind."""
    return f"a broken or truncated {kind} image, or a kind of {kind} that TensorFlow cannot read"


def reason(error: BaseException) -> str:
    """`a broken or truncated PNG image, ...`; `No such file or directory`: without the graph's nodes and the stack."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    text = str(getattr(error, "message", None) or error)  # tf.errors.OpError has its text in `message`
    text = _NODES.sub("", re.split(r"\n\s*\[\[|\s*\[Op:", text)[0]).strip()
    if text.startswith("Graph execution error"):  # then the places in the code come first, and the cause last
        text = text.splitlines()[-1]
    asserted = _ASSERTED.search(text)
    text = asserted[1] if asserted else text
    if broken := _BROKEN.search(text):
        kind = (next(filter(None, broken.groups()), None) or "BMP").replace("jpeg", "JPEG").replace("bmp", "BMP")
        return broken_image(kind)
    return " ".join(text.split()) or type(error).__name__
