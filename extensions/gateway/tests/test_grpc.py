"""gRPC with the real clients: Triton's for the Open Inference Protocol, TensorFlow Serving's own stubs for its services."""

import importlib.util
import os
import threading
import time

import numpy as np
import pytest

from extensions.gateway.tests.gateway_server import running
from tests.serving.toy_server import Doubling, Spelling, needs_extra
from tests.waiting import until

NEEDED = ("tritonclient", "tensorflow_serving")
pytestmark = [needs_extra, pytest.mark.slow(seconds=12), pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in NEEDED) and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `grpc`: what it tests is not tested here")]


@pytest.fixture(scope="module")
def there():
    with running(Spelling(), grpc=0) as server:
        server.models.add("double", 7, Doubling())
        yield server


@pytest.fixture(scope="module")
def channel(there):
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{there.rpc_port}") as one:
        grpc.channel_ready_future(one).result(20)
        yield one


@pytest.fixture(scope="module")
def triton(there):
    import tritonclient.grpc as triton

    with triton.InferenceServerClient(f"127.0.0.1:{there.rpc_port}") as one:
        yield one


@pytest.fixture(scope="module")
def stub(channel):
    from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

    return PredictionServiceStub(channel)


def tensor(name, values, kind):
    import tritonclient.grpc as triton

    one = triton.InferInput(name, values.shape, kind)
    one.set_data_from_numpy(values)
    return one


def spelled(texts, times):
    return [tensor("text", np.array(texts, object), "BYTES"), tensor("times", np.array(times, np.int64), "INT64")]


def test_triton_sees_what_is_there(triton):
    assert triton.is_server_live() and triton.is_server_ready()
    assert triton.is_model_ready("toy") and triton.is_model_ready("double", "7") and not triton.is_model_ready("double", "8")
    assert triton.get_server_metadata().name == "quartet"
    found = triton.get_model_metadata("toy", as_json=True)
    assert found["versions"] == ["1"] and {"name": "shares", "datatype": "FP32", "shape": ["-1", "2"]} in found["outputs"]
    assert [(one.name, one.version) for one in triton.get_model_repository_index().models] == [("toy", "1"), ("double", "7")]


def test_triton_gets_answers(triton):
    import tritonclient.grpc as client

    found = triton.infer("toy", spelled(["ab", "xyz", "é"], [2, 1, 1]), request_id="mine")
    assert found.get_response().id == "mine" and found.get_response().model_version == "1"
    assert found.as_numpy("label").tolist() == [b"short"] * 3
    np.testing.assert_allclose(found.as_numpy("shares"), [[0.5, 0.5], [0.625, 0.375], [0.75, 0.25]])
    assert found.as_numpy("codes").tolist() == [[97, 98, 97, 98], [120, 121, 122, 0], [195, 169, 0, 0]]
    numbers = np.arange(150, dtype=np.float32).reshape(50, 3)
    found = triton.infer("double", [tensor("x", numbers, "FP32")], "7", outputs=[client.InferRequestedOutput("doubled")])
    np.testing.assert_array_equal(found.as_numpy("doubled"), 2 * numbers)


def test_typed_contents_are_answered_with_typed_contents(channel):
    from tritonclient.grpc import service_pb2 as messages
    from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

    request = messages.ModelInferRequest(model_name="toy")
    request.inputs.add(name="text", datatype="BYTES", shape=[2]).contents.bytes_contents.extend([b"ab", b"c"])
    request.inputs.add(name="times", datatype="INT64", shape=[2]).contents.int64_contents.extend([1, 2])
    reply = GRPCInferenceServiceStub(channel).ModelInfer(request)
    assert not reply.raw_output_contents
    found = {one.name: (one.datatype, list(one.shape), one.contents) for one in reply.outputs}
    assert list(found["letters"][2].bytes_contents) == [b"a", b"b", b"c", b"c"] and found["codes"][:2] == ("INT32", [2, 2])
    assert list(found["codes"][2].int_contents) == [97, 98, 99, 99]


@pytest.mark.parametrize("call, code, part", [
    (lambda: ("nobody", spelled(["a"], [1])), "NOT_FOUND", "no model nobody"),
    (lambda: ("toy", spelled(["a"], [1]), "5"), "NOT_FOUND", "no version 5"),
    (lambda: ("toy", spelled(["a"], [1])[:1]), "INVALID_ARGUMENT", "the model takes text, times"),
    (lambda: ("toy", spelled([""], [1])), "INVALID_ARGUMENT", "example 1: the text is empty"),
    (lambda: ("double", [tensor("x", np.zeros([1, 3]), "FP64")]), "INVALID_ARGUMENT", "FP32 is asked for"),
    (lambda: ("double", [tensor("x", np.zeros([65, 3], np.float32), "FP32")]), "RESOURCE_EXHAUSTED", "too many"),
    (lambda: ("double", [tensor("x", np.zeros([100_000, 3], np.float32), "FP32")]), "RESOURCE_EXHAUSTED", "larger than max"),
    (lambda: ("double", [tensor("x", np.full([1, 3], -1, np.float32), "FP32")]), "INTERNAL", "its log says why"),
])
def test_what_is_wrong_is_said_with_its_code(triton, call, code, part):
    from tritonclient.utils import InferenceServerException

    with pytest.raises(InferenceServerException) as caught:
        triton.infer(*call())
    assert caught.value.status() == f"StatusCode.{code}" and part in caught.value.message()


def infer_request(model="double", **more):
    from tritonclient.grpc import service_pb2 as messages

    fields = {"name": "x", "datatype": "FP32", "shape": [1, 3]} | more
    raw = fields.pop("raw", [bytes(12)])
    return messages.ModelInferRequest(model_name=model, inputs=[messages.ModelInferRequest.InferInputTensor(**fields)],
                                      raw_input_contents=raw)


@pytest.mark.parametrize("more", [
    {"raw": [bytes(12), b""]}, {"raw": [bytes(11)]}, {"raw": []}, {"shape": [-1, 3]}, {"shape": [2**50, 3]}, {"datatype": "FP8"},
    {"datatype": "BYTES", "raw": [b"\xff\xff\xff\xffab"]}, {"datatype": "FP16", "raw": []}], ids=str)
def test_broken_tensors_are_refused(channel, more):
    import grpc
    from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

    with pytest.raises(grpc.RpcError) as caught:
        GRPCInferenceServiceStub(channel).ModelInfer(infer_request(**more))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()


def predict_request(model, **inputs):
    import tensorflow as tf
    from tensorflow_serving.apis.predict_pb2 import PredictRequest

    request = PredictRequest(inputs={name: tf.make_tensor_proto(value) for name, value in inputs.items()})
    request.model_spec.name = model
    return request


def test_tensorflow_servings_stub_gets_predictions(stub):
    import tensorflow as tf

    reply = stub.Predict(predict_request("double", x=np.ones([2, 3], np.float32)))
    assert (reply.model_spec.name, reply.model_spec.version.value) == ("double", 7)
    assert tf.make_ndarray(reply.outputs["doubled"]).tolist() == [[2, 2, 2]] * 2
    request = predict_request("toy", text=np.array([b"ab", b"abcdef"], object), times=np.array([1, 1], np.int64))
    request.output_filter.extend(["label", "shares"])
    reply = stub.Predict(request)
    assert set(reply.outputs) == {"label", "shares"} and tf.make_ndarray(reply.outputs["label"]).tolist() == [b"short", b"long"]


def test_it_gets_classes_and_metadata(channel, stub):
    import tensorflow as tf
    from tensorflow_serving.apis import classification_pb2, get_model_metadata_pb2, get_model_status_pb2
    from tensorflow_serving.apis.model_service_pb2_grpc import ModelServiceStub

    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "toy"
    example = request.input.example_list.examples.add()
    example.features.feature["text"].bytes_list.value.append(b"abcd")
    example.features.feature["times"].int64_list.value.append(1)
    (found,) = stub.Classify(request).result.classifications
    assert [(one.label, one.score) for one in found.classes] == [("short", 0.5), ("long", 0.5)]
    asked = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    asked.model_spec.name = "double"
    signatures = get_model_metadata_pb2.SignatureDefMap()
    stub.GetModelMetadata(asked).metadata["signature_def"].Unpack(signatures)
    given = signatures.signature_def["serving_default"].inputs["x"]
    assert given.dtype == tf.float32.as_datatype_enum and [dim.size for dim in given.tensor_shape.dim] == [-1, 3]
    status = get_model_status_pb2.GetModelStatusRequest()
    status.model_spec.name = "double"
    (version,) = ModelServiceStub(channel).GetModelStatus(status).model_version_status
    assert version.version == 7 and version.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE


def broken(change):
    import tensorflow as tf

    def request():
        made = predict_request("double", x=np.ones([1, 3], np.float32))
        change(made, tf)
        return made

    return request


@pytest.mark.parametrize("change, code", [
    (lambda made, tf: made.model_spec.version.__setattr__("value", 6), "NOT_FOUND"),
    (lambda made, tf: made.model_spec.__setattr__("signature_name", "other"), "INVALID_ARGUMENT"),
    (lambda made, tf: made.model_spec.__setattr__("version_label", "stable"), "INVALID_ARGUMENT"),
    (lambda made, tf: made.output_filter.append("other"), "INVALID_ARGUMENT"),
    (lambda made, tf: made.inputs["x"].__setattr__("dtype", 99), "INVALID_ARGUMENT"),
    (lambda made, tf: made.inputs["x"].__setattr__("dtype", tf.bfloat16.as_datatype_enum), "INVALID_ARGUMENT"),
    (lambda made, tf: made.inputs["x"].__setattr__("tensor_content", b"abc"), "INVALID_ARGUMENT"),
    (lambda made, tf: made.inputs["x"].tensor_shape.dim[0].__setattr__("size", 2**62), "UNAVAILABLE"),
    (lambda made, tf: made.inputs["x"].tensor_shape.dim[0].__setattr__("size", -1), "INVALID_ARGUMENT"),
    (lambda made, tf: made.inputs.pop("x"), "INVALID_ARGUMENT"),
])
def test_broken_predictions_are_refused(stub, change, code):
    import grpc

    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(broken(change)())
    assert caught.value.code().name == code, caught.value.details()


def test_requests_of_both_protocols_share_a_batch(there, triton):
    model = there.models.get("double").model
    model.gate.clear()
    begun = model.begun
    first = threading.Thread(target=triton.infer, args=("double", [tensor("x", np.ones([1, 3], np.float32), "FP32")]))
    first.start()
    until(lambda: model.begun > begun)
    found, before = [], len(model.sizes)
    others = [threading.Thread(target=lambda: found.append(there.ask(b'{"inputs": [[1, 2, 3]]}', path="/predict?model=double")[0])),
              threading.Thread(target=lambda: found.append(triton.infer("double", [tensor("x", np.ones([2, 3], np.float32), "FP32")])))]
    for one in others:
        one.start()
    until(lambda: there.queued("double") == 3)
    model.gate.set()
    for one in (first, *others):
        one.join(20)
    assert model.sizes[before + 1:] == [3] and 200 in found


def test_what_waits_past_the_deadline_is_refused_with_a_time_to_come_again():
    import grpc
    from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

    with running(grpc=0, deadline=2.0) as server, grpc.insecure_channel(f"127.0.0.1:{server.rpc_port}") as channel:
        ask, model = GRPCInferenceServiceStub(channel).ModelInfer, server.model
        model.gate.clear()
        holding = ask.future(infer_request("toy"))
        until(lambda: model.begun)
        late = ask.future(infer_request("toy", shape=[2, 3], raw=[bytes(24)]))
        until(lambda: server.queued() == 2)
        time.sleep(2.1)  # past the deadline
        model.gate.set()
        assert holding.exception(20) is None and late.code() is grpc.StatusCode.UNAVAILABLE
        pushed = dict(late.trailing_metadata())
        assert int(pushed["grpc-retry-pushback-ms"]) >= 1000 and len(pushed["x-request-id"]) == 32
        text = server.observed.text().decode()
        assert 'model="toy",route="/inference.GRPCInferenceService/ModelInfer",status="UNAVAILABLE"} 1.0' in text


def test_what_has_been_asked_is_answered_at_the_end():
    import tritonclient.grpc as client

    model, found = Doubling(), []
    with running(model, grpc=0, drain=10.0) as server, client.InferenceServerClient(f"127.0.0.1:{server.rpc_port}") as triton:
        model.gate.clear()
        asked = threading.Thread(target=lambda: found.append(
            triton.infer("toy", [tensor("x", np.ones([1, 3], np.float32), "FP32")]).as_numpy("doubled").tolist()))
        asked.start()
        until(lambda: model.begun)
        threading.Timer(1.5, model.gate.set).start()
        assert server.stop() < 9
        asked.join(5)
    assert found == [[[2, 2, 2]]]


@pytest.mark.parametrize("path", ["/inference.GRPCInferenceService/ModelInfer", "/tensorflow.serving.PredictionService/Predict"])
def test_bytes_that_are_no_message_are_refused_and_no_defect(there, channel, caplog, path):
    import grpc

    ask = channel.unary_unary(path)
    for content in (b"\xff\xff\xff", b"\x0a\x7f", bytes(range(256))):
        with pytest.raises(grpc.RpcError) as caught:
            ask(content)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT and "is no message" in caught.value.details()
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/inference.GRPCInferenceService/ModelUnknown")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED and not caplog.records


def test_a_message_that_does_not_come_is_not_waited_for_for_ever(there, channel, monkeypatch):
    import grpc

    from extensions.gateway.grpc import calls

    monkeypatch.setattr(calls, "MESSAGE_SECONDS", 0.2)
    held = threading.Event()

    def nothing():
        held.wait(60)
        yield from ()

    path = "/inference.GRPCInferenceService/ServerLive"
    slow = channel.stream_unary(path).future(nothing())
    assert slow.exception(40).code() is grpc.StatusCode.DEADLINE_EXCEEDED and "not complete after 0.2 s" in slow.details()
    held.set()
    monkeypatch.undo()
    empty = channel.stream_unary(path).future(iter(()))
    assert empty.exception(40).code() is grpc.StatusCode.INVALID_ARGUMENT and "no message" in empty.details()
    assert channel.unary_unary(path)(b"", timeout=40)


def test_a_full_queue_pushes_back_and_a_deadline_of_the_clients_takes_its_inputs_out():
    import grpc
    from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

    with running(grpc=0) as server, grpc.insecure_channel(f"127.0.0.1:{server.rpc_port}") as channel:
        ask, model = GRPCInferenceServiceStub(channel).ModelInfer, server.model

        def request(rows):
            return infer_request("toy", shape=[rows, 3], raw=[bytes(12 * rows)])

        ask(request(1))
        model.gate.clear()
        holding = ask.future(request(1))
        until(lambda: model.begun == 2)
        waiting = ask.future(request(60), timeout=8)
        until(lambda: server.queued() == 60)
        with pytest.raises(grpc.RpcError) as caught:
            ask(request(10))
        pushed = dict(caught.value.trailing_metadata())
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and int(pushed["grpc-retry-pushback-ms"]) >= 1000
        assert waiting.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        until(lambda: server.queued() == 0)
        model.gate.set()
        assert holding.exception(20) is None
        ask(request(2))
        assert model.sizes == [1, 1, 2]
