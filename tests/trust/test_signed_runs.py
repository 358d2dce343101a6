"""A signed run that is used, resumed and exported; test_hundred_mutations.py has what is refused."""

import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import quartet
from pipelines.commands.main import app
from pipelines.runs.folder import RunFolder
from pipelines.trust.signing import Untrusted
from tests import finished_run
from tests.trust.keys import needs_trust, pair

pytestmark = [needs_trust, pytest.mark.slow(seconds=15)]


@pytest.fixture
def signed(tmp_path):
    """A finished run of one's own, signed through the command line."""
    folder = finished_run.copy(tmp_path)
    done = CliRunner().invoke(app, ["sign", str(folder), "--key", str(pair()[0])])
    assert done.exit_code == 0, done.output
    return folder


def command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_a_run_that_is_resumed(signed):
    """One that was interrupted, by the name of its experiment, and of several seeds."""
    key, public = pair()
    (signed / "report" / "report.json").unlink()
    runs = signed.parents[2]
    call = ["train", "vision/digits", *finished_run.SETTINGS, "--runs", runs, "--name", "small", "--require-signature", public]
    done = command(*call)
    assert done.exit_code == 1 and "missing: report/report.json" in done.output
    assert command("sign", signed, "--key", key).exit_code == 0
    seed = signed.with_name("small-seed1")
    shutil.copytree(signed, seed)
    (seed / "metrics.jsonl").write_text("")
    done = command(*call)
    assert done.exit_code == 1 and "small-seed1" in done.output and "metrics.jsonl was changed" in done.output


def test_a_signed_run_is_used_like_any_other(signed, tmp_path, judged):
    """The answers are the same, and what is made of it, export and evaluation, leaves its signature valid."""
    from pipelines.serving.exported import load_exported

    key, public = pair()
    images, _, probabilities = judged
    run = quartet.load(signed, require_signature=public)
    assert run.state == "finished" and run.summary["run"] == str(signed)
    answers = run.predict(images[:20], probabilities=True)
    assert [one["label"] for one in answers] == [str(row.argmax()) for row in probabilities[:20]]
    assert run.evaluate(settings={"evaluate.bootstrap": 100}).path.is_relative_to(signed / "report")
    export = run.export()
    assert export == signed / "export"
    assert command("verify", signed, "--key", public).exit_code == 0
    with pytest.raises(Untrusted, match="not signed"):
        load_exported(export, require_signature=public)
    assert command("sign", export, "--key", key).exit_code == 0
    served = load_exported(export, require_signature=public)
    answered = served.together([("a", served.take(images[0]))])
    assert answered[0].error is None
    vector = next(iter(value for value in answered[0].values.values() if np.ndim(value) == 1))
    assert np.allclose(np.asarray(vector), probabilities[0], atol=1e-5)
    (export / "assets" / "labels.txt").write_text("other\n" * 10)
    with pytest.raises(Untrusted, match=r"assets/labels\.txt was changed"):
        load_exported(export, require_signature=public)


def test_provenance_and_bill_of_materials(signed):
    """The statement names every other file by its digest, the data, the code and the settings; the bill names the packages."""
    from pipelines.trust.signing import digest

    statement = json.loads((signed / "provenance.json").read_text())
    environment = RunFolder(signed).read_environment()
    assert statement["_type"] == "https://in-toto.io/Statement/v1" and statement["predicateType"] == "https://slsa.dev/provenance/v1"
    subjects = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    assert {"experiment.yaml", "model/model.keras", "report/report.json", "sbom.json"} <= set(subjects)
    assert all(digest(signed / name) == value for name, value in subjects.items())
    build = statement["predicate"]["buildDefinition"]
    assert build["internalParameters"]["settings"]["sha256"] == digest(signed / "experiment.yaml")
    assert build["externalParameters"]["settings"]["task"] == "vision.classification"
    materials = {one["name"]: one.get("digest") for one in build["resolvedDependencies"]}
    assert materials["data/train"] == {"quartetFingerprint2": environment["data"]["train"]}
    if environment["source"]:
        assert materials["source"] == {"gitCommit": environment["source"]["revision"]}
    bill = json.loads((signed / "sbom.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    packages = {one["name"]: one for one in bill["components"]}
    assert packages["numpy"]["version"] == np.__version__ and packages["numpy"]["purl"] == f"pkg:pypi/numpy@{np.__version__}"
