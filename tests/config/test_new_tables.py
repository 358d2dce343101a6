"""Tables in many dialects: what `quartet new` writes for them is read by the training as it was meant."""

import random
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from pipelines.base.errors import DataError
from pipelines.config.draft import new
from pipelines.config.load import from_text
from pipelines.data import text_rows
from recsys.data.protocol import divided
from recsys.data.sources import read_log

DRAWN = random.Random(0)
EVENTS = [(DRAWN.randrange(20), DRAWN.randrange(9), DRAWN.choice([1, 2, 3, 4, 5]), 1_599_955_200 + 86_400 * DRAWN.randrange(300))
          for _ in range(300)]


def date(time: int, form: str) -> str:
    return datetime.fromtimestamp(time, timezone.utc).strftime(form)


def table(folder: Path, name: str, form: str, header: str = "") -> Path:
    """`form` has {u}, {i}, {r} and {t}, or a form of strftime."""
    lines = [date(t, form.replace("{u}", str(u)).replace("{i}", str(i)).replace("{r}", str(r)).replace("{t}", str(t)))
             for u, i, r, t in EVENTS]
    (folder / name).write_text("\n".join([*([header] if header else []), *lines]) + "\n", encoding="utf-8")
    return folder / name


def drafted(path: Path, domain: str = "recsys", **options: Any) -> Any:
    return from_text(new(domain, path, **options), file="x.yaml").experiment


@pytest.mark.parametrize(("name", "form", "header"), [
    ("u.data", "{u}\t{i}\t{r}\t{t}", ""), ("ratings.dat", "{u}::{i}::{r}::{t}", ""),
    ("de.csv", "{u};{i};{r},0;%d.%m.%Y", "Kunde;Artikel;Bewertung;Datum"),
    ("us.csv", "{u},{i},{r},%m/%d/%Y", "Customer ID,Product,stars,Review Date"),
    ("iso.txt", "{u}|{i}|{r}|%Y-%m-%dT%H:%M:%SZ", "userId|movieId|score|created_at"),
    ("ms.csv", "{u},{i},{r},{t}000", "utilisateur,produit,note,horodatage"),
    ("us.tsv", "{u}\t{i}\t{r}\t{t}000000", "user\titem\trating\tts"),
])
def test_ratings_in_many_dialects(tmp_path, name, form, header):
    path = table(tmp_path, name, form, header)
    experiment = drafted(path)
    assert experiment.task == "recsys.ranking"
    log = read_log(experiment.data)
    assert log.user_ids.values[log.users].tolist() == [event[0] for event in EVENTS]
    assert log.item_ids.values[log.items].tolist() == [event[1] for event in EVENTS]
    assert log.ratings.tolist() == [event[2] for event in EVENTS] and log.times.tolist() == [event[3] for event in EVENTS]
    assert drafted(path, task="lists").task == "recsys.retrieval" and drafted(path, task="lists").data.positive_from == 4


def test_jester_and_events_without_times(tmp_path):
    path = tmp_path / "jester.csv"
    path.write_text("user_id,joke_id,rating\n" + "".join(f"{u},{i},{4.13 * r - 12.39:.2f}\n" for u, i, r, _ in EVENTS))
    assert drafted(path).task == "recsys.ranking"
    lists = drafted(path, task="lists")
    assert lists.task == "recsys.retrieval" and lists.data.positive_from > 0 and lists.data.protocol == "random"
    path = table(tmp_path, "visits.csv", "{u},{i}", "user_id,place_id")
    assert drafted(path).task == "recsys.retrieval"


def test_a_rare_text_among_ratings_is_passed_over_and_said(tmp_path):
    path = table(tmp_path, "a.csv", "{u},{i},{r},{t}", "user,item,stars,time")
    lines = path.read_text().split("\n")
    user, item, _, time = lines[7].split(",")
    path.write_text("\n".join([*lines[:7], f"{user},{item},vier,{time}", *lines[8:]]))
    made = new("recsys", path)
    assert "# 1 row is passed over: 'vier' in column stars is no number." in made
    experiment = from_text(made).experiment
    assert experiment.task == "recsys.ranking" and read_log(experiment.data).left_out == 1
    path.write_text("\n".join(line.replace(",4,", ",vier,") for line in lines))
    made = new("recsys", path)
    assert "# Column stars is called like a rating, but holds texts such as 'vier'" in made
    assert "# Not used: columns stars." in made and from_text(made).experiment.task == "recsys.retrieval"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_with_a_table_for_each_split(tmp_path, ending):
    whole = table(tmp_path, "ratings.csv", "{u},{i},{r},{t}", "user,item,stars,time")
    rows = whole.read_text().split("\n")
    for name, own in (("train", rows[1:200]), ("test", rows[200:301])):
        (tmp_path / f"{name}.csv").write_text("\n".join([rows[0], *own]) + "\n")
        if ending == "parquet":
            pyarrow.parquet.write_table(pyarrow.csv.read_csv(tmp_path / f"{name}.csv"), tmp_path / f"{name}.parquet")
            (tmp_path / f"{name}.csv").unlink()
    made = new("recsys", tmp_path)
    experiment = from_text(made).experiment
    assert "# Not used: ratings.csv." in made and experiment.data.path == str(tmp_path)
    assert (experiment.data.test, experiment.data.validation) == ("test", 0.1)
    log = read_log(experiment.data)
    parts, _ = divided(log, experiment.data)
    assert np.bincount(parts).tolist() == [179, 20, 101] and (parts[199:] == 2).all()
    first = 2 if ending == "csv" else 1
    assert [log.name(number) for number in (0, 198, 199)] == [
        f"{tmp_path}/train.{ending}:{first}", f"{tmp_path}/train.{ending}:{198 + first}", f"{tmp_path}/test.{ending}:{first}"]


def test_the_datas_own_division(tmp_path):
    path = tmp_path / "split.csv"
    rows = [f"{u},{i},{'test' if at % 5 == 0 else 'train'}\n" for at, (u, i, _, _) in enumerate(EVENTS)]
    path.write_text("user_id,item_id,split\n" + "".join(rows))
    data = drafted(path).data
    parts, said = divided(read_log(data), data)
    assert np.flatnonzero(parts == 2).tolist() == list(range(0, 300, 5)) and np.sum(parts == 1) == 24 and "no validation" in said[0]
    path.write_text("user_id,item_id,fold\n" + "".join(f"{u},{i},{at % 5 + 1}\n" for at, (u, i, _, _) in enumerate(EVENTS)))
    data = drafted(path).data
    parts, _ = divided(read_log(data), data)
    assert (data.validation, data.test) == (0.1, "5") and np.bincount(parts).tolist() == [216, 24, 60]  # all folds but the last are train


def test_times_that_cannot_be_read_and_dates_that_are_unclear(tmp_path):
    path = table(tmp_path, "a.csv", "{u},{i},soon{u}", "user,item,time")
    with pytest.raises(DataError, match="column time is called like a time, but 300 of 300 values"):
        new("recsys", path)
    assert drafted(path, columns={"time": "none"}).task == "recsys.retrieval"
    path.write_text("user,item,date\n" + "".join(f"{u},{i},{i + 1}/{u % 12 + 1}/2020\n" for u, i, _, _ in EVENTS))
    text = new("recsys", path)
    assert "cannot be told from the data" in text and "time_format: month_first" in text
    with pytest.raises(DataError, match=r"set data\.time_format: day_first or month_first"):
        read_log(drafted(path).data.model_copy(update={"time_format": "auto"}))


def test_rows_that_are_lost_are_counted(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("user,item,rating\n" + "".join(f"{u},{i},{r}{',x' if at % 4 == 0 else ''}\n" for at, (u, i, r, _) in enumerate(EVENTS)))
    assert "Passed over: 75 of 300 rows" in new("recsys", path) and drafted(path).data.on_bad_example == "skip"
    path.write_text("label,text\n" + "".join(f"{'ab'[at % 2]},so it goes {at}{', and on' if at % 4 == 0 else ''}\n" for at in range(80)))
    assert "Passed over: 20 of 80 rows" in new("nlp", path)


WORDS = ["one fine day", "some other words here", "rain over the hills", "a cat on a mat"]


@pytest.mark.parametrize(("name", "line", "header"), [
    ("a.txt", "__label__{label} {text}", ""), ("b.txt", "{label}\t{text}", ""), ("c.csv", "{label};{text}", "Kategorie;Nachricht"),
    ("d.csv", "{text},{label}", "texto,etiqueta"), ("e.csv", "{text},{a},{b},{c}", "text,a,b,c"),
    ("f.csv", "{n},{text},{stars}", "Id,review_body,star_rating"),
])
def test_texts_in_many_dialects(tmp_path, name, line, header):
    rows = [{"label": "abc"[n % 3], "text": f"{WORDS[n % 4]} {n}", "n": n, "stars": n % 5 + 1,
             **{one: int(one == "abc"[n % 3]) for one in "abc"}} for n in range(90)]
    path = tmp_path / name
    path.write_text("\n".join([*([header] if header else []), *(line.format(**row) for row in rows)]) + "\n", encoding="utf-8")
    data = drafted(path, "nlp").data
    key = data.label_key
    found = text_rows.read(path, [data.text_key, *(key if isinstance(key, list) else [key])], header=data.header)
    assert found.values[0] == [row["text"] for row in rows]
    if isinstance(key, list):
        assert key == ["a", "b", "c"]
    else:
        assert found.values[1] == [str(row["stars" if "stars" in line else "label"]) for row in rows]
