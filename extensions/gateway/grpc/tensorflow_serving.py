"""TensorFlow Serving's PredictionService (Predict, Classify, GetModelMetadata) and ModelService (GetModelStatus).

Its messages are those of the package tensorflow-serving-api.
"""

from math import prod
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import classification_pb2, get_model_metadata_pb2, get_model_status_pb2, predict_pb2

from extensions.gateway.grpc.calls import Answer, Call
from extensions.gateway.open_inference import answered
from extensions.gateway.tensorflow_rest import SIGNATURE, classified
from extensions.gateway.tensors import Specs, sizes
from pipelines.serving.http.bodies import Refused, Share
from pipelines.serving.http.hosting import Hosted

PREDICTION, MODEL = "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"
METADATA = "signature_def"  # the one kind of metadata that there is


def _hosted(call: Call, asked: Any) -> Hosted:
    """The model of a ModelSpec. Raises Refused."""
    if asked.signature_name not in ("", SIGNATURE):
        raise Refused(f"signature_name: there is only {SIGNATURE}")
    if asked.version_label:
        raise Refused("version_label: versions have numbers here, and no labels")
    return call.hosted(asked.name, str(asked.version.value) if asked.HasField("version") else "")


def _name(hosted: Hosted, spec: Any) -> None:
    spec.name, spec.version.value, spec.signature_name = hosted.name, hosted.version, SIGNATURE


async def predict(request: Any, call: Call) -> Any:
    """Raises Refused."""
    with _hosted(call, request.model_spec) as hosted:
        outputs = list(request.output_filter) or list(hosted.model.outputs)
        unknown = next((name for name in outputs if name not in hosted.model.outputs), None)
        if unknown is not None:
            raise Refused(f"output_filter: there is no output {unknown:.60}; there is {', '.join(hosted.model.outputs)}")
        columns = {name: _array(name, tensor, call.share) for name, tensor in request.inputs.items()}
        found = await answered(hosted, columns, outputs, call.exchange)
        reply = predict_pb2.PredictResponse(outputs={name: tf.make_tensor_proto(column) for name, column in found.items()})
        _name(hosted, reply.model_spec)
        return reply


def _array(name: str, tensor: Any, share: Share) -> np.ndarray:
    """The array of a TensorProto, which may name any shape for a single value. Raises Refused."""
    if tensor.tensor_shape.unknown_rank or any(dim.size < 0 for dim in tensor.tensor_shape.dim):
        raise Refused(f"{name}: its shape is not known")
    try:
        kind = tf.dtypes.as_dtype(tensor.dtype)
        share.take(prod(dim.size for dim in tensor.tensor_shape.dim) * max(kind.size or 0, 8))
        return tf.make_ndarray(tensor)
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        raise Refused(f"{name}: is no tensor ({error})") from None


async def classify(request: Any, call: Call) -> Any:
    """Raises Refused, also where the model has no classes."""
    with _hosted(call, request.model_spec) as hosted:
        given = request.input
        lists = given.example_list_with_context if given.HasField("example_list_with_context") else given.example_list
        shared = _values(lists.context, hosted.model.inputs) if given.HasField("example_list_with_context") else {}
        labels, shares = await classified(
            hosted, [shared | _values(example, hosted.model.inputs) for example in lists.examples], call.exchange)
        reply = classification_pb2.ClassificationResponse()
        for row in shares.tolist():
            reply.result.classifications.add().classes.extend(
                classification_pb2.Class(label=label, score=share) for label, share in zip(labels, row))
        _name(hosted, reply.model_spec)
        return reply


def _values(example: tf.train.Example, inputs: Specs) -> dict[str, Any]:
    """The features of an example: lists of the shape that the model asks for."""
    found = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value) if kind else []
        found[name] = _shaped(name, values, sizes(inputs[name])[1:]) if name in inputs else values
    return found


def _shaped(name: str, values: list[Any], shape: list[int]) -> Any:
    if not shape:
        return values[0] if len(values) == 1 else values
    try:
        return values if len(shape) == 1 else np.array(values, object).reshape(shape).tolist()
    except ValueError:
        raise Refused(f"{name}: has {len(values):,} values, which do not fill {shape}") from None


async def get_model_metadata(request: Any, call: Call) -> Any:
    """Raises Refused."""
    if list(request.metadata_field) != [METADATA]:
        raise Refused(f"metadata_field: there is only {METADATA}")
    hosted = _hosted(call, request.model_spec)
    signature = meta_graph_pb2.SignatureDef(method_name="tensorflow/serving/predict")
    for specs, tensors in ((hosted.model.inputs, signature.inputs), (hosted.model.outputs, signature.outputs)):
        for name, spec in specs.items():
            tensors[name].name, tensors[name].dtype = f"{name}:0", tf.dtypes.as_dtype(spec.dtype.name).as_datatype_enum
            for size in sizes(spec):
                tensors[name].tensor_shape.dim.add(size=size)
    reply = get_model_metadata_pb2.GetModelMetadataResponse()
    _name(hosted, reply.model_spec)
    reply.metadata[METADATA].Pack(get_model_metadata_pb2.SignatureDefMap(signature_def={SIGNATURE: signature}))
    return reply


async def get_model_status(request: Any, call: Call) -> Any:
    """The versions that answer. Raises Refused."""
    hosted = _hosted(call, request.model_spec)
    versions = [hosted.version] if request.model_spec.HasField("version") else call.models.versions(hosted.name)
    reply = get_model_status_pb2.GetModelStatusResponse()
    for version in versions:
        reply.model_version_status.add(version=version, state=get_model_status_pb2.ModelVersionStatus.AVAILABLE)
    return reply


PREDICTIONS: dict[str, tuple[Answer, Any, Any]] = {
    "Predict": (predict, predict_pb2.PredictRequest, predict_pb2.PredictResponse),
    "Classify": (classify, classification_pb2.ClassificationRequest, classification_pb2.ClassificationResponse),
    "GetModelMetadata": (get_model_metadata, get_model_metadata_pb2.GetModelMetadataRequest,
                         get_model_metadata_pb2.GetModelMetadataResponse),
}
MODELS: dict[str, tuple[Answer, Any, Any]] = {
    "GetModelStatus": (get_model_status, get_model_status_pb2.GetModelStatusRequest, get_model_status_pb2.GetModelStatusResponse),
}
