"""The three tasks from experiment to answers: saved answers are those judged, clicks in Criteo's form, unknown ids, filters."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pipelines.config.load import load
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train
from recsys.models.sequential import SequentialModel
from recsys.models.store import HistoryStore
from recsys.models.towers import TowersModel
from recsys.tasks.sequential import WindowSource
from tests.data.prepared import need
from tests.recsys.small_tables import experiment

pytestmark = pytest.mark.slow(seconds=40)

QUICK = (
    "train.epochs=1",
    "train.precision=float32",
    "train.devices=cpu",
    "evaluate.bootstrap=100",
    "model.width=8",
    "monitor.tensorboard=false",
)


def trained(folder, config: str, *overrides: str) -> tuple[Any, dict[str, Any]]:
    from pipelines.serving.load import load_run

    known = load(config, [*QUICK, *overrides])
    run = RunFolder(folder / "runs" / known.name / "small")
    report = train(known.experiment, run, Call(known.name, task_class(known.experiment.task), quiet=True))
    return load_run(run, where="cpu"), report


@pytest.fixture(scope="module")
def next_item(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("next"), "recsys/quickstart", "train.epochs=3")


def predicted(run: Any, *inputs: str) -> list[Any]:
    from pipelines.serving.predict import Predictor

    return list(Predictor(run).predict(list(inputs)))


def test_a_users_answer_is_the_one_that_was_judged(next_item):
    from pipelines.training.evaluation import Evaluator

    run, _ = next_item
    splits = type(run.task)(run.task.experiment).splits()
    judged, _ = Evaluator(run.task, run.model, splits.test, machine=run.machine, batch=64).answers()
    names = splits.test.people.names
    for number, one in zip((0, 100, 399), predicted(run, *(str(names[number]) for number in (0, 100, 399)))):
        ids = [run.task.facts["item_ids"][item - 1] for item in judged["items"][number]]
        assert one.values["items"].tolist() == ids and not one.values["fallback"]
        np.testing.assert_allclose(one.values["scores"], judged["scores"][number], atol=1e-5)
    people = splits.test.people
    history = [run.task.facts["item_ids"][item - 1] for item in people.visible[people.visible_of[5] : people.visible_of[6]]]
    by_history, by_name = predicted(run, json.dumps({"history": history}), str(names[5]))
    assert by_history.values["items"].tolist() == by_name.values["items"].tolist()
    with_gaps = predicted(run, json.dumps({"history": ["unknown", *history[:3], "unknown", *history[3:]]}))[0]
    assert with_gaps.values["items"].tolist() == by_name.values["items"].tolist()
    assert not set(history) & set(by_name.values["items"].tolist())


def test_filters_fallback_and_errors(next_item):
    run, _ = next_item
    everything, only, unknown, wrong, similar, no_such = predicted(
        run,
        '{"user": "u5", "exclude_seen": false}',
        '{"user": "u5", "allow": ["i7", "i9", "i7", "none"]}',
        "nobody",
        '{"user": "u5", "hist": []}',
        '{"similar": "i7"}',
        '{"similar": "none"}',
    )
    plain = predicted(run, "u5")[0]
    assert set(everything.values["items"].tolist()) != set(plain.values["items"].tolist())
    assert set(only.values["items"].tolist()) <= {"i7", "i9", ""}
    assert unknown.values["fallback"]
    splits = type(run.task)(run.task.experiment).splits()
    most = run.task.facts["item_ids"][int(np.argmax(splits.test.basis.counts)) - 1]
    assert unknown.values["items"][0] == most
    assert "did you mean history" in wrong.error and "unknown" in no_such.error
    assert "i7" not in similar.values["items"].tolist() and similar.values["scores"][0] <= 1.0 + 1e-5


def test_the_report_says_the_protocol_and_whether_baselines_are_beaten(next_item):
    _, report = next_item
    notes = " ".join(report["notes"])
    assert "Protocol leave_last_out" in notes and "never a sample" in notes and "the best baseline" in notes and "synthetic" in notes
    rows = {row["of"]: row for row in report["tables"]["test/model_and_baselines"]}
    assert set(rows) == {"model", "popularity", "recent", "item_knn", "ease"}
    assert rows["model"]["ndcg@10"] == pytest.approx(report["metrics"]["test/ndcg@10"]["value"])
    assert rows["model"]["ndcg@10"] > rows["popularity"]["ndcg@10"]


def test_scores_while_training_are_the_judged_metric(next_item):
    run, report = next_item
    best = report["timing"]["best_epoch"]
    rows = [json.loads(line) for line in run.folder.metrics.read_text(encoding="utf-8").splitlines()]
    said = next(row["validation/ndcg@10"] for row in rows if row.get("epoch") == best and "validation/ndcg@10" in row)
    assert said == pytest.approx(report["metrics"]["validation/ndcg@10"]["value"], abs=1e-6)


MADE = (
    "data.source=synthetic",
    "data.name=null",
    "data.user_key=user",
    "data.item_key=item",
    "data.time_key=time",
    "data.title_key=title",
    "data.lists=[]",
    "data.categories=[theme]",
)


def test_two_towers_learn(tmp_path, monkeypatch):
    settings = ("train.epochs=8", "train.batch_size=256", "model.width=16", "model.dropout=0.0", "model.history=3", "data.validation=0.1")
    run, report = trained(tmp_path, "recsys/movielens_retrieval", *MADE, "loss={negatives: 20, hard: 10}", *settings)
    rows = {row["of"]: row for row in report["tables"]["test/model_and_baselines"]}
    assert rows["model"]["ndcg@10"] > 1.5 * rows["popularity"]["ndcg@10"]
    monkeypatch.setattr(TowersModel, "item_tower", None)  # a request costs no tower of the items: once loaded, a run has their vectors
    found = predicted(run, "u1")[0].values
    assert len(found["items"]) == len(set(found["items"])) > 0 and not found["fallback"]


def test_the_full_softmax_and_attention_learn(tmp_path):
    _, report = trained(
        tmp_path,
        "recsys/quickstart",
        "model={name: sasrec, length: 20, width: 16, heads: 2, taste: true}",
        "loss={name: full}",
        "train.epochs=4",
    )
    rows = {row["of"]: row for row in report["tables"]["test/model_and_baselines"]}
    assert rows["model"]["ndcg@10"] > rows["popularity"]["ndcg@10"]


def test_histories_with_features_of_items(tmp_path, monkeypatch):
    settings = ("model={name: hstu, length: 20, width: 16, heads: 2}", "data.categories=[theme]", "train.epochs=4")
    run, report = trained(tmp_path, "recsys/quickstart", *settings)
    rows = {row["of"]: row for row in report["tables"]["test/model_and_baselines"]}
    assert rows["model"]["ndcg@10"] > rows["popularity"]["ndcg@10"]
    model = run.model
    before = model.catalogue()[0].numpy()
    themes = model.columns.arrays["theme"]
    themes.assign(tf.zeros_like(themes))
    assert np.abs(model.catalogue()[0].numpy() - before).max() > 1e-3
    monkeypatch.setattr(SequentialModel, "catalogue", None)  # once loaded, a run has the vectors of all items
    found = predicted(run, "u1")[0].values
    assert len(found["items"]) == len(set(found["items"])) > 0 and not found["fallback"]


def test_clicks_in_criteos_form(tmp_path):
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(1500):
        numbers = rng.integers(0, 50, 13)
        words = rng.integers(0, 5, 26)
        odds = 1 / (1 + np.exp(-(0.1 * (numbers[0] - 25) + (2.0 if words[0] == 1 else -1.0))))
        given = ["" if rng.random() < 0.1 and place else str(value) for place, value in enumerate(numbers)]
        lines.append("\t".join([str(int(rng.random() < odds)), *given, *(f"{value:08x}" for value in words)]))
    path = tmp_path / "train.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run, report = trained(
        tmp_path,
        "recsys/clicks",
        f"data.path={path}",
        "train.epochs=8",
        "train.batch_size=128",
        "data.min_count=2",
        "train.learning_rate.peak=0.01",
    )
    assert report["metrics"]["test/auc"]["value"] > 0.75
    rows = {row["of"]: row for row in report["tables"]["test/model_and_baselines"]}
    assert rows["model"]["log_loss"] < rows["share of clicks"]["log_loss"]
    request = {"i1": 49, "c1": f"{1:08x}", **{f"c{place}": "new" for place in range(2, 27)}}
    likely, unlikely = predicted(run, json.dumps(request), json.dumps({**request, "i1": 0, "c1": f"{3:08x}"}))
    assert likely.values["prediction"] > unlikely.values["prediction"]


WITHOUT_VALIDATION = ("data.validation=0.0", "monitor.tensorboard=true", "evaluate.sample_users=3", "train.keep=last")


@pytest.fixture(scope="module")
def without_validation(tmp_path_factory):
    """As the MovieLens experiments are shipped, that train on all but the last event; towers that take no history."""
    return trained(tmp_path_factory.mktemp("towers"), "recsys/movielens_retrieval", *MADE, *WITHOUT_VALIDATION, "model.history=0")[0]


def test_tensorboard_has_lists_also_without_validation(without_validation):
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

    run = without_validation
    events = EventMultiplexer().AddRunsFromDirectory(str(run.folder.tensorboard)).Reload()
    tags = [tag for tags in events.PluginRunToTagToContent("text").values() for tag in tags if tag.startswith("lists/user")]
    assert len(tags) == 3
    name = next(name for name, tags in events.PluginRunToTagToContent("text").items() if any(tag.startswith("lists/") for tag in tags))
    text = events.Tensors(name, tags[0])[-1].tensor_proto.string_val[0].decode()
    assert "latest: Theme" in text and "1. Theme" in text and "held out" not in text
    assert list(run.folder.tensorboard.rglob("projector_config.pbtxt")) and list(run.folder.tensorboard.rglob("items*.tsv"))


@pytest.mark.parametrize("packed", [False, True])
def test_windows_hold_every_next_item_once(packed):
    items, offsets = np.arange(1, 24, dtype=np.int32), np.array([0, 0, 11, 12, 23])
    source = WindowSource(items, offsets, 4, packed=packed, place="made", fingerprint="x")
    rows = source.gather(tf.range(len(source), dtype=tf.int64))
    windows = rows["window"].numpy()
    of = rows["segment"].numpy() if packed else np.ones_like(windows)
    targets = [(int(a), int(b)) for window, own in zip(windows, of)
               for (a, b), (one, other) in zip(pairwise(window), pairwise(own)) if a and b and one == other]
    expected = [(item, item + 1) for item in range(1, 23) if item not in (11, 12)]
    assert sorted(targets) == expected and source.targets == len(expected)
    assert all((window[np.argmax(window > 0) :] > 0).all() for window in windows)


def test_histories_are_cut_in_graph():
    from recsys.data.catalogue import Histories

    store = HistoryStore(2, 5)
    store.fill(Histories(np.array([0, 0, 4, 5]), np.array([3, 1, 4, 2, 9], np.int32)))
    assert store(tf.constant([0, 1, 2]), length=3).numpy().tolist() == [[0, 0, 0], [1, 4, 2], [0, 0, 9]]
    assert store.all_items(tf.constant([1, 2])).numpy().tolist() == [[3, 1, 4, 2], [9, 0, 0, 0]]


@pytest.fixture(scope="module")
def numeric(tmp_path_factory):
    """A run whose ids are numbers."""
    folder = tmp_path_factory.mktemp("numeric")
    rng = np.random.default_rng(0)
    lines = ["user,item,time"]
    for user in range(40):
        lines += [f"{user * 7},{item * 11},{place}" for place, item in enumerate(rng.permutation(30)[:12])]
    path = folder / "events.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = experiment(
        path,
        data={"rating_key": None},
        train={"epochs": 1, "devices": "cpu", "precision": "float32"},
        monitor={"tensorboard": False},
        evaluate={"bootstrap": 100, "cutoffs": [5]},
    )
    from pipelines.serving.load import load_run

    place = RunFolder(folder / "runs" / "numbers" / "small")
    train(settings, place, Call("recsys/numbers", task_class("recsys.sequential"), quiet=True))
    return load_run(place, where="cpu")


def test_numbers_as_ids_survive_the_round_trip(numeric):
    one, history = predicted(numeric, "7", '{"history": [0, 11]}')
    assert one.values["items"].dtype == np.int64 and all(item % 11 == 0 for item in one.values["items"].tolist())
    assert not {0, 11} & set(history.values["items"].tolist())
    assert "no id" in predicted(numeric, "seven")[0].error


@pytest.mark.realdata
def test_movielens_is_read_and_divided():
    need("movielens/latest-small-ratings")
    from recsys.data.splits import load as read

    made, notes = read(load("recsys/movielens_sequential", ["data.validation=0.1"]).experiment.data)
    assert len(made.log) == 100_836 and len(made.log.user_ids) == 610 and not made.log.user_ids.numeric
    assert [int(np.sum(made.parts == part)) for part in range(3)] == [100_836 - 2 * 610, 610, 610]
    assert "Toy Story (1995)" in made.titles and "Every interaction counts as positive" in notes


def test_a_run_is_judged_on_other_data_in_its_own_numbers(next_item, tmp_path):
    """The same events as a table, in another order of ids and rows: the same users are test, and the same answers come."""
    from pipelines.serving.evaluate import evaluate
    from recsys.data.sources import synthetic_log

    run, report = next_item
    log = synthetic_log()
    rows = [
        f"{log.user_ids.values[u]},{log.item_ids.values[i]},{r:g},{t:.0f}"
        for u, i, r, t in zip(log.users, log.items, log.ratings, log.times)
    ]
    path = tmp_path / "events.csv"
    path.write_text("\n".join(["user,item,rating,time", "u0,zz,1,5", *rows[::-1]]) + "\n", encoding="utf-8")
    keys = [f"data.{key}_key={key}" for key in ("user", "item", "rating", "time")]
    found = evaluate(run, data=path, split="test", overrides=[*keys, "data.title_key=null", "evaluate.baselines=[popularity]"])
    assert found.judgement.metrics["ndcg@10"].value == pytest.approx(report["metrics"]["test/ndcg@10"]["value"], abs=1e-6)


def test_an_answer_has_what_there_is_and_says_what_it_is_made_from(next_item):
    run, _ = next_item
    plain, few, only, by_history, nobody, too_many, no_number = predicted(
        run,
        "u5",
        '{"user": "u5", "k": 3}',
        '{"user": "u5", "allow": ["i7", "none"], "exclude_seen": false}',
        '{"history": ["i7", "i9"]}',
        "nobody",
        '{"user": "u5", "k": 51}',
        '{"user": "u5", "k": "many"}',
    )
    assert plain.values["count"] == len(plain.values["items"]) == 50 and plain.values["based_on"] == "the user"
    assert few.values["items"].tolist() == plain.values["items"].tolist()[:3]
    assert only.values["items"].tolist() == ["i7"] and len(only.values["scores"]) == len(only.values["titles"]) == only.values["count"] == 1
    assert by_history.values["based_on"] == "the history given"
    assert nobody.values["based_on"].startswith("popularity: nothing is known")
    assert "k: 51 is no number of items from 1 to 50" in too_many.error and "'many'" in no_number.error


def test_top_gives_the_first_items(next_item):
    import io

    from pipelines.serving.output import Shown, as_object, write_csv
    from pipelines.serving.predict import Predictor

    run, _ = next_item
    predictor = Predictor(run)
    shown = Shown.of(predictor.columns, predictor.classes, top=2, ranked=run.task.output.answers.ranked)
    one = next(iter(predictor.predict(["u5"])))
    answer = as_object(one, shown)
    assert answer["items"] == one.values["items"].tolist()[:2] and len(answer["titles"]) == answer["count"] == 2
    written = io.StringIO()
    write_csv([one], shown, written)
    assert "popularity" not in written.getvalue() and "the user" in written.getvalue()


def test_a_model_without_history_says_that_it_takes_none(without_validation):
    asked = ('{"history": ["i7", "i9"]}', '{"user": "u5", "history": ["i7", "i9"]}')
    history, user = predicted(without_validation, *asked)
    assert history.values["fallback"] and "model.history: 0" in history.values["based_on"]
    assert user.values["based_on"] == "the user" and not {"i7", "i9"} & set(user.values["items"].tolist())


@pytest.mark.parametrize("ids", ["numbers", "texts"])
def test_the_example_in_the_exported_readme_recommends(tmp_path, ids, numeric, next_item):
    """What the README of an exported model shows is run as it stands there, on ids of the run."""
    import contextlib
    import io

    from pipelines.serving.export import export

    folder = export(numeric if ids == "numbers" else next_item[0], tmp_path / "model")
    text = (folder / "README.txt").read_text(encoding="utf-8")
    code = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    ")).replace("'model'", repr(str(folder)))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert "'based_on': array([b'the user']" in printed.getvalue() and "'count'" in printed.getvalue()
