"""Answers that are bytes, over every protocol."""

import numpy as np
import pytest

from extensions.gateway.tests.gateway_server import running
from pipelines.serving.output import Prediction
from tests.serving.toy_server import Doubling, needs_extra, spec

PICTURE = b"\x89PNG\r\n\x1a\n\xff\x00"
B64 = {"b64": "iVBORw0KGgr/AA=="}


class Drawing(Doubling):
    """Answers numbers with a picture, and with bytes of which the task says nothing."""

    outputs = {"label": spec([None], "string"), "mask": spec([None], "string"), "other": spec([None, 2], "string")}
    columns, kinds = {"label": 1, "mask": 1, "other": 2}, {"mask": "mask"}

    def together(self, read):
        return [Prediction(name, {"label": "café", "mask": PICTURE, "other": np.array(["a", b"\xff"], object)}) for name, _ in read]


@pytest.fixture(scope="module")
def server():
    with running(Drawing()) as started:
        yield started


def ask(server, path, body):
    import orjson

    status, _, content = server.ask(orjson.dumps(body), path=path)
    assert status == 200
    return content


@needs_extra
def test_the_description_says_what_bytes_and_boxes_are(server):
    from extensions.gateway.openapi import BOXES, description

    class Finding(Drawing):
        outputs = {"boxes": spec([None, None, 4], "float32"), "page": spec([None], "string"), **Drawing.outputs}
        kinds = {"boxes": "boxes", "page": ".pdf", **Drawing.kinds}

    models = type("Models", (), {"names": ["find"], "get": lambda self, name: type("Hosted", (), {"model": Finding()})})()
    body = description(models, "1")["paths"]["/v1/models/find:predict"]["post"]["responses"]["200"]["content"]["application/json"]
    said = body["schema"]["properties"]["predictions"]["items"]["anyOf"][0]["properties"]
    assert said["boxes"]["description"] == BOXES and said["boxes"]["items"]["maxItems"] == 4
    media = {name: said[name]["properties"]["b64"]["contentMediaType"] for name in ("mask", "page")}
    assert media == {"mask": "image/png", "page": "application/pdf"} and "anyOf" in said["label"]


@needs_extra
def test_predict(server):
    (answer,) = ask(server, "/predict", {"inputs": [[1, 2, 3]]})["answers"]
    assert answer == {"input": "input 1", "label": "café", "mask": B64, "other": ["a", {"b64": "/w=="}]}


@needs_extra
def test_tensorflow_rest(server):
    (answer,) = ask(server, "/v1/models/toy:predict", {"instances": [[1, 2, 3]]})["predictions"]
    assert answer == {"label": "café", "mask": B64, "other": [{"b64": "YQ=="}, {"b64": "/w=="}]}


@needs_extra
def test_open_inference(server):
    tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}
    found = ask(server, "/v2/models/toy/infer", {"inputs": [tensor]})
    assert [one["data"] for one in found["outputs"]] == [["café"], [B64], [{"b64": "YQ=="}, {"b64": "/w=="}]]


@needs_extra
def test_binary_tensors():
    from extensions.gateway.open_inference import packed
    from extensions.gateway.tensors import columns_of

    found = columns_of(Drawing().together([("a", {})]), Drawing.outputs)
    assert packed(found["mask"]) == b"\x0a\0\0\0" + PICTURE and found["label"].tolist() == ["café".encode()]
