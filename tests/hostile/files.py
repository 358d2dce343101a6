"""Files of strangers that should be refused: each is small, made by code, and once did harm."""

import json
import os
from pathlib import Path
from typing import Any

OWN = "tensorflow_datasets.core.features"


def fifo(path: Path) -> Path:
    """A named pipe, at which reading would wait for ever."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def endless(path: Path) -> Path:
    """A link to a device that never ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/zero")
    return path


def payload(folder: Path) -> Path:
    """A module `payload.py` in a folder that writes `ran` beside itself when it is imported; returns what it would write."""
    (folder / "payload.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n", encoding="utf-8")
    return folder / "ran"


def foreign_features(name: str) -> dict[str, Any]:
    """Ways in which a prepared TFDS folder names the class `name`: file -> key path is irrelevant, the content is whole."""
    tensor = {"shape": {}, "dtype": "int64"}
    inner = {"pythonClassName": name, "tensor": tensor}
    legacy = {"type": f"{OWN}.features_dict.FeaturesDict", "content": {"image": {"type": name, "content": {}}}}
    dict_class = f"{OWN}.features_dict.FeaturesDict"
    return {
        "nested": {"pythonClassName": dict_class, "featuresDict": {"features": {"image": inner}}},
        "proto names": {"python_class_name": dict_class, "features_dict": {"features": {"image": {"python_class_name": name}}}},
        "sequence": {"pythonClassName": dict_class, "featuresDict": {"features": {"image": {
            "pythonClassName": f"{OWN}.sequence_feature.Sequence", "sequence": {"feature": inner}}}}},
        "legacy": legacy,
        "json in a text": {"pythonClassName": dict_class, "jsonFeature": {"json": json.dumps(legacy["content"])}},
        "proto in a text": {"type": dict_class, "proto_cls": "tensorflow_datasets.FeaturesDict",
                            "content": " " + json.dumps({"features": {"image": inner}})},
    }
