"""Pretrained encoders on few examples a class, and on voices that training has not heard.

python -m benchmarks.encoders clinc      # CLINC150, 10 and 5 of the training requests of each of 150 intents, five draws; MiniLM-L6
python -m benchmarks.encoders clinc_whole [KEY=VALUE ...]    # the same with 10 of each, all of MiniLM-L6 trained
python -m benchmarks.encoders digits     # spoken digits, each of five speakers left out in turn; Whisper tiny
python -m benchmarks.encoders digits_az PATH    # the same in Azerbaijani, a folder for each digit, ten speakers
python -m benchmarks.encoders digits augment.speed=0.15 augment.warp=0.1    # with other settings than the recipe's

Frozen but for clinc_whole. Encoder, pooling, head and its regularisation are the product's, as in the recipes nlp/clinc_minilm and
speech/spoken_digit_whisper, on features computed once. What is judged chooses nothing: the strength is chosen on folds of what the head is
fitted to.
"""

import argparse
import os
import time
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.product import machine

DRAWS, EACH = 5, (10, 5)
WHOLE = ("train.epochs=4", "model.finetune.learning_rate=0.0003")  # chosen on 1,000 texts of validation, with draw 1
AZERBAIJANI = r"/\d_(\d+)_"  # the speaker in a file's name


@dataclass
class Features:
    """Features of a training's examples, a head for them, and seconds of processor time that they took.

    `plain`: those of train as they are judged; `train` has several views of each where the recipe augments.
    """

    task: Any
    head: Any
    train: Any
    plain: Any
    test: Any
    seconds: float

    @classmethod
    def of(cls, recipe: str, settings: list[str], *, leave_out: tuple[str, ...] = ()) -> "Features":
        """Of all that the recipe trains on, and of its test split where it has one; `leave_out`: sections of the recipe."""
        from pipelines.config.load import load
        from pipelines.encoders.features import Computing
        from pipelines.runs.launch import task_class
        from pipelines.training.session import assemble

        experiment = load(recipe, settings).experiment.model_copy(update=dict.fromkeys(leave_out))
        began = time.process_time()
        session = assemble(experiment, task_class(experiment.task))
        splits, learner = session.splits, session.learner
        computing = Computing.of(session.task, session.model, splits.train, session.machine, experiment.data, 0, print)
        assert computing is not None
        test = None if splits.test is None else computing.source(splits.test)
        plain = learner.train if learner.task.views == 1 and not computing.prepared.random else computing.source(splits.train)
        return cls(learner.task, learner.model, learner.train, plain, test, time.process_time() - began)

    def accuracy(self, train: np.ndarray, source: Any, judged: np.ndarray) -> tuple[float, float]:
        """(accuracy on the examples `judged` of a source, strength) of a head that is fitted to the examples `train`."""
        from pipelines.encoders import linear_head

        chosen = linear_head.fit(self.task, self.head, some(self.train, train), None, self.task.views, 0)
        inputs, targets = self.task.prepare(some(source, judged).tensors())
        right = self.task.output.scores(self.head(inputs, training=False), targets)["accuracy"]
        return float(np.mean(right)), chosen.strength


def some(source: Any, numbers: np.ndarray) -> Any:
    """Some examples of features in memory, with their labels and groups."""
    from pipelines.data.source import ArraySource

    arrays = {name: np.asarray(array[numbers]) for name, array in source.arrays.items()}
    labels, groups = (None if each is None else np.asarray(each)[numbers] for each in (source.labels, source.groups))
    return ArraySource(arrays, labels=labels, groups=groups)


def clinc() -> None:
    """Accuracy on the test split in scope."""
    features = Features.of("nlp/clinc_minilm", [], leave_out=("reject",))
    labels = np.asarray(features.train.labels)
    print(f"{len(labels):,} and {len(features.test):,} vectors: {features.seconds:.0f} s of processor time", flush=True)
    for each in EACH:
        found = []
        for draw in range(DRAWS):
            random = np.random.default_rng(draw)
            chosen = np.concatenate([random.choice(np.flatnonzero(labels == label), each, replace=False) for label in np.unique(labels)])
            found.append(features.accuracy(chosen, features.test, np.arange(len(features.test)))[0])
        print(f"{each} a class: {np.mean(found):.1%} on average of {DRAWS} draws, {min(found):.1%} to {max(found):.1%}", flush=True)


def clinc_whole(settings: list[str]) -> None:
    """Accuracy on the test split in scope, of nlp/clinc_minilm_whole on 10 requests a class."""
    from pipelines.config.load import load
    from pipelines.runs import judging
    from pipelines.runs.launch import task_class
    from pipelines.training.loop import Loop
    from pipelines.training.meter import Meter
    from pipelines.training.session import assemble

    found = []
    for draw in range(DRAWS):
        began = time.process_time()
        changed = ["data.limit=1500", f"data.split_seed={draw}", *WHOLE, *settings]
        experiment = load("nlp/clinc_minilm_whole", changed).experiment.model_copy(update={"reject": None})
        session = assemble(experiment, task_class(experiment.task))
        session.initialise()
        Loop(session.step, plan=session.plan, steps=session.steps, hooks=[], meter=Meter()).train()
        test = session.splits.test
        assert test is not None
        scores = judging.evaluator(session, test).scores() or {}
        found.append(scores["accuracy"])
        print(f"draw {draw}: {found[-1]:.1%} of {len(test):,}, {time.process_time() - began:.0f} s of processor time", flush=True)
    print(f"10 a class, whole: {np.mean(found):.1%} on average, {min(found):.1%} to {max(found):.1%}", flush=True)


def speakers(settings: list[str]) -> None:
    """Accuracy on all recordings of a speaker of whom train has none, with every speaker in turn."""
    features = Features.of("speech/spoken_digit_whisper", ["data.validation=0", *settings])
    groups, found = np.asarray(features.train.groups), []
    print(f"{len(groups):,} recordings: {features.seconds:.0f} s of processor time", flush=True)
    for speaker in np.unique(groups):
        value, strength = features.accuracy(np.flatnonzero(groups != speaker), features.plain, np.flatnonzero(groups == speaker))
        print(f"without {speaker}: {value:.1%} of {np.sum(groups == speaker)} (strength {strength:g})", flush=True)
        found.append(value)
    print(f"on average {np.mean(found):.1%}, least {min(found):.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["clinc", "clinc_whole", "digits", "digits_az"])
    parser.add_argument("settings", nargs="*", help="of the recipe, KEY=VALUE; of digits_az the folder first")
    given = parser.parse_args()
    print(machine(), flush=True)
    if given.what == "clinc":
        clinc()
    elif given.what == "clinc_whole":
        clinc_whole(given.settings)
    elif given.what == "digits":
        speakers(["data.test=0", "data.test_names=null", *given.settings])
    else:
        path, *settings = given.settings
        speakers(["data.test=0", "data.test_names=null", "data.source=folder", "data.name=null", f"data.path={path}",
                  f"data.speaker_pattern={AZERBAIJANI}", *settings])


if __name__ == "__main__":
    main()
