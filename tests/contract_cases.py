"""The cases of the contract: a small experiment for each task, with made data, tiny encoders, and something to predict."""

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tests import numbers_made
from tests.encoders import tiny
from tests.recsys import small_tables
from tests.vision import boxed_pictures, masked_pictures


@dataclass(frozen=True)
class Case:
    """A small experiment for a task, and something to predict.

    Attributes:
        config: a shipped experiment that needs no data from elsewhere, or YAML.
        overrides: what makes it train in seconds.
        inputs: (empty folder, splits) -> what a person would hand to `quartet predict`.
        preset: saves a tiny encoder in an empty folder, for a task's model `pretrained`.
        data: writes made data into a folder, and says by which settings they are read.
    """

    config: str
    overrides: tuple[str, ...]
    inputs: Callable[[Path, Any], list[str]]
    preset: Callable[[Path], Any] | None = None
    data: Callable[[Path], list[str]] | None = None

    def known(self, name: str, folder: Path) -> Any:
        """The experiment; `folder` may take its encoder and its data."""
        from pipelines.config.load import from_text, load

        overrides = [*COMMON, *self.overrides, *(self.data(folder) if self.data else [])]
        if self.preset is not None:
            self.preset(folder / "preset")
            overrides.append(f"model.preset={folder / 'preset'}")
        return from_text(self.config, overrides, file=name) if "\n" in self.config else load(self.config, overrides)


def digit_files(folder: Path, splits: Any) -> list[str]:
    import tensorflow as tf

    for number in range(5):
        image = splits.test.gather(tf.constant([number], tf.int64))["image"][0]
        (folder / f"{number}.png").write_bytes((image if image.dtype == tf.string else tf.io.encode_png(image)).numpy())
    return [str(folder)]


def masked_files(folder: Path, splits: Any) -> list[str]:
    from PIL import Image

    for number in range(5):
        Image.fromarray(masked_pictures.drawn(number, 50 + number, 60)[0]).save(folder / f"{number}.png")
    return [str(folder)]


def sound_files(folder: Path, splits: Any) -> list[str]:
    import soundfile

    from speech.data.recordings import waveform

    folder.mkdir(exist_ok=True)
    for number in range(5):
        soundfile.write(folder / f"{number}.wav", waveform(splits.test, number), 8000)
    return [str(folder)]


def two_sounds(folder: Path, splits: Any) -> list[str]:
    """Requests that hold both recordings."""
    sound_files(folder / "sounds", splits)
    sent = [{"b64": base64.b64encode(path.read_bytes()).decode()} for path in sorted((folder / "sounds").iterdir())]
    shutil.rmtree(folder / "sounds")
    return [json.dumps({"sound": one, "other": other}) for one, other in pairwise(sent)]


def pictures_of_several(folder: Path) -> list[str]:
    """The embedded digits with what is true of each: small, odd, round."""
    from vision.data.sources import digits

    source = digits()
    table = np.array([[digit < 4, digit % 2, digit in (0, 6, 8, 9)] for digit in range(10)], np.int64)
    np.savez(folder / "several.npz", image=source.arrays["image"][:400], label=table[source.labels[:400]])
    settings = {"source": "npz", "path": str(folder / "several.npz"), "validation": 0.2, "test": 0.2}
    return [f"data.{name}={value}" for name, value in settings.items()]


def sounds_of_several(folder: Path) -> list[str]:
    """Tones of up to three pitches together."""
    import soundfile

    draw, times, rows = np.random.default_rng(0), np.arange(4000) / 8000, ["audio,label,split"]
    for number in range(160):
        there = draw.random(3) < 0.5
        wave = sum((0.2 * np.sin(2 * np.pi * hertz * times) for hertz in np.array([300, 700, 1500])[there]), 0.01 * draw.normal(size=4000))
        soundfile.write(folder / f"{number}.wav", wave, 8000)
        names = ";".join(np.array(["low", "middle", "high"])[there])
        rows.append(f"{number}.wav,{names},{('train', 'train', 'test', 'validation')[number % 4]}")
    (folder / "several.csv").write_text("\n".join(rows))
    settings = {"source": "table", "path": str(folder / "several.csv"), "split_key": "split", "validation": "validation", "seconds": 0.5}
    return [f"data.{name}={value}" for name, value in settings.items()]


MADE = """
data: {source: synthetic, user_key: user, item_key: item, time_key: time, rating_key: rating, title_key: title, test: 0.1}
"""
RANKING = f"task: recsys.ranking{MADE}model: {{name: dcn, width: 4, hidden: [8], history: 5}}"
SHOP = "{source: table, path: '', time_key: time, split_key: split, categories: [theme, group], numbers: [age, price]}"
RETRIEVAL = f"""
task: recsys.retrieval
data: {SHOP}
model: {{name: towers, width: 8, history: 5}}
"""
COMMANDS = """
task: speech.classification
data: {source: synthetic, seconds: 0.9, group_by: speaker, validation: 0.1, test: 0.2, limit: 96}
model: {name: pretrained, preset: '', silence: 0.1}
train: {batch_size: 16}
"""
TRANSCRIPTS = """
task: speech.transcription
data: {source: synthetic, validation: 0.1, test: 0.1, limit: 48}
train: {batch_size: 16}
"""
SEVERAL = """
data: {labels: many, source: table, path: ''}
train: {batch_size: 32}
"""
MANY_IMAGES = f"task: vision.classification{SEVERAL}model: {{name: cnn, widths: [8, 8], hidden: 16}}"
MANY_SOUNDS = f"task: speech.classification{SEVERAL}model: {{name: ds_cnn, width: 8, depth: 1}}\nfrontend: {{mels: 20}}"
TEXT_NUMBERS = """
task: nlp.regression
data: {source: table, path: '', label_key: [price, weight], validation: 0.2, test: 0.2}
tokens: {name: hashed, buckets: 1024}
model: {name: bag}
train: {batch_size: 16}
"""
PAIRS = """
task: nlp.pair_classification
data: {source: table, path: '', label_key: label, validation: 0.2, test: 0.2}
model: {name: linear}
"""
PAIR_NUMBERS = """
task: nlp.pair_regression
data: {source: table, path: '', label_key: score, validation: 0.2, test: 0.2}
model: {name: linear}
"""
PAIR_RANKS = """
task: nlp.pair_ranking
data: {source: table, path: '', validation: 0.2, test: 0.2}
model: {name: bi_encoder, preset: ''}
"""
TAGS = """
task: nlp.tagging
data: {source: conll, path: '', validation: 0.2, test: 0.2}
model: {name: pretrained, preset: '', limit: 24}
train: {batch_size: 16}
"""
ANSWERS = """
task: nlp.question_answering
data: {source: squad, path: '', validation: 0.2, test: 0.2}
model: {name: pretrained, preset: '', limit: 64, question: 6, window: 28, overlap: 8}
answer: {longest: 12}
train: {batch_size: 16}
"""
TRANSLATIONS = """
task: nlp.translation
data: {source: table, path: '', validation: 0.2, test: 0.2}
tokens: {vocabulary: 120, limit: 24}
model: {name: transformer, width: 32, depth: 1, writing_depth: 1, heads: 2, hidden: 64, dropout: 0.0}
writing: {beam: 2}
train: {batch_size: 16, learning_rate: {peak: 0.005}}
"""
VERSES = """
task: nlp.language_model
data: {source: text, path: '', validation: 0.2, test: 0.2}
model: {name: transformer, length: 32, width: 16, depth: 2, heads: 4, groups: 2, hidden: 32}
writing: {most: 12}
train: {batch_size: 16, learning_rate: {peak: 0.01}}
"""
DIALOGUES = """
task: nlp.dialogue
data: {source: messages, path: '', text_key: [asked, answered], validation: 0.2, test: 0.2}
model: {name: pretrained, preset: '', length: 48, lora: 2}
writing: {most: 8}
evaluate: {answers: 4, form: '[a-z ]*'}
train: {batch_size: 16, learning_rate: {peak: 0.01}}
"""
TUNED = "limit: 24, finetune: {name: whole, learning_rate: 0.001}"
SOUND_NUMBERS = """
task: speech.regression
data: {source: table, path: '', label_key: semitones, rate: 8000, seconds: 0.5, validation: 0.2, test: 0.2}
model: {name: ds_cnn, width: 8, depth: 1}
train: {batch_size: 16}
"""
VOICES = """
task: speech.verification
data: {source: synthetic, rate: 8000, seconds: 0.5, join: 0.8, validation: 0.3, test: 0.2}
model: {name: plda}
train: {batch_size: 32}
"""
IMAGE_NUMBERS = """
task: vision.regression
data: {source: npz, path: '', validation: 0.2, test: 0.2}
model: {name: cnn, widths: [8, 8], hidden: 16}
train: {batch_size: 16}
"""
MASKS = """
task: vision.segmentation
data: {source: folder, path: ''}
model: {name: small, widths: [4, 8, 8, 8, 8], decoder: [4, 4, 8, 8]}
augment: {flip: true, scale: [0.8, 1.2]}
train: {batch_size: 8}
"""
BOXES = """
task: vision.detection
data: {source: table, path: '', validation: 0.2, test: 0.2, image_size: [64, 96]}
model: {name: small, widths: [8, 8, 16, 16, 16], width: 8, depth: 1}
train: {batch_size: 8}
augment: {flip: true, scale: [0.8, 1.2]}
"""
THINGS = BOXES.replace("vision.detection", "vision.instances").replace("source: table", "source: masks")
FOUND = ("train.epochs=8", "train.learning_rate.peak=0.01")  # so that some boxes are found, and AP has an interval
EASE = f"task: recsys.retrieval{MADE}model: {{name: ease, rank: 32}}"
CHOICES = """
task: recsys.bandit
data: {source: synthetic, time_key: time, numbers: [x0, x1, x2], categories: [device], validation: 0.1, test: 0.1, limit: 2000}
model: {name: policy}
"""
FACTORS = f"task: recsys.ranking{MADE}model: {{name: factors}}"


def boxed(folder: Path) -> list[str]:
    """Rectangles, bright or dark."""
    return [f"data.path={boxed_pictures.table(boxed_pictures.made(40), folder)}"]


def masked_things(folder: Path) -> list[str]:
    """The same, each with its mask."""
    return [f"data.path={boxed_pictures.masks(boxed_pictures.made(40), folder)}"]


def two_texts(folder: Path, splits: Any) -> list[str]:
    return ['{"sentence1": "a golden bed", "sentence2": "the bed?"}', "a table\tthe \U0001f600", "\ta chair"]


def questions(folder: Path, splits: Any) -> list[str]:
    return ['{"question": "the taxi?", "context": "the taxi is red. 😀"}', "the wifi\t the taxi is red", "\ta chair"]


def texts(folder: Path, splits: Any) -> list[str]:
    return ["a room for two nights", "", "a golden bed? \U0001f600"]


def a_shop(folder: Path) -> list[str]:
    """Some users and items in test alone."""
    small_tables.shop(folder, users=120)
    return [f"data.path={folder}/log.csv", f"data.items={folder}/items.csv", f"data.users={folder}/users.csv"]


def described_users(folder: Path, splits: Any) -> list[str]:
    return ["u3", '{"user": "nobody", "group": "g1", "k": 3}', '{"group": "g2", "age": 22, "history": ["i1", "i4"]}']


def known_users(folder: Path, splits: Any) -> list[str]:
    return ["3", "17", "nobody"]


# fitted at once, so that no step trains them: the first as the cheap baseline is
FITTED = {"nlp.classification/linear", "nlp.pair_classification/linear", "vision.classification/kernel"}
AT_ONCE = FITTED | {"speech.verification/plda", "recsys.retrieval/ease", "recsys.ranking/factors",
                    "speech.classification/pretrained", "speech.classification/sounds",
                    "vision.classification/blend",
                    "vision.classification/many"}
CASES = {
    "nlp.classification": Case("nlp/quickstart", ("data.limit=400", "tokens.buckets=1024"), texts),
    "nlp.classification/linear": Case("nlp/quickstart", ("tokens=null", "model={name: linear}", "data.limit=400"), texts),
    "nlp.regression": Case(TEXT_NUMBERS, ("target.unit=[EUR, kg]",), texts, data=numbers_made.texts),
    "nlp.pair_classification": Case(
        PAIRS, (f"model={{name: cross_encoder, preset: '', {TUNED}}}", "train.batch_size=16"), two_texts, tiny.bert, numbers_made.pairs),
    "nlp.pair_classification/linear": Case(PAIRS, (), two_texts, data=numbers_made.pairs),
    "nlp.pair_regression": Case(
        PAIR_NUMBERS, (f"model={{name: bi_encoder, preset: '', {TUNED}}}", "train.batch_size=16"), two_texts, tiny.bert,
        numbers_made.pairs),
    "nlp.pair_ranking": Case(
        PAIR_RANKS, ("model.limit=24", "train.batch_size=16"), two_texts, tiny.bert, numbers_made.pairs),
    "nlp.tagging": Case(TAGS, ("model.window=12", "train.learning_rate.peak=0.01", "train.epochs=3"), texts, tiny.bert,
                        numbers_made.tagged),
    "nlp.question_answering": Case(ANSWERS, ("train.learning_rate.peak=0.01",), questions, tiny.bert,
                                   numbers_made.answers),
    "nlp.language_model": Case(VERSES, (), texts, data=numbers_made.verses),
    "nlp.language_model/pretrained": Case(
        VERSES, ("model={name: pretrained, preset: '', length: 32, lora: 2}", "train.learning_rate.peak=0.001"), texts, tiny.llama,
        numbers_made.verses),
    "nlp.dialogue": Case(DIALOGUES, (), texts, tiny.chatting, numbers_made.dialogues),
    "nlp.translation": Case(TRANSLATIONS, (), texts, data=numbers_made.translations),
    "recsys.bandit": Case(CHOICES, (), lambda folder, splits: [
        '{"x0": 0.3, "device": "phone", "request": "7"}', '{"x1": -1, "request": "8", "exclude": ["a1", "a2"]}']),
    "recsys.ranking": Case(RANKING, (), lambda folder, splits: ['{"user": "3", "item": "5"}', '{"user": "nobody", "item": "7"}']),
    "recsys.ranking/factors": Case(FACTORS, (), lambda folder, splits: ['{"user": "3", "item": "5"}', '{"user": "nobody", "item": "7"}']),
    "recsys.retrieval": Case(RETRIEVAL, (), described_users, data=a_shop),
    "recsys.retrieval/ease": Case(EASE, (), lambda folder, splits: ["u3", '{"history": ["i7", "i8", "i7"]}', "nobody"]),
    "recsys.sequential": Case("recsys/quickstart", ("model.width=8",), known_users),
    "speech.classification": Case("speech/quickstart", ("data.limit=160", "model.width=8", "model.depth=1"), sound_files),
    "speech.transcription": Case("speech/yes_no_ctc", (
        "data.source=synthetic", "data.name=null", "data.words=[]", "data.test_last=null", "data.test=0.1", "data.limit=48",
        "model.width=16", "model.kernels=[5]", "tokens.unit=subwords", "tokens.size=24", "train.batch_size=16",
        "train.validate_every=1"), sound_files),
    "speech.classification/pretrained": Case(COMMANDS, (), sound_files, tiny.moonshine),
    "speech.classification/sounds": Case(
        COMMANDS, ("model={name: kernel, preset: ''}", "data.rate=16000"), sound_files, tiny.yamnet),
    "speech.transcription/whisper": Case(
        TRANSCRIPTS, ("model={name: whisper, preset: '', trains: whole, longest: 12}",), sound_files, tiny.whisper),
    "speech.regression": Case(SOUND_NUMBERS, ("target.low=0",), sound_files, data=numbers_made.tones),
    "speech.verification": Case(VOICES, ("model={name: ds_cnn, width: 8, depth: 1}", "loss.width=8"), two_sounds),
    "speech.verification/plda": Case(VOICES, (), two_sounds),
    "vision.classification/kernel": Case("vision/digits", ("model={name: kernel, support: 500}",), digit_files),
    "vision.classification/pretrained": Case(
        "vision/digits", ("model={name: pretrained, preset: '', finetune: {name: whole, head: new}}", "augment.shift=1"), digit_files,
        tiny.efficientnet),
    "vision.classification/blend": Case(
        "vision/digits", ("model={name: pretrained, preset: '', blend: kernel}", "data.limit=300"), digit_files, tiny.efficientnet),
    "vision.classification/many": Case(
        MANY_IMAGES, ("model={name: pretrained, preset: ''}",), digit_files, tiny.efficientnet, data=pictures_of_several),
    "speech.classification/many": Case(MANY_SOUNDS, (), sound_files, data=sounds_of_several),
    "vision.classification": Case("vision/digits", ("model.widths=[8, 8]", "model.hidden=16"), digit_files),
    "vision.segmentation": Case(MASKS, (), masked_files, data=masked_pictures.small),
    "vision.detection": Case(
        BOXES, ("model={name: pretrained, preset: '', width: 8, finetune: {name: whole, head: new}}", *FOUND), digit_files, tiny.pyramid,
        boxed),
    "vision.instances": Case(
        THINGS, ("model={name: pretrained, preset: '', width: 8, finetune: {name: whole, head: new}}", "evaluate.boxes=20", *FOUND),
        digit_files, tiny.pyramid, masked_things),
    "vision.regression": Case(IMAGE_NUMBERS, ("target.unit=grey levels", "augment.mixup=0.2", "loss.name=quantiles"), digit_files,
                              data=numbers_made.pictures),
}
COMMON = ("train.epochs=2", "train.precision=float32", "train.devices=cpu", "evaluate.bootstrap=100", "evaluate.worst=2",
          "monitor.samples=2")


def task_of(name: str) -> str:
    return name.partition("/")[0]
