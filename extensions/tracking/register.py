"""`quartet register`: an exported model as a version in MLflow's model registry, with its signature. Needs the extra `mlflow`."""

import platform
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extensions.tracking import hook, record
from extensions.tracking.beside import require_extra
from extensions.tracking.follow import settings_of
from extensions.tracking.mlflow_model import DATA
from extensions.tracking.mlflow_run import MlflowRun
from extensions.tracking.trackers import Order
from pipelines.base import storage
from pipelines.base.errors import ConfigError, QuartetError
from pipelines.machine.environment import version
from pipelines.runs.folder import RunFolder
from pipelines.runs.lineage import known_of
from pipelines.serving.exported import ExportedModel, load_exported

FOLDER = "model"  # of the registered model among the artifacts of its run


class NotRegistered(QuartetError):
    """The registry refused, or cannot be reached."""


@dataclass(frozen=True)
class Registered:
    """A version in a registry."""

    name: str
    version: str
    run: str  # the tracked run's id
    place: str


def register(folder: RunFolder, export: Path, *, server: str | None, name: str, aliases: Sequence[str] = ()) -> Registered:
    """Uploads the export to the artifacts of the tracked run (which is made where the run was not tracked), and registers it.

    Args:
        export: a SavedModel that `quartet export` wrote of the run; it is loaded and its graph looked through.
        server: MLflow's address; None: as its environment variables say.
        name: of the registered model, made where it is missing.
        aliases: that then point to this version: `champion`.

    Raises:
        ConfigError: there is no such export, or the extra is missing; Untrusted where a guard refuses it.
        NotRegistered: the registry refused, or cannot be reached.
    """
    require_extra("mlflow")
    report = folder.read_report()
    model = load_exported(export)
    from mlflow.exceptions import MlflowException

    try:
        run = _run(folder, report, server)
        client = run.client
        with tempfile.TemporaryDirectory(prefix="quartet-register-") as place:
            _write(Path(place), export, model, run.id)
            client.log_artifacts(run.id, place, FOLDER)
        _known(client, name, f"Models of {folder.experiment_name}, made with Quartet.")
        uri = client.get_run(run.id).info.artifact_uri
        made = client.create_model_version(name, f"{uri}/{FOLDER}", run.id, tags=_tags(folder, export, report),
                                           description=f"{folder.experiment_name}/{folder.path.name}: {_result(report)}")
        for alias in aliases:
            client.set_registered_model_alias(name, alias, made.version)
    except MlflowException as error:
        raise NotRegistered(f"--to mlflow: {' '.join(str(error).split())[:500]}") from error
    except (OSError, ImportError) as error:
        raise NotRegistered(f"--to mlflow: {error}") from error
    return Registered(name, str(made.version), run.id, run.place)


def _run(folder: RunFolder, report: Mapping[str, Any], server: str | None) -> MlflowRun:
    """The run at the tracker: the one that the training sent, else a new one with settings and final metrics."""
    known = record.read(folder.path)
    order = Order("mlflow", str(folder.path), folder.experiment_name, folder.path.name, server)
    run = MlflowRun(order, settings_of(folder.path), known.id if known is not None and known.tracker == "mlflow" else None)
    if known is None or known.id != run.id:
        run.finish("finished", hook.metrics(report), {}, int(report["timing"].get("steps") or 0))
    else:
        run.client.set_terminated(run.id, "FINISHED")
    return run


def _write(place: Path, export: Path, model: ExportedModel, run: str) -> None:
    """MLmodel, and beside it the SavedModel."""
    from mlflow.models import Model

    described = Model(artifact_path=FOLDER, run_id=run, signature=signature(model))
    described.add_flavor("python_function", loader_module="extensions.tracking.mlflow_model", data=DATA, env={},
                         python_version=platform.python_version())
    described.add_flavor("quartet", data=DATA, task=model.task, quartet_version=version("keras-quartet") or "unknown")
    shutil.copytree(export, place / DATA)
    described.save(str(place / "MLmodel"))
    (place / "requirements.txt").write_text(f"keras-quartet[mlflow]=={version('keras-quartet') or '0'}\n", encoding="utf-8")


def signature(model: ExportedModel) -> Any:
    """MLflow's signature of a model: a column for each input and output; bytes of files as binary, vectors as arrays."""
    from mlflow.models import ModelSignature
    from mlflow.types import Schema
    from mlflow.types.schema import Array, ColSpec, DataType

    kinds = {"float32": DataType.float, "float64": DataType.double, "float16": DataType.float, "bfloat16": DataType.float,
             "int32": DataType.integer, "int64": DataType.long, "bool": DataType.boolean}
    files = {field.name for field in model.form if field.kind in ("image", "sound")}

    def columns(specs: Mapping[str, Any]) -> Iterable[Any]:
        for name, spec in specs.items():
            form = spec.dtype.name
            kind: Any = (DataType.binary if name in files else DataType.string) if form == "string" else kinds.get(form, DataType.long)
            for _ in range((spec.shape.rank or 1) - 1):
                kind = Array(kind)
            yield ColSpec(kind, name)

    return ModelSignature(Schema(list(columns(model.inputs))), Schema(list(columns(model.outputs))))


def _known(client: Any, name: str, description: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, description=description)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _result(report: Mapping[str, Any]) -> str:
    """The leading metric of the report, in words."""
    for name, metric in report["metrics"].items():
        if metric["value"] is not None:
            between = "" if metric.get("low") is None else f" [{metric['low']:.4g}, {metric['high']:.4g}]"
            return f"{name} {metric['value']:.4g}{between}"
    return "not judged"


def _tags(folder: RunFolder, export: Path, report: Mapping[str, Any]) -> dict[str, str]:
    environment = folder.read_environment()
    signature = known_of(export).get("signature")
    found = {"quartet.run": f"{folder.experiment_name}/{folder.path.name}", "quartet.task": report["task"],
             "quartet.version": environment.get("quartet"), "quartet.data.train": environment["data"].get("train"),
             "quartet.source": (environment["source"] or {}).get("revision"),
             "quartet.signed_by": signature and signature["key"]}
    return {name: str(value) for name, value in found.items() if value}


def default_name(folder: RunFolder) -> str:
    """vision-digits; a name with / or : cannot be asked for."""
    return folder.experiment_name.replace("/", "-")


def require_export(folder: RunFolder) -> Path:
    """RUN/export. Raises ConfigError where it is missing, or encrypted."""
    export = folder.path / "export"
    if not (export / "saved_model.pb").is_file():
        raise ConfigError(f"{export}: is not there; write it first: quartet export {folder.path}")
    if storage.holder(export / "saved_model.pb"):
        raise ConfigError(f"{export}: is encrypted, and nobody could load it from a registry; quartet decrypt writes a plain copy")
    return export
