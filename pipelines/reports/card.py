"""A model card (Mitchell et al. 2019): a model's purpose, training data, quality and limits.

It states only what the run knows, and leaves the rest as questions to a person.
"""

from collections.abc import Mapping
from typing import Any

from pipelines.base import formatting
from pipelines.config.extensions import options
from pipelines.reports.blocks import Block, Bullets, Code, Heading, Paragraph, Table
from pipelines.task.results import Metric

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
    blocks.append(Bullets(_data(content["settings"].get("data") or {}, data)))
    blocks += [Heading("Results"), *_results(content["metrics"])]
    blocks += [Heading("Limits"), Bullets([*content["notes"][:_SHOWN], *_limits(content)])]
    blocks += [Heading("To be answered by whoever shares it"), Bullets([
        "What is it for, and what must it not be used for?",
        "Whom may its mistakes hurt, and which mistakes are worse than others?",
        "May the data be used so, and do they represent those on whom it will be used?"])]
    use = options(environment.get("extensions"))
    return [*blocks, Heading("Use"), Code(f"quartet predict {run} INPUT...{use}\nquartet export {run}{use}")]


def _data(settings: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
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
