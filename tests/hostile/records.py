"""Files of a run that no run writes, made by code: reports, environments, lines of metrics, results, facts."""

import json
from pathlib import Path
from typing import Any

METRIC = {"value": 0.9, "low": 0.88, "high": 0.92, "n": 400}
REPORT: dict[str, Any] = {
    "task": "vision.classification", "experiment": "vision/digits", "run": "a", "metrics": {"test/accuracy": METRIC},
    "timing": {"train_seconds": 10.0, "epochs": 4}, "time": {"shares": {"step": 1.0}, "seconds": {"step": 10.0}}, "seeds": [], "spread": {}}
ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m"  # sets the title of a terminal, clears it, colours it


def with_(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A deep copy in which the value at a path of keys, joined by `|`, is another."""
    copied = json.loads(json.dumps(values))
    *above, last = path.split("|")
    at = copied
    for key in above:
        at = at[key]
    at[last] = value
    return copied


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


# name -> bytes of a report.json
REPORTS: dict[str, bytes] = {
    "empty": b"", "torn": text(REPORT)[:100], "not UTF-8": b"\xff\xfe{}", "a list": b"[]", "a number": b"3", "null": b"null",
    "deep": b"[" * 100_000, "no metrics": b"{}", "zeros": b"\0" * 100,
    "metrics a list": text(with_(REPORT, "metrics", [1])), "metrics null": text(with_(REPORT, "metrics", None)),
    "a metric a number": text(with_(REPORT, "metrics", {"test/accuracy": 0.9})),
    "a value a text": text(with_(REPORT, "metrics|test/accuracy|value", "0.9")),
    "a value a list": text(with_(REPORT, "metrics|test/accuracy|value", [0.9])),
    "a value a truth": text(with_(REPORT, "metrics|test/accuracy|value", True)),
    "a value NaN": text(with_(REPORT, "metrics|test/accuracy|value", float("nan"))),
    "a value of 400 digits": text(REPORT).replace(b"0.9,", b"9" * 400 + b","),
    "a value of 5000 digits": text(REPORT).replace(b"400", b"4" * 5000),
    "n negative": text(with_(REPORT, "metrics|test/accuracy|n", -1)), "n a text": text(with_(REPORT, "metrics|test/accuracy|n", "x")),
    "timing a text": text(with_(REPORT, "timing", "fast")), "seconds a list": text(with_(REPORT, "timing|train_seconds", [])),
    "time a list": text(with_(REPORT, "time", [])), "shares texts": text(with_(REPORT, "time|shares", {"step": "all"})),
    "arithmetic without rate": text(with_(REPORT, "time|arithmetic", {"share": 1.0})),
    "spread a number": text(with_(REPORT, "spread", {"test/accuracy": 3})),
    "spread without std": text(with_(REPORT, "spread", {"test/accuracy": {"mean": 0.9, "n": 3}})),
    "seeds numbers": text(with_(REPORT, "seeds", [1, 2])),
    "a seed that leads elsewhere": text(with_(REPORT, "seeds", [{"seed": 0, "run": "../../../etc", "metrics": {}}])),
    "a task a number": text(with_(REPORT, "task", 7)), "notes a text": text(with_(REPORT, "notes", "all well")),
}


def make_run(folder: Path, report: bytes | None = None) -> Path:
    """A finished run's folder as far as its list and its report go; `report` in place of a sound one."""
    (folder / "report").mkdir(parents=True)
    (folder / "experiment.yaml").write_text("task: vision.classification\ntrain:\n  epochs: 4\n", encoding="utf-8")
    (folder / "report" / "report.json").write_bytes(text(REPORT) if report is None else report)
    (folder / "environment.json").write_bytes(text({"precision": "float32", "data": {"train": "1"}, "devices": ["CPU:0"]}))
    row = {"step": 10, "epoch": 1, "validation/accuracy": 0.8}
    (folder / "metrics.jsonl").write_bytes(text(row) + b"\n")
    return folder

SPLITS = {"train": {"examples": 100, "fingerprint": "abc", "classes": {"0": 50, "1": 50}}}
IMAGES: dict[str, Any] = {"classes": ["0", "1"], "image_size": [8, 8], "channels": 1, "mean": [78.1], "std": [96.2], "statistics_of": 100,
                          "class_counts": [50, 50], "splits": SPLITS}
HEARD: dict[str, Any] = {"mean": [0.0] * 40, "std": [1.0] * 40, "statistics_of": 9, "speakers": ["a"], "splits": SPLITS}
COMMANDS = {**HEARD, "classes": ["yes", "no"], "class_counts": [4, 5]}
VOICES = {**HEARD, "voices": ["ann", "bob"], "calibration": [2.0, -1.0]}
TRANSCRIPTS = {**HEARD, "unit": "characters", "tokens": ["a", "b", " "], "most_tokens": 12}
TEXTS: dict[str, Any] = {"classes": ["good", "bad"], "class_counts": [1, 2], "vocabulary": ["the", "of"], "splits": SPLITS}
PRETRAINED: dict[str, Any] = {
    "classes": ["good", "bad"], "class_counts": [1, 2], "pool": "mean",
    "backbone": {"class": "BertBackbone", "config": {"hidden_dim": 8}},
    "encoder": {"name": "bert", "source": None, "checksum": "0" * 64, "licence": "MIT", "weights": 9},
    "tokenizer": {"class": "BertTokenizer", "config": {}, "files": {"vocabulary.txt": "YQ=="}}}
LISTS: dict[str, Any] = {
    "user_ids": [1, 2], "item_ids": ["a", "b"], "titles": ["A", "B"], "history_events": 4, "divided": "the last of each user",
    "features": {"genre": {"name": "genre", "kind": "list", "of": "item", "values": ["x"], "length": 4},
                 "age": {"name": "age", "kind": "number", "of": "user", "mean": 1.0, "std": 2.0}}}
RANKED = {**LISTS, "label": {"mean": 0.3, "low": 0.0, "high": 1.0}, "digest": "abc"}

CHOSEN = {"item_ids": ["a", "b"], "history_events": 0, "divided": "by time", "binary": True,
          "label": {"mean": 0.3, "low": 0.0, "high": 1.0},
          "features": {"age": {"name": "age", "kind": "number", "of": "event", "mean": 1.0, "std": 2.0}}, "rates": [0.1, 0.2],
          "habits": [-0.7, -0.7], "sharpness": 2.0}

# task -> (sound facts, [(path, value) that makes nonsense of them])
FACTS: dict[str, tuple[dict[str, Any], list[tuple[str, Any]]]] = {
    "vision.classification": (IMAGES, [
        ("classes", "ab"), ("classes", []), ("classes", [1, 2]), ("classes", ["0", "0"]), ("classes", ["x" * 5000, "1"]), ("classes", None),
        ("image_size", [8]), ("image_size", [8, 10**9]), ("image_size", [0, 8]), ("image_size", [8.5, 8]), ("image_size", "8x8"),
        ("channels", 2), ("channels", 10**9), ("channels", True), ("mean", []), ("mean", [1.0, 2.0]), ("mean", ["1"]), ("mean", [1e300]),
        ("mean", [float("nan")]), ("std", [-1.0]), ("std", [None]), ("std", {}), ("class_counts", [1]), ("class_counts", [-1, 2]),
        ("splits", []), ("splits|train|examples", "many")]),
    "speech.classification": (COMMANDS, [("mean", [0.0] * 10**5 + [1.0]), ("std", ["x"] * 40), ("classes", {"yes": 1}), ("speakers", [1])]),
    "speech.verification": (VOICES, [("voices", ["one"]), ("voices", "ab"), ("voices", [1, 2]), ("calibration", [1.0]),
                                     ("calibration", [float("nan"), 0.0]), ("mean", [0.0] * 10**5 + [1.0])]),
    "speech.transcription": (TRANSCRIPTS, [
        ("unit", "letters"), ("tokens", []), ("tokens", [""]), ("tokens", "abc"), ("most_tokens", 0), ("most_tokens", 10**12),
        ("merge", 0), ("merge", 10**6)]),
    "nlp.classification": (TEXTS, [("vocabulary", "the of"), ("vocabulary", [1]), ("vocabulary", [""]), ("threshold", "high"),
                                   ("threshold", 1e9), ("classes", None)]),
    "nlp.classification pretrained": (PRETRAINED, [
        ("pool", "last"), ("encoder|checksum", "abc"), ("encoder|weights", -1),
        ("backbone|class", "os.system"), ("backbone|class", 3), ("backbone|config", []), ("backbone", "Bert"), ("tokenizer|files", []),
        ("tokenizer|files", {"../../x": "YQ=="}), ("tokenizer|files", {"x": "not base64!"})]),
    "recsys.retrieval": (LISTS, [
        ("user_ids", [1, "a"]), ("user_ids", [1, 1]), ("user_ids", [1.5]), ("user_ids", [10**30]), ("item_ids", []), ("item_ids", None),
        ("titles", ["A"]), ("titles", [1, 2]), ("features", []), ("features|age|std", 0.0), ("features|age|kind", "text"),
        ("features|genre|length", 10**9), ("features|genre|values", [1]), ("history_events", -1), ("history_events", 1e300),
        ("divided", 3), ("new_items", 2), ("new_items", "one"), ("new_users", -1)]),
    "recsys.sequential": ({**LISTS, "targets_per_window": 3.5}, [("targets_per_window", None), ("targets_per_window", -1.0)]),
    "recsys.bandit": (CHOSEN, [("rates", [0.1]), ("habits", [None, 1]), ("habits", {}), ("binary", "yes"), ("sharpness", -1.0),
                               ("sharpness", "x"), ("features", {}), ("item_ids", [])]),
    "recsys.ranking": (RANKED, [("label", 0.3), ("label|mean", None), ("label|low", "0"), ("digest", 7)]),
}
