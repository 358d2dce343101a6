"""The Open Inference Protocol's GRPCInferenceService: typed contents, or raw bytes as Triton's clients send them.

https://github.com/kserve/open-inference-protocol; its messages are those of the package tritonclient.
"""

from importlib.metadata import version
from math import prod
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as messages

from extensions.gateway.grpc.calls import Answer, Call
from extensions.gateway.open_inference import KINDS, NAMES, answered, metadata, packed, strings, unpacked
from pipelines.serving.http.bodies import Refused

NAME = "inference.GRPCInferenceService"
# the field of typed contents for each datatype; FP16 has none
FIELDS = {"BOOL": "bool_contents", "UINT64": "uint64_contents", "INT64": "int64_contents", "FP32": "fp32_contents",
          "FP64": "fp64_contents", "BYTES": "bytes_contents"} | {f"INT{bits}": "int_contents" for bits in (8, 16, 32)} | {
          f"UINT{bits}": "uint_contents" for bits in (8, 16, 32)}


async def server_live(request: Any, call: Call) -> Any:
    return messages.ServerLiveResponse(live=True)


async def server_ready(request: Any, call: Call) -> Any:
    return messages.ServerReadyResponse(ready=not call.draining)


async def model_ready(request: Any, call: Call) -> Any:
    try:
        call.hosted(request.name, request.version)
    except Refused:
        return messages.ModelReadyResponse(ready=False)
    return messages.ModelReadyResponse(ready=not call.draining)


async def server_metadata(request: Any, call: Call) -> Any:
    return messages.ServerMetadataResponse(name="quartet", version=version("keras-quartet"))


async def model_metadata(request: Any, call: Call) -> Any:
    hosted = call.hosted(request.name, request.version)
    return messages.ModelMetadataResponse(**metadata(hosted, call.models.versions(hosted.name)))


async def repository_index(request: Any, call: Call) -> Any:
    return messages.RepositoryIndexResponse(models=[
        messages.RepositoryIndexResponse.ModelIndex(name=name, version=str(one), state="READY")
        for name in call.models.names for one in call.models.versions(name)])


async def model_infer(request: Any, call: Call) -> Any:
    """Answers as it was asked: in raw bytes, or in typed contents. Raises Refused."""
    with call.hosted(request.model_name, request.model_version) as hosted:
        outputs = [one.name for one in request.outputs] or list(hosted.model.outputs)
        unknown = next((name for name in outputs if name not in hosted.model.outputs), None)
        if unknown is not None or any("classification" in one.parameters for one in request.outputs):
            raise Refused(f"outputs: the model gives {', '.join(hosted.model.outputs)}, and no classification of Triton's")
        found = await answered(hosted, _columns(request), outputs, call.exchange)
        raw = bool(request.raw_input_contents)
        described = []
        for name, column in found.items():
            kind = NAMES[hosted.model.outputs[name].dtype.name]
            raw = raw or kind == "FP16"
            described.append((name, kind, column))
        reply = messages.ModelInferResponse(model_name=hosted.name, model_version=str(hosted.version), id=request.id)
        for name, kind, column in described:
            tensor = reply.outputs.add(name=name, datatype=kind, shape=column.shape)
            if raw:
                reply.raw_output_contents.append(packed(column))
            else:
                getattr(tensor.contents, FIELDS[kind]).extend(column.ravel().tolist())
        return reply


def _columns(request: Any) -> dict[str, np.ndarray]:
    """The tensors of a request. Raises Refused."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise Refused(f"raw_input_contents: has {len(raw)} entries for {len(request.inputs)} inputs; each input needs one")
    return {one.name: _tensor(one, raw[place] if raw else None) for place, one in enumerate(request.inputs)}


def _tensor(given: Any, raw: bytes | None) -> np.ndarray:
    name, kind, shape = given.name, given.datatype, list(given.shape)
    if kind not in ("BYTES", *KINDS):
        raise Refused(f"{name}: its datatype is BYTES or one of {', '.join(KINDS)}")
    if any(size < 0 for size in shape):
        raise Refused(f"{name}: its shape is a list of sizes")
    try:
        if raw is not None:
            values = unpacked(name, memoryview(raw)) if kind == "BYTES" else np.frombuffer(raw, KINDS[kind])
        elif kind not in FIELDS:
            raise Refused(f"{name}: {kind} comes in raw_input_contents")
        else:
            contents = getattr(given.contents, FIELDS[kind])
            values = strings(list(contents)) if kind == "BYTES" else np.array(contents, KINDS[kind])
    except (ValueError, OverflowError) as error:
        raise Refused(f"{name}: its data is not of {kind} ({error})") from None
    if values.size != prod(shape):
        raise Refused(f"{name}: has {values.size:,} values; its shape {shape} has {prod(shape):,}")
    return values.reshape(shape)


METHODS: dict[str, tuple[Answer, Any, Any]] = {
    "ServerLive": (server_live, messages.ServerLiveRequest, messages.ServerLiveResponse),
    "ServerReady": (server_ready, messages.ServerReadyRequest, messages.ServerReadyResponse),
    "ModelReady": (model_ready, messages.ModelReadyRequest, messages.ModelReadyResponse),
    "ServerMetadata": (server_metadata, messages.ServerMetadataRequest, messages.ServerMetadataResponse),
    "ModelMetadata": (model_metadata, messages.ModelMetadataRequest, messages.ModelMetadataResponse),
    "ModelInfer": (model_infer, messages.ModelInferRequest, messages.ModelInferResponse),
    "RepositoryIndex": (repository_index, messages.RepositoryIndexRequest, messages.RepositoryIndexResponse),
}
