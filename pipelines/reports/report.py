"""The report of a run: report.md for reading, report.html to share, report.json for programs, the model card, and the figures.

report.json is written last: where it exists, the report is whole. Its text comes from `run_report.py`. `changed_settings` says what
an experiment sets otherwise than the defaults.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from pipelines.base import formatting
from pipelines.base.figures import png
from pipelines.base.files import abridged, finite, write_json, write_whole
from pipelines.config.extensions import options
from pipelines.reports.blocks import Block, Bullets, Code, Heading, Paragraph, Table, markdown
from pipelines.reports.html import page
from pipelines.reports.predictions import FILE as PREDICTIONS
from pipelines.reports.predictions import write as write_predictions
from pipelines.reports.predictions import write_resamples
from pipelines.reports.run_report import CURVES, RunReport
from pipelines.task.contract import Splits
from pipelines.task.intervals import spread
from pipelines.task.results import Judgement, Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SHOWN = 12  # class names, settings


def card(content: Mapping[str, Any], run: str) -> list[Block]:
    """The card of a run, from what report.json holds.

    Args:
        run: the run's folder, for the commands.
    """
    environment, data, timing = content["environment"], content["data"], content["timing"]
    blocks: list[Block] = [Heading(f"Model card: {content['experiment']}", 1), Heading("Model")]
    model = content["settings"].get("model")
    facts = [f"Task: {content['task']}.", f"Run: {content['run']}."]
    if isinstance(model, dict):
        facts.append("Model: " + ", ".join(f"{name} {formatting.yaml_value(value)}" for name, value in model.items()) + ".")
    if timing.get("train_seconds") is not None:
        epochs = f", {formatting.counted(round(timing['epochs']), 'epoch')}" if timing.get("epochs") else ""
        where = f", in {environment['precision']} on {', '.join(environment['devices'])}" if environment.get("devices") else ""
        facts.append(f"Trained for {formatting.duration(timing['train_seconds'])}{epochs}{where}.")
    if encoder := environment.get("encoder"):
        licence = f"licence {encoder['licence']}" if encoder["licence"] else "its licence is not stated"
        source = f" from {encoder['source']}" if encoder["source"] else ""
        facts.append(f"Encoder: {encoder['name']}{source}, {encoder['weights']:,} weights, {licence}, SHA-256 {encoder['checksum']}.")
    facts += [one["statement"] for one in environment.values() if isinstance(one, dict) and "statement" in one]  # of extensions
    if teacher := (content["settings"].get("train") or {}).get("teacher"):
        facts.append(f"Teacher: {teacher['run']}, with weight {teacher['weight']:g} in the loss.")
    versions = [f"{name} {environment[name]}" for name in ("tensorflow", "keras", "keras-hub", "quartet") if environment.get(name)]
    if versions:
        facts.append(f"Made with {', '.join(versions)}.")
    blocks += [Bullets(facts), Heading("Data")]
    blocks.append(Bullets(_data_lines(content["settings"].get("data") or {}, data)))
    blocks += [Heading("Results"), *_results(content["metrics"])]
    blocks += [Heading("Limits"), Bullets([*content["notes"][:_SHOWN], *_limits(content)])]
    blocks += [Heading("To be answered by whoever shares it"), Bullets([
        "What is it for, and what must it not be used for?",
        "Whom may its mistakes hurt, and which mistakes are worse than others?",
        "May the data be used so, and do they represent those on whom it will be used?"])]
    use = options(environment.get("extensions"))
    return [*blocks, Heading("Use"), Code(f"quartet predict {run} INPUT...{use}\nquartet export {run}{use}")]


def _data_lines(settings: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    lines = []
    source = [f"{name}: {settings[name]}" for name in ("source", "name", "path") if settings.get(name)]
    if source:
        lines.append(", ".join(source))
    if data.get("examples"):
        lines.append("examples: " + ", ".join(f"{split} {count:,}" for split, count in data["examples"].items()))
    classes = (data.get("facts") or {}).get("classes")
    if isinstance(classes, dict):  # abridged
        lines.append(f"{classes['count']:,} classes: {', '.join(map(str, classes['first'][:_SHOWN]))}, ...")
    elif isinstance(classes, list):
        names = ", ".join(map(str, classes[:_SHOWN])) + (", ..." if len(classes) > _SHOWN else "")
        lines.append(f"{len(classes)} classes: {names}")
    counts = (data.get("facts") or {}).get("class_counts")
    if isinstance(counts, list) and counts and min(counts):
        lines.append(f"training examples a class: {min(counts):,} to {max(counts):,}")
    return lines or ["not described"]


def _results(metrics: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    if not metrics:
        return [Paragraph("Nothing was judged.")]
    rows = []
    for name, stored in metrics.items():
        value = float("nan") if stored["value"] is None else float(stored["value"])
        metric = Metric(value, stored.get("low"), stored.get("high"), stored.get("n"), stored.get("unit") or "example", stored.get("units"))
        split, base = formatting.split_name(name)
        rows.append([formatting.title(base), split, metric.text(name),
                     f"{stored['n']:,}" if stored.get("n") else "–", metric.drawn_by() if stored.get("low") is not None else "–"])
    return [Table(("metric", "split", "value and 95 % interval", "examples", "drawn by"), rows, (False, False, True, True, True))]


def _limits(content: Mapping[str, Any]) -> list[str]:
    """Limits that follow from the numbers."""
    lines = []
    per_class = next((rows for name, rows in content["tables"].items() if name.endswith("/per_class") and name.startswith("test/")), None)
    if per_class and all("recall" in row and "class" in row for row in per_class):
        known = [row for row in per_class if isinstance(row["recall"], (int, float))]
        if known:
            worst = min(known, key=lambda row: row["recall"])
            recall = formatting.number(float(worst["recall"]), "recall")
            lines.append(f"Weakest class on test: {worst['class']}, of which {recall} are found.")
    if content["skipped"]:
        lines.append(f"{formatting.counted(len(content['skipped']) + content['more_skipped'], 'unreadable example')} left out of the data.")
    lines.append("The figures hold for data like those that it was judged on; its quality on others is unknown.")
    return lines


_NONE = object()  # where a setting has no default


@dataclass(frozen=True)
class Changed:
    """A setting by dotted name, its value, and its default (`required`: it has none)."""

    name: str
    value: Any
    default: Any
    required: bool = False


def changed_settings(section: BaseModel, *, leave_out: tuple[str, ...] = ()) -> list[Changed]:
    """The settings whose values are not their defaults, in order of the schema; those without default are always among them.

    Args:
        leave_out: sections at the top that do not count, such as `tune`.
    """
    names = [name for name in type(section).model_fields if name not in leave_out]
    return [change for name in names for change in _differing(section, name, _default(section, name), "")]


def _differing(section: BaseModel, name: str, default: Any, prefix: str) -> list[Changed]:
    value, dotted = getattr(section, name), f"{prefix}{name}"
    if not isinstance(value, BaseModel):
        if isinstance(value, list):
            value = [one.model_dump() if isinstance(one, BaseModel) else one for one in value]
        required = default is _NONE
        same = value == default and type(value) is type(default)
        return [] if same else [Changed(dotted, value, None if required else default, required)]
    same_kind = type(default) is type(value)
    changes = []
    for inner in type(value).model_fields:
        changes += _differing(value, inner, getattr(default, inner) if same_kind else _default(value, inner), f"{dotted}.")
    return changes


def _default(section: BaseModel, name: str) -> Any:
    field = type(section).model_fields[name]
    if field.is_required():
        return _NONE
    try:
        return field.get_default(call_default_factory=True, validated_data={})
    except ValidationError:  # a section with settings that must be given has no default as a whole
        return _NONE


@dataclass(frozen=True)
class Reported:
    """What a report tells of a run.

    Attributes:
        task: `vision.classification`.
        experiment: `vision/cifar10_cnn`.
        run: the run's name.
        judgements: by split; the report leads with test, or without one with the first.
        timing: train_seconds, setup_seconds, examples_per_second, input_wait_fraction, and more where known (epochs, steps).
        meter: `Meter.summary()`, for the shares of time.
        curves: the learning curves.
        splits: sizes, facts, notes and skipped examples of the data.
        settings: the experiment; what differs from the defaults is listed.
        environment: versions, devices, precision, source revision, data fingerprint.
        notes: for the reader.
        seeds: where several were trained, for each {"seed": 0, "run": name of its run beside this one, "metrics":
            {"test/accuracy": 0.73, ...}}; the commands then name the first of those runs.
        lead: the metric that the report leads with, without split; default: the first of the judgement.
        run_folder: the run, for the commands that the report ends with; default: the parent of the report's folder.
        fingerprints: of the examples of each split judged, to tell whether two runs were judged on the same.
        readme: where the model card goes, too.
    """

    task: str
    experiment: str
    run: str
    judgements: Mapping[str, Judgement]
    timing: Mapping[str, Any]
    meter: Mapping[str, Any] | None = None
    curves: "Figure | None" = None
    splits: Splits | None = None
    settings: BaseModel | None = None
    environment: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()
    seeds: Sequence[Mapping[str, Any]] = ()
    lead: str | None = None
    run_folder: Path | None = None
    fingerprints: Mapping[str, str] | None = None
    readme: Path | None = None


def write_report(folder: Path, of: Reported) -> dict[str, Any]:
    """Writes report.md, report.html, model_card.md, figures/*.png, resamples.npz and, last, report.json; each file whole.

    Returns:
        The content of report.json.

    Raises:
        OSError: as the system gives it.
    """
    folder, judgements, splits = Path(folder), of.judgements, of.splits
    split = "test" if "test" in judgements else next(iter(judgements), "")
    judged = judgements[split] if split else Judgement()
    drawn = {**({CURVES: of.curves} if of.curves else {}), **judged.figures}
    pictures = {name: png(figure) for name, figure in drawn.items()}
    metrics = {f"{name}/{metric}": value for name, one in judgements.items() for metric, value in one.metrics.items()}
    remarks = [*of.notes, *(splits.notes if splits else ()), *_judged_notes(judgements, split)]
    content: dict[str, Any] = finite({
        "task": of.task, "experiment": of.experiment, "run": of.run,
        "metrics": {name: metric.as_json() for name, metric in metrics.items()},
        "compared": judged.compared,
        "judged": {name: {"fingerprint": fingerprint} for name, fingerprint in (of.fingerprints or {}).items()},
        "timing": dict(of.timing), "time": dict(of.meter or {}),
        "data": _data(splits), "notes": list(dict.fromkeys(remarks)), "skipped": list(splits.skipped) if splits else [],
        "more_skipped": splits.more_skipped if splits else 0,
        "seeds": [dict(seed) for seed in of.seeds], "spread": _spread(of.seeds),
        "changed": [asdict(change) for change in changed_settings(of.settings, leave_out=("tune",))] if of.settings else [],
        "settings": of.settings.model_dump(mode="json") if of.settings else {}, "environment": dict(of.environment or {}),
        "tables": {f"{name}/{table}": rows for name, one in judgements.items() for table, rows in one.tables.items()},
        "figures": [f"figures/{name}.png" for name in pictures],
    })
    blocks = RunReport(content, of.run_folder or folder.parent, split, of.lead, metrics, judged, pictures).blocks()
    for name, image in pictures.items():
        write_whole(folder / "figures" / f"{name}.png", image)
    write_whole(folder / "report.html", page(blocks, title=f"{of.experiment}: {of.run}"))
    write_whole(folder / "report.md", markdown(blocks))
    described = markdown(card(content, str(folder.parent)))
    write_whole(folder / "model_card.md", described)
    if of.readme is not None:
        write_whole(of.readme, described)
    write_resamples(folder, metrics)
    if judged.predictions:
        write_predictions(folder / PREDICTIONS, judged.predictions)
    write_json(folder / "report.json", content)
    return content


def _judged_notes(judgements: Mapping[str, Judgement], leading: str) -> list[str]:
    """The leading split's notes first; notes that not every split has name theirs."""
    order = sorted(judgements, key=lambda split: split != leading)
    everywhere = [note for note in judgements[leading].notes if all(note in one.notes for one in judgements.values())] if leading else []
    return everywhere + [f"{split.capitalize()}: {note}" for split in order for note in judgements[split].notes if note not in everywhere]


def _spread(seeds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each metric over the seeds: mean, standard deviation, number."""
    by_metric = {}
    for name in dict.fromkeys(name for seed in seeds for name in seed["metrics"]):
        values = [seed["metrics"][name] for seed in seeds if seed["metrics"].get(name) is not None]
        mean, std = spread(values) if values else (float("nan"), float("nan"))
        by_metric[name] = {"mean": mean, "std": std, "n": len(values)}
    return by_metric


def _data(splits: Splits | None) -> dict[str, Any]:
    if splits is None:
        return {}
    sources = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    sizes = {name: len(source) for name, source in sources.items() if source is not None}
    return {"examples": sizes, "facts": {name: abridged(value) for name, value in splits.facts.items()}}  # the model has them whole
