"""Every setting that all domains share, declared once: type, default, limits, unit and meaning.

The YAML check, the reference page, the editors' JSON Schema and `quartet new` are made from these classes.
A domain derives its own Experiment with its data, model and augmentation sections. Imports no TensorFlow.
"""

import re
from typing import Annotated, Any, ClassVar, Literal

from pipelines.base.errors import ConfigError
from pipelines.config.keras_names import keras_arguments
from pipelines.config.section import ADDED as ADDED
from pipelines.config.section import Overridable as Overridable
from pipelines.config.section import PrunableBlocks as PrunableBlocks
from pipelines.config.section import Section as Section
from pipelines.config.section import Share as Share
from pipelines.config.section import WithHeads as WithHeads
from pipelines.config.section import setting as setting
from pipelines.config.train_settings import Train, accumulation_of, device_count, wrong_options
from pipelines.config.variants import Variants

METRICS = Variants(what="metric")  # of one's own, for any task
STATISTICS: dict[type, Any] = {}  # of those that give sums, by their section: what makes the metric of them


class Data(Section):
    """What every domain's data section has; a domain adds its sources and columns."""

    given_groups: ClassVar[tuple[str, ...]] = ()  # values of group_by that all such data have
    validation: Share | str = setting(
        "validation", "the split or folder to choose by (validation also means val, valid and dev); where the data have none of that name, "
        "and with a number instead of a name, a share of train is held out (0.1; stratified where there are labels)", unit="share",
        search="trials are judged on it")
    test: Share | str | None = setting(
        "test", "the split or folder judged once at the end; where the data have no test split, and with a number instead of a name, a "
        "share of all is held out (0.2); null for none", unit="share", search="it is read once, after the search")
    split_seed: int = setting(0, "seed of every split this run makes; separate from train.seed so that seeds share one split", ge=0)
    group_by: str | None = setting(
        None, "column (or 'folder' for the parent folder's name, or 'name' for what data.group_pattern finds in a file's name) whose value "
        "stays on one side of every split")
    fold: list[int] | None = setting(
        None, "[k, n], for cross-validation: the k-th of n folds of train stands in the place of test, which is not read; classes in their "
        "shares, groups whole; interactions in time: the data end before what k splits hold out one after another",
        search="it is what experiments are compared on")
    limit: int | None = setting(None, "use only this many training examples (stratified), for a quick look", unit="examples", ge=1,
                               search=True)
    on_bad_example: Literal["stop", "skip"] = setting(
        "stop", "stop at the first unreadable example and name it, or skip it and count it in the report")
    most_skipped: Share = setting(0.01, "on_bad_example: skip stops where more than this share of a split (and more than three examples) "
                                  "cannot be read; examples without label count as read", unit="share")
    prepared: str | None = setting(
        None, "the folder that `quartet prepare` wrote of this experiment: examples and facts come from there, and the original is not "
        "looked for", path=True, search=True)
    cache: Literal["auto", "memory", "disk", "none"] = setting(
        "auto", "where decoded examples are kept: auto takes memory while all of the data fit a quarter of it, else disk if there is room, "
                "else none", search=True)
    cache_folder: str | None = setting(None, "folder of the disk cache; default: the user's cache folder", search=True)
    workers: int | None = setting(None, "parallel decoding calls; default: chosen by tf.data", ge=1, search=True)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.fold is not None and not (len(self.fold) == 2 and 1 <= self.fold[0] <= self.fold[1] and self.fold[1] > 1):
            found.append(("fold", f"{self.fold} is no fold: write [k, n] with 1 <= k <= n and n of 2 or more, such as [1, 5]"))
        if self.fold is not None and (self.prepared or getattr(self, "streaming", False)):
            found.append(("fold", "what is prepared or streamed is divided already; leave out prepared and streaming"))
        return found

    def described(self) -> list[tuple[str | int, str]]:
        """What an example is read from, for a description of the data: (column, feature or array; image, audio, text, label, id, time,
        number, split or group)."""
        return []


class TableData(Data):
    """What domains share that read tables: how a CSV or TSV file is written, and its own division."""

    split_key: str | None = setting(
        None, "table: column that says train, validation or test; or with numbers of folds, where data.test and data.validation name "
        "the folds that are held out")
    columns: list[str] | None = setting(None, "table: names of the columns of a CSV or TSV file that has no header row")
    delimiter: str | None = setting(
        None, "table: what separates fields; default: detected among comma, semicolon, tab, | and ::", min_length=1, max_length=2)
    quote: Literal['"', "'", "none"] | None = setting(None, "table: the mark around fields; default: detected")
    encoding: str | None = setting(
        None, "table: such as utf-8, cp1252 or shift_jis; default: by byte order mark, else UTF-8")

    def of_rows(self) -> list[tuple[str | int, str]]:
        """What `described` has of columns that say where a row belongs."""
        group = None if self.group_by in ("folder", "name", *self.given_groups) else self.group_by
        return [(column, kind) for column, kind in ((self.split_key, "split"), (group, "group")) if column is not None]


class FileData(TableData):
    """What domains share whose examples are files: what stands in the files' names."""

    file_pattern: str | None = setting(
        None, "table: where the files lie that it names, from its folder on, with {} for the column's value: 'images/{}.jpg'; default: the "
        "value itself")
    label_pattern: str | None = setting(
        None, "folder without class folders: regular expression whose first group finds the class in a file's path from data.path's folder "
        "on: '([a-z]+)[.]\\d+[.]jpg$'")
    group_pattern: str | None = setting(
        None, "for group_by: name, regular expression whose first group finds the group in a file's path from data.path's folder on (of a "
        "table, from its folder on): '_(p\\d+)_'")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        patterns = {"label_pattern": self.label_pattern, "group_pattern": self.group_pattern}
        found += [problem for name, pattern in patterns.items() if (problem := pattern_problem(name, pattern))]
        if self.group_by == "name" and self.group_pattern is None:
            found.append(("group_pattern", "group_by: name needs the regular expression that finds the group in a file's name"))
        if self.file_pattern is not None and self.file_pattern.count("{}") != 1:
            found.append(("file_pattern", f"{self.file_pattern!r} needs {{}} once, for the column's value"))
        return found


def location_problems(source: str, name: str | None, path: str | None, *, example: str) -> list[tuple[str, str]]:
    """What is not said of where the data lie; `example` is the name of a TFDS data set."""
    if source == "tfds" and not name:
        return [("name", f"source: tfds needs the data set's name, such as {example}")]
    return [("path", f"source: {source} needs a path")] if source in ("folder", "table", "npz") and not path else []


def pattern_problem(setting: str, pattern: str | None) -> tuple[str, str] | None:
    """What is wrong with a regular expression whose first group is asked for; None where nothing is."""
    if pattern is None:
        return None
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        return setting, f"{pattern!r} is no regular expression: {error}"
    return None if groups else (setting, f"{pattern!r} has no group: put the part that is asked for into brackets")


class Evaluate(Section):
    """How a run is judged."""

    batch_size: int | None = setting(
        None, "examples per evaluation batch over all devices; default: train.batch_size, at least 256", unit="examples", ge=1)
    bootstrap: int = setting(1000, "resamples behind each 95 % interval", ge=100)
    baseline: bool = setting(True, "put a cheap model, fitted on train within seconds, beside the score, where the task has one")
    metrics: list[Annotated[Any, METRICS]] = setting(
        list, "metrics of one's own (`register_metric`), on validation after each epoch and in the report: [{name: top_k, k: 3}]")
    worst: int = setting(36, "worst mistakes shown in the report and in TensorBoard", ge=0, le=400)


class ClassificationLoss(Section):
    """Cross-entropy and its variants."""

    label_smoothing: Share = setting(0.0, "share of the target spread over all classes", unit="share")
    class_weights: Literal["none", "balanced"] | dict[str, float] = setting(
        "none", "weight of each class in the loss: none; balanced: n / (classes x count), from train; or {class: weight}; with "
        "data.labels: many that of a label where it is there, balanced: examples without it / with it")


class Monitor(Section):
    """What is written for TensorBoard and the terminal."""

    tensorboard: bool = setting(True, "write TensorBoard events")
    samples: int = setting(16, "examples shown as the model sees them, each epoch, or less often where epochs are short", ge=0, le=256)
    profile: list[int] | None = setting(
        None, "[first, last]: record what processor and devices do in these steps, for TensorBoard's profile page (extra `profile`)",
        unit="steps", min_length=2, max_length=2)
    input_wait_warning: float = setting(
        0.2, "share of time spent waiting for input above which the run says so", unit="share", gt=0.0, le=1.0)


class Cost(Section):
    """A second objective of a search: what a model costs, to be small. The report draws the front of the score against it."""

    measure: Literal["operations", "parameters", "size", "latency"] = setting(
        ..., "operations: multiplications and additions of an example; parameters: weights; size: their bytes; latency: ms of one example "
        "on the machine of the trial")
    limit: float | None = setting(None, "a setting whose model costs more is not trained", gt=0.0)
    doubling: float = setting(
        0.0, "what a model of twice the cost must gain in the objective to be worth it (0.01: a point of accuracy): so much less the "
        "algorithm is given, and the best is chosen by; 0: by the objective alone", ge=0.0)


class Tune(Section):
    """A search over settings of this experiment; `train` leaves it alone."""

    objective: str | None = setting(None, "validation metric to optimise; default: the task's own")
    direction: Literal["max", "min"] | None = setting(None, "default: the direction of the metric")
    cost: Cost | None = setting(None, "a second objective, to be small")
    algorithm: Literal["random", "bayesian", "hyperband", "grid"] = setting("random", "the search algorithm of Keras Tuner")
    trials: int = setting(20, "trials at most; with hyperband each round of a setting counts as one", ge=1)
    minutes: float | None = setting(None, "start no trial after this time; null: no limit", unit="min", gt=0.0)
    seed: int = setting(0, "seed of the search; the training has its own", ge=0)
    stop_early: Literal["none", "median"] = setting(
        "none", "median: end a trial that after an epoch is worse than the median of the trials finished before it began")
    seeds: int = setting(3, "retrain the best setting over this many seeds at the end; 0: do not", ge=0)
    compare: bool = setting(False, "train the experiment as it was over the same seeds, too, and compare")
    space: dict[str, dict[str, Any]] = setting(
        dict, "settings to search, by dotted name: {choice: [...]}, {int: [low, high]}, {float: [low, high]} or {boolean: true}")


class Experiment(Section):
    """A whole experiment. Domains derive from it and narrow `task`, `data` and `model`.

    Attributes:
        answering: sections that say how a trained model answers, and nothing of its training: a finished run may answer by others.
        formerly: names that the task had before, which experiments and runs may have.
    """

    answering: ClassVar[tuple[str, ...]] = ()
    formerly: ClassVar[tuple[str, ...]] = ()
    # Any, and no default: a task's own Literal may then take its place for every type checker
    task: Annotated[Any, setting(..., "what is learned, as domain.task", search="it says what is learned")]
    seeds: int = setting(1, "train this many times with train.seed, train.seed + 1, ... and report mean and spread", ge=1,
                         search="it repeats a whole run")
    data: Data = setting(Data, "the data")
    train: Train = setting(Train, "training")
    evaluate: Evaluate = setting(Evaluate, "judging")
    monitor: Monitor = setting(Monitor, "TensorBoard, terminal, and where extensions send a run")
    tune: Tune | None = setting(None, "the search space")

    def problems(self) -> list[tuple[str, str]]:
        found, train = super().problems(), self.train
        if sum(value is not None for value in (train.clip.global_norm, train.clip.norm, train.clip.value)) > 1:
            found.append(("train.clip", "only one of global_norm, norm and value can be set"))
        if train.accumulation and train.micro_batch_size and train.batch_size % (train.accumulation * train.micro_batch_size):
            found.append(("train.batch_size", (
                f"{train.batch_size} is not a multiple of accumulation x micro_batch_size = "
                f"{train.accumulation} x {train.micro_batch_size}")))
        elif train.accumulation and train.batch_size % train.accumulation:
            found.append(("train.batch_size", f"{train.batch_size} is not a multiple of train.accumulation = {train.accumulation}"))
        elif train.micro_batch_size and train.batch_size % train.micro_batch_size:
            found.append(("train.batch_size", f"{train.batch_size} is not a multiple of train.micro_batch_size = {train.micro_batch_size}"))
        elif (devices := device_count(train)) is not None:
            try:
                accumulation_of(train, devices)
            except ConfigError as error:
                found.append(("train.batch_size", str(error).removeprefix("train.batch_size: ")))
        optimizer = keras_arguments("keras.optimizers", train.optimizer.name)
        if optimizer is not None:
            found += wrong_options(train.optimizer, *optimizer)
        if train.early_stopping and self.data.validation == 0:
            found.append(("train.early_stopping", "data.validation is 0, so there is nothing to judge by; set data.validation"))
        if train.learning_rate.schedule == "step" and not train.learning_rate.milestones:
            found.append(("train.learning_rate.milestones", "schedule: step needs milestones, such as [0.5, 0.75]"))
        if train.learning_rate.milestones and train.learning_rate.schedule != "step":
            found.append(("train.learning_rate.milestones", (
                f"milestones have no effect with schedule: {train.learning_rate.schedule}; set schedule: step")))
        if train.deterministic and train.xla == "on":
            found.append(("train.xla", "determinism switches XLA off; set xla: auto or off, or deterministic: false"))
        for section in (self.data, train, self.evaluate, self.monitor):
            found += [one for added in ADDED.get(type(section), ()) for one in section.added(added).conflicts(self)]
        window = self.monitor.profile
        if window and not 0 <= window[0] < window[1]:
            found.append(("monitor.profile", f"{window} is not [first, last] with 0 <= first < last"))
        if train.freeze and train.freeze.epochs and train.freeze.epochs >= train.epochs:
            found.append(("train.freeze.epochs", (
                f"{train.freeze.epochs} is not below train.epochs = {train.epochs}; null freezes for the whole run")))
        return found
