"""TensorBoard events: scalars, images, figures, text, audio, histograms, HParams and chart layouts of a run.

One Writer writes one TensorBoard run (a folder): `tensorboard/train`, `tensorboard/validation`, and the folder
`tensorboard/` itself for HParams and layout. Writing runs no TensorFlow operation and starts no thread; a failure to
write never stops a training: it is reported once, and nothing more is written.

Records go through TensorFlow's TFRecordWriter, not through tensorboard's EventFileWriter: that one computes its
checksums in Python, 83 ms for each MiB of image against 2 ms, while it holds the interpreter's lock.
"""

import io
import json
import logging
import os
import socket
import time
import wave
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base.files import write_whole
from pipelines.base.inside import make

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_serial = count()


class Writer:
    """Writes events into a folder.

    Every method takes its tag as TensorBoard groups it: the part before the first slash is the section.
    """

    def __init__(self, folder: Path | str, resume_step: int | None = None, *, on_failure: Callable[[str], None] | None = None):
        """
        Args:
            folder: of the events; created if missing. Events of an earlier process stay in their files.
            resume_step: the run resumes after this step: TensorBoard then drops events of later steps.
            on_failure: called once, with a sentence, when events cannot be written; default: a log warning.
        """
        self.folder = Path(folder)
        self._on_failure = on_failure or logging.getLogger(__name__).warning
        self._records: Any = None
        self._closed = False
        # TensorBoard takes the first START of a folder as the beginning and purges at each later one: steps >= its own.
        start = 0 if resume_step is None else resume_step + 1
        self._guard(lambda: self._open(start))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """One point in each named chart. A value that is not finite is written as it is: TensorBoard marks it."""
        from tensorboard.plugins.scalar.summary import scalar_pb

        self._write([scalar_pb(tag, float(value)) for tag, value in values.items()], step)

    def images(self, tag: str, images: np.ndarray, step: int, captions: Sequence[str] | None = None) -> None:
        """Images: without captions each as it is, on a card of its own; with captions together, as one figure.

        Args:
            images: [n, height, width, channels] uint8 with 1, 3 or 4 channels.
            captions: one for each. TensorBoard keeps a text beside images only for the first step, hence the figure.

        Raises:
            ValueError: another shape or type.
        """
        images = np.asarray(images)
        if images.ndim != 4 or images.shape[-1] not in (1, 3, 4) or images.dtype != np.uint8:
            raise ValueError(f"images [n, height, width, 1, 3 or 4] uint8 expected, got {images.shape} {images.dtype}")
        if captions is not None and len(images):
            from pipelines.base.figures import image_grid

            self.figure(tag, image_grid(images, captions, columns=min(4, len(images))), step)
            return
        self._images(tag, [_png(image) for image in images], images.shape[2], images.shape[1], step)

    def figure(self, tag: str, figure: "Figure", step: int) -> None:
        """A matplotlib figure as an image."""
        from PIL import Image

        from pipelines.base.figures import png

        content = png(figure)
        width, height = Image.open(io.BytesIO(content)).size
        self._images(tag, [content], width, height, step)

    def text(self, tag: str, markdown: str, step: int) -> None:
        """A text, shown as Markdown."""
        from tensorboard.plugins.text.summary import text_pb

        self._write([text_pb(tag, markdown)], step)

    def audio(self, tag: str, samples: np.ndarray | Sequence[np.ndarray], rate: int, step: int,
              captions: Sequence[str] | None = None) -> None:
        """Sounds with a player each.

        Args:
            samples: [n, samples] float32, full scale is -1 to 1, louder is cut off; or a list of [samples] of unequal length.
            rate: samples per second, Hz.
            captions: one for each, written as the text `<tag> captions`: TensorBoard shows none beside a player.
        """
        from tensorboard.compat.proto import summary_pb2
        from tensorboard.plugins.audio import metadata
        from tensorboard.util import tensor_util

        clips = [_wav(np.asarray(clip), rate) for clip in samples]
        about = metadata.create_summary_metadata(display_name=None, description="", encoding=metadata.Encoding.Value("WAV"))
        tensor = tensor_util.make_tensor_proto(np.array(clips, object))
        self._write([summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, metadata=about, tensor=tensor)])], step)
        if captions is not None:
            from pipelines.base.formatting import escaped

            self.text(f"{tag} captions", "\n".join(f"{number}. {escaped(caption)}" for number, caption in enumerate(captions, 1)), step)

    def projector(self, name: str, vectors: np.ndarray, labels: Sequence[str] | Mapping[str, Sequence[str]]) -> None:
        """Vectors for TensorBoard's projector, in files beside the events. A later call of the same name overwrites the earlier.

        Args:
            name: a plain word, the name of the files.
            vectors: [n, width] float.
            labels: a text for each, or of several columns by name.
        """
        columns = labels if isinstance(labels, Mapping) else {"": labels}
        lines = ["\t".join(columns)] if len(columns) > 1 else []  # TensorBoard reads a heading where there are several columns
        lines += ["\t".join(" ".join(str(text).split()) or "-" for text in row) for row in zip(*columns.values())]

        def write() -> None:
            folder = self.folder / "projector"
            rows = "".join("\t".join(f"{value:.5g}" for value in row) + "\n" for row in np.asarray(vectors).tolist())
            write_whole(folder / f"{name}.tsv", rows.encode())
            write_whole(folder / f"{name}_names.tsv", "\n".join(lines) + "\n")
            blocks = [f'embeddings {{\n  tensor_name: "{path.stem}"\n  tensor_path: "projector/{path.name}"\n'
                      f'  metadata_path: "projector/{path.stem}_names.tsv"\n}}\n'
                      for path in sorted(folder.glob("*.tsv")) if not path.stem.endswith("_names")]
            write_whole(self.folder / "projector_config.pbtxt", "".join(blocks).encode())

        self._guard(write)

    def histogram(self, tag: str, values: np.ndarray, step: int, *, bins: int = 30) -> None:
        """How values of any shape are distributed. Values that are not finite are left out."""
        from tensorboard.compat.proto import summary_pb2
        from tensorboard.plugins.histogram import metadata
        from tensorboard.util import tensor_util

        flat = np.asarray(values, np.float64).ravel()
        flat = flat[np.isfinite(flat)]
        table = np.zeros((0, 3))
        if len(flat):
            # numpy's histogram, since tensorboard's builds [values, bins] in memory: gigabytes for a large layer.
            counts, edges = np.histogram(flat, bins=bins)
            table = np.stack([edges[:-1], edges[1:], counts], axis=1)
        about = metadata.create_summary_metadata(display_name=None, description=None)
        tensor = tensor_util.make_tensor_proto(table, dtype=np.float64)
        self._write([summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, metadata=about, tensor=tensor)])], step)

    def hparams(self, values: Mapping[str, Any], metrics: Mapping[str, float] | None = None, *, name: str | None = None,
                status: str = "success", step: int = 0) -> None:
        """A row of the HParams table: settings, and the metrics that the run ended with.

        TensorBoard makes the columns from the runs, unless a search said which there are (`hparams_config`).

        Args:
            values: setting -> number, text or truth value; others are written as JSON.
            metrics: name -> value, written as scalars of this folder under `hparam/`; None while they are not known.
            name: of the trial; rows of one name are grouped. Default: the same settings are one group.
            status: "success", "failure" or "running".
            step: of the metrics.
        """
        from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2, summary_v2
        from tensorboard.plugins.hparams import metadata as about

        plain = {key: _plain(value) for key, value in values.items()}
        self._write([summary_v2.hparams_pb(plain, trial_id=name, start_time_secs=time.time())], 0)
        if status != "running":
            end = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.Value(f"STATUS_{status.upper()}"), end_time_secs=time.time())
            data = plugin_data_pb2.HParamsPluginData(session_end_info=end)
            self._write([summary_v2._summary_pb(about.SESSION_END_INFO_TAG, data)], 0)
        if metrics:
            self.scalars({f"hparam/{key}": value for key, value in metrics.items()}, step)

    def hparams_config(self, space: Mapping[str, Sequence[Any] | tuple[float, float]], metrics: Sequence[tuple[str, str, str]]) -> None:
        """Columns of the HParams table, in this order. TensorBoard takes the first that it finds below its log folder for all runs there.

        Args:
            space: setting -> what it may be, a list of values, or the ends of a range as a tuple.
            metrics: (title, folder below a trial's own or "", tag) of each.
        """
        from tensorboard.plugins.hparams import summary_v2

        def domain(values: Any) -> Any:
            if isinstance(values, tuple):
                whole = all(isinstance(end, int) for end in values)
                return (summary_v2.IntInterval if whole else summary_v2.RealInterval)(*values)
            plain = [_plain(value) for value in values]
            return summary_v2.Discrete(plain, dtype=type(plain[0])) if len({type(value) for value in plain}) == 1 else None

        self._write([summary_v2.hparams_config_pb(
            [summary_v2.HParam(name, domain(values)) for name, values in space.items()],
            [summary_v2.Metric(tag, group=group or None, display_name=title) for title, group, tag in metrics])], 0)

    def custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        """The layout of the Custom Scalars page.

        Args:
            layout: category -> chart -> patterns (regular expressions) of tags drawn together; every run that has such a tag
                is drawn, so `loss` has the lines of train and of validation.
        """
        from tensorboard.compat.proto import summary_pb2
        from tensorboard.plugins.custom_scalar import layout_pb2, metadata
        from tensorboard.util import tensor_util

        categories = [layout_pb2.Category(title=category, chart=[
            layout_pb2.Chart(title=chart, multiline=layout_pb2.MultilineChartContent(tag=list(tags))) for chart, tags in charts.items()])
            for category, charts in layout.items()]
        content = layout_pb2.Layout(category=categories).SerializeToString()
        value = summary_pb2.Summary.Value(tag=metadata.CONFIG_SUMMARY_TAG, metadata=metadata.create_summary_metadata(),
                                          tensor=tensor_util.make_tensor_proto(content))
        self._write([summary_pb2.Summary(value=[value])], 0)

    def flush(self) -> None:
        """Hands what was written to the system. Every method does so already; kept for callers that expect it."""
        if self._records is not None:
            self._guard(self._records.flush)

    def close(self) -> None:
        """Ends the file; later calls write nothing."""
        if self._records is not None:
            self._guard(self._records.close)
        self._records, self._closed = None, True

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, start: int) -> None:
        import tensorflow as tf
        from tensorboard.compat.proto import event_pb2

        make(self.folder)
        # TensorBoard reads the files of a folder in order of their names; the serial keeps that order within a second.
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_serial):06d}"
        self._records = tf.io.TFRecordWriter(str(self.folder / name))
        self._records.write(event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._records.write(event_pb2.Event(wall_time=time.time(), step=start, session_log=log).SerializeToString())
        self._records.flush()

    def _images(self, tag: str, encoded: list[bytes], width: int, height: int, step: int) -> None:
        from tensorboard.compat.proto import summary_pb2
        from tensorboard.plugins.image import metadata
        from tensorboard.util import tensor_util

        about = metadata.create_summary_metadata(display_name=None, description="")
        tensor = tensor_util.make_tensor_proto(np.array([str(width).encode(), str(height).encode(), *encoded], object))
        self._write([summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, metadata=about, tensor=tensor)])], step)

    def _write(self, summaries: list[Any], step: int) -> None:
        if self._records is None:
            return
        from tensorboard.compat.proto import event_pb2, summary_pb2

        summary = summary_pb2.Summary(value=[value for part in summaries for value in part.value])
        event = event_pb2.Event(wall_time=time.time(), step=int(step), summary=summary).SerializeToString()

        def write() -> None:
            self._records.write(event)
            self._records.flush()

        self._guard(write)

    def _guard(self, act: Callable[[], Any]) -> None:
        import tensorflow as tf

        try:
            act()
        except (OSError, tf.errors.OpError) as error:
            self._records = None
            reason = error.message if isinstance(error, tf.errors.OpError) else str(error)
            self._on_failure(f"TensorBoard events are no longer written to {self.folder}: {reason}. Training continues.")


def _plain(value: Any) -> bool | int | float | str:
    """A setting's value as HParams takes it."""
    return value if isinstance(value, (bool, int, float, str)) else json.dumps(value)


def _png(image: np.ndarray) -> bytes:
    """[height, width, 1, 3 or 4] uint8 as PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(buffer, "png", compress_level=4)
    return buffer.getvalue()


def _wav(samples: np.ndarray, rate: int) -> bytes:
    """[samples] float, full scale -1 to 1, as a 16-bit WAV file."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(int(rate))
        file.writeframes((np.clip(np.nan_to_num(samples), -1, 1) * 32767).astype("<i2").tobytes())
    return buffer.getvalue()
