"""What a stranger's data get from `quartet new`: each set laid out, `new`, `check`, `train` and nothing else, beside cheap baselines.

python -m benchmarks.strangers                         # all sets: hours on 2 cores; needs the data, and the extra `bench`
python -m benchmarks.strangers --only hand_signs odd   # some; results are kept and put together
python -m benchmarks.strangers --domain nlp            # a domain's
python -m benchmarks.strangers --minutes 3             # the proposal by rules, by a race of 3 minutes, and an expert's first choice
python -m benchmarks.strangers --table                 # the table of what is there, as markdown
python -m benchmarks.strangers --validation --only hand_signs --set train.epochs=20 model.name=cnn

Data: TFDS as prepared, and the folder ~/quartet-files (or QUARTET_FILES); sets that are not there are said. Baselines are fitted in
this process on the run's own split, on train and validation together, with fixed settings. With --validation everything is judged on
validation (or on other training examples), for choosing defaults: the test split has no say. Seconds are the training command's, whole.
"""

import argparse
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.product import machine
from benchmarks.strangers import beyond_classes, images, interactions, recordings, texts
from benchmarks.strangers.stranger import Result, run

SETS = {one.name: one for part in (images, texts, recordings, interactions, beyond_classes) for one in part.SETS}
SIDES = ("rules", "race")
WORK = Path(tempfile.gettempdir()) / "quartet-strangers"


def table(results: Iterable[Result]) -> str:
    """Markdown; bold: a baseline better by more than chance."""
    lines = ["| data | judged on | score of `quartet new` | s | processor s | run, MB | baselines |", "|---|---|---|---|---|---|---|"]
    for one in results:
        name = f"`{one.name}`" + (f" ({', '.join(one.settings)})" if one.settings else "")
        if one.problem:
            lines.append(f"| {name} | | {' '.join(one.problem.split())[:120]} | | | | |")
            continue
        beaten = set(one.beaten_by)
        peers = ", ".join(f"**{text}**" if peer["name"] in beaten else text for peer in one.baselines
                          for text in [f"{peer['name']} {_figure(peer['score'], one.metric)} ({peer['seconds']:.1f} s)"])
        span = f" [{_figure(one.low, one.metric)}, {_figure(one.high, one.metric)}]" if one.low is not None and one.high is not None else ""
        score = f"{one.metric} {_figure(one.score, one.metric)}{span}"
        lines.append(f"| {name} | {one.split}, {one.examples or 0:,} | {score} | {one.seconds:.0f} | {one.cpu_seconds:.0f} | "
                     f"{one.megabytes:.1f} | {peers} |")
    return "\n".join(lines)


def sides(kept: Mapping[str, Result], names: Iterable[str]) -> str:
    """Markdown: what rules and what the race proposes, and what an expert would try first, on the same test."""
    lines = ["| data | judged on | rules | race | an expert's first choice | race, processor s |", "|---|---|---|---|---|---|"]
    for name in names:
        rule, raced = (kept.get(f"{name} {side}") for side in SIDES)
        if rule is None or raced is None or rule.problem or raced.problem:
            continue
        first = next((peer for wanted in SETS[name].expert for peer in rule.baselines if peer["name"].startswith(wanted)), None)
        expert = f"{first['name']} {_figure(first['score'], rule.metric)}" if first else ""
        scores = " | ".join(f"{_figure(one.score, one.metric)} ({one.seconds:.0f} s)" for one in (rule, raced))
        lines.append(f"| `{name}` | {rule.metric}, {rule.examples or 0:,} | {scores} | {expert} | {raced.new_cpu_seconds:.0f} |")
    return "\n".join(lines)


def _figure(value: float, metric: str) -> str:
    return f"{100 * value:.1f}" if metric in ("accuracy", "wer", "example_f1", "macro_f1") else f"{value:.4f}"


def _kept(path: Path) -> dict[str, Result]:
    return {name: Result(**row) for name, row in json.loads(path.read_text(encoding="utf-8")).items()} if path.exists() else {}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SETS, metavar="NAME", help=", ".join(SETS))
    parser.add_argument("--domain", choices=sorted({one.domain for one in SETS.values()}))
    parser.add_argument("--validation", action="store_true", help="judge on validation, for choosing defaults")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="train with these overrides of what `new` wrote")
    parser.add_argument("--new", nargs="+", default=[], metavar="OPTION", help="further options of `quartet new`, without their dashes")
    parser.add_argument("--minutes", type=float, help="both sides: the proposal by rules, and by a race of so many minutes")
    parser.add_argument("--without-baselines", action="store_true")
    parser.add_argument("--table", action="store_true", help="run nothing; print the table of the results kept")
    parser.add_argument("--work", type=Path, default=WORK, help=f"where data, runs and results.json are kept; default {WORK}")
    asked = parser.parse_args()
    file = asked.work / ("results_validation.json" if asked.validation else "results.json")
    names = asked.only or [name for name, one in SETS.items() if asked.domain in (None, one.domain)]
    if not asked.table:
        print(machine(), flush=True)
        for name in names:
            print(f"\n== {name}", flush=True)
            tried = {"": asked.new} if asked.minutes is None else {
                side: [*asked.new, f"minutes={minutes}"] for side, minutes in zip(SIDES, (0, asked.minutes))}
            result = None
            for side, options in tried.items():
                result = run(SETS[name], asked.work, choosing=asked.validation, settings=asked.set, new=[f"--{one}" for one in options],
                             baselines=not asked.without_baselines and side != SIDES[1], known_as=result,
                             say=lambda text: print(text, flush=True))
                if result.problem:
                    print(result.problem, flush=True)
                # under overrides a row of its own, so that what was tried stands side by side
                kept = _kept(file) | {f"{name} {side} {' '.join(asked.set)}".strip(): result}
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps({key: vars(one) for key, one in kept.items()}, indent=1), encoding="utf-8")
    kept = _kept(file)
    plain = (one for key, one in kept.items() if one.name in names and not key.endswith(SIDES))
    print("\n" + (table(plain) if asked.minutes is None else sides(kept, names)), flush=True)
