"""`quartet.load` and `quartet.runs`: runs as objects that are looked at, asked and exported."""

import html
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.stored import read_bytes
from pipelines.runs.folder import RunFolder
from quartet.drafts import Settings, overrides
from quartet.process import for_python, options_of, tensorflow

if TYPE_CHECKING:
    import keras
    import PIL.Image

    from pipelines.config.schema import Experiment
    from pipelines.serving.load import LoadedRun
    from pipelines.serving.predict import Predictor

_HEIGHT = 640  # px of a report in a notebook


class Run:
    """A run: a folder with an experiment, what became of it, and its model. Nothing is read before it is asked for.

    Attributes:
        path: the run's folder.
        options: those of extensions that `quartet.load` was given; the run is read again with them.

    Example:
        >>> import quartet
        >>> run = quartet.train("vision/digits", {"train.epochs": 1}, runs="RUNS", quiet=True)
        >>> run.state
        'finished'
        >>> import numpy as np
        >>> answer, = run.predict(np.zeros([1, 8, 8], np.uint8))
        >>> sorted(answer)
        ['confidence', 'input', 'label']
    """

    def __init__(self, folder: RunFolder, *, copy: RunFolder | None = None, options: Mapping[str, Any] | None = None):
        self._home, self._folder = folder, copy or folder
        self.path: Path = folder.path
        self.options = dict(options or {})

    @property
    def name(self) -> str:
        """The run's own name, such as `default`."""
        return self.path.name

    @property
    def summary(self) -> dict[str, Any]:
        """Plain values for a row of a table: run, experiment, name, state, progress, metric, seconds, date, bytes."""
        from pipelines.runs.listing import entry_of

        return {**entry_of(self._folder, self._home.experiment_name).as_json(), "run": str(self.path)}

    @property
    def state(self) -> str:
        """finished, running, interrupted or damaged."""
        return str(self.summary["state"])

    @property
    def experiment(self) -> "Experiment":
        """The settings that it was trained with, defaults included. Raises ConfigError where this version does not take them."""
        from pipelines.config.load import load

        return load(self._folder.experiment, check_paths=False).experiment

    @property
    def report(self) -> dict[str, Any]:
        """report.json: metrics with their 95 % intervals, timing, notes. Raises ConfigError where the run is not finished."""
        return self._folder.read_report()

    @property
    def metrics(self) -> dict[str, float]:
        """`test/accuracy` -> value, of each split judged. Raises ConfigError where the run is not finished."""
        return _values(self.report)

    @property
    def history(self) -> list[dict[str, Any]]:
        """A row for each point logged while training: step, epoch, train/loss, validation/accuracy, ..."""
        from pipelines.monitoring.metrics_log import read_rows

        return read_rows(self._folder.metrics) if self._folder.metrics.exists() else []

    @property
    def model(self) -> "keras.Model":
        """The Keras model with the weights that were judged; what it takes is what the task prepares of an input.

        Raises:
            ConfigError: the run has no model yet, or a damaged one.
        """
        return self._load().model

    @for_python
    def predict(self, inputs: Any, *, top: int = 0, probabilities: bool = False, batch: int | None = None,
                settings: Settings = None) -> list[dict[str, Any]]:
        """Answers new inputs as the evaluation did. Threads of one process are answered one after another.

        Args:
            inputs: one or a sequence of: files or folders (of images and recordings as str or Path, of others as Path), the bytes of a
                file, images as an array [n, height, width] or [n, height, width, channels], `quartet.Recordings`, texts, ids of users,
                or what a table's row says, as a mapping; or a data frame.
            top: also the best classes with their probabilities; of recommended items, the first so many alone.
            probabilities: also the probability of every class.
            batch: inputs answered at a time; default: the task's.
            settings: how tables are read, where otherwise than in training: {"data.text_key": "body"}.

        Returns:
            An object for each input, in order, such as {"input": "a.png", "label": "3", "confidence": 0.98}; of an input that cannot be
            read {"input": ..., "error": ...}. `pandas.DataFrame(...)` takes the list.

        Raises:
            ConfigError: the run has no model, or gives no probabilities, or settings that do not say how tables are read.
            DataError: there is no input at all, or one of a kind that is not understood.
        """
        from pipelines.serving.output import Shown, as_object
        from quartet.inputs import read

        with tensorflow():
            one = self._answering(batch, overrides(settings))
            task = one.run.task
            shown = Shown.of(one.columns, one.classes, top=top, every=probabilities, details=one.details, ranked=one.ranked)
            answers = [as_object(answer, shown) for answer in one.answers(read(task, inputs))]
        if not answers:
            raise DataError("no input is there")
        return answers

    @for_python
    def draw(self, files: Any) -> "list[PIL.Image.Image]":
        """The pictures of files or folders with what is found in them drawn: boxes, masks. A notebook shows one: `run.draw("a.jpg")[0]`.

        Raises:
            ConfigError: the run has no model, or its task finds nothing in pictures.
            DataError: a file that cannot be read.
        """
        import io

        from PIL import Image

        with tensorflow():
            one = self._answering()
            task = one.run.task
            draw = task.output.answers.draw
            if draw is None:
                raise ConfigError(f"{self.path}: {task.experiment.task} finds nothing that could be drawn in pictures")
            found = list["PIL.Image.Image"]()
            names = [str(file) for file in ([files] if isinstance(files, (str, Path)) else files)]
            for answer in one.answers(task.input.requests.read(names)):
                if answer.error is not None:
                    raise DataError(f"{answer.name}: {answer.error}")
                found.append(Image.open(io.BytesIO(draw(answer.name, answer.values))))
        return found

    def _answering(self, batch: int | None = None, changes: list[str] | None = None) -> "Predictor":
        """What answers, kept until it is asked for otherwise."""
        from pipelines.serving.load import reading_as
        from pipelines.serving.predict import Predictor

        changes = changes or []
        if self._predictor is None or (batch and self._predictor.batch != batch) or self._read_as != changes:
            self._predictor, self._read_as = Predictor(reading_as(self._load(), changes), batch=batch), changes
        return self._predictor

    @for_python
    def evaluate(self, *, split: str | None = None, data: Any = None, settings: Settings = None) -> "Evaluation":
        """Judges the run again, on one of its own splits or on other labelled data, and writes the report of that beside its own.

        Args:
            split: validation, test or train; default: test. With `data` one of theirs.
            data: other data with the same classes: a path, or in memory as `quartet.train` takes them; these are not kept.
            settings: {"evaluate.bootstrap": 200}; with `data` also those of `data`.

        Raises:
            ConfigError: a split that the run does not have, or settings that are not about judging.
            DataError: data that cannot be read, or classes that the run does not know.
        """
        import tempfile

        from pipelines.data.memory import in_memory, keep

        changes = overrides(settings)
        with tempfile.TemporaryDirectory() as folder, self._tensorflow():
            from pipelines.serving.evaluate import evaluate
            from pipelines.serving.forms import open_run

            path = None
            if data is not None and in_memory(data):
                kept = keep(data, Path(folder))
                section = type(self.experiment.data).model_fields
                path, changes = kept.path, [*(f"data.{name}={key}" for name, key in kept.keys.items() if name in section), *changes]
            elif data is not None:
                path = Path(data)
            judged = evaluate(open_run(self._home), split=split, data=path, overrides=changes)
        return Evaluation(judged.split, _values(judged.report), judged.report, judged.folder)

    @for_python
    def export(self, path: str | Path | None = None, *, precision: Literal["float32", "bfloat16", "float16"] | None = None,
               replace: bool = False, **options: Any) -> Path:
        """Writes a SavedModel that takes raw input and needs TensorFlow alone, or the model in another form. Returns its folder.

        Args:
            path: the folder; default: `export` in the run's, or `export-FORM`.
            precision: what a SavedModel computes in; default: as it was judged. Other forms are made from float32.
            replace: an exported model that stands there may go.
            options: of `quartet export` that extensions add, such as made_for="mobile" for `--for mobile`.

        Raises:
            ConfigError: something stands there, or the run has no model; another form is refused, or what it needs is not installed.
            TrainingError: it cannot be written.
        """
        with self._tensorflow(), options_of("export", options):
            from pipelines.serving.export import export_run
            from pipelines.serving.forms import default_folder, wanted

            form = wanted()
            target = (Path(path) if path is not None else default_folder(self.path, form)).absolute()
            export_run(self._home, target, form, precision=precision, replace=replace)
            return target

    def _load(self) -> "LoadedRun":
        """Loads the model once, whatever the number of threads that ask for it."""
        from pipelines.runs.listing import require_model

        require_model(self._folder)
        with self._tensorflow():
            from pipelines.serving.forms import open_run

            if self._loaded is None:
                self._loaded = open_run(self._home, where=1)
            return self._loaded

    @contextmanager
    def _tensorflow(self) -> Iterator[None]:
        """TensorFlow, and the run's options in force; one thread at a time is inside."""
        with tensorflow(), options_of("load", self.options):
            yield

    _loaded: "LoadedRun | None" = None
    _predictor: "Predictor | None" = None
    _read_as: Sequence[str] = ()

    def __repr__(self) -> str:
        from pipelines.runs.listing import headline

        return f"<quartet.Run {self.path}: {headline(self.report) if self._folder.finished else self.state}>"

    def _repr_html_(self) -> str:
        """The report with its figures, for a notebook; of a run that is not finished how far it is."""
        page = self._folder.report / "report.html"
        if not self._folder.finished or not page.is_file():
            return f"<pre>{html.escape(repr(self))}</pre>"
        return framed(page)


@dataclass(frozen=True)
class Evaluation:
    """What judging a run again came to.

    Attributes:
        split: what was judged: validation, test, train, or the name of the new data.
        metrics: name -> value.
        report: as report.json holds it, with intervals.
        path: the folder of the report, inside the run's.
    """

    split: str
    metrics: dict[str, float]
    report: dict[str, Any]
    path: Path

    def _repr_html_(self) -> str:
        return framed(self.path / "report.html")


@for_python
def load(run: str | Path, *, runs: str | Path = "runs", **options: Any) -> Run:
    """A run by its folder, a path inside it, or its name below `runs`, such as `vision/digits/default`; finished or not.

    Args:
        options: what extensions add, such as require_signature=KEY, a public key (`quartet sign`): refuse what it has not signed, before
            any file of the run is read; what was verified is copied, and read from there. Needs the extra `trust`.

    Raises:
        Untrusted: the run is not as that key has signed it; names the file.
        ConfigError: there is no such run, or several; says which there are.

    Example:
        >>> import quartet
        >>> run = quartet.train("vision/digits", {"train.epochs": 1}, runs="RUNS", quiet=True)
        >>> quartet.load("vision/digits/epochs=1", runs="RUNS").metrics == run.metrics
        True
    """
    from pipelines.config import guard
    from pipelines.runs.listing import find_run

    folder, kept = find_run(Path(runs), str(run)), ExitStack()
    with options_of("load", options):
        copy = RunFolder(kept.enter_context(guard.opened(folder.path)))
    loaded = Run(folder, copy=copy, options=options)
    weakref.finalize(loaded, kept.close)
    return loaded


@for_python
def runs(folder: str | Path = "runs", *, match: str | None = None,
         sort: Literal["date", "name", "metric", "duration"] = "date") -> list[Run]:
    """The runs below a folder; `pandas.DataFrame([run.summary for run in quartet.runs()])` is a table of them.

    Args:
        match: only runs whose name holds this, or matches it with * and ?.
        sort: newest, best and longest first.

    Raises:
        ConfigError: there is no such folder.

    Example:
        >>> import quartet
        >>> run = quartet.train("vision/digits", {"train.epochs": 1}, runs="RUNS", quiet=True)
        >>> [one.name for one in quartet.runs("RUNS", match="epochs=1")]
        ['epochs=1']
    """
    from pipelines.runs.listing import list_runs, ordered

    if sort not in ("date", "name", "metric", "duration"):
        raise ConfigError(f"sort: {sort!r} is none of date, name, metric and duration")
    return [Run(one.folder) for one in ordered(list_runs(Path(folder), match=match), sort)]


def framed(page: Path) -> str:
    """A report in a frame of its own, so that its style does not reach the notebook."""
    text = html.escape(read_bytes(page).decode("utf-8", "replace"), quote=True)
    return f'<iframe srcdoc="{text}" style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'


def _values(report: dict[str, Any]) -> dict[str, float]:
    return {name: float("nan") if metric["value"] is None else float(metric["value"]) for name, metric in report["metrics"].items()}
