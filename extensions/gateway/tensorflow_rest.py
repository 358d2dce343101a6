"""TensorFlow Serving's REST interface: status, metadata, :predict in rows or columns, and :classify.

https://www.tensorflow.org/tfx/serving/api_rest
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from extensions.gateway.tensors import Specs, as_texts, columns_of, is_text, row_of, sizes
from pipelines.serving.http.app import Json, find_model, route
from pipelines.serving.http.bodies import Refused, Share, body_of, check_count, json_of
from pipelines.serving.http.hosting import Hosted
from pipelines.serving.http.observing import Exchange
from pipelines.serving.protocol import ServerProtocol, Site

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

SIGNATURE = "serving_default"
MODEL = "/v1/models/{model}"


class TensorFlowServing(ServerProtocol):
    """The routes below /v1."""

    def routes(self, site: Site) -> list[Route]:
        models = site.models

        def answered(answer: "Callable[[Hosted, Any, Exchange], Awaitable[dict[str, Any]]]") -> Any:
            async def handle(request: Request) -> Response:
                with find_model(models, request) as hosted, Share(site.memory) as share:
                    content = json_of(await body_of(request, site.options.limit, share), share)
                    return Json(await answer(hosted, content, request.scope["exchange"]))

            return handle

        async def described(request: Request) -> Response:
            return Json(metadata(find_model(models, request)))

        async def versions(request: Request) -> Response:
            hosted, one = find_model(models, request), "version" in request.path_params
            return Json(status([hosted.version] if one else models.versions(hosted.name)))

        return [route(MODEL + version + ending, handler, method, name=MODEL + ending)
                for ending, handler, method in ((":predict", answered(predict), "POST"), (":classify", answered(classify), "POST"),
                                                ("/metadata", described, "GET"), ("", versions, "GET"))
                for version in ("", "/versions/{version}")]


def status(versions: "Sequence[int]") -> dict[str, Any]:
    """The versions that answer."""
    return {"model_version_status": [
        {"version": str(version), "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}} for version in versions]}


def metadata(hosted: Hosted) -> dict[str, Any]:
    """The signature."""

    def tensors(specs: Specs) -> dict[str, Any]:
        return {name: {"dtype": f"DT_{_ENUM.get(spec.dtype.name, spec.dtype.name.upper())}", "name": f"{name}:0", "tensor_shape": {
            "dim": [{"size": str(size), "name": ""} for size in sizes(spec)], "unknown_rank": False}} for name, spec in specs.items()}

    signature = {"inputs": tensors(hosted.model.inputs), "outputs": tensors(hosted.model.outputs), "defaults": {},
                 "method_name": "tensorflow/serving/predict"}
    return {"model_spec": {"name": hosted.name, "signature_name": "", "version": str(hosted.version)},
            "metadata": {"signature_def": {"signature_def": {SIGNATURE: signature}}}}


_ENUM = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF"}


async def predict(hosted: Hosted, content: Any, exchange: Exchange) -> dict[str, Any]:
    """{"instances": [...]} gets {"predictions": [...]}, {"inputs": ...} gets {"outputs": ...}. Raises Refused."""
    if not isinstance(content, dict) or ("instances" in content) == ("inputs" in content):
        raise Refused('the request needs "instances", a list of examples, or "inputs", a tensor for each input')
    if content.get("signature_name", SIGNATURE) not in ("", SIGNATURE):
        raise Refused(f"signature_name: there is only {SIGNATURE}")
    inputs = hosted.model.inputs
    if "instances" in content:
        rows = content["instances"]
    else:
        rows = _by_row(content["inputs"], inputs)
    if not isinstance(rows, list) or not rows:
        raise Refused("the request has no examples")
    exchange.inputs = len(rows)
    check_count(len(rows), hosted.batches.room)
    answers = await hosted.answered([(f"example {number}", row_of(row, inputs)) for number, row in enumerate(rows, 1)], exchange)
    columns = {name: _jsonable(hosted, name, column) for name, column in columns_of(answers, hosted.model.outputs).items()}
    single = next(iter(columns)) if len(columns) == 1 else None
    if "inputs" in content:
        return {"outputs": columns[single] if single else columns}
    if single:
        return {"predictions": columns[single]}
    return {"predictions": [{name: column[row] for name, column in columns.items()} for row in range(len(rows))]}


def _by_row(given: Any, inputs: Specs) -> list[Any]:
    columns = given if isinstance(given, dict) and set(given) == set(inputs) else {next(iter(inputs)): given}
    if set(columns) != set(inputs) or not all(isinstance(column, list) for column in columns.values()):
        raise Refused(f'"inputs" needs a list of values for each of {", ".join(inputs)}')
    if len({len(column) for column in columns.values()}) != 1:
        raise Refused('"inputs": each input needs the same number of examples')
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def _jsonable(hosted: Hosted, name: str, column: np.ndarray) -> list[Any]:
    if is_text(hosted.model.outputs[name]):
        return as_texts(column, hosted.model, name)
    return column.tolist() if column.dtype != np.float32 else [*column]  # an array of float32 is written in its shortest form


async def classify(hosted: Hosted, content: Any, exchange: Exchange) -> dict[str, Any]:
    """{"examples": [{...}, ...]} gets {"results": [[[label, score], ...], ...]}. Raises Refused, also where the model has no classes."""
    examples = content.get("examples") if isinstance(content, dict) else None
    if not isinstance(examples, list) or not examples:
        raise Refused('the request needs "examples", a list of objects with a value of each input')
    labels, shares = await classified(hosted, examples, exchange)
    return {"results": [[[label, share] for label, share in zip(labels, row)] for row in shares]}


async def classified(hosted: Hosted, examples: "Sequence[Any]", exchange: Exchange) -> tuple[list[str], np.ndarray]:
    """(the classes, [examples, classes] their probabilities). Raises Refused, also where the model has no classes."""
    model = hosted.model
    vector = next((name for name, spec in model.outputs.items() if len(spec.shape) == 2), None)
    if not model.classes or vector is None:
        raise Refused("the model gives no probabilities of classes; ask for predictions")
    exchange.inputs = len(examples)
    check_count(len(examples), hosted.batches.room)
    rows = [(f"example {number}", row_of(row, model.inputs)) for number, row in enumerate(examples, 1)]
    answers = await hosted.answered(rows, exchange)
    return model.classes, columns_of(answers, {vector: model.outputs[vector]})[vector]
