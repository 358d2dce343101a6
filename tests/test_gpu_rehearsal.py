"""A rehearsal of GPUs on a processor: XLA takes a step of every model for CUDA, with the choices that Keras makes on a GPU.

A GPU is rare where tests run, and what fails there fails at step 1 of everybody's training.
"""

import importlib.util
import json
from pathlib import Path
from typing import get_args

import pytest
import yaml

from pipelines.config.registry import tasks
from tests import contract_cases, numbers_made, processes
from tests.contract_cases import IMAGE_NUMBERS, PAIRS, SOUND_NUMBERS, TEXT_NUMBERS
from tests.encoders import tiny
from tests.finished_run import ROOT
from tests.recsys import small_tables
from tests.vision import boxed_pictures, masked_pictures

pytestmark = pytest.mark.slow(seconds=250)

COMMANDS, TRANSCRIPTION = "speech/quickstart", "speech/yes_no_ctc"
FEW, WORDS = ("data.limit=40",), "tokens={name: words}"
SPOKEN = (*FEW, "data.source=synthetic", "data.name=null", "data.words=[]", "data.test_last=null", "data.test=0.2",
          "tokens.unit=characters")
RANKING = """
task: recsys.ranking
data: {source: table, path: '', time_key: time, split_key: split, rating_key: rating, categories: [theme, group]}
"""
SHOP = ("data.path=MADE/log.csv", "data.items=MADE/items.csv", "data.users=MADE/users.csv")
LATER = "\ntask: recsys.sequential\ndata: {source: table, path: '', time_key: time, split_key: split, categories: [theme]}\n"

# task/model, and where a model has parts of its own further ones: (experiment, overrides)
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "vision.classification/cnn": ("vision/digits", (*FEW, "model={name: cnn, widths: [4, 4], hidden: 8, dropout: 0.2, batch_norm: true}",
                                                    "augment={flip: true, shift: 1, erase: 2, mixup: 0.2}")),
    "vision.classification/residual": ("vision/digits", (*FEW, "model={name: residual, depth: 1, widths: [4]}")),
    "vision.classification/fast": ("vision/digits", (*FEW, "model={name: fast, widths: [8]}")),
    "vision.classification/vit": ("vision/digits", (*FEW, "model={name: vit, depth: 1, width: 8, heads: 2}")),
    "vision.classification/gradients": ("vision/digits", (*FEW, "model={name: gradients}")),
    "vision.classification/application": ("vision/digits", (*FEW, "data.image_size=32",
                                                            "model={name: application, architecture: MobileNet}")),
    "vision.classification/pretrained": ("vision/digits", (
        *FEW, "model={name: pretrained, preset: PRESET/efficientnet, finetune: {name: whole}}")),
    "speech.classification/pretrained": (contract_cases.COMMANDS, (
        *FEW, "model={name: pretrained, preset: PRESET/whisper, silence: 0.1, finetune: {name: whole}}")),
    "speech.classification/pretrained yamnet": (contract_cases.COMMANDS, (
        *FEW, "model={name: pretrained, preset: PRESET/yamnet, finetune: {name: whole}}", "data.rate=16000")),
    "speech.transcription/pretrained": (contract_cases.TRANSCRIPTS, (
        *FEW, "model={name: pretrained, preset: PRESET/whisper, finetune: {name: whole}}")),
    "speech.transcription/whisper": (contract_cases.TRANSCRIPTS, (
        *FEW, "model={name: whisper, preset: PRESET/whisper, trains: whole, longest: 12}")),
    "speech.classification/ds_cnn": (COMMANDS, (*FEW, "model={name: ds_cnn, width: 4, depth: 1}")),
    "speech.classification/broadcast": (COMMANDS, (*FEW, "model={name: broadcast, width: 4, depth: [1, 1, 1, 1]}")),
    "speech.transcription/quartz": (TRANSCRIPTION, (*SPOKEN, "model={name: quartz, width: 8, kernels: [3], repeat: 1, stride: 4}")),
    "speech.transcription/conformer": (TRANSCRIPTION, (*SPOKEN, "model={name: conformer, width: 16, depth: 1, heads: 2, kernel: 3}")),
    "nlp.classification/bag": ("nlp/quickstart", (*FEW, "tokens={name: hashed, buckets: 64}", "model={name: bag, width: 4, hidden: 4}")),
    "nlp.classification/cnn": ("nlp/quickstart", (*FEW, WORDS, "model={name: cnn, width: 4, kernels: [2], filters: 4}")),
    "nlp.classification/lstm": ("nlp/quickstart", (*FEW, WORDS, "model={name: lstm, width: 4, units: 4}")),
    "nlp.classification/transformer": ("nlp/quickstart", (*FEW, WORDS, "model={name: transformer, width: 4, depth: 1, heads: 2}")),
    "nlp.classification/pretrained": ("nlp/quickstart", (
        *FEW, "tokens=null", "model={name: pretrained, preset: PRESET/bert, limit: 8, finetune: {name: whole}}")),
    "nlp.pair_classification/cross_encoder": (PAIRS, (
        "data.path=MADE/pairs.csv", "model={name: cross_encoder, preset: PRESET/bert, limit: 24, finetune: {name: whole}}")),
    "nlp.pair_classification/bi_encoder": (PAIRS, (
        "data.path=MADE/pairs.csv", "model={name: bi_encoder, preset: PRESET/bert, limit: 16, finetune: {name: whole}}")),
    "nlp.pair_ranking/bi_encoder": (contract_cases.PAIR_RANKS, ("data.path=MADE/pairs.csv", "model.preset=PRESET/bert", "model.limit=16")),
    "nlp.tagging/pretrained": (contract_cases.TAGS, ("data.path=MADE/tagged.conll", "model.preset=PRESET/bert")),
    "nlp.tagging/pretrained chain": (contract_cases.TAGS, (
        "data.path=MADE/tagged.conll", "model.preset=PRESET/bert", "model.chain=true")),
    "nlp.tagging/pretrained windows": (contract_cases.TAGS, (
        "data.path=MADE/tagged.conll", "model.preset=PRESET/bert", "model.window=12")),
    "nlp.question_answering/pretrained": (contract_cases.ANSWERS, (
        "data.path=MADE/answers.json", "model.preset=PRESET/bert", "model.limit=28", "model.window=null", "model.overlap=null")),
    "nlp.language_model/transformer": (contract_cases.VERSES, ("data.path=MADE/verses.txt",)),
    "nlp.language_model/pretrained": (contract_cases.VERSES, (
        "data.path=MADE/verses.txt", "model={name: pretrained, preset: PRESET/llama, length: 32, lora: 2}")),
    "nlp.dialogue/pretrained": (contract_cases.DIALOGUES, ("data.path=MADE/dialogues.csv", "model.preset=PRESET/chatting")),
    "nlp.translation/transformer": (contract_cases.TRANSLATIONS, ("data.path=MADE/translations.tsv",)),
    "nlp.question_answering/pretrained windows": (contract_cases.ANSWERS, ("data.path=MADE/answers.json", "model.preset=PRESET/bert")),
    "recsys.sequential/sasrec": ("recsys/quickstart", ("model={name: sasrec, length: 5, width: 4, taste: true}",)),
    "recsys.sequential/sasrec sampled": ("recsys/quickstart", ("model={name: sasrec, length: 5, width: 4}",
                                                               "loss={name: sampled, negatives: 8}")),
    "recsys.sequential/hstu": (LATER, (*SHOP[:2], "model={name: hstu, length: 5, width: 4, heads: 2}")),
    "recsys.sequential/gru": ("recsys/quickstart", ("model={name: gru, length: 5, width: 4}",)),
    "nlp.regression/bag": (TEXT_NUMBERS, ("data.path=MADE/texts.csv",)),
    "speech.verification/ds_cnn": (contract_cases.VOICES, ("model={name: ds_cnn, width: 4, depth: 1}", "loss.width=8")),
    "speech.regression/ds_cnn": (SOUND_NUMBERS, ("data.path=MADE/tones.csv",)),
    "vision.regression/cnn": (IMAGE_NUMBERS, ("data.path=MADE/pictures.npz", "loss.name=quantiles")),
    "vision.segmentation/small": (contract_cases.MASKS, ("data.path=MADE/masks",)),
    "vision.segmentation/pretrained": (contract_cases.MASKS, (
        "data.path=MADE/masks", "model={name: pretrained, preset: PRESET/pyramid, decoder: [4, 4, 8, 8]}")),
    "vision.detection/small": (contract_cases.BOXES, ("data.path=MADE/boxes/boxes.csv",)),
    "vision.detection/pretrained": (contract_cases.BOXES, (
        "data.path=MADE/boxes/boxes.csv", "model={name: pretrained, preset: PRESET/pyramid, width: 8}")),
    "vision.instances/small": (contract_cases.THINGS, ("data.path=MADE/things", "evaluate.boxes=20")),
    "vision.instances/pretrained": (contract_cases.THINGS, (
        "data.path=MADE/things", "evaluate.boxes=20", "model={name: pretrained, preset: PRESET/pyramid, width: 8}")),
    "vision.detection/yolox": (contract_cases.BOXES, ("data.path=MADE/boxes/boxes.csv", "model={name: yolox, weights: null}")),
    "recsys.retrieval/towers": (contract_cases.RETRIEVAL, (*SHOP, "loss={negatives: 8, hard: 4}")),
    "recsys.bandit/policy": (contract_cases.CHOICES, ("model.hidden=[8]",)),
    "recsys.ranking/dcn": (RANKING, (*SHOP, "model={name: dcn, width: 4, hidden: [8], history: 5}")),
    "recsys.ranking/dlrm": (RANKING, (*SHOP, "model={name: dlrm, width: 4, hidden: [8]}")),
}
# whose models are those of classes, under another loss and last layer: one of each is rehearsed
LIKE_CLASSES = {"nlp.regression": "nlp.classification", "nlp.pair_regression": "nlp.pair_classification",
                "speech.regression": "speech.classification", "speech.verification": "speech.classification",
                "vision.regression": "vision.classification"}
# fitted at once: no step trains them
WITHOUT_STEPS = {"vision.classification/kernel", "speech.classification/kernel", "speech.classification/yamnet",
                 "speech.verification/plda",
                 "nlp.classification/linear", "nlp.pair_classification/linear",
                 "recsys.retrieval/ease",
                 "recsys.retrieval/item_knn", "recsys.ranking/factors"}
BY_CUDNN = {"nlp.classification/lstm", "recsys.sequential/gru"}


def shipped() -> set[str]:
    """task/model of every shipped experiment."""
    found = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted((ROOT / "configs").glob("*/*.yaml"))]
    return {f"{one['task']}/{one['model'].get('name', 'towers')}" for one in found}


def registered() -> set[str]:
    """task/model of every model that an experiment may name."""
    from pipelines.config.registry import experiment_class
    from pipelines.config.tree import find

    found = set()
    for task in tasks():
        (model,) = find(experiment_class(task), "model")
        found |= {f"{task}/{get_args(section.model_fields['name'].annotation)[0]}" for section in model.shape.sections}
    return found


def test_every_model_is_rehearsed():
    known = {name.partition(" ")[0] for name in CASES} | WITHOUT_STEPS
    alike = {name for name in registered() - known if name.partition("/")[0] in LIKE_CLASSES}
    assert registered() - alike == known
    assert {f"{LIKE_CLASSES[task]}/{model}" for task, _, model in (name.partition("/") for name in alike)} <= known
    assert shipped() <= registered()


def prepared(folder: Path) -> dict[str, tuple[str, list[str]]]:
    """The cases on data and tiny encoders that are written into `folder`; without the extra `pretrained`, those that need no encoder."""
    cases = dict(CASES)
    if all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text")):
        for encoder in (tiny.bert, tiny.efficientnet, tiny.llama, tiny.chatting, tiny.pyramid, tiny.whisper, tiny.yamnet):
            encoder(folder / encoder.__name__)
    else:
        cases = {name: case for name, case in cases.items() if "PRESET" not in str(case)}
    for make in (numbers_made.pictures, numbers_made.texts, numbers_made.pairs, numbers_made.tagged, numbers_made.answers,
                 numbers_made.translations, numbers_made.verses, numbers_made.dialogues, numbers_made.tones, small_tables.shop):
        make(folder)
    boxed_pictures.table(boxed_pictures.made(40), folder / "boxes")
    boxed_pictures.masks(boxed_pictures.made(40), folder / "things")
    masked_pictures.write(folder / "masks", range(40))
    return json.loads(json.dumps(cases).replace("PRESET", str(folder)).replace("MADE/", f"{folder}/"))


@pytest.fixture(scope="module")
def rehearsed(request, tmp_path_factory) -> dict[str, dict]:
    """Name -> what came of it; all in one process, so that TensorFlow is imported once."""
    asked = processes.asked(request, "name")
    cases = {name: case for name, case in prepared(tmp_path_factory.mktemp("rehearsal")).items() if name in asked}
    done = processes.run("-m", "tests.rehearsal", json.dumps(cases), check=True, timeout=900)
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_compiled_or_known_not_to_be(rehearsed, name):
    if name not in rehearsed:
        pytest.skip("needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")
    found = rehearsed[name]
    assert found["error"] is None, found["error"]
    assert found["xla"] == (name not in BY_CUDNN)
    assert found["host"] == ["RandomIndexShuffle int32 int64"]  # the order: some numbers a step
    if name in BY_CUDNN:
        assert found["cudnn"] and "XLA" in found["note"]
        assert not found["served with cudnn"]  # a processor must be able to run it
