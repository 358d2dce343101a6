"""The container files: their versions are pyproject.toml's, what they copy is there, and the manifests name what the server has."""

import ast
import re
from pathlib import Path

import pytest
import typer
import yaml
from packaging.requirements import Requirement

from pipelines.commands import main

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
DOCKERFILES = ("Dockerfile", "Dockerfile.serve")


def steps(name):
    """(instruction, the rest) of each step of a Dockerfile."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / name).read_text(encoding="utf-8"))
    return [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]


def declared():
    """Every requirement in pyproject.toml's dependencies and its extras serve and mobile."""
    project = PROJECT.partition("[project]")[2].partition("[project.scripts]")[0]
    lists = {name: re.search(rf"^{name} = (\[.*?\])$", re.sub(r"\s+#.*", "", project), re.M | re.S)[1]
             for name in ("dependencies", "serve", "mobile")}
    return {str(Requirement(one)) for found in lists.values() for one in ast.literal_eval(found)}


def test_what_a_server_needs_is_what_the_project_declares():
    listed = [line for line in (DEPLOY / "serve-requirements.txt").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert listed and {str(Requirement(one)) for one in listed} <= declared()
    names = {Requirement(one).name for one in listed}
    assert not names & {"keras-tuner", "tensorboard", "tensorflow-datasets", "librosa", "matplotlib", "scikit-learn"}
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert {name for name in ("tensorflow", "keras", "numpy", "pydantic") if re.search(rf"^{name}==", lock, re.M)} <= names


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_is_built_from_what_is_there_and_runs_without_rights(name):
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copied = [path for word, rest in steps(name) if word == "COPY" and "--from" not in rest for path in rest.split()[:-1]]
    packages = {"quartet", "pipelines", "vision", "speech", "nlp", "recsys", "extensions"}
    assert {"pyproject.toml", "requirements.lock", "configs", *packages} <= set(copied)
    assert all((ROOT / path).exists() and f"!{path}" in allowed for path in copied)
    bases = {rest.split()[0] for word, rest in steps(name) if word == "FROM"}
    assert bases == {"python:3.12-slim-bookworm"} and "3.12" in PROJECT.replace("<3.14", "3.12")
    assert [rest for word, rest in steps(name) if word == "USER"] == ["10001"]
    assert all("--constraint requirements.lock" in rest or "--no-deps" in rest or "--requirement requirements.lock" in rest
               for word, rest in steps(name) if word == "RUN" and "pip install" in rest)


def test_the_manifests_name_what_the_server_has():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["serve"]
    assert (DEPLOY / compose["build"]["context"] / compose["build"]["dockerfile"]).is_file()
    assert compose["read_only"] and compose["cap_drop"] == ["ALL"] and compose["deploy"]["resources"]["limits"]
    deployment, service = yaml.safe_load_all((DEPLOY / "serve.yaml").read_text(encoding="utf-8"))
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert pod["metadata"]["labels"] == service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] and {"cpu", "memory"} <= set(container["resources"]["limits"])
    app = (ROOT / "pipelines" / "serving" / "http" / "app.py").read_text(encoding="utf-8")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert f'"{container[probe]["httpGet"]["path"]}"' in app
    drain = int(container["args"][container["args"].index("--drain") + 1])
    assert pod["spec"]["terminationGracePeriodSeconds"] > drain + int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    entry = next(rest for word, rest in steps("Dockerfile.serve") if word == "ENTRYPOINT")
    options = {word for word in [*ast.literal_eval(entry), *container["args"], *compose["command"]] if word.startswith("--")}
    serve = typer.main.get_command(main.app).commands["serve"]
    assert options <= {name for parameter in serve.params for name in parameter.opts}


def test_serving_imports_nothing_that_trains():
    from tests import processes

    code = ("from pipelines.machine.startup import start_tensorflow; start_tensorflow()\n"
            "import pipelines.commands.shipping, pipelines.serving.forms, pipelines.serving.exported\n"
            "import pipelines.serving.predict, sys\n"
            "found = {name.partition('.')[0] for name in sys.modules}\n"
            "print(*(found & {'keras_tuner', 'tensorboard', 'tensorflow_datasets', 'librosa', 'matplotlib', 'sklearn'}))")
    done = processes.run("-c", code, cwd=ROOT, anew=True)
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout + done.stderr
