"""Short hashes by which a run recognises its data, and a cache what was computed of them; the same in every process.

Of files (`of_files`) they hold names, sizes and content, and no times, so that a copy counts as the same. Up to `WHOLE` bytes all content
is read. Of more, `CHUNKS` pieces of `CHUNK` bytes are, spread evenly: over the files, which are chosen by their names, and within each. So
what changes a file's size, adds, removes or renames a file is always seen; a change that keeps every size is always seen in small data, and
in large data if it touches a piece that is read. Of a function (`graph_hash`) they hold what it computes.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from pipelines.base.stored import open_regular

_NAMES_ONLY = ("_class", "shared_name", "_gradient_op_type", "_user_specified_name")  # attributes that hold names alone


def graph_hash(traced: Any) -> str:
    """Hash of a concrete function: its operations and the tensors that it holds, but not the values of variables.

    Operations, layers and functions are numbered in the order of their creation, in all of the process: names do not count.
    """
    graph = traced.graph.as_graph_def()
    functions = {function.signature.name for function in graph.library.function}
    parts = ["\n".join(_lines(graph.node, (), functions))]
    parts += sorted("\n".join(_lines(function.node_def, [one.name for one in function.signature.input_arg], functions))
                    for function in graph.library.function)
    values = [hashlib.sha256(value.numpy().tobytes()).hexdigest() for value in traced.captured_inputs
              if isinstance(value, tf.Tensor) and value.dtype not in (tf.resource, tf.variant, tf.string)]
    return hashlib.sha256("\n".join([*parts, *values, tf.__version__]).encode()).hexdigest()


def _lines(nodes: Any, arguments: Iterable[str], functions: set[str]) -> Iterator[str]:
    """A line for each operation; inputs by their place."""
    places = {name: f"argument {number}" for number, name in enumerate(arguments)}
    places |= {node.name: f"node {number}" for number, node in enumerate(nodes)}

    def place(name: str) -> str:
        producer, *output = name.removeprefix("^").split(":")
        return ":".join([places.get(producer, producer), *output])

    def unnumbered(value: Any) -> str:
        return re.sub(r'"([^"]+)_\d+"', lambda match: f'"{match[1]}"' if match[0].strip('"') in functions else match[0], str(value))

    for node in nodes:
        values = [f"{name}={unnumbered(node.attr[name])}" for name in sorted(node.attr) if name not in _NAMES_ONLY]
        yield " ".join([node.op, *map(place, node.input), *values])


VERSION = 2  # of all fingerprints; those of different versions cannot be compared
WHOLE = 64 << 20  # bytes
CHUNK, CHUNKS = 64 << 10, 256


def of_files(paths: Sequence[str | Path], root: str | Path | None = None, *, names: Sequence[str] | None = None,
             whole: bool = False) -> str:
    """The hash of some files, in their order. A file that is not there counts as such, one that cannot be read by its size alone.

    Args:
        root: a folder above them, on which the hash does not depend.
        names: of the files; default: their paths below `root`.
        whole: all content is read, whatever its size.
    """
    digest, begin = hashlib.sha256(), os.path.join(os.fspath(root), "") if root is not None else ""
    called = [os.fsencode(name) for name in (names or [os.fspath(path).removeprefix(begin) for path in paths])]
    sizes: list[int] = []
    for name, path in zip(called, paths):
        try:
            sizes.append(os.stat(path).st_size)
        except OSError:
            sizes.append(-1)
        digest.update(b"%d %s\0%d\0" % (len(name), name, sizes[-1]))
    if whole or sum(size for size in sizes if size > 0) <= WHOLE:
        for path, size in zip(paths, sizes):
            _read(digest, path, size, None)
        return digest.hexdigest()[:16]
    # by name, so that the choice is the same wherever the data lie
    chosen = sorted(range(len(paths)), key=lambda number: hashlib.sha256(called[number]).digest())[:CHUNKS]
    pieces = max(1, CHUNKS // max(1, len(chosen)))
    for number in sorted(chosen):
        _read(digest, paths[number], sizes[number], pieces)
    return digest.hexdigest()[:16]


def times(paths: Sequence[str | Path]) -> str:
    """A hash of the files' times of change: of two states of one folder on one machine it tells more than their content sampled."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(b"%d\0" % os.stat(path).st_mtime_ns)
        except OSError:
            digest.update(b"missing\0")
    return digest.hexdigest()[:16]


def _read(digest: Any, path: str | Path, size: int, pieces: int | None) -> None:
    """Adds a file's content: whole, or so many pieces, the first at its begin and the last at its end (one: in its middle)."""
    if size <= 0:
        return
    try:
        with open_regular(path) as file:
            if pieces is None or size <= pieces * CHUNK:
                while content := file.read(1 << 20):
                    digest.update(content)
                return
            for piece in range(pieces):
                file.seek((size - CHUNK) * piece // (pieces - 1) if pieces > 1 else (size - CHUNK) // 2)
                digest.update(file.read(CHUNK))
    except OSError:
        digest.update(b"unread")
