"""Models in closed form: the solutions they claim to be, chosen by validation, answered in graph as by the baseline, from any history."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import sparse

from pipelines.base.errors import ConfigError
from pipelines.config.load import from_text
from recsys.closed_form import biases, ease, factors, item_knn
from recsys.closed_form.ease import DAMPING, SHARE, decompose
from recsys.closed_form.histories import DECAY, ages, had, weighed
from recsys.data.catalogue import Histories
from recsys.metrics import baselines
from recsys.metrics.users import Basis
from recsys.settings import Ease, Factors, ItemKnn, RankedEvaluate
from recsys.tasks.ranking import RankingTask
from recsys.tasks.retrieval import RetrievalTask


def interactions(users: int, items: int, seed: int = 0) -> sparse.csr_matrix:
    """[1 + users, 1 + items], of a few tastes."""
    rng = np.random.default_rng(seed)
    taste, theme = rng.normal(size=(users, 4)), rng.normal(size=(items, 4))
    there = taste @ theme.T + rng.normal(size=(users, items)) + rng.normal(size=items) > 2.5
    return sparse.csr_matrix(np.pad(there, [[1, 0], [1, 0]]).astype(np.float32))


def histories(*of_users: list[int]) -> Histories:
    return Histories(np.cumsum([0, 0, *map(len, of_users)]), np.concatenate(of_users).astype(np.int32))


def by_user(matrix: sparse.csr_matrix) -> Histories:
    return Histories(matrix.indptr.astype(np.int64), matrix.indices)


def scores(spectrum, l2: float, rows: sparse.csr_matrix) -> np.ndarray:
    history, items = spectrum.sides(l2)
    return (rows @ history) @ items.T


def test_ages_count_events_from_the_latest_and_an_item_once():
    found = ages(np.array([0, 0, 0, 0, 2, 2]), np.array([3, 1, 0, 3, 2, -1]), 3, 3)
    assert found.toarray().tolist() == [[0, 2, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]
    assert weighed(found, 1.0).toarray()[0].tolist() == [0, 0.5, 0, 1] and weighed(found, 0.0).toarray()[0].tolist() == [0, 1, 0, 1]
    assert had(histories([1, 1, 2], [0, 3]), 3).toarray().tolist() == [[0] * 4, [0, 1, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize(("users", "items"), [(60, 150), (150, 60)])
def test_at_full_rank_ease_is_the_ridge_regression_of_each_item_on_all_others(users, items):
    """Where users are fewer than items, and the other way round; of candidates that are not in the history."""
    train = interactions(users, items)
    x, ours = train.toarray().astype(np.float64), scores(decompose(train, min(train.shape), 0.0), 20.0, train)
    for item in range(1, items + 1):
        others = np.delete(np.arange(items + 1), item)
        weights = np.linalg.solve(x[:, others].T @ x[:, others] + 20.0 * np.eye(items), x[:, others].T @ x[:, item])
        new = x[:, item] == 0
        np.testing.assert_allclose(ours[new, item], (x[:, others] @ weights)[new], atol=1e-4)


def test_damped_it_solves_the_weighted_problem():
    """Columns of B minimise |W (x_j - X B_j)|^2 + l2 |I^d B_j|^2 with B_jj = 0, W = U^-d."""
    train, l2, d = interactions(40, 12), 0.8, 0.25
    x = train.toarray()[1:, 1:].astype(np.float64)
    users, items = np.maximum(x.sum(1), 1.0), np.maximum(x.sum(0), 1.0)
    rows = np.eye(12)
    ours = scores(decompose(train, 13, d), l2, sparse.csr_matrix(np.pad(rows, [[0, 0], [1, 0]])))[:, 1:]
    for item in range(12):
        others = np.delete(np.arange(12), item)
        weighted = x[:, others] * users[:, None] ** -d
        gram = weighted.T @ weighted + l2 * np.diag(items[others] ** (2 * d))
        expected = np.linalg.solve(gram, weighted.T @ (x[:, item] * users**-d))
        np.testing.assert_allclose(ours[others, item], expected, atol=1e-4)


def test_many_items_are_projected(monkeypatch):
    train = interactions(300, 200)
    exact = decompose(train, 20, 0.25)
    monkeypatch.setattr(ease, "EXACT", 10)
    projected = decompose(train, 20, 0.25)
    np.testing.assert_allclose(projected.values[:8], exact.values[:8], rtol=0.02)
    lists = [np.argsort(-scores(one, SHARE * one.leading, train)[1:], axis=1)[:, :10] for one in (exact, projected)]
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(*lists)]) > 0.85


def test_without_order_item_knn_is_the_shrunk_cosine_of_the_nearest():
    x = interactions(60, 25)
    dense = x.toarray()
    counts = dense.sum(0)
    alike = dense.T @ dense / (np.sqrt(np.outer(np.maximum(counts, 1), np.maximum(counts, 1))) + 3.0)
    np.fill_diagonal(alike, 0)
    every = item_knn.similarities(by_user(x), 25, 100, shrink=3.0, ordered=False)
    np.testing.assert_allclose(every.toarray(), alike, atol=1e-6)
    few = item_knn.similarities(by_user(x), 25, 4, shrink=3.0, ordered=False)
    assert np.diff(few.indptr).max() == 4
    assert all(few[row].data.min(initial=np.inf) >= np.sort(alike[row])[-4] - 1e-6 for row in range(1, 26))


def test_in_order_an_item_counts_for_those_that_follow():
    found = item_knn.similarities(histories([1, 2, 3], [1, 2]), 3, 10, shrink=0.0, ordered=True).toarray()
    back = item_knn.BACK
    # how often and how closely, over the events of both
    counts = np.array([1, 2, 2, 1])
    together = np.zeros((4, 4))
    together[1, 2], together[2, 3], together[1, 3] = 2, 1, 0.5
    together += back * together.T
    np.testing.assert_allclose(found, together / np.outer(counts**item_knn.FROM, counts**(1 - item_knn.FROM)), rtol=1e-5)


@pytest.mark.parametrize("settings", [Ease(name="ease", rank=80), ItemKnn(name="item_knn", neighbours=20)])
def test_what_validation_likes_best_is_chosen(settings):
    whole = interactions(200, 80)
    rows, columns = whole.nonzero()
    out = np.random.default_rng(1).random(len(rows)) < 0.2
    train = sparse.csr_matrix((np.ones((~out).sum(), np.float32), (rows[~out], columns[~out])), shape=whole.shape)
    allowed = np.arange(81) > 0
    who, held = rows[out], columns[out]
    age = ages(*train.nonzero(), 201, 80)
    users = {"rows": age, "seen": train, "held_users": who, "held_items": held, "held": np.maximum(np.bincount(who, minlength=201), 1)}

    def value(one) -> float:
        return baselines.ndcg(one, users, 10, allowed)

    fit = ease.fit if isinstance(settings, Ease) else item_knn.fit
    fitted = fit(by_user(train), 80, settings, value, timely=True)
    others = [{"l2": 5.0, "damping": 0.25}, {"l2": 50.0}] if isinstance(settings, Ease) else [{"ordered": True}, {"decay": 1.0}]
    for other in others:
        assert value(fitted) >= value(fit(by_user(train), 80, settings.model_copy(update=other), None, timely=False))
    again = fit(by_user(train), 80, fitted.settings, None, timely=True)  # as it is fitted once more
    assert again.settings == fitted.settings and value(again) == value(fitted)
    timely, untimely = (fit(by_user(train), 80, settings, None, timely=one).settings for one in (True, False))
    assert (timely.decay, untimely.decay) == (DECAY, 0.0)
    if isinstance(settings, Ease):
        assert timely.damping == DAMPING and timely.l2 == pytest.approx(SHARE * decompose(train, 80, DAMPING).leading)
    else:
        assert timely.ordered and not untimely.ordered


def test_baselines_that_would_take_hours_are_left_out(monkeypatch):
    task, _ = fitted_task("ease")
    basis = Basis(task.input.catalogue, [], timely=False)
    monkeypatch.setattr(item_knn, "PAIRS", 1)
    monkeypatch.setattr(ease, "EXACT", 1)
    assert basis.scores("item_knn", RankedEvaluate()) is None and basis.scores("ease", RankedEvaluate(), final=True) is None
    assert "item_knn is left out" in basis.notes[0] and "EASE is left out" in basis.notes[1]


TEXT = "task: recsys.retrieval\ndata: {source: synthetic, protocol: leave_last_out, validation: 0.1}\nmodel: {name: NAME}\n"


def fitted_task(name: str) -> tuple[RetrievalTask, RetrievalTask]:
    """(the task, its model), fitted."""
    task = RetrievalTask(from_text(TEXT.replace("NAME", name), file="a.yaml").experiment)
    task.facts = task.splits().facts
    model = task.model()
    assert not model.trainable_weights
    task.initialise(model, iter(()))
    return task, model


@pytest.mark.parametrize("name", ["ease", "item_knn"])
def test_it_answers_as_the_baseline_from_any_history_and_learns_from_validation_in_the_end(name):
    task, model = fitted_task(name)
    splits = task.splits()
    people, basis = splits.test.people, splits.test.basis
    numbers = np.arange(40)

    def lists(source) -> np.ndarray:
        return model(task.prepare(source.gather(tf.constant(numbers, tf.int64)))[0])["items"].numpy()

    def expected(source, final: bool) -> np.ndarray:
        matrix = source.people.matrix(basis.items, numbers)
        return baselines.top(basis.scores(name, task.experiment.evaluate, final=final), matrix, matrix, 50, basis.allowed)

    same = lists(splits.validation) == expected(splits.validation, final=False)
    assert same[:, :10].mean() > 0.99  # ties are decided by the last bit
    user = int(people.users[0])
    items = model.store.all_items(tf.constant([user])).numpy()[0]
    assert (items > 0).all() and items.tolist() == people.visible[:people.visible_of[1]].tolist()

    def request(user: int, history: np.ndarray, similar: int = 0) -> dict:
        return {"user": tf.constant([user]), "history": tf.constant(history[None]), "allow": tf.zeros([1, 1], tf.int32),
                "similar": tf.constant([similar]), "exclude_seen": tf.constant([True])}

    repeated = np.concatenate([[0], items[:3], [0], items]).astype(np.int32)
    known, stranger = model(request(user, np.zeros(1, np.int32))), model(request(0, repeated))
    np.testing.assert_array_equal(known["items"], stranger["items"])
    np.testing.assert_allclose(known["scores"], stranger["scores"], atol=1e-5)
    assert not set(items) & set(known["items"].numpy()[0].tolist()) and not bool(stranger["fallback"][0])
    assert bool(model(request(0, np.zeros(1, np.int32)))["fallback"][0])
    like = model(request(0, np.zeros(1, np.int32), similar=7))
    assert 7 not in like["items"].numpy()[0] and float(like["scores"][0, 0]) > 0 and not bool(like["fallback"][0])

    before = lists(splits.test)
    task.refit(model)
    after = lists(splits.test)
    assert (before != after).any() and (after == expected(splits.test, final=True))[:, :10].mean() > 0.99
    assert "learned from this validation split" in task.cannot_judge(splits.validation)
    assert task.cannot_judge(splits.test) is None


def test_features_are_not_for_models_in_closed_form():
    with pytest.raises(ConfigError, match=r"data.categories.*item_knn knows a user by the ids"):
        from_text(TEXT.replace("NAME", "item_knn").replace("synthetic,", "synthetic, categories: [theme],"), file="a.yaml")


def test_factors_are_the_least_squares_of_what_biases_leave_over():
    """Of a matrix of rank 2 they find nearly all, with the penalty that validation likes best; each side solves its regressions."""
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(61, 2)) @ rng.normal(size=(2, 41))
    users, items = (values.ravel() + 1 for values in np.mgrid[:60, :40])
    ratings = whole[users, items] + rng.normal(0, 0.1, len(users))
    out = rng.random(len(users)) < 0.2
    train, held = ((users[part], items[part], ratings[part]) for part in (~out, out))
    fitted = factors.fit(train, 60, 40, Factors(name="factors", rank=4), held)
    errors = [np.sqrt(np.mean((one(*held[:2]) - held[2]) ** 2)) for one in (fitted, biases.fit(*train, 60, 40))]
    assert errors[0] < 0.3 < 0.8 < errors[1]
    assert fitted.settings.l2 == 2.5 and fitted.user[0].tolist() == fitted.item[0].tolist() == [0.0] * 4
    again = factors.fit(train, 60, 40, fitted.settings, None)
    assert np.array_equal(again(*held[:2]), fitted(*held[:2]))
    matrix = sparse.csr_matrix((train[2] - fitted.biases(*train[:2]), train[:2]), shape=(61, 41))
    user, item = factors.factorise(matrix, 4, 3.0, seed=0)
    there = train[0][train[1] == 7]
    regressed = np.linalg.solve(user[there].T @ user[there] + 3.0 * np.eye(4), user[there].T @ matrix[there, 7].toarray()[:, 0])
    np.testing.assert_allclose(item[7], regressed, atol=1e-9)


def test_factors_answer_in_graph_as_they_were_fitted_and_learn_from_validation_in_the_end():
    text = "task: recsys.ranking\ndata: {source: synthetic, validation: 0.1, test: 0.1}\nmodel: {name: factors}\n"
    task = RankingTask(from_text(text, file="a.yaml").experiment)
    splits = task.splits()
    task.facts = splits.facts
    model = task.model()
    task.initialise(model, iter(()))
    asked = {name: splits.test.arrays[name] for name in ("user", "item")}
    before = model({name: tf.constant(value) for name, value in asked.items()}).numpy()
    fitted = task.input.fitted(task.chosen)(**{f"{name}s": asked[name] for name in asked})
    np.testing.assert_allclose(before.clip(0.5, 5.0), fitted, atol=1e-4)
    task.refit(model)
    after = model({name: tf.constant(value) for name, value in asked.items()}).numpy()
    np.testing.assert_allclose(after.clip(0.5, 5.0), task.input.fitted(task.chosen, final=True)(asked["user"], asked["item"]), atol=1e-4)
    true = splits.test.arrays["label"]
    assert np.abs(before - after).max() > 1e-3 and np.mean((after - true) ** 2) < np.var(true)
    assert "learned from this validation split" in task.cannot_judge(splits.validation)
    with pytest.raises(ConfigError, match="factors needs"):
        from_text(text + "loss: {name: click}\n", file="a.yaml")
    with pytest.raises(ConfigError, match="factors knows users and items by their ids"):
        from_text(text.replace("synthetic,", "synthetic, lists: [theme],"), file="a.yaml")


def test_item_knn_with_what_is_popular_of_late_answers_as_it_was_fitted():
    """Its graph and the scores that choose settings agree, a stranger's history and likeness included."""
    text = TEXT.replace("NAME", "item_knn, recency: 1.0, prior: 0.5, half_lives: 16")
    task = RetrievalTask(from_text(text, file="a.yaml").experiment)
    splits = task.splits()
    task.facts, basis = splits.facts, splits.test.basis
    model = task.model()
    task.initialise(model, iter(()))
    assert "recency 1, prior 0.5 at 16 half-lives" in task.facts["fitted"]
    fitted = task.input.fitted(task.experiment.model)
    plain = task.input.fitted(task.experiment.model.model_copy(update={"recency": 0.0, "prior": 0.0}))
    popular = np.asarray(fitted.similar[0].todense())[0]
    late = basis.late[16][0]
    assert np.count_nonzero(popular) == 100 and popular.argmax() == late.argmax() and not plain.similar[0].nnz
    best = np.median(fitted.similar[1:].max(axis=1).toarray())
    assert popular.max() == pytest.approx(0.5 * best, rel=1e-4)
    counts = basis.counts / basis.counts.sum()
    rise = (late / late.sum() + 1 / basis.counts.sum()) / (counts + 1 / basis.counts.sum())
    item, other = (int(place[0]) for place in plain.similar.nonzero())
    assert fitted.similar[item, other] == pytest.approx(plain.similar[item, other] * rise[other], rel=1e-4)

    numbers = np.arange(40)
    matrix = splits.validation.people.matrix(basis.items, numbers)
    expected = baselines.top(fitted, matrix, matrix, 50, basis.allowed)
    found = model(task.prepare(splits.validation.gather(tf.constant(numbers, tf.int64)))[0])["items"].numpy()
    assert (found == expected)[:, :10].mean() > 0.99
    asked = {"user": tf.constant([0]), "history": tf.zeros([1, 1], tf.int32), "allow": tf.zeros([1, 1], tf.int32),
             "similar": tf.constant([7]), "exclude_seen": tf.constant([True])}
    like = model(asked)
    assert float(like["scores"][0, 0]) == pytest.approx(float(fitted.similar[7].max()), rel=1e-5)  # nothing is added to a likeness


def test_late_needs_times(tmp_path):
    (tmp_path / "events.csv").write_text("user,item\n1,a\n")
    text = TEXT.replace("NAME", "item_knn, prior: 0.5").replace("source: synthetic", f"source: table, path: {tmp_path / 'events.csv'}")
    with pytest.raises(ConfigError, match=r"model.prior: what is popular of late needs the column of the time \(data.time_key\)"):
        from_text(text, file="a.yaml")
