"""Promise 1 for the networks of the domains: two replicas, and a mesh, train as one device does; each in a process of its own.

What the harness brings - clipping, averages, precision, frozen and divided parts - is compared in tests/training/test_replicas.py.
"""

import importlib.util
import json
import os

import numpy as np
import pytest

from tests import numbers_made, processes
from tests.encoders import tiny
from tests.recsys.small_tables import shop
from tests.vision import boxed_pictures, masked_pictures

pytestmark = pytest.mark.slow(seconds=75)

SGD = {"optimizer": {"name": "sgd"}, "learning_rate": {"peak": 0.05}, "batch_size": 64, "micro_batch_size": 32, "epochs": 1}
TUNED = {"batch_size": 16, "micro_batch_size": 4, "epochs": 2, "optimizer": {"name": "sgd", "momentum": 0.9}, "ema": 0.9,
         "learning_rate": {"peak": 0.02}}
SPOKEN = {"batch_size": 8, "micro_batch_size": 4, "epochs": 1, "optimizer": {"name": "sgd"}, "learning_rate": {"peak": 0.002}}
MADE = {"source": "synthetic", "user_key": "user", "item_key": "item", "time_key": "time", "rating_key": "rating", "limit": 1500}
RECORDED = {"source": "synthetic", "seconds": 0.9, "group_by": "speaker", "validation": 0.1, "test": 0.2, "limit": 44}
SHOP = {"source": "table", "path": "FOLDER/log.csv", "time_key": "time", "split_key": "split", "items": "FOLDER/items.csv",
        "users": "FOLDER/users.csv", "categories": ["theme", "group"]}  # some of both in test alone
WORDS = ("the", "room", "taxi", "please", "book", "cancel")  # of texts of one or, now and then, four

# all augmentation, free lengths, dropout, batch statistics by micro-batch, ids in tables, an epoch's short last batch
CASES = {
    "sequential": {"task": "recsys.sequential", "data": MADE, "train": SGD, "loss": {"name": "sampled", "negatives": 20},
                   "model": {"name": "gru", "length": 8, "width": 8, "dropout": 0.2, "taste": True}},
    "histories": {"task": "recsys.sequential", "data": {**SHOP, "users": None, "categories": ["theme"]}, "train": SGD,
                  "loss": {"name": "full"},
                  "model": {"name": "hstu", "length": 16, "width": 8, "depth": 1, "heads": 2, "dropout": 0.2, "taste": True}},
    "retrieval": {"task": "recsys.retrieval", "data": SHOP, "train": SGD, "loss": {"negatives": 10},
                  "model": {"name": "towers", "width": 8, "history": 3}},
    "ranking": {"task": "recsys.ranking", "data": {**SHOP, "rating_key": "rating"}, "train": SGD,
                "model": {"name": "dcn", "width": 4, "hidden": [8], "history": 4, "dropout": 0.1}},
    "choices": {"task": "recsys.bandit", "train": SGD,
                "data": {"source": "synthetic", "time_key": "time", "numbers": ["x0", "x1"], "categories": ["device"], "limit": 1500},
                "model": {"name": "policy", "width": 4, "hidden": [8], "dropout": 0.1}},
    "commands": {"task": "speech.classification", "data": RECORDED, "train": SPOKEN, "model": {"name": "ds_cnn", "width": 8, "depth": 1},
                 "augment": {"noise": 0.5, "gain": 3.0, "time_masks": 1}},
    "voices": {"task": "speech.verification", "train": SPOKEN, "model": {"name": "ds_cnn", "width": 8, "depth": 1}, "loss": {"width": 8},
               "data": {"source": "synthetic", "rate": 8000, "seconds": 0.5, "join": 1.5, "validation": 0.3, "test": None}},
    "transcription": {"task": "speech.transcription", "data": {"source": "synthetic", "test": 0.1, "limit": 44}, "train": SPOKEN,
                      "model": {"name": "quartz", "width": 16, "kernels": [5]}, "tokens": {"unit": "characters"}},
    "boxes": {"task": "vision.detection", "train": {**SPOKEN, "learning_rate": {"peak": 0.02}},
              "augment": {"flip": True, "scale": [0.8, 1.2]},
              "data": {"source": "table", "path": "FOLDER/boxes/boxes.csv", "validation": 0.1, "test": None, "image_size": [64, 96]},
              "model": {"name": "small", "widths": [8, 8, 8, 16, 16], "width": 8, "depth": 1}},
    "things": {"task": "vision.instances", "train": {**SPOKEN, "learning_rate": {"peak": 0.02}},
               "augment": {"flip": True, "scale": [0.8, 1.2]}, "loss": {"things": 2}, "evaluate": {"boxes": 20},
               "data": {"source": "masks", "path": "FOLDER/things", "validation": 0.1, "test": None, "image_size": [64, 96]},
               "model": {"name": "small", "widths": [8, 8, 8, 16, 16], "width": 8, "depth": 1}},
    "masks": {"task": "vision.segmentation", "train": {**SPOKEN, "learning_rate": {"peak": 0.02}},
              "augment": {"flip": True, "scale": [0.8, 1.2]},
              "data": {"source": "folder", "path": "FOLDER/masks", "validation": 0.1, "test": None, "void": [2]},
              "model": {"name": "small", "widths": [4, 4, 8, 8, 8], "decoder": [4, 4, 8, 8], "dropout": 0.0}},
    "verses": {"task": "nlp.language_model", "train": TUNED,
               "data": {"source": "text", "path": "FOLDER/verses.txt", "validation": 0.1, "test": None},
               "model": {"name": "transformer", "length": 16, "width": 16, "depth": 1, "heads": 2, "hidden": 32}, "writing": {"most": 8}},
    "translations": {"task": "nlp.translation", "train": TUNED,
                     "data": {"source": "table", "path": "FOLDER/translations.tsv", "validation": 0.1, "test": None, "cache": "memory"},
                     "tokens": {"vocabulary": 120, "limit": 24},
                     "model": {"name": "transformer", "width": 16, "depth": 1, "writing_depth": 1, "heads": 2, "hidden": 32}},
    "encoder of texts": {"task": "nlp.classification", "train": TUNED,
                         "data": {"source": "table", "path": "FOLDER/texts.tsv", "validation": 0.1, "test": None, "cache": "memory"},
                         "model": {"name": "pretrained", "preset": "FOLDER/bert", "limit": 16, "words": 0,
                                   "finetune": {"name": "whole", "learning_rate": 0.02, "head": "new"}}},
    "encoder of pairs": {"task": "nlp.pair_regression", "train": TUNED,
                         "data": {"source": "table", "path": "FOLDER/pairs.csv", "label_key": "score", "validation": 0.1, "test": None,
                                  "cache": "memory"},
                         "model": {"name": "bi_encoder", "preset": "FOLDER/bert", "limit": 16,
                                   "finetune": {"name": "whole", "learning_rate": 0.02, "head": "new"}},
                         "loss": {"order": 0.5}},
    "encoder of matches": {"task": "nlp.pair_ranking", "train": TUNED,
                           "data": {"source": "table", "path": "FOLDER/pairs.csv", "validation": 0.1, "test": None, "cache": "memory"},
                           "model": {"name": "bi_encoder", "preset": "FOLDER/bert", "limit": 16,
                                     "finetune": {"name": "whole", "learning_rate": 0.02, "head": "new"}}},
    "encoder of answers": {"task": "nlp.question_answering", "train": TUNED,
                           "data": {"source": "squad", "path": "FOLDER/answers.json", "validation": 0.1, "test": None, "cache": "memory"},
                           "model": {"name": "pretrained", "preset": "FOLDER/bert", "limit": 64, "question": 6, "window": 28, "overlap": 8,
                                     "finetune": {"name": "whole", "learning_rate": 0.02, "head": "new"}}},
    "encoder of images": {"task": "vision.classification", "train": TUNED, "augment": {"shift": 1},
                          "data": {"source": "digits", "validation": 0.1, "test": None, "limit": 40, "cache": "memory"},
                          "model": {"name": "pretrained", "preset": "FOLDER/efficientnet", "image_size": 32,
                                    "finetune": {"name": "whole", "learning_rate": 0.002, "head": "new"}}},
}
ON_MESH = ["verses", "translations"]  # the others have operations that DTensor does not divide, or tables
PROGRAM = """
import json, sys
import numpy as np
import recsys.models.store as store
from pipelines.config.load import from_dict
from pipelines.runs.launch import task_class
from pipelines.training.session import assemble
store.SPARSE_FROM = 10
found = {}
for name, values in json.loads(sys.argv[3]).items():
    values["train"] |= {"precision": "float32", **json.loads(sys.argv[2])}
    experiment = from_dict(values, [], check_paths=False)
    one = assemble(experiment, task_class(experiment.task))
    _, carry = one.step(one.feed.iterator(0, one.steps), 0, one.steps, one.step.fresh())
    assert bool(carry.finite)
    if one.elsewhere is not None:
        one.elsewhere.gather()
    tables = [table.variable for table in one.update.tables.tables]
    assert bool(tables) == (experiment.task.startswith("recsys") and name not in ("choices", "histories")), name
    averages = (average for _, average in one.averages)
    found[name] = np.concatenate([*(np.ravel(value.numpy()) for value in [*one.weights, *averages, *tables]), carry.totals.numpy()])
np.savez(sys.argv[1], **found)
"""


@pytest.fixture(scope="module")
def weights(request, tmp_path_factory) -> list[dict[str, np.ndarray]]:
    """Of one device, of two, and of a mesh: case -> weights, averages, tables and sums of the scores."""
    folder, found, asked = tmp_path_factory.mktemp("weights"), [], processes.asked(request, "case")
    cases = {name: case for name, case in CASES.items() if name in asked}
    texts = [" ".join(WORDS[(number * 5 + place) % 6] for place in range(1 if number % 7 else 4)) for number in range(44)]
    (folder / "texts.tsv").write_text("\n".join(["text\tlabel", *(f"{text}\t{number % 2}" for number, text in enumerate(texts))]) + "\n")
    numbers_made.pairs(folder, 60)
    numbers_made.answers(folder, 60)
    numbers_made.translations(folder, 60)
    numbers_made.verses(folder, 30)
    shop(folder, users=120)
    boxed_pictures.table(boxed_pictures.made(44), folder / "boxes")
    boxed_pictures.masks(boxed_pictures.made(44), folder / "things")
    masked_pictures.write(folder / "masks", range(44))
    if all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text")) or os.environ.get("QUARTET_REQUIRE_EXTRAS"):
        for encoder in (tiny.bert, tiny.efficientnet):
            encoder(folder / encoder.__name__)
    else:
        cases = {name: case for name, case in cases.items() if not name.startswith("encoder")}
    for machine in ({"devices": 1}, {"devices": 2}, {"devices": 4, "parallel": {"data": 2, "model": 2}}):
        some = {name: case for name, case in cases.items() if "parallel" not in machine or name in ON_MESH}
        out = folder / f"{machine['devices']}.npz"
        processes.run("-c", PROGRAM, out, json.dumps(machine), json.dumps(some).replace("FOLDER", str(folder)), check=True)
        with np.load(out) as stored:
            found.append(dict(stored))
    return found


@pytest.mark.parametrize("case", CASES)
def test_two_replicas_train_as_one_device(weights, case):
    if case not in weights[0]:
        pytest.skip("needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")
    one, two = weights[0][case], weights[1][case]
    assert np.abs(one).max() > 0.01
    np.testing.assert_allclose(two, one, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("case", ON_MESH)
def test_a_mesh_trains_as_one_device(weights, case):
    np.testing.assert_allclose(weights[2][case], weights[0][case], atol=1e-5, rtol=1e-5)
