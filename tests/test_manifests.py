"""The manifests under deploy/ say only what the published schemas of Kubernetes, JobSet and Kubeflow Trainer know.

Of a Deployment and of RayJob, whose own fields no package has a schema of, the pods are checked.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow_trainer_api import models

DEPLOY = Path(__file__).parent.parent / "deploy"
KINDS = {"JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob,
         "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime}


def unknown(given: Any, kept: Any, place: str = "") -> list[str]:
    """Where the schema's own reading of a manifest differs from it: fields that it does not know, and values of another type."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [one for key, value in given.items() for one in unknown(value, kept.get(key), f"{place}.{key}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [one for number, pair in enumerate(zip(given, kept)) for one in unknown(*pair, f"{place}[{number}]")]
    return [] if given == kept else [place]


def manifests(*kinds: str) -> list[dict[str, Any]]:
    every = [document for file in sorted(DEPLOY.glob("*.yaml")) for document in yaml.safe_load_all(file.read_text())]
    return [document for document in every if document.get("kind") in kinds]


@pytest.mark.parametrize("manifest", manifests(*KINDS), ids=lambda one: one["kind"])
def test_a_manifest_has_only_fields_of_its_schema(manifest):
    model = KINDS[manifest["kind"]]
    assert manifest["apiVersion"].startswith(("jobset.x-k8s.io/", "trainer.kubeflow.org/"))
    assert unknown(manifest, model.from_dict(manifest).to_dict()) == []
    wrong = {**manifest, "spec": {**manifest["spec"], "restarts": 3}}
    assert unknown(wrong, model.from_dict(wrong).to_dict()) == [".spec.restarts"]


def test_pods_have_only_fields_of_kubernetes():
    (job,), (deployment,) = manifests("RayJob"), manifests("Deployment")
    cluster = job["spec"]["rayClusterSpec"]
    for owner in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"], deployment["spec"]):
        assert unknown(owner["template"], models.IoK8sApiCoreV1PodTemplateSpec.from_dict(owner["template"]).to_dict()) == []


def test_every_manifest_is_known_here():
    known = (*KINDS, "RayJob", "Deployment", "Service")
    assert len(manifests(*known)) == sum(file.read_text().count("\nkind: ") + file.read_text().startswith("kind: ")
                                         for file in DEPLOY.glob("*.yaml"))
