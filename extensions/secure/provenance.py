"""What a run was made of, as an in-toto statement with SLSA's provenance predicate: data, code, settings, and the digests of its files.

https://slsa.dev/spec/v1.0/provenance has the fields. The facts are the run's own (environment.json): they say what was recorded, and a
signature says who stands for it.
"""

from pathlib import Path
from typing import Any

from extensions.secure import signing
from pipelines.base.inside import digest
from pipelines.runs.folder import RunFolder

PROVENANCE = "provenance.json"
BUILD_TYPE = "urn:keras-quartet:train:v1"
BUILDER = "urn:keras-quartet:command-line"
VERSIONS = ("quartet", "tensorflow", "keras", "numpy", "python")


def provenance(folder: RunFolder, export: Path | None = None) -> dict[str, Any]:
    """The statement of a run, or of a model that was exported from it.

    Raises:
        ConfigError: the run's environment.json is missing or damaged.
    """
    environment, what = folder.read_environment(), export or folder.path
    subject = [{"name": name, "digest": {"sha256": digest(what / name)}} for name in signing.files_of(what) if name != PROVENANCE]
    materials: list[dict[str, Any]] = [
        {"name": f"data/{split}", "digest": {f"quartetFingerprint{environment['fingerprints']}": fingerprint}}
        for split, fingerprint in environment["data"].items()]
    if environment["source"] is not None:
        materials.append({"name": "source", "digest": {"gitCommit": environment["source"]["revision"]},
                          "annotations": {"changed": environment["source"]["changed"]}})
    materials += [{"name": f"extension/{one['name']}", **({"digest": {"sha256": one["sha256"]}} if one["sha256"] else {})}
                  for one in environment["extensions"]]
    if export is not None:
        weights = folder.model / "model.keras"
        materials.append({"name": f"run/{folder.experiment_name}/{folder.path.name}/model.keras",
                          **({"digest": {"sha256": digest(weights)}} if weights.is_file() else {})})
    if environment.get("encoder"):
        encoder = environment["encoder"]
        materials.append({"name": f"encoder/{encoder['name']}", "digest": {"sha256": encoder["checksum"]}})
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"settings": folder.read_settings(), "command": environment.get("command") or []},
                "internalParameters": {"settings": {"sha256": digest(folder.experiment)}},
                "resolvedDependencies": materials,
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {name: environment[name] for name in VERSIONS if environment.get(name)}},
                "metadata": {"invocationId": f"{folder.experiment_name}/{folder.path.name}"},
            },
        },
    }
