"""Data in memory, kept as files that an experiment reads like any others.

The other way would be a source that exists in one process alone. Files cost their room on the disk once, in a folder named by their
content, and so: a run is resumed, judged again and repeated from any process and from the command line; its fingerprint, splits and
trials of a search are those of any data; and its experiment.yaml trains the same again by itself.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.base.files import whole_folder, write_whole
from pipelines.config.messages import listed
from pipelines.config.schema import Experiment
from pipelines.data.divide import ALIASES

SPLITS = {alias: split for split, aliases in ALIASES.items() for alias in aliases}
# settings of a data section that say how the data are read that an experiment names, and mean nothing for others
_OF_OTHERS = ("name", "data_dir", "streaming", "columns", "delimiter", "quote", "encoding", "header", "group_by", "train", "test_names",
               "test_last", "stored_rate", "items", "users")


@dataclass(frozen=True)
class Recordings:
    """Recordings in memory.

    Attributes:
        samples: for each recording an array [samples] or [samples, channels]: floats in -1..1, or int16.
        rate: samples a second, Hz.

    Example:
        >>> import numpy as np
        >>> import quartet
        >>> quartet.Recordings([np.zeros(8000, np.float32)], rate=8000).rate
        8000
    """

    samples: Sequence[np.ndarray]
    rate: int

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True)
class Kept:
    """Data that were in memory.

    Attributes:
        path: a .npz, a .parquet, or of recordings and of images of several sizes the table in a folder that names their files.
        kind: what they are: images, texts, recordings or a table.
        source: how an experiment reads them: `npz` or `table`.
        splits: the names of its splits; empty where it is one piece.
        keys: settings of the data section that name its columns, where these were named here.
        columns: of a table.
    """

    path: Path
    kind: str
    source: str
    splits: tuple[str, ...] = ()
    keys: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A short hash of the content."""
        folder = self.path if self.path.stem.startswith(_PREFIX) else self.path.parent
        return folder.stem.removeprefix(_PREFIX)


_PREFIX = "in-memory-"


def in_memory(data: Any) -> bool:
    """Whether something is data in memory, not the name of a file or folder."""
    return not isinstance(data, (str, Path))


def keep(data: Any, folder: Path) -> Kept:
    """Writes data below a folder, whole or not at all; the same data a second time are there already.

    Args:
        data: (images, labels), (texts, labels), (Recordings, labels or transcripts), or a table (a pandas or other data frame, an Arrow
            table, or a mapping of columns); or a mapping of such by split: train, validation, test.
            Images are [n, height, width] or [n, height, width, channels], or a sequence of images of several sizes, uint8.
        folder: where it goes.

    Raises:
        DataError: data of another shape, unequal lengths, or no split `train`.
        WriteError: the folder cannot be written to.
    """
    pieces = _pieces(data)
    kinds = {_kind(piece) for piece in pieces.values()}
    if len(kinds) > 1:
        raise DataError(f"the splits are of several kinds: {listed(sorted(kinds), 'and')}; give all of them alike")
    keepers: dict[str, Callable[[dict[str, Any], Path], Kept]] = {
        "images": _arrays, "texts": _texts, "a table": _table, "recordings": _recordings, "images of several sizes": _images}
    return keepers[kinds.pop()](pieces, folder)


def read_from(experiment: Experiment, kept: Kept) -> dict[str, Any]:
    """The experiment's settings with these data in place of its own, as plain values. Columns that the table has keep their settings."""
    values = experiment.model_dump(mode="python")
    defaults = {name: one.get_default(call_default_factory=True) for name, one in type(experiment.data).model_fields.items()}
    section = values["data"]
    own = [name for name in section if name in _OF_OTHERS or name.endswith("_pattern")]
    section |= {name: defaults[name] for name in own if name != "group_by" or section[name] not in kept.columns}
    section |= {"source": kept.source, "path": str(kept.path)}
    section |= {name: _column(name, section[name], defaults[name], kept.columns) for name in section if name.endswith("_key")}
    section |= {name: key for name, key in kept.keys.items() if name in section}
    for split in ("validation", "test"):
        if split in kept.splits:
            section[split] = split
        elif isinstance(section.get(split), str):
            section[split] = defaults[split]
    if "split_key" in section:
        section["split_key"] = "split" if kept.splits and kept.source == "table" else section["split_key"]
    return values


def _column(setting: str, value: Any, default: Any, columns: Sequence[str]) -> Any:
    """The column for a setting such as user_key: as the experiment has it, or of the setting's own name; else the default."""
    own = setting.removesuffix("_key")
    if value is None or (value in columns if isinstance(value, str) else all(one in columns for one in np.atleast_1d(value))):
        return value
    return own if own in columns else default


def _pieces(data: Any) -> dict[str, Any]:
    """Split -> its data; of data in one piece the split is empty."""
    if not isinstance(data, Mapping) or not data or not set(data) <= set(SPLITS):
        return {"": data}
    pieces = {SPLITS[str(split)]: piece for split, piece in data.items()}
    if "train" not in pieces:
        raise DataError(f"the data have no split 'train'; there are {listed(data, 'and')}")
    return pieces


def _kind(piece: Any) -> str:
    if is_table(piece):
        return "a table"
    if not isinstance(piece, (tuple, list)) or len(piece) != 2:
        raise DataError("data in memory are (inputs, labels), a table, or a mapping of such by split, such as "
                        f'{{"train": (x, y), "test": (x, y)}}; this is {type(piece).__name__}')
    inputs, labels = piece
    if len(inputs) != len(labels):
        raise DataError(f"there are {len(inputs):,} inputs and {len(labels):,} labels")
    if not len(inputs):
        raise DataError("there are no examples")
    if isinstance(inputs, Recordings):
        return "recordings"
    first = inputs[0] if isinstance(inputs, (list, tuple)) else np.asarray(inputs)[0]
    if isinstance(first, str):
        return "texts"
    shape = np.shape(first)
    if len(shape) in (2, 3):
        several = isinstance(inputs, (list, tuple)) and len({np.shape(one) for one in inputs}) > 1
        return "images of several sizes" if several else "images"
    if len(shape) == 1:
        raise DataError("arrays of one dimension are recordings whose rate is not known: give quartet.Recordings(samples, rate)")
    raise DataError("inputs are images [n, height, width(, channels)], texts or quartet.Recordings; the first is "
                    f"{type(first).__name__} of shape {list(shape)}")


def is_table(piece: Any) -> bool:
    """Whether something has named columns."""
    return isinstance(piece, Mapping) or hasattr(piece, "__arrow_c_stream__") or hasattr(piece, "column_names")


def arrow(piece: Any) -> Any:
    """A data frame, or a mapping of columns, as a pyarrow.Table; a frame's index is left out. Raises DataError."""
    import pyarrow as pa

    try:
        if hasattr(piece, "iloc"):  # pandas
            return pa.Table.from_pandas(piece, preserve_index=False).replace_schema_metadata(None)
        return pa.table(dict(piece) if isinstance(piece, Mapping) else piece).replace_schema_metadata(None)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(f"the table cannot be read: {str(error).splitlines()[0]}") from error


def _arrays(pieces: dict[str, Any], folder: Path) -> Kept:
    arrays: dict[str, np.ndarray] = {}
    for split, (images, labels) in pieces.items():
        ending = f"_{split}" if split else ""
        arrays |= {f"x{ending}": np.asarray(images), f"y{ending}": _plain(labels)}
    wrong = next((value for value in arrays.values() if value.dtype.hasobject), None)
    if wrong is not None:
        raise DataError(f"an array of {type(wrong.flat[0]).__name__} objects is not read; give numbers or texts")
    path = folder / f"{_PREFIX}{_digest(arrays)}.npz"
    if not path.exists():
        write_whole(path, lambda file: np.savez(file, allow_pickle=False, **arrays))
    return Kept(path, "images", "npz", tuple(filter(None, pieces)))


def _texts(pieces: dict[str, Any], folder: Path) -> Kept:
    columns = {split: {"text": list(texts), "label": _values(labels)} for split, (texts, labels) in pieces.items()}
    kept = _table(columns, folder)
    return Kept(kept.path, "texts", kept.source, kept.splits, {"text_key": "text", "label_key": "label"}, kept.columns)


def _table(pieces: dict[str, Any], folder: Path) -> Kept:
    import pyarrow.parquet

    table = _joined(pieces)
    digest = hashlib.sha256()

    class Hashing:
        """What Arrow writes its stream into."""

        closed = False

        def write(self, content: Any) -> int:
            digest.update(content)
            return len(content)

        def flush(self) -> None:
            """Nothing is held back."""

    with pyarrow.ipc.new_stream(pyarrow.PythonFile(Hashing(), "w"), table.schema) as stream:
        stream.write_table(table.combine_chunks())
    path = folder / f"{_PREFIX}{digest.hexdigest()[:12]}.parquet"
    if not path.exists():
        write_whole(path, partial(pyarrow.parquet.write_table, table))
    return Kept(path, "a table", "table", tuple(filter(None, pieces)), {}, tuple(table.column_names))


def _joined(pieces: dict[str, Any]) -> Any:
    """The splits in one table, with a column `split` where there are several."""
    import pyarrow as pa

    tables = {split: arrow(piece) for split, piece in pieces.items()}
    if "" in tables:
        return tables[""]
    if any("split" in table.column_names for table in tables.values()):
        raise DataError("the tables have a column 'split', in which their split will be written; rename it, or give one table with it")
    marked = [table.append_column("split", pa.array([split] * table.num_rows, pa.string())) for split, table in tables.items()]
    try:
        return pa.concat_tables(marked, promote_options="default").combine_chunks()
    except pa.ArrowException as error:
        raise DataError(f"the tables do not have the same columns: {str(error).splitlines()[0]}") from error


def _recordings(pieces: dict[str, Any], folder: Path) -> Kept:
    import soundfile

    def write(path: Path, samples: np.ndarray, rate: int) -> None:
        soundfile.write(path, samples, rate, subtype="PCM_16" if samples.dtype == np.int16 else "FLOAT")

    files = []
    for split, (recordings, labels) in pieces.items():
        for number, (one, label) in enumerate(zip(recordings.samples, _values(labels))):
            samples = np.asarray(one)
            if samples.ndim not in (1, 2) or (samples.dtype != np.int16 and samples.dtype.kind != "f"):
                raise DataError(f"recording {number} is {samples.dtype} {list(samples.shape)}; recordings are floats in -1..1 or int16, "
                                "[samples] or [samples, channels]")
            files.append((split, samples, label, partial(write, rate=int(recordings.rate)), f"{recordings.rate}"))
    texts = {str(label) for _, _, label, *_ in files}
    column = "text" if 2 * len(texts) > len(files) and any(" " in text for text in texts) else "label"
    return _files(files, folder, ".wav", {"audio_key": "file", "label_key": column, "text_key": column}, column)


def _images(pieces: dict[str, Any], folder: Path) -> Kept:
    files = []
    for split, (images, labels) in pieces.items():
        for number, (one, label) in enumerate(zip(images, _values(labels))):
            image = np.asarray(one)
            if image.dtype != np.uint8:
                raise DataError(f"image {number} is {image.dtype}; images of several sizes are uint8")
            files.append((split, image, label, write_png, ""))
    return _files(files, folder, ".png", {"image_key": "file", "label_key": "label"}, "label")


def write_png(target: Any, image: np.ndarray) -> None:
    """Writes [height, width] or [height, width, channels] uint8 into a path or a binary file."""
    from PIL import Image

    plain = image[..., 0] if image.ndim == 3 and image.shape[-1] == 1 else image
    Image.fromarray(np.ascontiguousarray(plain)).save(target, format="PNG")


def _files(files: Sequence[tuple[str, np.ndarray, Any, Callable[[Path, np.ndarray], None], str]], folder: Path, ending: str,
           keys: dict[str, str], column: str) -> Kept:
    """A folder with a file for each example and a table that names them; `column` holds their labels."""
    import pyarrow as pa
    import pyarrow.parquet

    digest = hashlib.sha256()
    for split, values, label, _, more in files:
        digest.update(f"{split} {label} {more} {values.shape} {values.dtype}\0".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    target = folder / f"{_PREFIX}{digest.hexdigest()[:12]}"
    splits = tuple(dict.fromkeys(split for split, *_ in files if split))
    names = [f"files/{number:06d}{ending}" for number in range(len(files))]
    columns = {"file": names, column: [label for _, _, label, *_ in files], **({"split": [split for split, *_ in files]} if splits else {})}
    if not target.exists():
        with whole_folder(target) as staging:
            (staging / "files").mkdir()
            for name, (_, values, _, write, _) in zip(names, files):
                write(staging / name, values)
            pyarrow.parquet.write_table(pa.table(columns), staging / "table.parquet")
    return Kept(target / "table.parquet", "recordings" if ending == ".wav" else "images", "table", splits, keys, tuple(columns))


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(arrays.items()):
        digest.update(f"{name} {value.shape} {value.dtype}\0".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()[:12]


def _plain(labels: Any) -> np.ndarray:
    """Labels as an array of numbers or texts."""
    values = np.asarray(labels)
    return values.astype(str) if values.dtype == object and all(isinstance(one, str) for one in values.flat) else values


def _values(labels: Iterable[Any]) -> list[Any]:
    """Labels as plain values."""
    return [one.item() if isinstance(one, np.generic) else one.tolist() if isinstance(one, np.ndarray) else one for one in labels]
