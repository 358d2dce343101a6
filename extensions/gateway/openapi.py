"""The server's interface as OpenAPI 3.1 describes it, with the inputs and outputs of its models."""

from importlib.metadata import version
from mimetypes import guess_type
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from extensions.gateway.open_inference import NAMES
from extensions.gateway.tensors import is_text, sizes
from pipelines.serving.http.app import Json, route
from pipelines.serving.http.hosting import Models
from pipelines.serving.protocol import ServerProtocol, Site
from pipelines.task.form import FILES, ending

ERRORS = {
    "400": "The request is not valid.", "404": "There is no such model or version.", "408": "The request comes too slowly.",
    "413": "The request is over a limit.", "429": "The model's queue is full; Retry-After says when to try again.",
    "500": "The model failed.", "503": "The server cannot answer in time, or is ending; Retry-After says when to try again."}
BOXES = "boxes as left, top, right and bottom, in pixels of the picture that was sent"
ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


class OpenApi(ServerProtocol):
    """The route /openapi.json."""

    def routes(self, site: Site) -> list[Route]:
        async def openapi(request: Request) -> Response:
            return Json(description(site.models, version("keras-quartet")))

        return [route("/openapi.json", openapi)]


def description(models: Models, version: str) -> dict[str, Any]:
    """The document."""
    paths: dict[str, Any] = {
        "/": _get("What the models are, take and give; for browsers, a page to try them."),
        "/page.css": _get("Of the page.", "text/css"), "/page.js": _get("Of the page.", "text/javascript"),
        "/health": _get("The process answers."), "/health/live": _get("The process answers."),
        "/health/ready": _get("New requests are wanted; 503 once the end has begun."),
        "/metrics": _get("Metrics for Prometheus.", "text/plain"),
        "/openapi.json": _get("This description."),
        "/v1/models": _get("The models, for OpenAI's clients."),
        **{f"/v1/{one}": {"post": {**_operation(f"OpenAI's {one}.", {"type": "object"}), "requestBody": {
            "required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}}
           for one in ("chat/completions", "completions", "embeddings")},
        "/v2": _get("The server, by the Open Inference Protocol."),
        "/v2/health/live": _get("The process answers."), "/v2/health/ready": _get("New requests are wanted."),
        "/v2/repository/index": {"post": _operation("The models and versions.", {"type": "array"})},
        "/predict": {"post": {**_operation("Answer files, or inputs as JSON; an input that cannot be read has an error in its place.", {
            "type": "object", "properties": {"answers": {"type": "array", "items": {"type": "object"}}}}),
            "parameters": [_query("model", "string"), _query("version", "string"), _query("top", "integer"),
                           _query("probabilities", "boolean")],
            "requestBody": {"required": True, "content": {
                "application/json": {"schema": _object(inputs={"type": "array", "items": {}, "minItems": 1})},
                "multipart/form-data": {"schema": {"type": "object"}},
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}},
    }
    for name in models.names:
        model = models.get(name).model
        row = _object(**{one: _values(spec, sizes(spec)[1:]) for one, spec in model.inputs.items()})
        answer = _object(**{one: _output(model, one) for one in model.outputs})
        tensor = _object(name={"enum": list(model.inputs)}, shape={"type": "array", "items": {"type": "integer"}},
                         datatype={"enum": sorted({NAMES[spec.dtype.name] for spec in model.inputs.values()})}, data={"type": "array"})
        tensor["required"] = ["name", "shape", "datatype"]
        bodies = {
            f"/v1/models/{name}:predict": ("Answer examples, by TensorFlow Serving's interface.", _object(
                instances={"type": "array", "items": {"anyOf": [row, *list(row["properties"].values())[:1]]}}),
                _object(predictions={"type": "array", "items": {"anyOf": [answer, {}]}})),
            f"/v1/models/{name}:classify": ("The classes of examples with their scores.", _object(
                examples={"type": "array", "items": row}), _object(results={"type": "array"})),
            f"/v2/models/{name}/infer": ("Answer tensors, by the Open Inference Protocol.", _object(
                inputs={"type": "array", "items": tensor, "minItems": 1}), _object(outputs={"type": "array"})),
        }
        for path, (words, body, found) in bodies.items():
            paths[path] = {"post": {**_operation(words, found), "requestBody": {
                "required": True, "content": {"application/json": {"schema": body}}}}}
        paths |= {f"/v1/models/{name}": _get("The versions that answer."), f"/v1/models/{name}/metadata": _get("Inputs and outputs."),
                  f"/v2/models/{name}": _get("Inputs and outputs."), f"/v2/models/{name}/ready": _get("The model wants requests.")}
    return {"openapi": "3.1.0", "info": {"title": "quartet serve", "version": version}, "paths": paths}


def _operation(words: str, schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"summary": words, "responses": {"200": {"description": "The answer.", "content": {kind: {"schema": schema}}}} | {
        status: {"description": text, "content": {"application/json": {"schema": ERROR}}} for status, text in ERRORS.items()}}


def _get(words: str, kind: str = "application/json") -> dict[str, Any]:
    return {"get": _operation(words, {}, kind)}


def _query(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": kind}}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _output(model: Any, name: str) -> dict[str, Any]:
    """The schema of an output, with what it is: of boxes their sides, of files their type."""
    spec, kind = model.outputs[name], model.kinds.get(name)
    words = "; ".join(filter(None, (model.meanings.get(name, ""), BOXES if kind == "boxes" else "")))
    schema = _values(spec, sizes(spec)[1:])
    if kind is not None and ending(kind):
        media = FILES[kind][1] if kind in FILES else guess_type(f"x{kind}")[0] or "application/octet-stream"
        schema = _object(b64={"type": "string", "contentEncoding": "base64", "contentMediaType": media})
    return {**schema, **({"description": words} if words else {})}


def _values(spec: Any, shape: list[int]) -> dict[str, Any]:
    """The schema of one example's value of an input or output."""
    if shape:
        length = {} if shape[0] < 0 else {"minItems": shape[0], "maxItems": shape[0]}
        return {"type": "array", "items": _values(spec, shape[1:]), **length}
    if is_text(spec):
        return {"anyOf": [{"type": "string"}, _object(b64={"type": "string", "contentEncoding": "base64"})]}
    return {"type": "boolean" if spec.dtype.name == "bool" else "integer" if "int" in spec.dtype.name else "number"}
