"""Features of a frozen encoder computed once, against computing them in every step: the same training of the head, the same weights.

python -m benchmarks.features_once PRESET [--examples 2000] [--epochs 20]     # CLINC150 through TFDS; 4 minutes on 2 cores with MiniLM-L6

Timed from assembling to the end of the last epoch, validation each epoch included; nothing is taken from a cache on disk. The encoder
and its weights are read before.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.product import machine
from nlp.settings import TextClassification
from nlp.tasks.classification import Classification
from pipelines.runs import judging
from pipelines.training.hooks.validation import Validation
from pipelines.training.loop import Loop
from pipelines.training.meter import Meter
from pipelines.training.session import assemble


def seconds(preset: str, examples: int, epochs: int, views: int) -> tuple[float, float]:
    """(seconds of a training, its validation accuracy)."""
    experiment = TextClassification.model_validate({
        "task": "nlp.classification",
        "data": {"source": "tfds", "name": "clinc_oos", "label_key": "intent_name", "limit": examples, "validation": 0.1,
                 "cache": "memory"},
        "model": {"name": "pretrained", "preset": preset, "finetune": {"name": "frozen", "head": "trained", "views": views}},
        "train": {"epochs": epochs, "precision": "float32"},
    })
    began = time.perf_counter()
    session = assemble(experiment, Classification)
    loop = Loop(session.step, plan=session.plan, steps=session.steps, hooks=[Validation(judging.validation(session), 1)],
                meter=Meter())
    session.initialise()
    loop.train()
    return time.perf_counter() - began, loop.epoch_metrics["validation/accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()
    print(machine())
    seconds(given.preset, 200, 1, 1)  # imports, and the files in the system's cache
    once, accuracy = seconds(given.preset, given.examples, given.epochs, 1)
    print(f"features once: {once:.1f} s", flush=True)
    each, other = seconds(given.preset, given.examples, given.epochs, 0)
    print(f"{given.epochs} epochs of {given.examples:,} texts: features once {once:.1f} s (validation {accuracy:.1%}), "
          f"in every step {each:.1f} s ({other:.1%}): {each / once:.1f} x")


if __name__ == "__main__":
    main()
