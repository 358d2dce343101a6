"""What was judged is what is served, and what `quartet evaluate` finds again: with histories cut in time, and users new since train."""

import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train
from pipelines.serving.evaluate import evaluate
from pipelines.serving.load import load_run
from pipelines.training.evaluation import Evaluator
from recsys.data.catalogue import Histories
from recsys.data.known import ALL, AROUND, BEFORE, visible, whole
from recsys.data.splits import load
from recsys.models.ranking import DcnModel
from recsys.models.store import HistoryStore
from recsys.settings import Dcn
from tests.recsys.small_tables import ROWS, experiment, table
from tests.recsys.test_tasks import MADE, predicted, trained

pytestmark = pytest.mark.slow


def judged(run: Any, source: Any) -> dict[str, np.ndarray]:
    return Evaluator(run.task, run.model, source, machine=run.machine, batch=64).answers()[0]


def check_report(run: Any, report: dict[str, Any], *splits: str) -> None:
    """`quartet evaluate` on the run's own data finds the numbers of the training's report."""
    for split in splits:
        found = evaluate(run, split=split, overrides=["evaluate.bootstrap=100"]).judgement.metrics
        assert found
        for name, metric in found.items():
            assert metric.value == pytest.approx(report["metrics"][f"{split}/{name}"]["value"], abs=1e-6), f"{split}/{name}"


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    """Ratings held out at random, so that train has later ones of the same users."""
    return trained(
        tmp_path_factory.mktemp("ratings"),
        "recsys/movielens_rating",
        *MADE,
        "data.rating_key=rating",
        "data.validation=0.1",
        "train.epochs=3",
        "train.batch_size=128",
        "train.learning_rate.peak=0.01",
    )


def test_a_rating_is_served_as_it_was_judged(ratings):
    run, _ = ratings
    made, _ = load(run.experiment.data)
    source = type(run.task)(run.task.experiment).splits().test
    said = judged(run, source)["prediction"]
    log, test = made.log, np.flatnonzero(made.parts == 2)[:40]

    def asked(times: Any) -> list[float]:
        users, items = (
            [str(ids.values[number]) for number in who[test]] for who, ids in ((log.users, log.user_ids), (log.items, log.item_ids))
        )
        requests = [json.dumps({"user": user, "item": item, **time}) for user, item, time in zip(users, items, times)]
        return [one.values["prediction"] for one in predicted(run, *requests)]

    served = asked([{"time": int(log.times[number])} for number in test])
    np.testing.assert_allclose(served, said[:40], atol=1e-5)
    # what came later is another answer, so that the one above was no accident
    assert np.abs(np.array(asked([{"time": 2_000_000_000}] * 40)) - served).max() > 1e-3
    # without a time: a second after the last rating that the run knows of the user
    last = [int(log.times[(made.parts == 0) & (log.users == log.users[number])].max()) + 1 for number in test]
    np.testing.assert_allclose(asked([{}] * 40), asked([{"time": time} for time in last]), atol=1e-6)


def test_ratings_with_unknown_user_and_item_and_a_request_without_an_item(ratings):
    run, report = ratings
    rows = {row["of"]: row for row in report["tables"]["test/model_and_baselines"]}
    assert rows["model"]["rmse"] < rows["mean"]["rmse"]
    pair, unknown, bad, alone = predicted(run, "u1,i3", "nobody,nothing", '{"user": "u1", "item": "i3", "time": "soon"}', "u1")
    assert pair.values["known"] and not unknown.values["known"]
    facts = run.task.facts["label"]
    assert facts["low"] <= unknown.values["prediction"] <= facts["high"]
    assert unknown.values["prediction"] == pytest.approx(facts["mean"], abs=0.7)
    assert "'soon' is no time" in bad.error
    assert "no item" in alone.error and "USER,ITEM" in alone.error


def test_ratings_are_judged_again_as_they_were(ratings):
    check_report(*ratings, "validation", "test")


def test_ratings_of_other_data_are_judged_as_the_runs_own(ratings, tmp_path):
    """The test events as a table of their own: the run takes what is nearest to the times that stand there."""
    run, report = ratings
    made, _ = load(run.experiment.data)
    log = made.log
    lines = [
        f"{log.user_ids.values[log.users[n]]},{log.item_ids.values[log.items[n]]},{log.ratings[n]:g},{log.times[n]:.0f}"
        for n in np.flatnonzero(made.parts == 2)
    ]
    path = table(tmp_path, "\n".join(["user,item,rating,time", *lines]) + "\n")
    keys = [f"data.{key}_key={key}" for key in ("user", "item", "rating", "time")]
    found = evaluate(run, data=path, overrides=[*keys, "evaluate.bootstrap=100"])
    assert found.judgement.metrics["rmse"].value == pytest.approx(report["metrics"]["test/rmse"]["value"], abs=1e-6)


def test_events_held_out_at_random_are_judged_with_all_ratings_of_their_users(tmp_path):
    """In time, only the earlier ones; and while learning never the event itself, nor what comes after it."""

    def at(part: str, *, times: bool = True, **data: Any) -> np.ndarray:
        keys = {"validation": 0.2, "test": 0.2, "time_key": "time" if times else None, **data}
        model = {"name": "dcn", "width": 4, "hidden": [8], "history": 4}
        settings = experiment(table(tmp_path), "recsys.ranking", keys, model=model)
        return getattr(task_class("recsys.ranking")(settings).splits(), part).arrays["at"]

    assert set(at("test").tolist()) == {AROUND} and set(at("validation").tolist()) == {AROUND}
    assert set(at("test", times=False).tolist()) == {ALL}
    assert at("test", protocol="time").min() >= 0 and at("test", protocol="leave_last_out").min() >= 0
    assert at("train").min() >= 0 and at("train", times=False).min() >= 0


def test_the_ratings_nearest_in_time_are_taken():
    """As many before as after; towards the ends what there is."""
    model = DcnModel(Dcn(name="dcn", width=4, hidden=[8], history=4), users=1, items=6, events=10, features=[], mean=3.0)
    nothing, times = np.zeros(10, np.float32), np.arange(10) * 10
    items = np.arange(10, dtype=np.int32) % 6 + 1
    model.history.fill(Histories(np.array([0, 0, 10]), items), residual=nothing, time=times)
    taken, plain = [], model.history.places
    model.history.places = lambda start, stop, length: taken.append(int(stop[0])) or plain(start, stop, length)
    one = tf.constant([1])
    for time, code in ((-5, AROUND), (45, AROUND), (99, AROUND), (45, BEFORE), (45, ALL)):
        at = {"time": tf.constant([time], tf.int64), "at": tf.constant([code], tf.int64)}
        model._history({"user": one, "item": one, **at}, tf.ones([1, 1]))
    assert taken == [4, 7, 10, 5, 10]


@pytest.mark.parametrize("seconds", [1, 40])
def test_only_earlier_ratings_are_visible(tmp_path, seconds):
    rng = np.random.default_rng(0)
    lines = [f"{rng.integers(5)},{place},{rng.integers(1, 6)},{1000 + rng.integers(400) // seconds * seconds}" for place in range(120)]
    path = table(tmp_path, "\n".join(["user,item,rating,time", *lines]) + "\n")
    made, _ = load(experiment(path, "recsys.ranking", {"validation": 0.2, "test": 0.2}).data)
    histories, times = made.rated_histories(), whole(made.log.times)
    at = visible(made, times)
    store = HistoryStore(len(made.user_ids), len(histories.items), {"time": "int64"})
    store.fill(histories, time=whole(histories.times))
    start, stop = store.bounds(tf.constant(made.users))
    assert np.array_equal(store.before(start, stop, tf.constant(times), "time").numpy(), at)
    for number in range(len(made.log)):
        mine = (made.users == made.users[number]) & (made.parts == 0) & (times < times[number])
        seen = histories.items[histories.offsets[made.users[number]] : at[number]]
        assert sorted(seen.tolist()) == sorted(made.items[mine].tolist())


def test_the_first_not_below_is_found_at_any_place():
    store = HistoryStore(3, 6, {"time": "int64"})
    offsets = np.array([0, 0, 5, 5, 6])
    store.fill(Histories(offsets, np.ones(6, np.int32)), time=np.array([2, 4, 4, 4, 9, 1]))
    users = tf.constant([1, 1, 1, 1, 1, 0, 2, 3, 3])
    start, stop = store.bounds(users)
    found = store.before(start, stop, tf.constant([0, 4, 5, 9, 10, 3, 3, 1, 2], tf.int64), "time")
    assert found.numpy().tolist() == [0, 1, 4, 4, 5, 0, 5, 5, 6]


@pytest.fixture(scope="module", params=["recsys/quickstart", "recsys/movielens_retrieval"])
def in_time(request, tmp_path_factory):
    """Lists with the latest events held out, so that some users begin in validation, some in test."""
    from recsys.data.sources import synthetic_log

    log = synthetic_log()
    rows = [
        f"{log.user_ids.values[u]},{log.item_ids.values[i]},{t:.0f}" for u, i, t in zip(log.users, log.items, log.times)
    ]
    folder = tmp_path_factory.mktemp("lists")
    path = table(folder, "\n".join(["user,item,time", *rows]) + "\n")
    settings = ("data.source=table", "data.name=null", f"data.path={path}", "data.user_key=user", "data.item_key=item", "data.lists=[]")
    keys = ("data.time_key=time", "data.rating_key=null", "data.title_key=null")
    return trained(folder, request.param, *settings, *keys, "data.protocol=time", "data.validation=0.2", "data.test=0.2")


def test_lists_are_served_as_they_were_judged_also_to_users_new_since_train(in_time):
    run, _ = in_time
    source = type(run.task)(run.task.experiment).splits().test
    answers, people = judged(run, source), source.people
    made, _ = load(run.experiment.data)
    new = np.flatnonzero(people.users == 0)
    before = {str(made.log.user_ids.values[user]) for user in made.log.users[made.parts == 1]}
    assert any(str(people.names[number]) in before for number in new), "no user begins in validation"
    chosen = [*new, *np.flatnonzero(people.users > 0)[:20]]
    for number, one in zip(chosen, predicted(run, *(str(people.names[number]) for number in chosen))):
        ids = [run.task.facts["item_ids"][item - 1] for item in answers["items"][number]]
        assert one.values["items"].tolist() == ids and one.values["fallback"] == answers["fallback"][number]
        np.testing.assert_allclose(one.values["scores"], answers["scores"][number], atol=1e-5)


def test_lists_are_judged_again_as_they_were(in_time):
    check_report(*in_time, "test")
    with pytest.raises(ConfigError, match="--split: what those without a history get is learned from this validation split, too"):
        evaluate(in_time[0], split="validation")


def test_what_cannot_be_judged_is_said_at_once(in_time, tmp_path):
    run, _ = in_time
    with pytest.raises(ConfigError, match="--split: lists are judged by users who have something held out"):
        evaluate(run, split="train")
    with pytest.raises(ConfigError, match=r"--data: lists are judged by users who have something held out.*--split test"):
        evaluate(run, data=table(tmp_path, ROWS))


def test_other_data_need_what_the_model_needs_and_no_more(tmp_path):
    """Genres stand with the items, which the run knows; the mood of an event must be given."""
    items = table(tmp_path, "item,genre\na,fun\nb,sad\nc,fun\nd,fun\n", "items.csv")
    data = {"items": str(items), "categories": ["genre", "mood"], "validation": 0.2, "test": 0.2}
    short = {"epochs": 1, "devices": "cpu", "precision": "float32"}
    settings = experiment(
        table(tmp_path), "recsys.ranking", data, train=short, monitor={"tensorboard": False}, evaluate={"bootstrap": 100}
    )
    folder = RunFolder(tmp_path / "runs" / "small")
    train(settings, folder, Call("recsys/small", task_class("recsys.ranking"), quiet=True))
    run = load_run(folder, where="cpu")
    found = evaluate(run, data=table(tmp_path, ROWS, "other.csv"), overrides=["data.items=null"])
    assert found.judgement.metrics["rmse"].n == 11
    without = table(tmp_path, "".join(line.rpartition(",")[0] + "\n" for line in ROWS.splitlines()), "without.csv")
    with pytest.raises(DataError, match=r"has no column 'mood' \(data.categories\)"):
        evaluate(run, data=without)
