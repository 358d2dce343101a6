"""What columns are for, by names in many spellings and by values; and names of files that hold classes and speakers."""

import numpy as np
import pyarrow as pa
import pytest

from pipelines.base.errors import DataError
from pipelines.config.draft import new
from pipelines.data.columns import LOOKED_AT, by_name, facts_of, plain, split_values
from pipelines.data.dialect import find_dialect, split_apostrophes
from pipelines.data.names import groups_in_names, suspected_groups, suspected_labels
from pipelines.data.tables import read_table
from pipelines.data.times import read_times

RATED = ("user", "item", "rating", "time")


@pytest.mark.parametrize(("names", "roles", "found"), [
    (["Customer Name", "Product Title", "stars", "Datum"], RATED, ["Customer Name", "Product Title", "stars", "Datum"]),
    (["user_id", "joke_id", "rating"], RATED, ["user_id", "joke_id", "rating"]),
    (["userId", "movieId", "rating", "timestamp"], RATED, ["userId", "movieId", "rating", "timestamp"]),
    (["reviewerID", "asin", "overall", "unixReviewTime"], RATED, ["reviewerID", "asin", "overall", "unixReviewTime"]),
    (["utilisateur", "produit", "note", "horodatage"], RATED, ["utilisateur", "produit", "note", "horodatage"]),
    (["Kundennummer", "Artikel-Nr.", "Bewertung", "Datum"], RATED, ["Kundennummer", "Artikel-Nr.", "Bewertung", "Datum"]),
    (["usuario", "película", "puntuación", "fecha"], RATED, ["usuario", "película", "puntuación", "fecha"]),
    (["utente", "prodotto", "voto", "orario"], RATED, ["utente", "prodotto", "voto", "orario"]),
    (["utilizador", "produto", "avaliação", "data"], RATED, ["utilizador", "produto", "avaliação", "data"]),
    (["etiqueta", "texto"], ("label", "text"), ["etiqueta", "texto"]), (["Label", "SMS"], ("label", "text"), ["Label", "SMS"]),
    (["sentiment", "review_body"], ("label", "text"), ["sentiment", "review_body"]),
    (["étiquette", "commentaire"], ("label", "text"), ["étiquette", "commentaire"]),
    (["Kategorie", "Nachricht"], ("label", "text"), ["Kategorie", "Nachricht"]),
    (["ID", "Score", "Text"], ("rating", "text"), ["Score", "Text"]),
])
def test_names_in_many_spellings(names, roles, found):
    made = by_name(names, roles)
    assert [made.get(role) for role in roles][:len(found)] == found


def test_plain_names():
    assert [plain(name) for name in ("userId", "User ID", "user-id", "Straße", "reviewerID", "Prénom")] == [
        "user_id", "user_id", "user_id", "strasse", "reviewer_id", "prenom"]


def test_values_say_what_names_do_not():
    assert facts_of([5, 3, 4, 1] * 10).looks_rated and facts_of([-7.5, 2.0, 10.0] * 10).looks_rated
    assert not facts_of(list(range(40))).looks_rated
    assert facts_of([881250949, 891717742, 878887116]).looks_timed and facts_of([1758100000000, 1758100001000, 1758100009000]).looks_timed
    assert not facts_of([1, 2, 3]).looks_timed and facts_of(["2,5", "3", "4,5"]).kind == "number"


def test_what_is_looked_at_is_bounded(tmp_path):
    assert facts_of(["word " * 100_000]).words == LOOKED_AT / 5
    (tmp_path / "wide.csv").write_text(",".join(f"c{number}" for number in range(6000)) + "\n" + "1," * 5999 + "1\n")
    for domain in ("vision", "speech", "nlp", "recsys"):
        with pytest.raises(DataError, match="has 6,000 columns or more, of which no more than 5,000 are looked at"):
            new(domain, tmp_path / "wide.csv")


def test_a_column_that_divides():
    assert split_values("x", ["train", "val", "test"]) == {"test": "test", "train": "train", "validation": "val"}
    assert split_values("fold", [1, 2, 3, 4, 5] * 4) == {"train": None, "test": "5"}, "the other folds are learned from"
    assert split_values("label", [1, 2, 3]) is None and split_values("split", ["a", "b"]) is None


@pytest.mark.parametrize(("values", "how", "first"), [
    (["2026-09-17", "2026-09-18"], "iso", 1789603200), (["17.09.2026", "01.02.2026 14:05"], "day_first", 1789603200),
    (["9/17/2026", "1/2/2026 1:05 PM"], "month_first", 1789603200), (["17/9/2026", "1/2/2026"], "day_first", 1789603200),
    (["881250949"], "s", 881250949), ([1758100000000], "ms", 1758100000), ([1758100000000000], "us", 1758100000), ([3, 4], "s", 3),
    (["09 17, 2026", "01 2, 2010"], "month_first", 1789603200), (["17. September 2026"], "day_first", 1789603200),
    (["Sep 17, 2026"], "day_first", 1789603200), (["17 de septiembre de 2026"], "day_first", 1789603200),
    (["2026-09-17T00:00:00Z"], "iso", 1789603200), ([20260917, 20260918], "compact", 1789603200),
    (["20260917", "20260918"], "compact", 1789603200), ([20260917130500], "compact", 1789650300), (["202609171305"], "compact", 1789650300),
])
def test_times_in_many_notations(values, how, first):
    read = read_times(pa.chunked_array([values]))
    assert (read.how, read.seconds[0], read.ambiguous, read.wrong) == (how, first, False, {})


def test_units_that_are_mixed_are_read_by_size_unless_one_is_given():
    values = pa.chunked_array([[1_600_000_000, 1_600_000_000_000, 1_600_000_001, 7]])
    read = read_times(values)
    assert read.mixed and read.how == "s" and read.seconds.tolist() == [1.6e9, 1.6e9, 1_600_000_001, 7]
    assert read_times(values, "s").wrong == {1: 1_600_000_000_000} and not read_times(values, "s").mixed
    assert read_times(pa.chunked_array([[20260917, 20260931, 20261317]]), "compact").wrong == {1: 20260931, 2: 20261317}
    assert read_times(pa.chunked_array([[20260917, 5, 17]])).how == "s"  # most are no dates


def test_day_and_month_that_cannot_be_told_apart():
    read = read_times(pa.chunked_array([["1/2/2026", "3/4/2026"]]))
    assert read.ambiguous and read_times(pa.chunked_array([["1/2/2026"]]), "day_first").seconds[0] == 1769904000
    assert not read_times(pa.chunked_array([["01.02.2026"]])).ambiguous
    assert read_times(pa.chunked_array([["never", None]])).wrong == {0: "never", 1: None}


@pytest.mark.parametrize(("name", "content", "delimiter", "header"), [
    ("u.data", "196\t242\t3\t881250949\n186\t302\t3\t891717742\n", "\t", False),
    ("ratings.dat", "1::1193::5::978300760\n1::661::3::978302109\n", "::", False),
    ("a.csv", "user;item;rating\nu1;i1;2,5\nu2;i2;3,0\n", ";", True), ("a.txt", "ham\tgo home\nspam\twin now\n", "\t", False),
    ("b.csv", "label,text\nham,go home\n", ",", True), ("c.csv", "a.png,cat\nb.png,dog\nc.png,cat\n", ",", False),
    ("d.psv", "file|label\na.png|cat\n", "|", True),
])
def test_dialects(tmp_path, name, content, delimiter, header):
    (tmp_path / name).write_text(content)
    how = find_dialect(tmp_path / name)
    assert (how.delimiter, how.header) == (delimiter, header)
    names = None if header else [f"c{place}" for place in range(how.width)]
    table = read_table(tmp_path / name, names=names)
    assert table.num_rows == content.count("\n") - header and table.num_columns == how.width


def test_the_form_of_a_table_is_that_of_most_rows_of_all_its_files(tmp_path):
    rows = [f"good;'it''s text {number}, isn't it'\n" for number in range(40)]
    (tmp_path / "train.csv").write_text("".join(rows))
    (tmp_path / "test.csv").write_text("bad;'one; two'; three\n" + "".join(rows[:3]))
    for name in ("train.csv", "test.csv"):
        how = find_dialect(tmp_path / name, beside=[tmp_path / "train.csv", tmp_path / "test.csv"])
        assert (how.delimiter, how.quote, how.width, how.header) == (";", "'", 2, False)
    assert split_apostrophes(r"good;'it''s; isn\'t it';'';x'y", ";") == ["good", "it's; isn't it", "", "x'y"]
    (tmp_path / "plain.csv").write_text("'tis so,1\nno 'twas,2\n")
    assert find_dialect(tmp_path / "plain.csv").quote == '"'  # apostrophes alone are no quotation marks
    assert find_dialect(tmp_path / "plain.csv", quote="none").quote == "none"


def grid(form, speakers, takes, digits=range(5)):
    return [(form.format(d=digit, s=speaker, t=take), str(digit)) for digit in digits for speaker in speakers for take in takes]


@pytest.mark.parametrize(("form", "speakers"), [
    ("{d}/{d}_{s}_{t}.wav", ["theo", "jackson", "lucas"]), ("{d}_{s}_{t}.wav", ["01", "02", "03", "04"]),
    ("{d}/{s}-{t}.jpg", ["anna", "ben"]), ("{d}/p{s}_{t}.png", ["001", "002", "003"]),
])
def test_speakers_in_names(form, speakers):
    names, labels = zip(*grid(form, speakers, range(6)))
    found = suspected_groups(names, labels)
    assert found is not None and sorted(value.lstrip("p") for value in found.values) == sorted(speakers)
    assert set(groups_in_names(names, found.pattern)) == set(found.values)


@pytest.mark.parametrize("form", ["{d}/{t:04}.png", "{d}/{d}_{t}.png", "{d}/img{t}.jpg", "{d}/{d}_{t}_{t}.jpg"])
def test_numbers_that_count_files_are_no_speakers(form):
    names, labels = zip(*grid(form, [0], range(40)))
    assert suspected_groups(names, labels) is None


@pytest.mark.parametrize(("form", "classes"), [("{d}_01_{t}.wav", "0123"), ("{d}.{t}.jpg", ["cat", "dog"]), ("{d}{t}.png", ["cat", "dog"]),
                                               ("img_{t}_{d}.png", ["cat", "dog"])])
def test_classes_in_names(form, classes):
    names = [form.format(d=one, t=take) for one in classes for take in range(10)]
    found = suspected_labels(names)
    assert found is not None and sorted(found.values) == sorted(classes)


def test_names_without_classes():
    assert suspected_labels([f"IMG_{number}.jpg" for number in range(50)]) is None


@pytest.mark.parametrize(("values", "seconds"), [
    (pa.array([1_600_000_000_000, None, 1_600_000_000_500]), [1.6e9, np.nan, 1_600_000_000.5]),
    (pa.array([1.6e9, np.inf, np.nan, 1_600_000_001.25]), [1.6e9, np.nan, np.nan, 1_600_000_001.25]),
    (pa.array([1_600_000_000 * 10**9 + 1], pa.int64()), [1.6e9]), (pa.array([3, 5, 4], pa.int8()), [3.0, 5.0, 4.0]),
    (pa.array([], pa.int64()), []), (pa.array([None, None], pa.float32()), [np.nan, np.nan]),
])
def test_times_that_are_numbers(values, seconds):
    read = read_times(pa.chunked_array([values[:1], values[1:]]))
    np.testing.assert_array_equal(read.seconds, seconds)
    assert list(read.wrong) == np.flatnonzero(np.isnan(seconds)).tolist()
