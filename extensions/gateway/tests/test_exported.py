"""A run and its export answer in every dialect as they were judged."""

import base64
import json

import numpy as np
import pytest

from extensions.gateway.tests.gateway_server import running
from pipelines.serving.export import export
from pipelines.serving.exported import ExportedModel
from pipelines.serving.predict import Predictor
from tests.serving.bad_requests import HUGE_PNG
from tests.serving.toy_server import needs_extra

pytestmark = [needs_extra, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(loaded, tmp_path_factory):
    """The run as `toy`, its export as `exported`."""
    folder = export(loaded, tmp_path_factory.mktemp("exported") / "export")
    with running(Predictor(loaded, batch=8), limit=8 << 20) as there:
        model = ExportedModel(folder, batch=8)
        model.warm_up()
        there.models.add("exported", 1, model)
        yield there


@pytest.mark.parametrize("name", ["toy", "exported"])
def test_all_dialects_answer_as_it_was_judged(server, judged, name):
    import tritonclient.http as triton

    images, expected = judged[0][:20], judged[2][:20]
    encoded = [{"b64": base64.b64encode(image).decode()} for image in images]
    rest = server.ask(json.dumps({"instances": encoded}).encode(), path=f"/v1/models/{name}:predict")[2]["predictions"]
    classes = server.ask(json.dumps({"examples": [{"image": one} for one in encoded]}).encode(), path=f"/v1/models/{name}:classify")[2]
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        tensor = triton.InferInput("image", [len(images)], "BYTES")
        tensor.set_data_from_numpy(np.array(images, object))
        found = client.infer(name, [tensor])
    for shares in (np.array([one["probabilities"] for one in rest]),
                   np.array([[score for _, score in one] for one in classes["results"]]), found.as_numpy("probabilities")):
        assert np.abs(shares - expected).max() <= 1e-5
    assert found.as_numpy("label").astype("U").tolist() == [one["label"] for one in rest] == [str(row.argmax()) for row in expected]


@pytest.mark.parametrize("name", ["toy", "exported"])
def test_a_picture_that_is_none_is_named(server, judged, name):
    sent = [{"b64": base64.b64encode(image).decode()} for image in (judged[0][0], HUGE_PNG, b"x", judged[0][1])]
    status, _, content = server.ask(json.dumps({"instances": sent}).encode(), path=f"/v1/models/{name}:predict")
    assert status == 400 and content["error"].startswith("example 2: ")
