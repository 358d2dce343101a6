"""Vectors for TensorBoard's projector, beside a run's events: tab-separated, as it reads them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pipelines.files import write_whole

MOST = 20_000  # vectors that the projector still shows fluently


def write_projector(folder: Path, name: str, vectors: np.ndarray, labels: Mapping[str, Sequence[str]]) -> None:
    """Writes vectors [n, width] and a label or more for each; of more than 20,000 the first.

    Args:
        folder: of the events.
        labels: column -> [n] texts.
    """
    rows = vectors[:MOST]
    write_whole(folder / f"{name}.tsv", "".join("\t".join(f"{value:.6g}" for value in row) + "\n" for row in rows))
    columns = list(labels)
    lines = ["\t".join(columns)] if len(columns) > 1 else []
    lines += ["\t".join(" ".join(str(labels[column][number]).split()) or "-" for column in columns) for number in range(len(rows))]
    write_whole(folder / f"{name}_labels.tsv", "\n".join(lines) + "\n")
    config = f'embeddings {{\n  tensor_name: "{name}"\n  tensor_path: "{name}.tsv"\n  metadata_path: "{name}_labels.tsv"\n}}\n'
    write_whole(folder / "projector_config.pbtxt", config)
