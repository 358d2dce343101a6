"""speech.classification: one label per recording, or several."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.encoders import blend
from pipelines.fitting import kernel
from pipelines.outputs import classification
from pipelines.outputs.classes import Classes
from pipelines.outputs.labels import Labels
from pipelines.task.contract import Features, Task
from pipelines.task.intervals import resampled_by_counts
from pipelines.task.results import Judgement
from pipelines.task.units import Units
from speech.data.facts import CommandFacts
from speech.data.recordings import facts_of
from speech.metrics import detection, sound_figures
from speech.models import command_model, yamnet
from speech.settings import Kernel, PretrainedSounds, SoundClassification
from speech.tasks.windows import Windows, keyword_of

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

WHOLE = 64  # classes up to which each is the keyword once, and all probabilities are kept
SHOWN = 6  # recordings in TensorBoard each epoch


class SoundClasses(Classes):
    """Classes with results by speaker, and DET curves."""

    experiment: SoundClassification
    input: Windows

    @property
    def columns(self) -> list[int]:
        """Classes whose probabilities are kept for every recording: all where they are few, else the keyword's."""
        if len(self.classes) <= WHOLE:
            return list(range(len(self.classes)))
        chosen = keyword_of(self.experiment, self.classes)
        return [] if chosen is None else [self.classes.index(chosen)]

    def add(self, judgement: Judgement, answered: classification.Classified, source: Source) -> None:
        rows = sound_figures.accuracy_by_speaker(answered.hits, facts_of(source).speakers)
        if rows:
            judgement.tables["per_speaker"] = rows
        judgement.notes.extend(self.input.heard_note(source))
        self._keyword(judgement, answered, self.input.units(source))

    def _keyword(self, judgement: Judgement, answered: classification.Classified, units: Units) -> None:
        """The DET curve of one class, such as a keyword, and each class's equal error rate."""
        if not answered.columns:
            judgement.notes.append(f"No DET curve: with more than {WHOLE} classes it is drawn only for evaluate.keyword.")
        scores = answered.columns
        present = [number for number in scores if 0 < np.sum(answered.labels == number) < len(answered.labels)]
        if not present:
            return
        rates = {number: detection.equal_error_rate(scores[number], answered.labels == number) for number in present}
        chosen = keyword_of(self.experiment, self.classes)
        sure = {number: float(scores[number][answered.labels == number].mean()) for number in present}
        hardest = sorted(present, key=lambda number: (-rates[number], sure[number]))
        main = self.classes.index(chosen) if chosen is not None else hardest[0]
        shown = [number for number in dict.fromkeys([main, *hardest]) if number in rates][:4]
        curves = {f"{self.classes[number]}, EER {100 * rates[number]:.1f} %":
                  detection.det_curve(scores[number], answered.labels == number)[1:] for number in shown}
        judgement.figures["det"] = detection.figure(curves)
        hits = answered.labels == main

        if main not in rates:
            return

        def rate(counts: np.ndarray) -> np.ndarray:
            return detection.equal_error_rates(scores[main], hits, counts)

        resamples = min(200, self.experiment.evaluate.bootstrap)
        judgement.metrics["class_eer"] = resampled_by_counts(rate, len(hits), resamples=resamples, width=6, units=units)
        judgement.tables["detection"] = [{"class": self.classes[number], "eer": rates[number]} for number in hardest]
        judgement.notes.append(f"The first DET curve, and class_eer, are of the class {self.classes[main]!r}" + (
            " (evaluate.keyword)." if chosen else ", the hardest to tell from all others; evaluate.keyword chooses another."))


class SoundLabels(Labels):
    """Several labels a recording."""

    experiment: SoundClassification
    input: Windows

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        judgement = super().judge(answers, targets, source)
        judgement.notes.extend(self.input.heard_note(source))
        return judgement


class WindowTask(Task):
    """What tasks on recordings of one length share, whatever is said of them.

    Its output says how many numbers the model gives (`width`), how a target is written (`name_of`), and what a model that is fitted at
    once learns (`fitted_to`).
    """

    input_class = Windows
    input: Windows
    output: Any
    experiment: Any

    def model(self) -> keras.Model:
        return command_model(self.experiment.model, frames=self.input.frames, width=self.input.front_end.width,
                             classes=self.output.width, facts=self.facts, describe=self.input.cheap.describe)

    def fit_at_once(self, model: keras.Model, train: Source, features: Features) -> str | None:
        seed, settings, cheap = self.experiment.train.seed, self.experiment.model, self.input.cheap
        if isinstance(settings, PretrainedSounds) and settings.fitted:
            return blend.fit_model(self, model, train, features, cheap.describe, blocks=cheap.blocks, seed=seed)
        if not isinstance(settings, Kernel):
            return None
        own, blocks, name = model.get_layer("features"), cheap.blocks, cheap.name
        if settings.preset is not None:
            blocks, name = [*blocks, *yamnet.blocks()], f"{name}, and on {Path(settings.preset).name}'s"
        how = kernel.fit_model(model, train, features, own, blocks=blocks, seed=seed, truth=self.output.fitted_to)
        return f"{name}: {how}."

    def show_epoch(self, model: keras.Model, writer: "Writer", step: int, *, examples: Tensors, inputs: Any, targets: Any) -> None:
        """Audio, spectrograms before and after augmentation, and the model's answers; only now and then where epochs are short."""
        if not self.drawing.due():
            return
        names = [self.output.name_of(target) for target in targets.numpy()[:SHOWN]]
        waves = examples["samples"][:SHOWN].numpy() / np.float32(32768.0)
        before = self.input.features(tf.constant(waves))
        answers = self.output.answer(lambda batch: model(batch, training=False), before)
        captions = [f"{name}; answered {answer}" if answer else name for name, answer in zip(names, self.written(answers))]
        pairs = [[first, second] for first, second in zip(*(self.input.front_end.bands(batch).numpy() for batch in (before, inputs)))]
        hop = self.input.front_end.seconds
        with self.drawing:
            writer.audio("recordings", waves, self.experiment.data.rate, step, captions=captions)
            writer.figure("features", sound_figures.spectrograms(pairs, captions, ["as recorded", "after augmentation"], hop=hop), step)

    def written(self, answers: Tensors) -> list[str]:
        """Answers as captions; empty where they say nothing by themselves."""
        raise NotImplementedError


class Classification(WindowTask):
    """speech.classification. Facts: `classes`, `class_counts`, `mean`, `std`, `speakers` of train (see speech.data.splits); of
    several labels those of `Labels`, too."""

    facts_schema = CommandFacts
    hub_name = "audio-classification"
    output: SoundClasses | SoundLabels
    experiment: SoundClassification

    def __init__(self, experiment: SoundClassification, facts: dict[str, Any] | None = None):
        self.output_class = SoundLabels if experiment.data.labels == "many" else SoundClasses
        super().__init__(experiment, facts)

    def written(self, answers: Tensors) -> list[str]:
        return [f"{self.output.classes[int(share.argmax())]} {share.max():.0%}" for share in answers["probabilities"].numpy()]

    def facts_error(self) -> str | None:
        names = self.facts.get("names")
        if self.experiment.model.name == "pretrained" and (names is not None) != (self.experiment.model.names is not None):
            return "names: field required" if names is None else "names: the experiment has no model.names"
        if names is not None:
            settings = self.input.encoder_facts["backbone"]["config"]
            if len(names["first"]) != len(self.facts["classes"]) or len(names["prompt"]) > settings.get("max_decoder_sequence_length", 0):
                return f"names: they do not belong to {len(self.facts['classes'])} classes, or to this encoder"
            if max(*names["prompt"], *names["first"]) >= settings.get("vocabulary_size", 0):
                return "names: the decoder has no such tokens"
        if getattr(self.experiment.model, "fitted", False) and not self.facts.get("class_counts"):
            return "class_counts: field required"
        return self.input.features_error()
