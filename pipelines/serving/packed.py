"""Values and arrays as bytes between two processes of this project, of which one may not be trusted: nothing is pickled."""

import json
import math
import struct
from typing import Any

import numpy as np

HEAD = struct.Struct("<Q")


def pack(value: Any) -> bytes:
    """JSON values, bytes, and arrays of numbers or of such values, within lists and objects; tuples become lists."""
    blobs: list[bytes] = []

    def described(one: Any) -> Any:
        if isinstance(one, bytes):
            blobs.append(one)
            return {"bytes": len(one)}
        if isinstance(one, (np.ndarray, np.generic)):
            if one.dtype == object:
                return {"objects": [described(each) for each in one.ravel().tolist()], "shape": one.shape}
            blobs.append(one.tobytes())
            return {"array": one.dtype.str, "shape": one.shape}
        if isinstance(one, dict):
            return {"object": {key: described(each) for key, each in one.items()}}
        return [described(each) for each in one] if isinstance(one, (list, tuple)) else one

    head = json.dumps(described(value)).encode()
    return b"".join([HEAD.pack(len(head)), head, *blobs])


def unpack(packed: bytes) -> Any:
    """What was packed. Raises ValueError for anything else."""
    try:
        (length,) = HEAD.unpack_from(packed)
        place = HEAD.size + length

        def taken(count: int) -> bytes:
            nonlocal place
            if not 0 <= count <= len(packed) - place:
                raise ValueError("breaks off")
            place += count
            return packed[place - count:place]

        def value(one: Any) -> Any:
            if isinstance(one, list):
                return [value(each) for each in one]
            if not isinstance(one, dict):
                return one
            if "bytes" in one:
                return taken(one["bytes"])
            if "array" in one:
                kind = np.dtype(one["array"])
                return np.frombuffer(taken(kind.itemsize * math.prod(one["shape"])), kind).reshape(one["shape"])
            if "objects" in one:
                array = np.empty(len(one["objects"]), object)
                array[:] = [value(each) for each in one["objects"]]
                return array.reshape(one["shape"])
            return {key: value(each) for key, each in one["object"].items()}

        return value(json.loads(packed[HEAD.size:place]))
    except (struct.error, KeyError, TypeError, AttributeError, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"is no message ({type(error).__name__}: {error})") from None
