"""Spoken digits with one speaker left out in turn, with and without augmentation: what a new voice may expect.

python -m benchmarks.speech_speakers            # about an hour on 2 cores; needs spoken_digit prepared
The recipe speech/spoken_digit_new_speaker, trained on all recordings of the other speakers (a tenth of them for validation, last weights
kept) and judged once on all recordings of the one left out. Prints a line for each run, then means.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from pipelines.config.load import load
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train

SPEAKERS = ("george", "jackson", "nicolas", "theo", "yweweler")
WITHOUT = "augment={}"


def accuracy(speaker: str, further: list[str]) -> dict[str, Any]:
    """Accuracy on a speaker whom train has not, with its interval."""
    settings = [f"data.test_names=_{speaker}_", "monitor.tensorboard=false", "evaluate.worst=0", *further]
    known = load("speech/spoken_digit_new_speaker", settings)
    with tempfile.TemporaryDirectory() as folder:
        report = train(known.experiment, RunFolder(Path(folder) / "run"), Call(known.name, task_class(known.experiment.task), quiet=True))
    return report["metrics"]["test/accuracy"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["with", "without"])
    parser.add_argument("settings", nargs="*", help="further settings of the recipe")
    asked = parser.parse_args()
    for name, further in (("with", []), ("without", [WITHOUT])):
        if asked.only not in (None, name):
            continue
        found = []
        for speaker in SPEAKERS:
            metric = accuracy(speaker, [*further, *asked.settings])
            found.append(metric["value"])
            print(json.dumps({"augmentation": name, "left out": speaker, **metric}), flush=True)
        print(f"{name} augmentation: mean {100 * sum(found) / len(found):.1f} %, least {100 * min(found):.1f} %", flush=True)
