"""The race of `quartet new`: which of several ways to learn is proposed, by folds of train alone."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from nlp import new
from pipelines.base.errors import ConfigError, DataError
from pipelines.commands import main
from pipelines.config.draft import Way, look
from pipelines.config.load import from_text, load
from pipelines.outputs.labels import Labels
from pipelines.tuning import race_trial
from pipelines.tuning.proposing import propose
from pipelines.tuning.race import Entrant, OutOfTime, Score, difference, race, sizes
from tests.speech.synthetic_recordings import class_folders
from tests.vision.synthetic_images import folder as images

BODY = "task: nlp.classification\ndata: {source: tfds, name: imdb_reviews}\nmodel: {name: bag}\ntokens: {name: words}\n"


class Raced:
    """Ways whose accuracy and time are known, and a clock that their trainings move.

    Args:
        ways: name -> (accuracy by examples of train, seconds of a thousand of them).
    """

    def __init__(self, ways, held=400):
        self.ways, self.held, self.now, self.tried = ways, held, 0.0, []
        self.entrants = [Entrant(name, from_text(BODY + f"train: {{seed: {place}}}\n").experiment) for place, name in enumerate(ways)]

    def attempt(self, experiment, judged, seconds):
        name = self.entrants[experiment.train.seed].name
        size = experiment.data.limit or self.size
        right, seconds = self.ways[name]
        self.tried.append((name, size, experiment.data.fold[0]))
        self.now += seconds * size / 1000
        if isinstance(right, Exception):
            raise right
        share = right[size] if isinstance(right, dict) else right
        drawn = np.random.default_rng(experiment.data.fold[0]).random(self.held)
        return Score("accuracy", False, (drawn < share).astype(float), tuple(map(str, range(self.held))))

    def run(self, size, minutes=10.0, parts=True, **options):
        self.size = size
        return race(self.entrants, self.attempt, parts=sizes(size, parts), folds=5, seconds=60 * minutes, clock=lambda: self.now, **options)


def winner(outcome):
    return outcome.entrants[outcome.winner].name


def test_parts_of_train_grow_to_all_of_it():
    assert sizes(10_000) == [625, 2500, 10_000] and sizes(1500) == [1500] and sizes(10_000, parts=False) == [10_000]


def test_the_better_way_wins_and_the_cheaper_one_where_they_are_alike():
    assert winner(Raced({"cheap": (0.8, 1.0), "dear": (0.9, 5.0)}).run(1000)) == "dear"
    assert winner(Raced({"cheap": (0.9, 1.0), "dear": (0.9, 5.0)}).run(1000)) == "cheap"


def test_what_is_clearly_worse_is_not_tried_on_further_folds():
    raced = Raced({"cheap": (0.5, 1.0), "good": (0.9, 1.0), "like it": (0.89, 1.0)})
    assert winner(raced.run(1000)) != "cheap"
    assert [fold for name, _, fold in raced.tried if name == "cheap"] == [1]


def test_what_grows_with_the_examples_is_drawn_out_to_all_of_them():
    grows = {625: 0.5, 2500: 0.7, 10_000: 0.9}
    raced = Raced({"cheap": (0.75, 1.0), "grows": (grows, 40.0)})
    outcome = raced.run(10_000, minutes=3.0)
    assert ("grows", 10_000, 1) not in raced.tried  # it would take more than the time left
    assert winner(outcome) == "grows" and "on 2,500 of 10,000 examples" in "\n".join(outcome.table())


def test_the_usual_way_stands_where_too_little_of_it_was_seen():
    ways = {"cheap": (0.75, 1.0), "usual": (0.5, 100.0)}
    outcome = Raced(ways).run(10_000, minutes=3.0, rule=1)
    assert winner(outcome) == "usual" and "there was no time" in outcome.notes[0] and not outcome.tuned
    raced = Raced(ways)
    raced.entrants[1].tuned = "trained, too"
    outcome = raced.run(10_000, minutes=2.0, rule=1)
    assert winner(outcome) == "usual" and outcome.tuned and "Proposed is trained, too" in outcome.notes[0]
    raced = Raced({"frozen": (0.75, 1.0), **ways})
    raced.entrants[0].tuned = "trained, too"
    assert winner(raced.run(10_000, minutes=3.0, rule=2)) == "usual"  # what was not tried itself does not stand for it
    outcome = Raced({**ways, "cheap": (0.99, 1.0)}).run(10_000, minutes=3.0, rule=1)
    assert winner(outcome) == "cheap"  # all but right already
    outcome = Raced(ways).run(10_000, minutes=3.0)
    assert winner(outcome) == "cheap"
    outcome = Raced({**ways, "usual": (0.5, 4000.0)}).run(10_000, minutes=1.0, rule=1)  # hours, for a minute's race
    assert winner(outcome) == "cheap" and "could not be tried" in outcome.notes[0]


def test_a_training_that_was_cut_short_can_win_and_loses_nothing_for_good():
    for share, expected in ((0.9, "cut"), (0.6, "cut"), (0.5, "cheap")):
        raced = Raced({"cheap": (0.75, 1.0), "cut": (share, 100.0)})
        plain = raced.attempt

        def attempt(experiment, judged, seconds, plain=plain):
            score = plain(experiment, judged, seconds)
            return replace(score, done=0.25) if experiment.train.seed else score
        raced.attempt = attempt
        outcome = raced.run(1000, rule=1 if share > 0.5 else None)
        assert winner(outcome) == expected and "after 25 % of its steps" in "\n".join(outcome.table())


def test_an_encoder_is_trained_too_where_that_usually_makes_it_the_best():
    raced = Raced({"cheap": (0.86, 1.0), "frozen": (0.84, 2.0)})
    raced.entrants[1].tuned = "all of it trained"
    outcome = raced.run(1000)
    assert winner(outcome) == "frozen" and outcome.tuned and "all of it trained" in outcome.notes[0]
    raced = Raced({"cheap": (0.95, 1.0), "frozen": (0.84, 2.0)})
    raced.entrants[1].tuned = "all of it trained"
    outcome = raced.run(1000)
    assert winner(outcome) == "cheap" and not outcome.tuned


def test_what_fails_is_out_and_what_is_judged_on_other_examples():
    outcome = Raced({"broken": (DataError("no such column"), 1.0), "cheap": (0.8, 1.0)}).run(1000)
    assert winner(outcome) == "cheap" and "no such column" in outcome.entrants[0].out
    raced = Raced({"cheap": (0.8, 1.0), "other": (0.9, 1.0)})
    plain = raced.attempt

    def attempt(experiment, judged, seconds):
        score = plain(experiment, judged, seconds)
        return score if not experiment.train.seed else Score("accuracy", False, score.values, score.names[::-1])
    raced.attempt = attempt
    outcome = raced.run(1000)
    assert winner(outcome) == "cheap" and "other examples" in outcome.entrants[1].out


def test_interrupted_or_out_of_time_what_is_known_so_far_chooses():
    for end in (KeyboardInterrupt, OutOfTime):
        raced = Raced({"cheap": (0.8, 1.0), "dear": (0.9, 1.0)})
        plain = raced.attempt

        def attempt(experiment, judged, seconds, plain=plain, raced=raced, end=end):
            if len(raced.tried) == 3:
                raise end
            return plain(experiment, judged, seconds)
        raced.attempt = attempt
        assert winner(raced.run(1000)) == "dear"
    assert Raced({"cheap": (0.8, 1.0), "dear": (0.9, 1.0)}).run(1000, minutes=0.0).winner is None


def test_a_difference_has_the_error_of_groups_where_there_are_any():
    values = np.repeat([1.0, 0.0, 1.0, 1.0], 25)
    scores = [Score("accuracy", False, given, ("",), groups) for groups in (None, np.repeat(list("abcd"), 25))
              for given in (values, np.zeros(100))]
    plain, by_group = (difference(*(Entrant("", None, scores={(1, 1): one}) for one in pair), 1) for pair in (scores[:2], scores[2:]))
    assert plain.gain == by_group.gain == 0.75 and by_group.error == pytest.approx(5 * plain.error)
    lower = [Score("wer", True, one.values, one.names) for one in scores[:2]]
    assert difference(*(Entrant("", None, scores={(1, 1): one}) for one in lower), 1).gain == -0.75


def linear(limit):
    return ("task: nlp.classification\ndata: {source: table, path: texts.csv, text_key: text, label_key: label, validation: 0, test: 0.2, "
            f"limit: {limit}}}\nmodel: {{name: linear}}\n")


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = {label: ["".join(rng.choice(list(letters), 5)) for _ in range(30)] for label, letters in (("red", "abcde"), ("blue", "fghij"))}
    rows = [(" ".join(rng.choice(words[label], 6)), label) for label in ("red", "blue") * 60]
    (tmp_path / "texts.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return tmp_path


def test_labels_are_judged_with_the_thresholds_that_validation_chooses(texts, monkeypatch):
    many = linear(120).replace("validation: 0,", "validation: 0.2, labels: many, fold: [1, 2],")
    monkeypatch.setattr(Labels, "choose", lambda *_: {"thresholds": [2.0, 2.0]})  # no label is ever given
    score = race_trial.attempt(from_text(many).experiment, 50, 60.0)
    assert (score.metric, score.lower) == ("example_f1", False) and not score.values.any()


def test_new_tries_ways_and_says_so_in_the_draft(texts, monkeypatch):
    ways = new._ways
    fails = Way("one that fails", linear(2).replace("label_key: l", "label_key: L"))
    monkeypatch.setattr(new, "_ways", lambda *seen: [*ways(*seen)[:1], fails])
    said = []
    proposal = propose(look("nlp", "texts.csv", file="mine.yaml"), 2, said.append)
    assert proposal.outcome.winner == 0 and len(said) >= 2
    header = proposal.text.partition("task:")[0]
    assert "# Tried on folds of train alone" in header and "#   >  linear machines" in header and "cannot be tried" in header
    experiment = from_text(proposal.text).experiment
    assert experiment.model.name == "linear" and experiment.data.limit is None


def test_the_ways_of_each_domain_are_experiments_and_the_drafts_own_is_among_them(tmp_path):
    recordings = class_folders(tmp_path / "sounds", {"go": 6, "stop": 6})
    events = tmp_path / "events.csv"
    events.write_text("user,item,rating,time\n" + "".join(f"{number % 7},{number % 5},{number % 3},{number}\n" for number in range(60)))
    for domain, data, task, names in (
            ("vision", images(tmp_path / "images", {"a": 8, "b": 8}), None, ("kernel", "fast")),
            ("speech", recordings, None, ("kernel", "ds_cnn")),
            ("recsys", events, "ranking", ("factors", "dcn")), ("recsys", events, "lists", ("item_knn", "ease", "hstu"))):
        draft = look(domain, data, task=task).draft
        ways = draft.ways()
        assert tuple(from_text(way.body).experiment.model.name for way in ways) == names
        assert draft.body in [way.body for way in ways]


def test_test_examples_are_not_read_by_a_race(texts):
    experiment = from_text(look("nlp", "texts.csv").draft.body).experiment
    size, folds = race_trial.fold_sizes(experiment)
    assert (size, folds) == (77, 5)  # of 120 a fifth is test, and a fifth of the others the fold
    whole = race_trial.task_class(experiment.task)(experiment).splits()
    test = {whole.test.name(number) for number in range(len(whole.test))}
    entrant = Entrant("", experiment)
    for fold in (1, 5):
        splits = race_trial.task_class(experiment.task)(entrant.at(None, (fold, 5))).splits()
        assert not test & {part.name(number) for part in (splits.train, splits.test) for number in range(len(part))}


def test_race_compares_experiments_and_writes_the_winner(texts, monkeypatch):
    def attempt(experiment, judged, seconds, say):
        return Score("accuracy", False, np.full(50, float(experiment.data.limit > 2)), ("",) * 50)

    monkeypatch.setattr(race_trial, "attempt", attempt)
    for name, limit in (("bad", 2), ("good", 90)):
        (texts / f"{name}.yaml").write_text(linear(limit))
    done = CliRunner().invoke(main.app, ["race", "bad.yaml", "good.yaml", "--minutes", "3", "-o", "best.yaml"])
    assert done.exit_code == 0 and ">  good.yaml" in done.stdout, done.output
    assert load("best.yaml").experiment == load("good.yaml").experiment
    refused = CliRunner().invoke(main.app, ["race", "bad.yaml", "--minutes", "0"])
    assert refused.exit_code == ConfigError.exit_status and "--minutes" in refused.output
