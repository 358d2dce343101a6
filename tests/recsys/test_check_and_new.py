"""`quartet check` and `quartet new` for interactions."""

import pytest

from pipelines.config.load import from_text
from pipelines.config.new import new
from pipelines.errors import DataError
from recsys.check import check_interactions
from tests.recsys.made import ROWS, experiment, table


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


def test_new_writes_an_experiment_that_loads(tmp_path):
    text = new("recsys", str(table(tmp_path)))
    made = from_text(text, file="experiment.yaml").experiment
    assert made.task == "recsys.sequential" and made.data.user_key == "user" and made.data.time_key == "time"
    assert "4 users in column user" in text
    clicks = table(tmp_path, "User ID,click,price,shop\n1,0,2.5,x\n2,1,3.5,y\n", "clicks.csv")
    made = from_text(new("recsys", str(clicks)), file="experiment.yaml").experiment
    assert made.task == "recsys.ranking" and made.loss.name == "click" and made.data.user_key == "User ID"
    assert made.data.numbers == ["price"] and made.data.categories == ["shop"]
    with pytest.raises(DataError, match="no column is called like an item"):
        new("recsys", str(table(tmp_path, "a,b\n1,2\n", "other.csv")))
