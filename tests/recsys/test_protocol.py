"""Splits by protocol, and the catalogue learned from train alone."""

import numpy as np
import pytest

from pipelines.base.errors import ConfigError, DataError
from recsys.data.catalogue import by_part
from recsys.data.protocol import TEST, TRAIN, VALIDATION
from recsys.data.sources import read_log
from recsys.data.splits import load
from tests.recsys.small_tables import ROWS, experiment, table


def parts_of(made):
    ids, items, parts = made.log.user_ids.values[made.log.users], made.log.item_ids.values[made.log.items], made.parts
    return {
        name: sorted(zip(ids[parts == part].tolist(), items[parts == part].tolist()))
        for name, part in (("train", TRAIN), ("validation", VALIDATION), ("test", TEST))
    }


def test_leave_last_out(tmp_path):
    made, notes = load(experiment(table(tmp_path)).data)
    found = parts_of(made)
    assert found["test"] == [(7, "d"), (9, "c"), (12, "d")]
    assert found["validation"] == [(7, "c"), (9, "a"), (12, "a")]
    assert (30, "d") in found["train"]  # a single event has nothing to be held out of
    assert notes[0].startswith("Protocol leave_last_out") and any("too few events" in note for note in notes)


def test_of_many_users_some_validate_and_the_others_teach(tmp_path, monkeypatch):
    monkeypatch.setattr("recsys.data.protocol.JUDGING", 2)
    made, notes = load(experiment(table(tmp_path)).data)
    found = parts_of(made)
    assert found["test"] == [(7, "d"), (9, "c"), (12, "d")] and len(found["validation"]) == 2
    assert {*found["validation"], *found["train"]} > {(7, "c"), (9, "a"), (12, "a")}
    assert "the one before validation of 2 users, drawn by split_seed 0, the rest train" in notes[0]
    more = load(experiment(table(tmp_path), data={"validation": 0.99}).data)[0]  # of 3 users a larger share
    assert len(parts_of(more)["validation"]) == 3


def test_what_train_has_not_is_unknown(tmp_path):
    made, notes = load(experiment(table(tmp_path, ROWS.replace("9,c", "9,z"))).data)
    assert made.item_ids.values.tolist() == ["a", "b", "c", "d"] and "z" in made.log.item_ids.values
    assert any("1 of 3 test events are of items that train does not have" in note for note in notes)


def test_time_cut_keeps_equal_times_together(tmp_path):
    made, _ = load(experiment(table(tmp_path), data={"protocol": "time", "test": 0.2, "validation": 0.2}).data)
    times, parts = made.log.times, made.parts
    assert times[parts == TRAIN].max() < times[parts == VALIDATION].min() <= times[parts == VALIDATION].max() < times[parts == TEST].min()
    same = ROWS.replace(",500,", ",400,")
    made, _ = load(experiment(table(tmp_path, same), data={"protocol": "time", "test": 0.1, "validation": 0.0}).data)
    assert set(made.log.times[made.parts == TEST]) == {400.0} and np.sum(made.parts == TEST) == 2


def test_random_share_is_the_seeds(tmp_path):
    settings = {"protocol": "random", "test": 0.2, "validation": 0.1}
    first, second = (load(experiment(table(tmp_path), data=settings).data)[0] for _ in range(2))
    assert np.array_equal(first.parts, second.parts) and np.sum(first.parts == TEST) == 2
    other = load(experiment(table(tmp_path), data={**settings, "split_seed": 1}).data)[0]
    assert not np.array_equal(first.parts, other.parts)


def test_the_datas_own_splits(tmp_path):
    lines = ROWS.splitlines()
    names = ["train", "train", "val", "test", "train", "val", "test", "train", "train", "test", "train"]
    text = "\n".join([lines[0] + ",part", *(f"{line},{name}" for line, name in zip(lines[1:], names))]) + "\n"
    made, notes = load(experiment(table(tmp_path, text), data={"split_key": "part"}).data)
    assert np.sum(made.parts == TEST) == 3 and "column part" in notes[0]
    with pytest.raises(DataError, match=r"events.csv:2: 'later' in column part \(data.split_key\) is none of train"):
        load(experiment(table(tmp_path, text.replace("good,train", "good,later", 1)), data={"split_key": "part"}).data)


def test_repeated_pairs_count_once_and_are_said(tmp_path):
    made, notes = load(experiment(table(tmp_path, ROWS + "".join(ROWS.splitlines(keepends=True)[1:]))).data)
    assert len(made.log) == 11 and any("11 of 22 events (50%)" in note for note in notes)


AGAIN = """user,item,rating,time
1,a,1,10
1,b,2,20
1,a,3,30
1,c,4,40
1,b,5,50
1,d,4,60
1,a,5,70
2,a,3,15
2,b,3,25
2,c,2,65
2,d,2,80
"""


def of_user(made, user=1):
    """(part, item, rating) of one user's events in the order of time."""
    own = np.flatnonzero(made.log.user_ids.values[made.log.users] == user)
    order = own[np.argsort(made.log.times[own])]
    return [(int(made.parts[k]), str(made.log.item_ids.values[made.log.items[k]]), float(made.log.ratings[k])) for k in order]


def test_no_train_event_goes_for_what_returns_later(tmp_path):
    """The last new item is held out; a and b, which return after it, stay in train as they were before it."""
    path = table(tmp_path, AGAIN)
    made, notes = load(experiment(path).data)
    assert of_user(made) == [(TRAIN, "b", 2.0), (TRAIN, "a", 3.0), (VALIDATION, "c", 4.0), (TEST, "d", 4.0)]
    assert "last event with a new item" in notes[0] and any("3 of 11 events (27%) repeat a user and item" in note for note in notes)
    # the test period has nothing new of user 1 but d
    made, _ = load(experiment(path, data={"protocol": "time", "test": 0.4, "validation": 0.0}).data)
    assert of_user(made) == [(TRAIN, "b", 2.0), (TRAIN, "a", 3.0), (TRAIN, "c", 4.0), (TEST, "d", 4.0)]
    named = AGAIN.replace("time\n", "time,part\n").replace("0\n", "0,train\n").replace("5\n", "5,train\n").replace("70,train", "70,test")
    made, _ = load(experiment(table(tmp_path, named, "own.csv"), data={"split_key": "part"}).data)
    assert (TRAIN, "a", 3.0) in of_user(made) and not any(part == TEST for part, _, _ in of_user(made))


def test_what_comes_later_changes_no_earlier_part(tmp_path):
    """With a cut in time, the parts before it are the same whatever is behind it."""
    settings = {"split_key": "part", "min_item_events": 2, "min_user_events": 2}
    lines = [f"{line},{'train' if int(line.split(',')[3]) < 45 else 'test'}" for line in AGAIN.splitlines()[1:]]
    found = []
    for rows in (lines, lines[:-1], [line for line in lines if line.endswith("train")] + ["1,a,5,99,test", "2,c,5,98,test"]):
        text = "\n".join(["user,item,rating,time,part", *rows]) + "\n"
        made, _ = load(experiment(table(tmp_path, text), data=settings).data)
        found.append([(k, item, rating) for k in (1, 2) for part, item, rating in of_user(made, k) if part == TRAIN])
    assert found[0] == found[1] == found[2] and [item for _, item, _ in found[0]] == ["b", "a", "a", "b"]


def test_where_seen_items_are_candidates_repetitions_are_events(tmp_path):
    from recsys.data.splits import repetitions_of

    lenient = experiment(table(tmp_path, AGAIN + "1,e,1,71\n1,e,1,72\n"), data={"protocol": "time", "test": 0.3, "validation": 0.0},
                         evaluate={"exclude_seen": False})
    made, _ = load(lenient.data, repetitions=repetitions_of(lenient))
    own = of_user(made)
    assert [item for part, item, _ in own if part == TRAIN] == ["a", "b", "a", "c", "b", "d"]
    assert [item for part, item, _ in own if part == TEST] == ["a", "e"]  # e is judged once


def test_least_events_are_counted_on_train_alone(tmp_path):
    """a, c and d have three events each, of which train has one: what is held out must not keep them in."""
    made, _ = load(experiment(table(tmp_path)).data)
    assert np.sum(made.parts == TEST) == 3
    made, notes = load(experiment(table(tmp_path), data={"min_item_events": 2}).data)
    train = made.log.item_ids.values[made.log.items[made.parts == TRAIN]]
    assert set(train.tolist()) == {"b"}
    assert any("3 items with fewer than 2 events in train left out, and with them" in note and "test events" in note for note in notes)
    with pytest.raises(DataError, match=r"nothing is left to train on after data\.min_user_events"):
        load(experiment(table(tmp_path), data={"min_user_events": 40}).data)


def test_positive_from(tmp_path):
    made, notes = load(experiment(table(tmp_path), data={"positive_from": 3.0}).data)
    assert made.log.ratings.min() >= 3.0 and any("3 of 11 are lower" in note for note in notes)
    with pytest.raises(DataError, match=r"no rating reaches data\.positive_from = 9; the highest is 5"):
        load(experiment(table(tmp_path), data={"positive_from": 9.0}).data)


def test_histories_stand_in_time_and_train_before_validation(tmp_path):
    made, _ = load(experiment(table(tmp_path)).data)
    stored = made.histories((TRAIN, VALIDATION))
    seven = made.user_ids.values.tolist().index(7) + 1
    assert [made.item_ids.values[item - 1] for item in stored.of(seven)] == ["a", "b", "c"]
    assert len(stored.of(0)) == 0


def test_the_order_in_time_stays_with_what_is_taken_and_divided(tmp_path):
    rng, count = np.random.default_rng(0), 500
    users, times, parts = rng.integers(0, 20, count), rng.integers(0, 50, count), rng.integers(0, 3, count)
    rows = "".join(f"{user},{number},3,{time}\n" for number, (user, time) in enumerate(zip(users, times)))
    log = read_log(experiment(table(tmp_path, "user,item,rating,time\n" + rows), data={"time_key": "time"}).data)
    keep = rng.random(count) < 0.7
    before = log.take(keep).in_time  # sorted anew
    assert len(log.in_time) == count
    np.testing.assert_array_equal(log.take(keep).in_time, before)
    taken, part = users[keep], parts[keep]
    one_by_one = sorted(range(len(taken)), key=lambda n: (taken[n], part[n], times[keep][n], n))
    np.testing.assert_array_equal(by_part(before, taken, part), one_by_one)


def test_features_of_items_and_events(tmp_path):
    items = table(tmp_path, "item,genre,year\na,fun|sad,1990\nb,fun,2000\nd,,2010\n", "items.csv")
    made, _ = load(
        experiment(
            table(tmp_path),
            "recsys.ranking",
            data={
                "items": str(items),
                "lists": ["genre"],
                "numbers": ["year"],
                "categories": ["mood"],
                "list_length": 3,
                "test": None,
                "validation": 0.0,
            },
        ).data
    )
    facts = {one["name"]: one for one in made.features}
    assert facts["mood"]["of"] == "event" and facts["genre"]["of"] == "item" and facts["genre"]["values"] == ["fun", "sad"]
    assert made.item_features["genre"].tolist() == [[0, 0, 0], [1, 2, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert made.item_features["year"][[1, 2, 4]].tolist() == pytest.approx([-1.2247, 0.0, 1.2247], abs=1e-3)
    assert made.item_features["year"][3] == 0.0  # not in the table: as the mean
    with pytest.raises(DataError, match=r"no column .genres. .*did you mean genre"):
        load(experiment(table(tmp_path), "recsys.ranking", data={"items": str(items), "lists": ["genres"]}).data)


def test_tables_of_items_and_users_teach_only_what_train_has(tmp_path):
    """An item and a user that test alone has, of extreme values: what is learned is as without them."""
    text = ROWS + "99,z,3.0,900,good\n"
    items = "item,genre,year\na,fun,1990\nb,fun,2000\nc,sad,2005\nd,sad,2010\n"
    users = "user,age\n7,20\n9,30\n12,40\n30,50\n"
    data = {"numbers": ["year", "age"], "categories": ["genre"], "protocol": "time", "test": 0.05, "validation": 0.0}
    found = []
    for more in (("", ""), ("z,weird,1000000\n", "99,100000\n")):
        texts = {"items": items + more[0], "users": users + more[1]}
        paths = {name: str(table(tmp_path, whole, f"{name}.csv")) for name, whole in texts.items()}
        made, _ = load(experiment(table(tmp_path, text), "recsys.ranking", data={**data, **paths}).data)
        assert made.log.item_ids.values[made.log.items[made.parts == TEST]].tolist() == ["z"]
        found.append(made.features)
    assert found[0] == found[1] and found[0][0]["mean"] == pytest.approx(2001.25)


def test_folds_are_of_what_comes_before_the_test_events(tmp_path):
    made, notes = load(experiment(table(tmp_path), data={"fold": [1, 5], "validation": 0.0}).data)
    found = parts_of(made)
    assert found["test"] == [(7, "c"), (9, "a"), (12, "a")] and not found["validation"]  # those before each user's last
    assert not {(7, "d"), (9, "c"), (12, "d")} & set(found["train"]) and any("Fold 1 of 5" in note for note in notes)


def test_folds_of_events_drawn_at_random_hold_each_once(tmp_path):
    settings = {"protocol": "random", "test": 0.2, "validation": 0.0}
    whole = parts_of(load(experiment(table(tmp_path), data=settings).data)[0])
    held = [pair for number in (1, 2, 3)
            for pair in parts_of(load(experiment(table(tmp_path), data={**settings, "fold": [number, 3]}).data)[0])["test"]]
    assert sorted(held) == whole["train"] and not set(held) & set(whole["test"])


BASKETS = """user,item,time
1,a,2026-01-01 10:00
1,b,2026-01-02 10:00
1,c,2026-01-02 10:00
1,d,2026-01-03 09:00
1,e,2026-01-03 12:00
1,f,2026-01-03 12:00
2,a,2026-01-01 08:00
2,b,2026-01-05 08:00
3,c,2026-01-04 08:00
3,d,2026-01-04 08:00
"""


def test_what_a_user_had_at_one_moment_is_held_out_together(tmp_path):
    path = table(tmp_path, BASKETS)
    made, notes = load(experiment(path, data={"basket": "moment", "rating_key": None}).data)
    found = parts_of(made)
    assert found["test"] == [(1, "e"), (1, "f"), (2, "b")] and found["validation"] == [(1, "d")]
    assert {(3, "c"), (3, "d"), (2, "a")} <= set(found["train"])  # the only basket of 3 is learned from
    assert "of each user the events of the last moment by time are test, those before validation" in notes[0]
    assert "1.7 on average" in notes[0]
    found = parts_of(load(experiment(path, data={"basket": "day", "rating_key": None}).data)[0])
    assert found["test"] == [(1, "d"), (1, "e"), (1, "f"), (2, "b")] and found["validation"] == [(1, "b"), (1, "c")]
    alone = parts_of(load(experiment(path, data={"rating_key": None}).data)[0])
    assert alone["test"] == [(1, "f"), (2, "b"), (3, "d")] and alone["validation"] == [(1, "e")]


def test_a_point_in_time_begins_test_and_validation(tmp_path):
    path = table(tmp_path, BASKETS)

    def of(**settings):
        made, notes = load(experiment(path, data={"protocol": "time", "rating_key": None, "validation": 0.0, **settings}).data)
        return parts_of(made), notes[0]

    found, note = of(test_from="2026-01-04")
    assert found["test"] == [(2, "b"), (3, "c"), (3, "d")] and not found["validation"] and "test from 2026-01-04 00:00 on" in note
    spans, note = of(test_from="26 h", validation_from="1 d")  # 06:00 on the 4th, and on the 3rd
    assert spans["test"] == found["test"] and spans["validation"] == [(1, "d"), (1, "e"), (1, "f")]
    assert "validation from 2026-01-03 06:00 on" in note
    assert of(test_from=1767484800)[0]["test"] == found["test"]
    with pytest.raises(DataError, match=r"data.test_from: 2027-01-01 is 2027-01-01 00:00, and no event comes.*from 2026-01-01 08:00"):
        of(test_from="2027-01-01")


def test_folds_before_a_point_in_time_are_as_long_as_what_it_holds_out(tmp_path):
    """A date lies behind all that a fold may learn from."""
    rows = "".join(f"{number % 5},i{number % 7},{number * 3600}\n" for number in range(100))
    settings = {"protocol": "time", "rating_key": None, "test_from": 90 * 3600, "validation_from": 80 * 3600}
    parts = {}
    for fold in (None, [1, 3], [2, 3]):
        made, _ = load(experiment(table(tmp_path, f"user,item,time\n{rows}"), data={**settings, "fold": fold}).data, repetitions="count")
        hours = made.log.times / 3600
        parts[str(fold)] = [(hours[made.parts == part].min(), hours[made.parts == part].max()) for part in (TRAIN, VALIDATION, TEST)]
    assert parts["None"] == [(0, 79), (80, 89), (90, 99)]
    assert parts["[1, 3]"] == [(0, 69), (70, 79), (80, 89)]
    assert parts["[2, 3]"] == [(0, 59), (60, 69), (70, 79)]


@pytest.mark.parametrize(("settings", "says"), [
    ({"protocol": "time", "test_from": "soon"}, r"data.test_from: 'soon' is no time; write a date"),
    ({"protocol": "time", "test_from": "7 d", "test": None}, "test_from: test: null holds nothing out"),
    ({"test_from": "7 d"}, "test_from: is for protocol: time, not leave_last_out"),
    ({"protocol": "time", "basket": "day"}, "basket: is for protocol: leave_last_out, not time"),
    ({"time_key": None, "basket": "day"}, "basket: needs the column of the time"),
])
def test_settings_that_do_not_fit_a_protocol(tmp_path, settings, says):
    with pytest.raises(ConfigError, match=says):
        experiment(table(tmp_path), data=settings)
