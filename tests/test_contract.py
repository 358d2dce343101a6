"""Every task of every domain keeps the one contract: trains, is judged, padded, saved, loaded, predicts and is exported like the others."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.config.registry import tasks
from pipelines.task.requests import decoded
from quartet import task_testing
from tests import undrawn
from tests.contract_cases import AT_ONCE, CASES, FITTED, task_of

pytestmark = [pytest.mark.slow(seconds=150), pytest.mark.figures]


def test_every_task_has_a_case():
    assert {task_of(name) for name in CASES} == set(tasks())


@pytest.fixture(scope="module", params=sorted(CASES))
def trained(request, tmp_path_factory):
    """(case, loaded run, its report, its splits), trained in this process."""
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.run import Call, train
    from pipelines.serving.load import load_run, task_class

    case = CASES[request.param]
    known = case.known(request.param, tmp_path_factory.mktemp("encoder"))
    assert known.experiment.task == task_of(request.param)
    folder = RunFolder(tmp_path_factory.mktemp("runs") / known.name / "small")
    with pytest.MonkeyPatch.context() as patch:
        if request.param not in tasks():  # the figures are the task's, drawn with the model of its first case
            patch.setattr("pipelines.base.figures.rendered", undrawn.rendered)
        report = train(known.experiment, folder, Call(known.name, task_class(known.experiment.task), quiet=True))
    run = load_run(folder, where="cpu")
    return case, run, report, type(run.task)(run.task.experiment).splits()


def test_the_report_holds_what_the_task_follows(trained):
    _, run, report, splits = trained
    task_testing.check_report(run, report, splits)
    waited = report["timing"]["input_wait_fraction"]
    assert waited is None or 0.0 <= waited <= 1.0  # none of a run without steps


SAMPLES = {"vision": "images", "speech": "audio", "nlp": "text", "recsys": "text"}  # TensorBoard's plugin that shows a domain's examples


# vectors in its projector
PROJECTED = {"nlp.classification": "words", "nlp.regression": "words", "recsys.retrieval": "items", "recsys.sequential": "items"}


def test_the_answer_to_each_example_stands_beside_the_report(trained):
    import pyarrow.parquet as pq

    _, run, report, splits = trained
    table = pq.read_table(run.folder.report / "predictions.parquet")
    assert table.num_rows == len(splits.test)
    if run.task.output.watch[0] == "accuracy":
        hits = np.array(table["label"].to_pylist()) == np.array(table["predicted"].to_pylist())
        assert hits.mean() == pytest.approx(report["metrics"]["test/accuracy"]["value"])


def test_a_cheap_model_stands_beside_every_classifier(trained):
    case, run, report, _ = trained
    if "test/baselines" not in report["tables"] or run.task.experiment.task.startswith("recsys"):
        assert run.task.output.chance() is None or any(CASES[name] is case for name in FITTED)
        return
    own, cheap = report["tables"]["test/baselines"]
    if run.task.output.chance() is None:
        metric = next(name for name in cheap if name.startswith("gain_in_")).removeprefix("gain_in_")
        sign = -1 if metric in ("mae", "bits_per_byte", "eer") else 1
        assert own.keys() == cheap.keys() and cheap[f"gain_in_{metric}"] == pytest.approx(sign * (own[metric] - cheap[metric]))
        return
    assert own["accuracy"] == pytest.approx(report["metrics"]["test/accuracy"]["value"])
    assert run.task.output.chance()[1] < cheap["accuracy"] <= 1.0
    assert cheap["gain_in_accuracy"] == pytest.approx(own["accuracy"] - cheap["accuracy"])


def events_of(folder: Path) -> Any:
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

    return EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()


def searched_in_hparams(events: Any) -> set[str]:
    """The settings in the row of the HParams table that the root of a run has."""
    from tensorboard.plugins.hparams import metadata

    contents = events.PluginRunToTagToContent("hparams")["."]
    assert {metadata.SESSION_START_INFO_TAG, metadata.SESSION_END_INFO_TAG} <= set(contents)
    return set(metadata.parse_session_start_info_plugin_data(contents[metadata.SESSION_START_INFO_TAG]).hparams)


def test_tensorboard_has_every_tag_that_is_promised(trained):
    case, run, report, _ = trained
    events = events_of(run.folder.tensorboard)
    scalars = events.PluginRunToTagToContent("scalars")
    watch, task = run.task.output.watch[0], run.experiment.task
    if report["timing"]["steps"]:
        assert {"loss", "learning_rate", "gradient_norm", "epoch/loss", "speed/examples_per_second", "speed/input_wait_fraction",
                "speed/memory_bytes"} <= set(scalars["train"])
    assert "epoch/loss" in scalars["validation"]
    root = set(scalars["."])
    assert f"hparam/validation/{watch}" in root and f"hparam/test/{watch}" in root
    assert "train.epochs" in searched_in_hparams(events)
    plugin = SAMPLES[task.partition(".")[0]]
    shown = {tag for tags in events.PluginRunToTagToContent(plugin).values() for tag in tags}
    assert shown, f"no {plugin}"
    figures = {f"test/{Path(figure).stem}" for figure in report["figures"]} - {"test/learning_curves"}
    assert figures or task == "speech.transcription"  # whose report has tables alone
    assert figures <= set(events.PluginRunToTagToContent("images").get("train", ()))
    if task in PROJECTED and case.preset is None:
        folder = run.folder.tensorboard / "train"
        assert f'tensor_path: "projector/{PROJECTED[task]}.tsv"' in (folder / "projector_config.pbtxt").read_text()
        vectors = (folder / "projector" / f"{PROJECTED[task]}.tsv").read_text().splitlines()
        names = (folder / "projector" / f"{PROJECTED[task]}_names.tsv").read_text(encoding="utf-8").splitlines()
        assert len(names) - len(vectors) == (names[0] == "title\tid")  # a heading where there are two columns


def test_every_chart_of_the_layout_has_the_lines_that_it_promises(trained):
    from tensorboard.plugins.custom_scalar import layout_pb2
    from tensorboard.util import tensor_util

    _, run, report, _ = trained
    events = events_of(run.folder.tensorboard)
    content = tensor_util.make_ndarray(events.Tensors(".", "custom_scalars__config__")[0].tensor_proto).item()
    scalars = events.PluginRunToTagToContent("scalars")
    charts = {(category.title, chart.title): chart.multiline.tag for category in layout_pb2.Layout.FromString(content).category
              for chart in category.chart}
    assert ("Train and validation", "loss") in charts and ("Training", "learning rate") in charts
    stepped = ("train",) if report["timing"]["steps"] else ()  # what is fitted at once has no curves of train
    for (category, chart), patterns in charts.items():
        for split in (*stepped, "validation") if category == "Train and validation" else stepped:
            assert any(re.search(pattern, tag) for pattern in patterns for tag in scalars[split]), (category, chart, split)


# what a trial adds to a run is the way of training: by steps, or at once
@pytest.mark.parametrize("task", ["recsys.sequential", "vision.classification/kernel"])
def test_a_task_can_be_a_trial_of_a_search(task, tmp_path):
    """Surveyed for its metrics, trained, paused, resumed, and judged on validation alone."""
    from pipelines.config.yaml_text import resolved_yaml
    from pipelines.tuning.trial import survey, trial

    known = CASES[task].known(task, tmp_path)
    (tmp_path / "search.yaml").write_text(resolved_yaml(known.experiment))
    order = {"experiment": str(tmp_path / "search.yaml"), "folder": str(tmp_path / "trial"), "name": task, "values": {
        "train.learning_rate.peak": 0.002}, "title": "01", "precision": "float32", "peers": []}
    found = survey(order)
    objective = found["watch"][0]
    assert objective in found["streamed"] or objective in found["judged"]
    assert found["judged"] and objective in found["judged"]
    first = trial({**order, "objective": objective, "direction": "max", "epochs": 1})
    whole = trial({**order, "objective": objective, "direction": "max", "epochs": None})
    assert (first["epochs"], whole["epochs"]) == ((0, 0) if task in AT_ONCE else (1, 2)) and np.isfinite(whole["value"])
    assert all(name.startswith("validation/") for name in whole["metrics"])
    assert set(found["judged"]) >= {name.partition("/")[2] for name in whole["metrics"]}
    events = events_of(tmp_path / "trial" / "tensorboard")
    assert searched_in_hparams(events) == {"train.learning_rate.peak"}
    assert f"hparam/validation/{objective}" in events.PluginRunToTagToContent("scalars")["."]


def test_what_is_fitted_at_once_takes_no_steps(trained):
    case, run, report, _ = trained
    assert (report["timing"]["steps"] == 0) == any(CASES[name] is case for name in AT_ONCE)
    assert run.model.trainable_weights or report["timing"]["steps"] == 0


def test_facts_are_plain_and_learned_from_train_alone(trained):
    _, run, _, splits = trained
    task_testing.check_facts(run, splits)
    chosen = set(run.task.facts) - set(splits.facts)  # by validation in the end
    assert chosen <= {"fitted", "learned", "thresholds", "intervals", "f1_threshold", "no_answer_threshold", "sharpness"}


def test_an_answer_does_not_depend_on_its_batch(trained):
    """Alone, in small batches and in large ones; what pads a batch changes nothing."""
    _, run, _, splits = trained
    task_testing.check_batches(run, splits.test)


def test_the_run_predicts(trained, tmp_path):
    from pipelines.serving.predict import Predictor

    case, run, _, splits = trained
    made = list(Predictor(run).predict(case.inputs(tmp_path, splits)))
    assert made and all(one.error is None and one.values for one in made)


def test_answers_are_written_in_the_forms_of_the_task_and_drawn(trained, tmp_path):
    from PIL import Image
    from typer.testing import CliRunner

    from pipelines.commands.main import app

    case, run, _, splits = trained
    sent, answers = tmp_path / "sent", run.task.output.answers
    sent.mkdir()
    given = case.inputs(sent, splits)

    def predicted(*arguments):
        done = CliRunner().invoke(app, ["predict", str(run.folder.path), *given, *arguments])
        assert done.exit_code == 0, done.output

    for name, form in answers.formats.items():
        predicted("--format", name, "--output", str(tmp_path / name))
        written = [tmp_path / name] if form.alone else list((tmp_path / name).iterdir())
        assert all(file.is_file() for file in written) and len(written) >= (1 if form.alone else len(list(sent.iterdir())))
    if answers.draw is not None:
        predicted("--draw", str(tmp_path / "drawn"))
        for file in sent.iterdir():
            with Image.open(file) as before, Image.open(tmp_path / "drawn" / f"{file.stem}.png") as drawn:
                times = drawn.width // before.width  # small pictures are enlarged
                assert times >= 1 and drawn.size == (times * before.width, times * before.height)


def test_what_a_client_sends_is_taken_as_what_a_person_gives(trained, tmp_path):
    case, run, _, splits = trained
    given = case.inputs(tmp_path, splits)
    read = [one[1] for one in run.task.input.requests.read(given)]
    sent = [path.read_bytes() for path in sorted(tmp_path.iterdir())] or [
        decoded(json.loads(one)) if one[:1] == "{" else one for one in given]
    taken = [run.task.input.requests.take(one) for one in sent]
    assert len(taken) == len(read) and run.task.input.requests.sends
    for mine, theirs in zip(taken, read):
        assert set(mine) == set(theirs)
        for name in mine:
            np.testing.assert_equal(mine[name], theirs[name])


def test_what_a_person_enters_on_the_page_is_taken_as_what_a_client_sends(trained, tmp_path):
    """The page sends ids as texts, whatever they are in the data."""
    case, run, _, splits = trained
    task_testing.check_page(run)
    form = run.task.input.requests.form()
    names = [field.name for field in form]
    given = case.inputs(tmp_path, splits)
    if names == [""]:
        files = run.task.input.requests.takes_files
        assert (form[0].kind in ("image", "sound")) == files and (files or form[0].kind == "text")
        return
    entered = {"word": str, "words": lambda ids: [str(one) for one in ids]}
    requests = [one for one in (decoded(json.loads(text)) if text[:1] == "{" else {} for text in given) if one and set(one) <= set(names)]
    for sent in requests:
        filled = {field.name: entered.get(field.kind, lambda value: value)(sent[field.name]) for field in form if field.name in sent}
        mine, theirs = run.task.input.requests.take(filled), run.task.input.requests.take(sent)
        for name in theirs:
            np.testing.assert_equal(mine[name], theirs[name])


def test_the_exported_model_answers_as_the_run_with_tensorflow_alone(trained, tmp_path):
    case, run, _, splits = trained
    (tmp_path / "inputs").mkdir()
    rows = [one[1] for one in run.task.input.requests.read(case.inputs(tmp_path / "inputs", splits))]
    task_testing.check_export(run, rows, tmp_path)
    assert set(run.task.input.raw_spec()) <= {*run.task.input.signature.meanings}
