"""Texts a second whose named things are found, by `nlp.tagging` and by transformers' pipeline, with a network of the same size.

python -m benchmarks.tagging PATH     # about 3 min on 2 cores; needs the extras `bench` and `pretrained`; PATH: as nlp/tags reads it
MiniLM-L6 in float32, 32 texts at a time; from texts to spans. Ours is `Predictor`, as behind `predict`, of a run trained for a moment; the
peer's weights are random, but that it finds nothing, and aggregation_strategy="simple" makes its spans. They take turns; medians.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.product import machine, peer

BATCH, TEXTS, ROUNDS = 32, 2_000, 3
PRESET = "minilm_l6"


def texts_of(path: str) -> list[str]:
    """The sentences of test, again and again."""
    sentences = [" ".join(line.split()[0] for line in part.splitlines() if line.strip())
                 for part in Path(path, "test.conll").read_text(encoding="utf-8").split("\n\n")]
    found = [text for text in sentences if text]
    return (found * (1 + TEXTS // len(found)))[:TEXTS]


def rate(answer: Callable[[list[str]], int], texts: list[str]) -> dict[str, float]:
    """Texts a second, after a first time that does not count."""
    answer(texts)
    began = time.perf_counter()
    found = answer(texts)
    return {"texts_per_second": len(texts) / (time.perf_counter() - began), "spans": found}


def ours(path: str, folder: str) -> dict[str, float]:
    from pipelines.config.load import load
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.launch import task_class
    from pipelines.runs.run import Call, train
    from pipelines.serving.load import load_run
    from pipelines.serving.predict import Predictor

    place = RunFolder(Path(folder) / "run")
    if not place.begun:
        known = load("nlp/tags", [f"data.path={path}", "data.limit=320", "train.epochs=1", "train.precision=float32"])
        train(known.experiment, place, Call("tagging", task_class(known.experiment.task), quiet=True))
    predictor = Predictor(load_run(place, where=1), batch=BATCH)
    texts = texts_of(path)
    return rate(lambda some: sum(int(one.values["count"]) for one in predictor.predict(some)), texts)


def theirs(path: str) -> dict[str, float]:
    from transformers import BertConfig, BertForTokenClassification, BertTokenizerFast, pipeline

    from pipelines.encoders.presets import find

    preset = find(PRESET, domain="nlp")
    config = json.loads((preset.folder / "config.json").read_text())["config"]
    model = BertForTokenClassification(BertConfig(
        vocab_size=config["vocabulary_size"], hidden_size=config["hidden_dim"], num_hidden_layers=config["num_layers"],
        num_attention_heads=config["num_heads"], intermediate_size=config["intermediate_dim"], num_labels=13)).eval()
    model.classifier.bias.data[0] = 30.0  # of nothing, so that no time goes into spans
    tokenizer = BertTokenizerFast(vocab_file=str(preset.folder / "assets/tokenizer/vocabulary.txt"), model_max_length=128)
    found = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="simple", device="cpu",
                     ignore_labels=["LABEL_0"])
    return rate(lambda some: sum(len(one) for one in found(some, batch_size=BATCH)), texts_of(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--only", choices=["ours", "theirs"], help="one measurement, as JSON")
    parser.add_argument("--folder", default="")
    asked = parser.parse_args()
    if asked.only:
        print(json.dumps(ours(asked.path, asked.folder) if asked.only == "ours" else theirs(asked.path)))
        return
    print(machine(), flush=True)
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            for name, values in rates.items():
                values.append(float(peer("tagging", asked.path, "--only", name, "--folder", folder)["texts_per_second"]))
    first, second = (statistics.median(values) for values in rates.values())
    print(f"quartet {first:,.0f} texts/s {[round(v) for v in rates['ours']]}; transformers {second:,.0f} "
          f"{[round(v) for v in rates['theirs']]}; ratio {first / second:.2f}")


if __name__ == "__main__":
    main()
