"""A signed run that is used, resumed and exported; test_hundred_mutations.py has what is refused."""

import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import quartet
from extensions.secure.guard import Signatures
from extensions.secure.options import require_signature
from extensions.secure.tests.keys import needs_trust, pair
from pipelines.base.errors import Untrusted
from pipelines.base.inside import digest
from pipelines.commands.main import app
from pipelines.runs.folder import RunFolder
from quartet.testing import check_guard
from tests import finished_run

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


def test_the_contract_of_a_guard(signed, tmp_path):
    with require_signature(require_signature=pair()[1]):
        check_guard(Signatures, signed, finished_run.copy(tmp_path / "unsigned"))


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

    def opened(export):
        with require_signature(require_signature=public):
            return load_exported(export)

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
        opened(export)
    assert command("sign", export, "--key", key).exit_code == 0
    served = opened(export)
    answered = served.together([("a", served.take(images[0]))])
    assert answered[0].error is None
    vector = next(iter(value for value in answered[0].values.values() if np.ndim(value) == 1))
    assert np.allclose(np.asarray(vector), probabilities[0], atol=1e-5)
    (export / "assets" / "labels.txt").write_text("other\n" * 10)
    with pytest.raises(Untrusted, match=r"assets/labels\.txt was changed"):
        opened(export)


def test_provenance_and_bill_of_materials(signed):
    """The statement names every other file by its digest, the data, the code and the settings; the bill names the packages."""
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


def test_lineage_names_the_key_and_checks_it(tmp_path):
    key, public = pair()
    folder = finished_run.copy(tmp_path)
    assert "signature    none" in command("lineage", folder).stdout
    assert command("sign", folder, "--key", key).exit_code == 0
    plain, checked = command("lineage", folder, "--json"), command("lineage", folder, "--json", "--key", public)
    unchecked = json.loads(plain.stdout)["signature"]
    assert unchecked["verified"] is False and unchecked["key"] == digest(public)
    assert json.loads(checked.stdout)["signature"] == {**unchecked, "verified": True}
    assert "not checked" in command("lineage", folder).stdout and "not checked" not in command("lineage", folder, "--key", public).stdout
    assert command("lineage", folder, "--key", pair("other")[1]).exit_code == 1
    (folder / "environment.json").write_text("{")
    done = command("lineage", folder, "--key", public)
    assert done.exit_code == 1 and "environment.json was changed" in done.output
