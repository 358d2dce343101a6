"""A model card as hubs of models read it: metadata in YAML before the text. https://huggingface.co/docs/hub/model-cards has the fields."""

from collections.abc import Mapping
from typing import Any

import yaml

from pipelines.base import formatting

HUB = ("hf://", "https://huggingface.co/")


def front_matter(content: Mapping[str, Any], hub_task: str) -> str:
    """The metadata of a run, from what report.json holds, between lines of `---`.

    Args:
        hub_task: as Task has it.
    """
    data = content["settings"].get("data") or {}
    dataset = str(data.get("name") or data.get("source") or "unknown")
    encoder = (content["environment"].get("encoder") or {}).get("source") or ""
    licence = (content["environment"].get("encoder") or {}).get("licence")
    private = content["environment"].get("privacy")
    base = next((encoder.removeprefix(hub) for hub in HUB if encoder.startswith(hub)), None)
    fields = {
        "library_name": "keras",
        **({"pipeline_tag": hub_task} if hub_task else {}),
        "tags": ["quartet", "tensorflow", content["task"], *(["differential-privacy"] if private else [])],
        **({"base_model": base} if base else {}),
        **({"license": "other", "license_name": str(licence)} if licence else {}),
        "model-index": [{"name": f"{content['experiment']}/{content['run']}", "results": [
            {"task": {"type": hub_task or content["task"]}, "dataset": {"type": dataset, "name": dataset, "split": split},
             "metrics": metrics} for split, metrics in _metrics(content["metrics"]).items()]}],
    }
    return f"---\n{yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=1000)}---\n\n"


def _metrics(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """By split; a metric's name tells its interval, for which the hubs have no field."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, metric in stored.items():
        if metric["value"] is None:
            continue
        split, base = formatting.split_name(name)
        interval = ""
        if metric.get("low") is not None and metric.get("high") is not None:
            interval = f", 95 % interval [{metric['low']:.4g}, {metric['high']:.4g}]"
        examples = f", {formatting.counted(metric['n'], 'example')}" if metric.get("n") else ""
        found.setdefault(split, []).append(
            {"type": base, "value": float(f"{metric['value']:.6g}"), "name": f"{formatting.title(base)}{interval}{examples}"})
    return found
