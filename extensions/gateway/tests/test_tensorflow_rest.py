"""TensorFlow Serving's REST interface, as https://www.tensorflow.org/tfx/serving/api_rest describes it."""

import base64
import json

import pytest

from tests.serving.toy_server import needs_extra

pytestmark = needs_extra


def post(server, path, content):
    status, _, found = server.ask(json.dumps(content).encode(), path=path)
    return status, found


def get(server, path):
    status, _, found = server.ask(path=path, method="GET")
    return status, found


def test_rows_are_answered_by_row(server):
    status, found = post(server, "/v1/models/toy:predict", {"instances": [
        {"text": "ab", "times": 2}, {"text": {"b64": base64.b64encode(b"xyz").decode()}, "times": 2}]})
    assert status == 200 and found == {"predictions": [
        {"label": "short", "shares": [0.5, 0.5], "letters": ["a", "b", "a", "b", "", ""], "codes": [97, 98, 97, 98, 0, 0]},
        {"label": "long", "shares": [0.25, 0.75], "letters": [*"xyzxyz"], "codes": [120, 121, 122] * 2}]}


def test_columns_are_answered_by_column(server):
    status, found = post(server, "/v1/models/toy/versions/1:predict", {
        "signature_name": "serving_default", "inputs": {"text": ["ab", "c"], "times": [1, 1]}})
    assert status == 200 and found["outputs"]["label"] == ["short", "short"] and found["outputs"]["codes"] == [[97, 98], [99, 0]]


def test_a_single_input_and_a_single_output_need_no_name(server):
    rows = [[1, 2, 3], {"x": [4, 5, 6]}]
    assert post(server, "/v1/models/double:predict", {"instances": rows}) == (200, {"predictions": [[2, 4, 6], [8, 10, 12]]})
    assert post(server, "/v1/models/double:predict", {"inputs": [[1, 2, 3]]}) == (200, {"outputs": [[2, 4, 6]]})
    assert post(server, "/v1/models/double:predict", {"inputs": {"x": [[1, 2, 3]]}}) == (200, {"outputs": [[2, 4, 6]]})


def test_classes_have_scores(server):
    content = {"examples": [{"text": "ab", "times": 1}, {"text": "abcd", "times": 3}]}
    assert post(server, "/v1/models/toy:classify", content) == (200, {
        "results": [[["short", 0.75], ["long", 0.25]], [["short", 0], ["long", 1]]]})
    status, found = post(server, "/v1/models/double:classify", {"examples": [{"x": [1, 2, 3]}]})
    assert status == 400 and "no probabilities" in found["error"]


def test_status_and_metadata(server):
    available = {"version": "7", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert get(server, "/v1/models/double") == get(server, "/v1/models/double/versions/7") == (200, {"model_version_status": [available]})
    status, found = get(server, "/v1/models/toy/metadata")
    signature = found["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert status == 200 and found["model_spec"] == {"name": "toy", "signature_name": "", "version": "1"}
    assert signature["inputs"]["text"]["dtype"] == "DT_STRING" and signature["inputs"]["times"]["dtype"] == "DT_INT64"
    assert signature["outputs"]["shares"] == {"dtype": "DT_FLOAT", "name": "shares:0", "tensor_shape": {
        "dim": [{"size": "-1", "name": ""}, {"size": "2", "name": ""}], "unknown_rank": False}}


@pytest.mark.parametrize("path, content, status, part", [
    ("/v1/models/nobody:predict", {"instances": [1]}, 404, "no model nobody"),
    ("/v1/models/toy/versions/2:predict", {"instances": [1]}, 404, "no version 2"),
    ("/v1/models/toy/versions/" + "9" * 5000 + ":predict", {"instances": [1]}, 404, "no version 99"),
    ("/v1/models/toy:predict", [], 400, "instances"),
    ("/v1/models/toy:predict", {"instances": [], "inputs": {}}, 400, "instances"),
    ("/v1/models/toy:predict", {"instances": []}, 400, "no examples"),
    ("/v1/models/toy:predict", {"instances": "a"}, 400, "no examples"),
    ("/v1/models/toy:predict", {"instances": [1], "signature_name": "other"}, 400, "only serving_default"),
    ("/v1/models/toy:predict", {"instances": [{"text": "a", "times": 1}, {"text": "a"}]}, 400, "example 2: send an object with text"),
    ("/v1/models/toy:predict", {"instances": [{"text": 1, "times": 1}]}, 400, "is no text"),
    ("/v1/models/toy:predict", {"instances": [{"text": {"b64": "?"}, "times": 1}]}, 400, "b64"),
    ("/v1/models/toy:predict", {"instances": [{"text": "a", "times": 2**64}]}, 400, "example 1"),
    ("/v1/models/toy:predict", {"instances": [{"text": "a", "times": [[1]]}]}, 400, "shape"),
    ("/v1/models/toy:predict", {"instances": [{"text": "", "times": 1}]}, 400, "the text is empty"),
    ("/v1/models/toy:predict", {"inputs": {"text": ["a"], "times": [1, 2]}}, 400, "same number"),
    ("/v1/models/toy:predict", {"inputs": {"text": "a", "times": 1}}, 400, "a list of values"),
    ("/v1/models/toy:classify", {"examples": []}, 400, "examples"),
    ("/v1/models/toy:predict", {"instances": [1] * 5000}, 413, "too many"),
])
def test_what_is_wrong_is_named(server, path, content, status, part):
    code, found = post(server, path, content)
    assert code == status and part in found["error"]


def test_other_methods_are_refused(server):
    assert server.ask(path="/v1/models/toy:predict", method="GET")[0] in (404, 405)
    assert server.ask(b"{}", path="/v1/models/toy")[0] == 405
