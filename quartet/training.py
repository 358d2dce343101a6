"""`quartet.train` and `quartet.check`: an experiment trained, or its data read, in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quartet.drafts import Given, Settings, choose
from quartet.process import for_python, options_of, tensorflow
from quartet.run import Run

if TYPE_CHECKING:
    import keras

    from pipelines.data.check import Check


@for_python
def train(experiment: "Given | Run" = None, settings: Settings = None, *, data: Any = None, runs: str | Path = "runs",
          name: str | None = None, fresh: bool = False, callbacks: "Sequence[keras.callbacks.Callback]" = (), quiet: bool = False,
          **options: Any) -> Run:
    """Trains, judges and reports an experiment; the same call resumes an interrupted run, and gives back a finished one.

    Args:
        experiment: a shipped experiment (`vision/digits`), a YAML file, settings as a mapping, an Experiment, a draft of `quartet.new`,
            or a run that was interrupted. None with `data`: what `quartet.new` proposes for them.
        settings: what to change in it, by dotted name: {"train.epochs": 3, "model.widths": [32, 64]}.
        data: data in memory, in place of the experiment's own:
            images: (x [n, height, width] or [n, height, width, channels], uint8 or floats in 0..1 or 0..255; labels [n]);
            texts: (sequence of str, labels [n]);
            recordings: (`quartet.Recordings`, labels or transcripts [n]);
            a table with named columns, such as a pandas DataFrame: texts, or users and items;
            or a mapping of such by split: {"train": ..., "validation": ..., "test": ...}. What is missing is held out of train.
            They are kept in `runs`/data as files, once for all runs on them, so that a run on them resumes like any other, from the
            command line, too; they stay there until you remove them.
        runs: the folder of all runs; also s3://, gs:// or az://BUCKET/PATH.
        name: the run's; default: by the settings that are changed.
        fresh: start again; an earlier run of that name is moved aside.
        callbacks: of Keras; `logs` have loss, accuracy, val_loss, ..., and `model.stop_training` ends the training.
        quiet: show warnings alone.
        options: what extensions add to `quartet train`, such as
            require_signature=KEY: a run that is resumed, or finished, is refused where that public key has not signed it as it is, and so
                are a teacher, a preset and weights that the settings name;
            encrypt=True: a new run is encrypted, with the key that the environment variable QUARTET_AGE_KEY holds or names; every later
                call needs it, too.

    Returns:
        The finished run.

    Raises:
        ConfigError: with everything that is wrong with the experiment or the call; nothing was done.
        DataError: data that cannot be used.
        TrainingError: training cannot continue, such as for a loss that is not finite.
        Interrupted: by SIGINT (a notebook's stop button) or SIGTERM; the state is saved, and the same call resumes.

    Example:
        >>> import quartet
        >>> run = quartet.train("vision/digits", {"train.epochs": 1}, runs="RUNS", quiet=True)
        >>> 0.5 < run.metrics["test/accuracy"] <= 1.0
        True
    """
    if isinstance(experiment, Run):
        options = {**experiment.options, **options}
        experiment = experiment.path / "experiment.yaml"
    with options_of("train", options):
        return _train(experiment, settings, data, Path(runs), name, fresh, callbacks, quiet)


def _train(experiment: Given, settings: Settings, data: Any, runs: Path, name: str | None, fresh: bool,
           callbacks: "Sequence[keras.callbacks.Callback]", quiet: bool) -> Run:
    from pipelines.base.terminal import Screen
    from pipelines.config import guard
    from pipelines.config.yaml_text import resolved_yaml
    from pipelines.runs.folder import run_folder, unfinished
    from pipelines.runs.in_store import here
    from pipelines.runs.launcher import chosen as chosen_launcher

    chosen = choose(experiment, settings, data, runs)
    alone = isinstance(experiment, (str, Path)) and not (settings or name or fresh or data is not None)
    earlier = unfinished(experiment) if alone else None  # type: ignore[arg-type]
    called = earlier.experiment_name if earlier else chosen.name
    folder = earlier or run_folder(runs, chosen.name, name, chosen.changes)
    launcher = chosen_launcher("train")
    with here(runs, chosen.experiment, folder, fresh=fresh, say=Screen("", quiet=quiet).note, writes=launcher.chief) as folder:
        guard.check_training(chosen.experiment, folder.path, fresh=fresh)
        if folder.trained and not fresh and not launcher.several:
            folder.claim(resolved_yaml(chosen.experiment))
            if folder.finished:
                return Run(folder)
        with tensorflow(training=True):
            from pipelines.runs.launch import launch

            launch(chosen.experiment, folder, called, fresh=fresh, quiet=quiet, callbacks=callbacks)
        return Run(folder)


@for_python
def check(experiment: Given = None, settings: Settings = None, *, data: Any = None, runs: str | Path = "runs",
          encoder: str | None = None) -> "Check":
    """Checks an experiment, then reads all its data once; trains nothing.

    Args:
        experiment, settings, data, runs: as for `quartet.train`.
        encoder: the preset whose features compare the examples, or "none"; default: the experiment's own, on a sample.

    Returns:
        The findings: `.failed` where training would stop, `.findings` with `.level` and `.text`, `.splits`, `.to_json()`.

    Raises:
        ConfigError, DataError: as `quartet.train` does before its first step.

    Example:
        >>> import quartet
        >>> quartet.check("vision/digits").failed
        False
    """
    chosen = choose(experiment, settings, data, runs)
    with tensorflow():
        from pipelines.commands.check import check as read_all

        return read_all(chosen.experiment, encoder)
