"""What replicas send one another in a step: one message from each, whatever the number of weights."""

import json

import pytest

from tests import processes

pytestmark = pytest.mark.slow(seconds=25)

TRACED = """
import collections, json, sys
import tensorflow as tf
from pipelines.config.load import load
from pipelines.runs.launch import task_class
from pipelines.training.session import assemble

for name, overrides in json.loads(sys.argv[1]):
    experiment = load(name, ["train.devices=8", "train.precision=float32", *overrides]).experiment
    session = assemble(experiment, task_class(experiment.task))
    step = session.step
    traced = step._run.get_concrete_function(session.feed.iterator(0, 1), tf.constant(0, tf.int64), tf.constant(1, tf.int64), step.fresh())
    graph = traced.graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    sent = collections.Counter(node.op for node in nodes if node.op.startswith("Collective"))
    print(json.dumps({"name": name, "sent": sent, "weights": len(session.weights)}))
"""
CASES = [("vision/digits", ["data.limit=80", "model={name: cnn, widths: [4, 4], hidden: 8, batch_norm: true}", "train.batch_size=16",
                            "train.clip={global_norm: 1.0}", "train.ema=0.9"]),
         ("nlp/quickstart", ["data.limit=80", "train.batch_size=16", "tokens={name: hashed, buckets: 64}"])]


@pytest.fixture(scope="module")
def traced() -> dict[str, dict]:
    done = processes.run("-c", TRACED, json.dumps(CASES), check=True)
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", [name for name, _ in CASES])
def test_gradients_statistics_and_totals_travel_together(traced, name):
    """The default of GPUs too, where NCCL carries what TensorFlow packs into one tensor here."""
    assert traced[name]["sent"] == {"CollectiveReduceV2": 8}
    assert traced[name]["weights"] >= (8 if name == "vision/digits" else 2)
