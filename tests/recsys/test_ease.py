"""EASE in closed form: exactly the baseline where the rank allows, close to it below, and served from any history."""

import numpy as np
import pytest
from scipy import sparse

from recsys.metrics import baselines
from recsys.tasks.closed_form import DAMPING, SHARE, decompose, fit


def interactions(users: int, items: int, seed: int = 0) -> sparse.csr_matrix:
    """[1 + users, 1 + items], of a few tastes."""
    rng = np.random.default_rng(seed)
    taste, theme = rng.normal(size=(users, 4)), rng.normal(size=(items, 4))
    there = taste @ theme.T + rng.normal(size=(users, items)) + rng.normal(size=items) > 2.5
    return sparse.csr_matrix(np.pad(there, [[1, 0], [1, 0]]).astype(np.float32))


def scores(spectrum, l2: float, rows: sparse.csr_matrix) -> np.ndarray:
    history, items = spectrum.sides(l2)
    return (rows @ history) @ items.T


@pytest.mark.parametrize(("users", "items"), [(60, 150), (150, 60)])
def test_at_full_rank_it_is_ease(users, items):
    """Where users are fewer than items, and the other way round; of candidates that are not in the history."""
    train = interactions(users, items)
    ours = scores(decompose(train, min(train.shape), 0.0), 20.0, train)
    theirs = baselines.ease(train, 20.0)(train)
    new = train.toarray()[:, 1:] == 0
    np.testing.assert_allclose(ours[:, 1:][new], np.asarray(theirs)[:, 1:][new], atol=1e-4)


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
    monkeypatch.setattr("recsys.tasks.closed_form.EXACT", 10)
    projected = decompose(train, 20, 0.25)
    np.testing.assert_allclose(projected.values[:8], exact.values[:8], rtol=0.02)
    lists = [np.argsort(-scores(one, SHARE * one.leading, train)[1:], axis=1)[:, :10] for one in (exact, projected)]
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(*lists)]) > 0.85


def test_l2_and_damping_are_what_validation_likes_best():
    whole = interactions(200, 80)
    rng = np.random.default_rng(1)
    rows, columns = whole.nonzero()
    out = rng.random(len(rows)) < 0.2
    train = sparse.csr_matrix((np.ones((~out).sum(), np.float32), (rows[~out], columns[~out])), shape=whole.shape)
    allowed = np.arange(81) > 0
    who, held = rows[out], columns[out]
    counts = np.maximum(np.bincount(who, minlength=201), 1)
    validation = {"rows": train, "seen": train, "held_users": who, "held_items": held, "held": counts}
    how = {"k": 10, "allowed": allowed, "seed": 0}
    spectrum, l2 = fit(train, 80, l2=None, damping=None, validation=validation, **how)

    def value(spectrum, l2) -> float:
        return baselines.ndcg(lambda part: scores(spectrum, l2, part), validation, 10, allowed)

    best = value(spectrum, l2)
    assert all(best >= value(*fit(train, 80, l2=l2, damping=d, validation=validation, **how)) for l2 in (5.0, 50.0) for d in (0.0, 0.25))
    alone, fair = fit(train, 80, l2=None, damping=None, validation=None, **how)
    assert alone.damping == DAMPING and fair == pytest.approx(SHARE * alone.leading)
    set_, given = fit(train, 80, l2=7.0, damping=0.5, validation=validation, **how)
    assert (set_.damping, given) == (0.5, 7.0)


def test_a_history_answers_as_the_user_who_has_it(tmp_path):
    """Whatever its order and repetitions; features and steps are not for it."""
    import tensorflow as tf

    from pipelines.base.errors import ConfigError
    from pipelines.config.load import from_text
    from recsys.tasks.retrieval import RetrievalTask

    text = "task: recsys.retrieval\ndata: {source: synthetic, protocol: random, test: 0.1}\nmodel: {name: ease, rank: 64}\n"
    task = RetrievalTask(from_text(text, file="a.yaml").experiment)
    splits = task.splits()
    task.facts = splits.facts
    model = task.model()
    assert not model.trainable_weights
    task.initialise(model, iter(()))
    user = int(splits.test.people.users[0])
    items = model.store.all_items(tf.constant([user])).numpy()[0]
    shuffled = np.random.default_rng(0).permutation(np.concatenate([items, items[:3], [0, 0]])).astype(np.int32)

    def request(user: int, history: np.ndarray) -> dict:
        return {"user": tf.constant([user]), "history": tf.constant(history[None]), "allow": tf.zeros([1, 1], tf.int32),
                "similar": tf.zeros([1], tf.int32), "exclude_seen": tf.constant([True])}

    known, stranger = model(request(user, np.zeros(1, np.int32))), model(request(0, shuffled))
    np.testing.assert_array_equal(known["items"], stranger["items"])
    np.testing.assert_allclose(known["scores"], stranger["scores"], atol=1e-5)
    assert not set(items) & set(known["items"].numpy()[0].tolist()) and not bool(stranger["fallback"][0])
    assert bool(model(request(0, np.zeros(1, np.int32)))["fallback"][0])
    with pytest.raises(ConfigError, match=r"data.categories.*ease knows a user by the ids"):
        from_text(text.replace("synthetic,", "synthetic, categories: [theme],"), file="a.yaml")
