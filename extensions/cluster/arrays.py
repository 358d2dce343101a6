"""Arrays as bytes, for another host of the same training: no Python objects, but for those of type bytes."""

import json
from collections.abc import Mapping

import numpy as np


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A description in JSON, its length before it, and the values of all arrays. Arrays of objects may hold bytes only."""
    described, values = [], []
    for name, array in arrays.items():
        lengths = [len(each) for each in array.ravel().tolist()] if array.dtype.hasobject else None
        data = b"".join(array.ravel().tolist()) if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
        described.append([name, "object" if array.dtype.hasobject else _name(array.dtype), list(array.shape), len(data), lengths])
        values.append(data)
    head = json.dumps(described).encode()
    return b"".join([len(head).to_bytes(8, "big"), head, *values])


def unpacked(data: bytes) -> dict[str, np.ndarray]:
    """The arrays, read-only."""
    start = 8 + int.from_bytes(data[:8], "big")
    arrays: dict[str, np.ndarray] = {}
    for name, kind, shape, size, lengths in json.loads(data[8:start]):
        if lengths is None:
            arrays[name] = np.frombuffer(data, np.dtype(kind), offset=start, count=size // np.dtype(kind).itemsize).reshape(shape)
        else:
            array, place = np.empty(len(lengths), object), start
            for number, length in enumerate(lengths):
                array[number], place = data[place:place + length], place + length
            arrays[name] = array.reshape(shape)
        start += size
    return arrays


def _name(dtype: np.dtype) -> str:
    return dtype.str if dtype.kind != "V" else dtype.name  # bfloat16 and the like have no code of numpy's
