"""`quartet check` and `quartet new` for interactions."""

import pytest

from pipelines.base.errors import ConfigError, DataError
from pipelines.config.draft import new
from pipelines.config.load import from_text
from recsys.check import check_interactions
from tests.recsys.small_tables import ROWS, experiment, table


def findings(path, task: str = "recsys.sequential", **data) -> dict[str, str]:
    return {finding.text: finding.level for finding in check_interactions(experiment(path, task, data)).findings}


def some(found: dict[str, str], part: str) -> str:
    texts = [text for text in found if part in text]
    assert texts, f"{part!r} is not among {list(found)}"
    return found[texts[0]]


def test_half_repetitions_are_counted(tmp_path):
    found = findings(table(tmp_path, ROWS + "".join(ROWS.splitlines(keepends=True)[1:])))
    assert some(found, "11 of 22 events (50%) are exact repetitions") == "warning"


def test_unreadable_rows_stop_training_unless_skipped(tmp_path):
    path = table(tmp_path, ROWS.replace("3.5", "much") + "31,a,4")
    assert some(findings(path), "2 rows cannot be read") == "error"
    assert some(findings(path, on_bad_example="skip"), "2 rows cannot be read") == "warning"


def test_few_events_times_cold_items_and_leaks(tmp_path):
    found = findings(table(tmp_path))
    assert some(found, "1 of 4 users (25%) have a single event; data.min_user_events leaves such out") == "note"
    assert some(found, "times are out of order in the file") == "note"
    assert some(found, "test events are older than the newest of train") == "note"
    assert (
        some(findings(table(tmp_path, ROWS.replace("9,c", "9,z"))), "test events (33%) are of items that train does not have") == "warning"
    )
    equal = "\n".join(
        [line if number == 0 else ",".join([*line.split(",")[:3], "5", "good"]) for number, line in enumerate(ROWS.splitlines())]
    )
    assert some(findings(table(tmp_path, equal)), "all times are equal") == "warning"
    clean = findings(table(tmp_path), protocol="time", test=0.2, validation=0.2)
    assert some(clean, "no test event is older than the newest of train") == "note"
    places = "\n".join(["user,item,rating,time", *(f"{n % 4},{n},4.0,{n // 4}" for n in range(40))])
    assert not any("newest of train" in text for text in findings(table(tmp_path, places)))


@pytest.mark.parametrize(("loss", "events"), [("rating", 60), ("click", 120)])
def test_events_are_divided_as_in_training(tmp_path, loss, events):
    """Of repeated pairs the last counts where ratings are predicted, all where clicks are; in check as in training."""
    from pipelines.runs.launch import task_class

    text = "user,item,rating,time,mood\n" + "".join(f"{n % 3},{n % 20},{n % 2},{n},x\n" for n in range(120))
    settings = experiment(table(tmp_path, text), "recsys.ranking", {"test": 0.25, "validation": 0.25}, loss={"name": loss})
    splits = task_class("recsys.ranking")(settings).splits()
    found = {name: part["examples"] for name, part in check_interactions(settings).splits.items()}
    assert found == {"train": events / 2, "validation": events / 4, "test": events / 4}
    assert found == {name: len(getattr(splits, name)) for name in found}


def test_features_that_a_task_does_not_take_are_said(tmp_path):
    path = table(tmp_path)
    with pytest.raises(ConfigError, match=r"data.users.*recsys.sequential"):
        experiment(path, data={"users": str(path)})
    with pytest.raises(ConfigError, match=r"data.items.*nothing is taken from this table"):
        experiment(path, data={"items": str(path)})
    with pytest.raises(ConfigError, match=r"data.group_by.*data.protocol"):
        experiment(path, "recsys.ranking", {"group_by": "mood"})
    experiment(path, data={"items": str(path), "title_key": "mood"})
    from pipelines.runs.launch import task_class

    for task in ("recsys.retrieval", "recsys.sequential"):
        found = findings(path, task, categories=["mood"])
        assert some(found, "Column mood is not used: it differs between events of one item") == "warning"
        notes = task_class(task)(experiment(path, task, {"categories": ["mood"]})).splits().notes
        assert any("Column mood is not used" in note for note in notes)


def test_new_without_times_is_linear_where_that_fits(tmp_path, monkeypatch):
    """Else users are their own vectors. Few rows are passed over more often."""
    pairs = table(tmp_path, "user_id,item_id\n" + "".join(f"{n % 40},{n}\n" for n in range(400)))
    text = new("recsys", str(pairs))
    made = from_text(text, file="experiment.yaml").experiment
    assert made.task == "recsys.retrieval" and made.model.name == "ease" and "40 users and 400 items fit" in text
    for limit, value in (("EASE_USERS", 40), ("EASE_ITEMS", 400), ("EASE_EVENTS", 400)):
        with monkeypatch.context() as patch:
            patch.setattr(f"recsys.new.{limit}", value)
            made = from_text(new("recsys", str(pairs)), file="experiment.yaml").experiment
            assert made.model.name == "towers" and made.model.history == 0 and made.train.epochs == 40 and made.train.early_stopping


def test_new_takes_numbers_within_a_users_events_for_their_order(tmp_path):
    """Not those of whole orders, in which a user has several items."""
    numbered = "user_id,item_id,order\n" + "".join(f"{n % 40},{n},{n // 40}\n" for n in range(400))
    text = new("recsys", str(table(tmp_path, numbered)))
    made = from_text(text, file="experiment.yaml").experiment
    assert made.data.time_key == "order" and made.model.name == "item_knn" and "Column order numbers each user's events" in text
    baskets = "user_id,item_id,order\n" + "".join(f"{n % 40},{n},{n // 80}\n" for n in range(400))
    made = from_text(new("recsys", str(table(tmp_path, baskets))), file="experiment.yaml").experiment
    assert made.data.time_key is None and made.model.name == "ease"


def test_new_for_ratings_is_a_network_where_more_is_known_than_users_and_items(tmp_path):
    """Without times it takes more than the latest."""
    rated = ["user_id,joke_id,rating,shop", *(f"{n % 40},{n},{n % 21 - 10}.5,{'xyz'[n % 3]}" for n in range(400))]
    made = from_text(new("recsys", str(table(tmp_path, "\n".join(rated) + "\n"))), file="experiment.yaml").experiment
    assert made.task == "recsys.ranking" and made.model.name == "dcn" and made.model.history == 100 and made.train.epochs == 40
    made = from_text(new("recsys", str(table(tmp_path))), file="experiment.yaml").experiment
    assert made.model.name == "dcn" and made.model.history == 32
    bare = table(tmp_path, "\n".join(row.rpartition(",")[0] for row in rated) + "\n")
    made = from_text(new("recsys", str(bare)), file="experiment.yaml").experiment
    assert made.task == "recsys.ranking" and made.model.name == "factors"


def test_new_writes_an_experiment_that_loads(tmp_path):
    rated = from_text(new("recsys", str(table(tmp_path))), file="experiment.yaml").experiment
    assert rated.task == "recsys.ranking" and rated.data.rating_key == "rating" and rated.loss.name == "rating"
    text = new("recsys", str(table(tmp_path)), task="lists")
    made = from_text(text, file="experiment.yaml").experiment
    assert made.task == "recsys.retrieval" and made.model.name == "item_knn" and made.data.protocol == "leave_last_out"
    assert made.data.positive_from == 3.5
    network = from_text(new("recsys", str(table(tmp_path)), task="sequential"), file="experiment.yaml").experiment
    assert network.task == "recsys.sequential" and network.model.name == "hstu"
    assert made.data.user_key == "user" and made.data.time_key == "time"
    assert "4 users in column user" in text
    clicks = table(tmp_path, "User ID,click,price,shop\n1,0,2.5,x\n2,1,3.5,y\n", "clicks.csv")
    made = from_text(new("recsys", str(clicks)), file="experiment.yaml").experiment
    assert made.task == "recsys.ranking" and made.loss.name == "click" and made.data.user_key == "User ID"
    assert made.data.numbers == ["price"] and made.data.categories == ["shop"]
    with pytest.raises(DataError, match="no column is called like an item"):
        new("recsys", str(table(tmp_path, "a,b\n1,2\n", "other.csv")))


@pytest.mark.parametrize(("together", "proposed"), [(True, "moment"), (False, None)])
def test_new_holds_out_what_came_at_one_moment_together(tmp_path, together, proposed):
    """Twenty events of each of forty users, two by two at one moment or each at its own."""
    rows = "".join(f"{user},i{(7 * user + number) % 90},{1_600_000_000 + 1000 * (number // 2 if together else number) + user}\n"
                   for user in range(40) for number in range(20))
    text = new("recsys", str(table(tmp_path, f"user,item,time\n{rows}")))
    made = from_text(text, file="experiment.yaml").experiment
    assert made.data.basket == proposed and ("100% of the users have several events at their last moment" in text) == together
