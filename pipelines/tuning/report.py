"""What a search came to: report.md, report.html with figures inside, search.json for programs, and trials.csv.

search.json is written last: where it exists, the search is over.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.base import formatting, storage
from pipelines.base.files import finite, write_json, write_whole
from pipelines.config.extensions import options, used_by
from pipelines.config.schema import Experiment, Tune
from pipelines.config.space import Dimension
from pipelines.reports.blocks import Block, Bullets, Code, Heading, Paragraph, Picture, Table, markdown
from pipelines.reports.html import page
from pipelines.runs.folder import RunFolder
from pipelines.tuning import analysis
from pipelines.tuning.analysis import FEWEST, Importance, importance
from pipelines.tuning.search_folder import SearchFolder
from pipelines.tuning.trials import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 60  # trials in the report's table; trials.csv has all


@dataclass(frozen=True)
class Searched:
    """A search that is over. `repeats` are the reports of settings trained over several seeds, `folders` the trials' by their number."""

    name: str
    experiment: Experiment
    tune: Tune
    space: Sequence[Dimension]
    trials: Sequence[Any]
    best: Any
    objective: str
    direction: str
    repeats: Mapping[str, Mapping[str, Any]]
    elapsed: float
    workers: int
    folders: Mapping[int, str]


def write(folder: SearchFolder, of: Searched) -> dict[str, Any]:
    """Writes the report of a search; returns what search.json holds."""
    tune, space, trials, best, objective, direction = of.tune, of.space, of.trials, of.best, of.objective, of.direction
    sign = 1.0 if direction == "max" else -1.0
    ranked = sorted(trials, key=lambda trial: (trial.value is None, -(trial.value or 0.0) * sign, -(trial.epochs or 0), trial.number))
    ended = [trial for trial in trials if trial.value is not None]
    rounds = [(trial.setting, trial.epochs) for trial in ended] if any(trial.epochs for trial in ended) else None
    shares = importance(space, [(trial.values, trial.value) for trial in ended], tune.seed, rounds)
    comparison = _comparison(folder) if {"best", "start"} <= set(of.repeats) else None
    on_front = analysis.front(trials, sign) if tune.cost is not None else []
    content: dict[str, Any] = finite({
        "task": of.experiment.task, "experiment": of.name, "search": folder.path.name, "objective": f"validation/{objective}",
        "direction": direction, "algorithm": tune.algorithm, "seconds": of.elapsed, "workers": of.workers,
        "extensions": used_by(of.experiment), "best": {"trial": best.number, "value": best.value, "values": best.values},
        "cost": None if tune.cost is None else tune.cost.model_dump(), "front": [trial.number for trial in on_front],
        "importance": None if shares is None else vars(shares),
        "repeats": {key: dict(value) for key, value in of.repeats.items()}, "comparison": comparison,
        "trials": [{"trial": trial.number, "setting": trial.setting, "run": f"trials/{of.folders[trial.number]}", "values": trial.values,
                    "to_epoch": trial.epochs, **(trial.result or {})} for trial in trials],
    })
    pictures = {"search": _picture(space, trials, best, objective, sign)}
    if on_front and tune.cost is not None:
        pictures["front"] = analysis.picture(trials, on_front, best, objective, tune.cost)
    from pipelines.base.figures import png

    images = {key: png(figure) for key, figure in pictures.items()}
    blocks = _blocks(content, ranked, space, objective, shares, images, folder, tune)
    for key, image in images.items():
        write_whole(folder.report / "figures" / f"{key}.png", image)
    write_whole(folder.report / "trials.csv", _csv(space, trials, objective))
    write_whole(folder.report / "report.html", page(blocks, title=f"{of.name}: {folder.path.name}"))
    write_whole(folder.report / "report.md", markdown(blocks))
    write_json(folder.report / "search.json", content)
    return content


def headline(content: Mapping[str, Any]) -> str:
    """`best of 20 trials: trial 7, validation accuracy 93.1 %`."""
    objective, best = content["objective"].partition("/")[2], content["best"]
    return (f"best of {formatting.counted(len(content['trials']), 'trial')}: trial {best['trial']}, validation "
            f"{formatting.title_within(objective)} "
            f"{formatting.number(best['value'], objective)}")


def trials_table(content: Mapping[str, Any], most: int | None = None) -> tuple[list[str], list[list[str]]]:
    """(columns, rows): the trials, best first."""
    objective = content["objective"].partition("/")[2]
    sign = 1.0 if content["direction"] == "max" else -1.0
    names = list(dict.fromkeys(name for trial in content["trials"] for name in trial["values"]))
    ranked = sorted(content["trials"], key=lambda trial: (trial.get("value") is None, -(trial.get("value") or 0.0) * sign,
                                                          -(trial["to_epoch"] or 0), trial["trial"]))
    rounds, priced = any(trial["to_epoch"] for trial in content["trials"]), content.get("cost")
    rows = []
    for trial in ranked[:most]:
        value = formatting.number(trial["value"], objective) if trial.get("value") is not None else "failed"
        costs = [formatting.number(trial["cost"]) if trial.get("cost") is not None else "–"] if priced else []
        rows.append([str(trial["trial"]), value, *costs,
                     *([f"{trial['setting']} to epoch {trial['to_epoch']}"] if rounds else []),
                     *(shown(trial["values"][name]) if name in trial["values"] else "–" for name in names),
                     formatting.duration(trial.get("seconds") or 0.0), _remark(trial, content)])
    heads = [formatting.title(objective), *([priced["measure"]] if priced else []), *(["setting of"] if rounds else [])]
    return ["trial", *heads, *_short(names), "time", ""], rows


def repeats_lines(content: Mapping[str, Any]) -> list[str]:
    """What the best setting came to over several seeds, and whether it is better than the start."""
    objective, best = content["objective"], content["best"]
    lines = []
    repeats = content["repeats"].get("best")
    if repeats:
        spread = repeats["spread"]
        seeds = max((one["n"] for one in spread.values()), default=1)
        if objective in spread:
            one = spread[objective]
            lines.append(f"The winning trial had {formatting.number(best['value'], objective)}; "
                         f"trained anew over {seeds} seeds its setting has "
                         f"{formatting.number(one['mean'], objective)}, spread {formatting.number(one['std'], objective)} ({objective}).")
        for name in [name for name in repeats["metrics"] if name.startswith("test/")][:1]:
            one = spread.get(name)
            lines.append(f"Test: {formatting.title_within(formatting.split_name(name)[1])} "
                         + (f"{formatting.number(one['mean'], name)} over {seeds} seeds, spread "
                            f"{formatting.number(one['std'], name)}." if one else
                            f"{formatting.number(repeats['metrics'][name]['value'], name)}."))
    comparison = content.get("comparison")
    if comparison:
        for row in comparison["rows"]:
            if row["metric"].startswith("test/"):
                lines.append(f"Against the experiment as it was, {row['metric']}: {row['text']}.")
                break
    return lines


def importance_lines(shares: Importance | None) -> list[str]:
    """Remarks that belong beside the shares."""
    if shares is None:
        return [f"Too few different trials to tell which settings mattered ({FEWEST} are needed)."]
    rest = max(0.0, 1.0 - sum(shares.shares.values()))
    lines = [f"Share of the variation between settings that each explains by itself; {rest:.0%} is explained by several together."]
    if shares.epochs:
        lines.append(f"Settings were trained to epochs {', '.join(map(str, shares.epochs))}: the length counts as a factor of its own, "
                     "over which the shares are averaged.")
    if shares.fit < 0.3:
        lines.append(f"The {shares.trials} trials predict one another poorly (R squared {shares.fit:.2f} on held-out trials), "
                     "so these shares are rough.")
    return lines


def _blocks(content: Mapping[str, Any], ranked: Sequence[Any], space: Sequence[Dimension], objective: str, shares: Importance | None,
            images: Mapping[str, bytes], folder: SearchFolder, tune: Tune) -> list[Block]:
    text = headline(content)
    blocks: list[Block] = [Heading(f"{content['experiment']}: {content['search']}", 1),
                           Paragraph(f"{text[:1].upper()}{text[1:]}.", lead=True)]
    lines = repeats_lines(content)
    failed = sum(trial.value is None for trial in ranked)
    took, workers = formatting.duration(content["seconds"]), formatting.counted(content["workers"], "worker")
    lost = f"; {formatting.counted(failed, 'trial')} failed" if failed else ""
    lines.append(f"{tune.algorithm.capitalize()} search, {took}, {workers}{lost}.")
    if len(ranked) > 1:
        lines.append("The best of many trials looks better than it is, since chance helped to choose it: trust seeds and test split.")
    blocks += [Bullets(lines), Heading("Best setting")]
    blocks.append(Table(("setting", "value", "was"), [
        [name, shown(value), _was(content, name, folder)] for name, value in content["best"]["values"].items()], (False, False, False)))
    blocks.append(Code(f"quartet train {folder.best}{storage.options(folder.path)}{options(content['extensions'])}"))
    blocks += [Heading("Trials"), Picture("search.png", images["search"], "Scores by trial and by each searched setting")]
    if "front" in images:
        blocks += [Heading(f"Score against {content['cost']['measure']}"),
                   Picture("front.png", images["front"], "Score over cost of every trial, and the front"), Bullets(analysis.lines(content))]
    columns, rows = trials_table(content, SHOWN)
    blocks.append(Table(columns, rows, [False, True] + [False] * (len(columns) - 2)))
    if len(ranked) > SHOWN:
        blocks.append(Paragraph(f"The best {SHOWN} of {len(ranked)}; trials.csv has all."))
    blocks.append(Heading("Which settings mattered"))
    if shares:
        blocks.append(Table(("setting", "share"), [[name, f"{share:.0%}"] for name, share in shares.shares.items()], (False, True)))
    blocks.append(Bullets(importance_lines(shares)))
    if content.get("comparison"):
        table = content["comparison"]["table"]
        blocks += [Heading("Against the experiment as it was"), Table(table["columns"], table["rows"], [False] * len(table["columns"])),
                   Bullets(content["comparison"]["notes"])]
    return blocks


def _was(content: Mapping[str, Any], name: str, folder: SearchFolder) -> str:
    """The setting before the search."""
    import yaml

    at: Any = yaml.safe_load(folder.search.read_text(encoding="utf-8"))
    for key in name.split("."):
        at = at.get(key) if isinstance(at, dict) else None
    return shown(at)


def _comparison(folder: SearchFolder) -> dict[str, Any]:
    """The best setting against the experiment as it was, over the same seeds."""
    from pipelines.runs import comparing

    comparison = comparing.compare([RunFolder(folder.path / "start"), RunFolder(folder.path / "best")])
    columns, rows = comparing.metrics_table(comparison)
    return {**comparing.as_json(comparison), "table": {"columns": columns, "rows": rows},
            "rows": [{"metric": row[0], "text": f"{row[-2]}, more than chance: {row[-1]}"} for row in rows]}


def _remark(trial: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    if trial.get("value") is None:
        return str(trial.get("reason", "not ended")).splitlines()[0][:160]
    on_front = ["on the front"] if trial["trial"] in content.get("front", ()) else []
    return ", ".join([*on_front, *([str(trial["stopped"])] if trial.get("stopped") else [])])


def _short(names: Sequence[str]) -> list[str]:
    """The last words of dotted names, with as many before them as tell them apart."""
    ends = [name.rpartition(".")[2] for name in names]
    return [end if ends.count(end) == 1 else ".".join(name.split(".")[-2:]) for name, end in zip(names, ends)]


def _csv(space: Sequence[Dimension], trials: Sequence[Any], objective: str) -> str:
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    names = [dimension.name for dimension in space]
    metrics = list(dict.fromkeys(name for trial in trials if trial.result for name in trial.result.get("metrics", ())))
    about = ["trial", "setting", "status", f"validation/{objective}", "cost", "to_epoch", "seconds", "train_seconds", "reason"]
    table.writerow([*about, *names, *metrics])
    for trial in trials:
        result = trial.result or {}
        table.writerow([trial.number, trial.setting, result.get("status", ""), result.get("value"), result.get("cost"), trial.epochs,
                        result.get("seconds"), result.get("train_seconds"), result.get("reason", ""),
                        *(trial.values.get(name) for name in names),
                        *(result.get("metrics", {}).get(name) for name in metrics)])
    return out.getvalue()


def _picture(space: Sequence[Dimension], trials: Sequence[Any], best: Any, objective: str, sign: float) -> "Figure":
    """The score over the trials with the best so far, and over each setting."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    from pipelines.base.figures import BLUE, GREY, ORANGE, new_figure, style

    ended = [trial for trial in trials if trial.value is not None]
    panels = [None, *space]
    columns = min(3, len(panels))
    lines = math.ceil(len(panels) / columns)
    with style():
        figure = new_figure(4.3 * columns, 2.9 * lines)
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for axis, dimension in zip(axes, panels):
            if dimension is None:
                axis.set_title(formatting.title(objective))
                axis.set_xlabel("trial")
                so_far, line = -math.inf, []
                for trial in ended:
                    so_far = max(so_far, trial.value * sign)
                    line.append(so_far * sign)
                axis.plot([trial.number for trial in ended], [trial.value for trial in ended], "o", color=BLUE, alpha=0.7)
                axis.plot([trial.number for trial in ended], line, color=GREY, drawstyle="steps-post", linewidth=1.2, label="best so far")
                axis.plot([best.number], [best.value], "o", color=ORANGE, markersize=7, label="best")
                axis.legend(loc="best")
                continue
            axis.set_title(dimension.name.split(".", 1)[-1])
            having = [trial for trial in ended if dimension.name in trial.values]
            if dimension.kind in ("choice", "boolean"):
                labels = [shown(value)[:18] for value in dimension.values]
                spots = [dimension.values.index(trial.values[dimension.name]) for trial in having]
                axis.set_xticks(range(len(labels)), labels, rotation=30 if max(map(len, labels)) > 6 else 0)
                axis.set_xlim(-0.5, len(labels) - 0.5)
            else:
                spots = [trial.values[dimension.name] for trial in having]
                if dimension.scale == "log":
                    axis.set_xscale("log")
                    wide = float(dimension.high or 1.0) / float(dimension.low or 1.0) > 200.0
                    axis.xaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 3)))
                    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                    axis.xaxis.set_minor_formatter(NullFormatter())
                elif dimension.kind == "int":
                    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            axis.plot(spots, [trial.value for trial in having], "o", color=BLUE, alpha=0.7)
            if dimension.name in best.values and best in having:
                axis.plot([spots[having.index(best)]], [best.value], "o", color=ORANGE, markersize=7)
        for axis in axes[len(panels):]:
            axis.set_axis_off()
    return figure
