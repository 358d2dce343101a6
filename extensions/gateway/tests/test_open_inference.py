"""The Open Inference Protocol over HTTP, with Triton's own client: JSON, binary tensors and strings."""

import json

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from tests.serving.toy_server import needs_extra, request

pytestmark = needs_extra


@pytest.fixture(scope="module")
def client(server):
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as one:
        yield one


def tensor(name, values, kind, binary):
    one = triton.InferInput(name, values.shape, kind)
    one.set_data_from_numpy(values, binary_data=binary)
    return one


def spelled(texts, times, binary):
    return [tensor("text", np.array(texts, object), "BYTES", binary), tensor("times", np.array(times, np.int64), "INT64", binary)]


def test_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("toy") and client.is_model_ready("double", "7") and not client.is_model_ready("double", "8")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert client.get_model_repository_index() == [
        {"name": "toy", "version": "1", "state": "READY", "reason": ""}, {"name": "double", "version": "7", "state": "READY", "reason": ""}]
    found = client.get_model_metadata("toy")
    assert found["name"] == "toy" and found["versions"] == ["1"]
    assert found["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}, {"name": "times", "datatype": "INT64", "shape": [-1]}]
    assert {"name": "shares", "datatype": "FP32", "shape": [-1, 2]} in found["outputs"]


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("answered", [True, False])
def test_tensors_go_both_ways(client, sent, answered):
    names = ["label", "shares", "letters", "codes"]
    outputs = [triton.InferRequestedOutput(name, binary_data=answered) for name in names]
    found = client.infer("toy", spelled(["ab", "xyz", "é"], [2, 1, 1], sent), outputs=outputs, request_id="mine")
    assert found.get_response()["id"] == "mine" and found.get_response()["model_version"] == "1"
    assert np.array(found.as_numpy("label")).astype("U").tolist() == ["short", "short", "short"]
    np.testing.assert_allclose(found.as_numpy("shares"), [[0.5, 0.5], [0.625, 0.375], [0.75, 0.25]])
    assert found.as_numpy("codes").tolist() == [[97, 98, 97, 98], [120, 121, 122, 0], [195, 169, 0, 0]]
    assert found.as_numpy("letters").shape == (3, 4) and found.as_numpy("shares").dtype == np.float32


def test_without_named_outputs_all_come(client):
    found = client.infer("toy", spelled(["ab"], [1], True))
    assert [one["name"] for one in found.get_response()["outputs"]] == ["label", "shares", "letters", "codes"]
    assert found.as_numpy("label").tolist() == [b"short"]


def test_a_model_of_numbers(client):
    numbers = np.arange(600, dtype=np.float32).reshape(200, 3)[:60]
    found = client.infer("double", [tensor("x", numbers, "FP32", True)], model_version="7")
    np.testing.assert_array_equal(found.as_numpy("doubled"), 2 * numbers)


@pytest.mark.parametrize("call, part", [
    (lambda: ("nobody", spelled(["a"], [1], True)), "no model nobody"),
    (lambda: ("toy", spelled(["a"], [1], True)[:1]), "the model takes text, times"),
    (lambda: ("toy", spelled(["a", "b"], [1], True)), "same number"),
    (lambda: ("toy", spelled([""], [1], True)), "example 1: the text is empty"),
    (lambda: ("double", [tensor("x", np.zeros([1, 3]), "FP64", True)]), "FP32 is asked for"),
    (lambda: ("double", [tensor("x", np.zeros([1, 4], np.float32), "FP32", True)]), "has the shape [1, 4]"),
    (lambda: ("double", [tensor("x", np.zeros([0, 3], np.float32), "FP32", True)]), "at least one"),
])
def test_what_is_wrong_is_said_to_the_client(client, call, part):
    with pytest.raises(InferenceServerException) as caught:
        client.infer(*call())
    assert part in str(caught.value)


def raw(server, content, blob=b"", header=None):
    head = content if isinstance(content, bytes) else json.dumps(content).encode()
    length = len(head) if header is None else header
    with server.connect() as client:
        from tests.serving.toy_server import answer

        client.sendall(request(head + blob, path="/v2/models/double/infer",
                               headers=f"Inference-Header-Content-Length: {length}\r\nConnection: close\r\n"))
        return answer(client)


def given(**more):
    return {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]} | more]}


@pytest.mark.parametrize("content, blob, header", [
    (b"{", b"", None), (b"[]", b"", None), ({"inputs": []}, b"", None), ({"inputs": [1]}, b"", None),
    (given(name=1), b"", None), (given(shape=[1, "3"]), b"", None), (given(shape=[-1, 3]), b"", None), (given(shape=[2**50, 3]), b"", None),
    (given(shape=[3, 3]), b"", None), (given(datatype="FP8"), b"", None), (given(datatype=[]), b"", None), (given(data="abc"), b"", None),
    (given(data=["a", "b", "c"]), b"", None), (given(data=[[1, 2], [3]]), b"", None),
    (given(parameters={"binary_data_size": 12}), b"", None), (given(parameters={"binary_data_size": -1}), b"", None),
    (given(parameters={"binary_data_size": 11}), bytes(11), None), (given(parameters={"binary_data_size": 12}), bytes(16), None),
    (given(datatype="BYTES", parameters={"binary_data_size": 8}), b"\xff\xff\xff\xffabcd", None),
    (given(datatype="BYTES", parameters={"binary_data_size": 3}), b"abc", None),
    (given(), b"", 10**6), (given(), b"", -1), (given(), b"", "x"), (given(), b"", 5),
    (given() | {"outputs": [{"name": "other"}]}, b"", None), (given() | {"outputs": 1}, b"", None),
    (given() | {"outputs": [{"name": "doubled", "parameters": {"classification": 1}}]}, b"", None),
], ids=str)
def test_broken_tensors_are_refused(server, content, blob, header):
    status, _, found = raw(server, content, blob, header)
    assert status == 400 and found["error"]


def test_data_may_be_nested(server):
    status, _, found = raw(server, given(data=[[1, 2, 3]]))
    assert status == 200 and found["outputs"] == [{"name": "doubled", "datatype": "FP32", "shape": [1, 3], "data": [2, 4, 6]}]
