"""The Open Inference Protocol, version 2, over HTTP: JSON, binary tensors (Triton's extension), and strings as BYTES.

https://github.com/kserve/open-inference-protocol and Triton's protocol/extension_binary_data.md
"""

import struct
from importlib.metadata import version
from math import prod
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from extensions.gateway.tensors import as_texts, columns_of, rows_of, sizes
from pipelines.serving.http.app import Json, find_model, route
from pipelines.serving.http.bodies import Refused, Share, body_of, check_count, json_of
from pipelines.serving.http.hosting import Hosted
from pipelines.serving.http.observing import Exchange
from pipelines.serving.output import as_json
from pipelines.serving.protocol import ServerProtocol, Site
from pipelines.task.requests import decoded

KINDS = {"BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "INT8": np.int8,
         "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
NAMES: dict[str, str] = {"string": "BYTES", "bool": "BOOL"} | {np.dtype(kind).name: name for name, kind in KINDS.items()}
HEADER = "inference-header-content-length"
MODEL = "/v2/models/{model}"


class OpenInference(ServerProtocol):
    """The routes below /v2."""

    def routes(self, site: Site) -> list[Route]:
        models, observed = site.models, site.observed

        async def answer(request: Request) -> Response:
            with find_model(models, request) as hosted, Share(site.memory) as share:
                body = await body_of(request, site.options.limit, share)
                content, length = await infer(hosted, body, request.headers.get(HEADER), share, request.scope["exchange"])
                if length is None:
                    return Response(content, media_type="application/json")
                return Response(content, headers={HEADER: str(length)}, media_type="application/octet-stream")

        def ready(**said: str) -> Response:
            return Json({**said, "ready": not observed.draining}, 503 if observed.draining else 200)

        async def model_ready(request: Request) -> Response:
            return ready(name=find_model(models, request).name)

        async def described(request: Request) -> Response:
            hosted = find_model(models, request)
            return Json(metadata(hosted, models.versions(hosted.name)))

        async def index(request: Request) -> Response:
            return Json([{"name": name, "version": str(one), "state": "READY", "reason": ""}
                         for name in models.names for one in models.versions(name)])

        async def server(request: Request) -> Response:
            return Json({"name": "quartet", "version": version("keras-quartet"), "extensions": ["binary_tensor_data"]})

        async def server_live(request: Request) -> Response:
            return Json({"live": True})

        async def server_ready(request: Request) -> Response:
            return ready()

        return [*(route(MODEL + one + ending, handler, method, name=MODEL + ending)
                  for ending, handler, method in (("/infer", answer, "POST"), ("/ready", model_ready, "GET"), ("", described, "GET"))
                  for one in ("", "/versions/{version}")),
                route("/v2/repository/index", index, "POST"), route("/v2", server),
                route("/v2/health/live", server_live), route("/v2/health/ready", server_ready)]



def metadata(hosted: Hosted, versions: list[int]) -> dict[str, Any]:
    """The model's inputs and outputs."""

    def tensors(specs: Any) -> list[dict[str, Any]]:
        return [{"name": name, "datatype": NAMES[spec.dtype.name], "shape": sizes(spec)} for name, spec in specs.items()]

    return {"name": hosted.name, "versions": [str(version) for version in versions], "platform": "keras_quartet",
            "inputs": tensors(hosted.model.inputs), "outputs": tensors(hosted.model.outputs)}


async def infer(hosted: Hosted, body: bytes, header: str | None, share: Share, exchange: Exchange) -> tuple[bytes, int | None]:
    """(the body of the answer, the bytes of its JSON where tensors follow it). Raises Refused.

    Args:
        header: the request's Inference-Header-Content-Length: the bytes of its JSON, which binary tensors follow.
    """
    length = len(body)
    if header is not None:
        length = int(header) if header.isdecimal() and len(header) < 12 else -1
        if not 0 <= length <= len(body):
            raise Refused(f"{HEADER}: {header:.20} is not the number of bytes of the request's JSON")
    content = json_of(body[:length], share)
    if not isinstance(content, dict) or not isinstance(content.get("inputs"), list) or not content["inputs"]:
        raise Refused('the request has no inputs: {"inputs": [{"name", "shape", "datatype", "data"}, ...]}')
    rest, columns = memoryview(body)[length:], {}
    for tensor in content["inputs"]:
        name, array, used = _tensor(tensor, rest)
        rest, columns[name] = rest[used:], array
    if len(rest):
        raise Refused(f"{len(rest):,} bytes of binary data belong to no input")
    wanted_outputs = _wanted(content, list(hosted.model.outputs))
    outputs = await answered(hosted, columns, list(wanted_outputs), exchange)
    described, blobs = [], []
    for name, column in outputs.items():
        one: dict[str, Any] = {"name": name, "datatype": NAMES[hosted.model.outputs[name].dtype.name], "shape": list(column.shape)}
        if wanted_outputs[name]:
            blobs.append(packed(column))
            one["parameters"] = {"binary_data_size": len(blobs[-1])}
        elif column.dtype == object:
            one["data"] = as_texts(column.ravel(), hosted.model, name)
        else:
            one["data"] = np.ascontiguousarray(column, np.float32 if column.dtype == np.float16 else None).ravel()
        described.append(one)
    answer = {"model_name": hosted.name, "model_version": str(hosted.version), "outputs": described}
    if isinstance(content.get("id"), str):
        answer["id"] = content["id"]
    head = orjson.dumps(answer, as_json, orjson.OPT_SERIALIZE_NUMPY)
    return b"".join([head, *blobs]), len(head) if blobs else None


async def answered(hosted: Hosted, columns: dict[str, np.ndarray], outputs: list[str], exchange: Exchange) -> dict[str, np.ndarray]:
    """The outputs of that name for tensors [batch, ...]. Raises Refused."""
    model = hosted.model
    for name, array in columns.items():
        wanted = NAMES[model.inputs[name].dtype.name] if name in model.inputs else None
        if wanted is not None and wanted != _name_of(array):
            raise Refused(f"{name}: has the datatype {_name_of(array)}; {wanted} is asked for")
    rows = rows_of(columns, model.inputs)
    exchange.inputs = len(rows)
    check_count(len(rows), hosted.batches.room)
    answers = await hosted.answered([(f"example {number}", row) for number, row in enumerate(rows, 1)], exchange)
    return columns_of(answers, {name: model.outputs[name] for name in outputs})


def _tensor(given: Any, rest: memoryview) -> tuple[str, np.ndarray, int]:
    """(name, array, bytes of `rest` that it took). Raises Refused."""
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise Refused("an input needs a name, a shape, a datatype and data")
    name, shape, kind = given["name"], given.get("shape"), given.get("datatype")
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 1 << 40 for size in shape):
        raise Refused(f"{name}: its shape is a list of sizes")
    if kind not in ("BYTES", *KINDS):
        raise Refused(f"{name}: its datatype is BYTES or one of {', '.join(KINDS)}")
    parameters = given.get("parameters")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    try:
        if size is None:
            values: Any = _from_json(name, given.get("data"), kind)
        else:
            if type(size) is not int or not 0 <= size <= len(rest):
                raise Refused(f"{name}: binary_data_size is not the number of its bytes")
            values = unpacked(name, rest[:size]) if kind == "BYTES" else np.frombuffer(rest[:size], KINDS[kind])
        if values.size != prod(shape):
            raise Refused(f"{name}: has {values.size:,} values; its shape {shape} has {prod(shape):,}")
        return name, values.reshape(shape), size or 0
    except (ValueError, TypeError, OverflowError) as error:
        raise Refused(f"{name}: its data is not of {kind} ({error})") from None


def _from_json(name: str, data: Any, kind: str) -> np.ndarray:
    if not isinstance(data, list):
        raise Refused(f"{name}: its data is a list")
    if kind != "BYTES":
        return np.asarray(data, KINDS[kind]).ravel()
    texts = [value.encode() if isinstance(value, str) else decoded(value) for value in _flat(data)]
    if not all(isinstance(text, bytes) for text in texts):
        raise Refused(f'{name}: the data of BYTES is texts, or bytes as {{"b64": "..."}}')
    return strings(texts)


def _flat(data: list[Any]) -> list[Any]:
    while any(isinstance(value, list) for value in data):
        data = [each for value in data for each in (value if isinstance(value, list) else [value])]
    return data


def strings(values: list[bytes]) -> np.ndarray:
    """[count] object."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def unpacked(name: str, data: memoryview) -> np.ndarray:
    """Strings, each after its length in four bytes, as `packed` has them. Raises Refused."""
    values, place = [], 0
    while place < len(data):
        end = place + 4 + (struct.unpack_from("<I", data, place)[0] if place + 4 <= len(data) else len(data))
        if end > len(data):
            raise Refused(f"{name}: its strings break off")
        values.append(bytes(data[place + 4:end]))
        place = end
    return strings(values)


def packed(column: np.ndarray) -> bytes:
    """A tensor as raw bytes; strings each after its length in four bytes."""
    if column.dtype != object:
        return np.ascontiguousarray(column).tobytes()
    return b"".join(struct.pack("<I", len(value)) + value for value in column.ravel().tolist())


def _name_of(array: np.ndarray) -> str:
    return "BYTES" if array.dtype == object else NAMES.get(array.dtype.name, array.dtype.name)


def _wanted(content: dict[str, Any], names: list[str]) -> dict[str, bool]:
    """The outputs that are asked for -> whether as binary data. Raises Refused."""

    def binary(one: Any, name: str) -> bool | None:
        parameters = one.get("parameters")
        return parameters.get(name) is True if isinstance(parameters, dict) and name in parameters else None

    usual = binary(content, "binary_data_output") or False
    asked = content.get("outputs") or [{"name": name} for name in names]
    if not isinstance(asked, list) or not all(isinstance(one, dict) and one.get("name") in names for one in asked):
        raise Refused(f"outputs: the model gives {', '.join(names)}")
    if any(isinstance(one.get("parameters"), dict) and one["parameters"].get("classification") for one in asked):
        raise Refused("outputs: classification is not offered; the labels are an output of their own")
    found: dict[str, bool] = {}
    for one in asked:
        own = binary(one, "binary_data")
        found[one["name"]] = usual if own is None else own
    return found
