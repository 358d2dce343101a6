"""The best items of the whole catalogue: the same in chunks as at once, with filters, ties, and the loss."""

import numpy as np
import pytest
import tensorflow as tf

from recsys.metrics.users import packed, unpacked
from recsys.models.lists import products
from recsys.models.lists import recommend as best_of
from recsys.models.sampling import PLACES, Sampler, stops
from recsys.models.store import NO_ID, finder, ids_of

pytestmark = pytest.mark.slow

BATCH, ITEMS, WIDTH, K = 7, 53, 8, 6


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    return {
        "queries": tf.constant(rng.normal(size=(BATCH, WIDTH)), tf.float32),
        "items": tf.constant(rng.normal(size=(ITEMS + 1, WIDTH)), tf.float32),
        "bias": tf.constant(rng.normal(size=ITEMS + 1), tf.float32),
        "known": tf.constant([True] * (BATCH - 1) + [False]),
        "popularity": tf.constant(rng.permutation(ITEMS + 1), tf.float32),
        "seen": tf.constant(rng.integers(0, ITEMS + 1, (BATCH, 9)), tf.int32),
        "k": K,
    }


def recommend(*, queries, items, bias, similar=None, **options):
    return best_of(products(queries, items, bias, similar), similar=similar, **options)


def expected(case, allow=None):
    scores = case["queries"].numpy() @ case["items"].numpy().T + case["bias"].numpy()
    scores = np.where(case["known"].numpy()[:, None], scores, case["popularity"].numpy())
    plain = scores.copy()
    scores[:, 0] = -np.inf
    for row, seen in enumerate(case["seen"].numpy()):
        scores[row, seen] = -np.inf
    if allow is not None:
        for row, only in enumerate(allow):
            if any(only):
                scores[row, [item for item in range(ITEMS + 1) if item not in only]] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    best = np.take_along_axis(scores, order, 1)
    return np.where(np.isfinite(best), order, 0), np.where(np.isfinite(best), best, 0.0), plain


@pytest.mark.parametrize("chunk", [8, 13, 54, 1000])
def test_any_chunk_gives_the_same(case, chunk):
    held = np.array([[5, 0], [6, 7], [-1, 8], [9, 0], [1, 2], [3, 0], [4, 0]], np.int32)
    found = recommend(**case, held=tf.constant(held), chunk=chunk)
    items, scores, plain = expected(case)
    assert np.array_equal(found["items"].numpy(), items)
    np.testing.assert_allclose(found["scores"].numpy(), scores, atol=1e-5)
    lost = np.log(np.exp(plain[:, 1:]).sum(1))
    losses = [np.mean([lost[row] - plain[row, item] for item in held[row] if item > 0]) for row in range(BATCH)]
    np.testing.assert_allclose(found["loss"].numpy(), losses, atol=1e-4)


def test_only_what_is_allowed(case):
    allow = [[1, 2, 3], [0, 0, 0], [50, 0, 0], [2**31 - 1, 0, 0], [0] * 3, [0] * 3, [10, 11, 12]]
    found = recommend(**case, allow=tf.constant(allow), similar=tf.zeros([BATCH], tf.int32), chunk=10)
    items, scores, _ = expected(case, allow)
    assert np.array_equal(found["items"].numpy(), items) and not found["items"].numpy()[3].any()
    np.testing.assert_allclose(found["scores"].numpy(), scores, atol=1e-5)


def test_similar_items_by_cosine_without_the_item_itself(case):
    plain = {**case, "seen": tf.zeros([BATCH, 1], tf.int32), "known": tf.zeros([BATCH], tf.bool)}
    found = recommend(**plain, similar=tf.range(1, BATCH + 1), chunk=10)
    vectors = case["items"].numpy() / np.linalg.norm(case["items"].numpy(), axis=1, keepdims=True)
    cosines = vectors[1 : BATCH + 1] @ vectors.T
    cosines[:, 0] = -np.inf
    cosines[np.arange(BATCH), np.arange(1, BATCH + 1)] = -np.inf
    assert np.array_equal(found["items"].numpy(), np.argsort(-cosines, axis=1)[:, :K])
    np.testing.assert_allclose(found["scores"].numpy(), -np.sort(-cosines, axis=1)[:, :K], atol=1e-5)


def test_of_equal_scores_the_lower_number_goes_first(case):
    nothing = {
        **case,
        "queries": tf.zeros([BATCH, WIDTH]),
        "bias": tf.zeros([ITEMS + 1]),
        "known": tf.ones([BATCH], tf.bool),
        "seen": tf.zeros([BATCH, 1], tf.int32),
    }
    assert recommend(**nothing, chunk=10)["items"].numpy().tolist() == [[1, 2, 3, 4, 5, 6]] * BATCH


@pytest.mark.parametrize("ids", [[70, -3, 12], ["b", "a", "ü c"], [f"item {number}" for number in range(1000)]])
def test_ids_are_found_and_come_back(ids):
    find = tf.function(finder(ids))
    asked = [*ids, 99] if isinstance(ids[0], int) else [*ids, "none of them"]
    numbers = find(tf.constant([asked], tf.int64 if isinstance(ids[0], int) else tf.string)).numpy()[0]
    assert numbers.tolist() == [*range(1, len(ids) + 1), 0]
    back = ids_of(tf.constant(numbers), ids).numpy().tolist()
    assert [value.decode() if isinstance(value, bytes) else value for value in back] == [*ids, NO_ID if isinstance(ids[0], int) else ""]


def test_lists_of_any_length_are_packed_and_unpacked():
    values, offsets = np.array([5, 5, 2, 9], np.int32), np.array([0, 3, 3, 4])
    assert unpacked(tf.constant(packed(values, offsets).tolist())).numpy().tolist() == [[2, 5], [0, 0], [9, 0]]
    assert unpacked(tf.constant([b"", b""])).numpy().tolist() == [[0], [0]]


def test_the_sampler_draws_as_it_says():
    counts = np.array([0, 99, 0, 24])
    sampler = Sampler(counts, 0.5)
    np.testing.assert_allclose(sampler.shares, [0, 10 / 16, 1 / 16, 5 / 16])
    drawn = sampler.draw(20_000, tf.constant([1, 2])).numpy()
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 20_000, sampler.shares, atol=0.015)
    np.testing.assert_allclose(sampler.log_share(tf.constant([1, 3])).numpy(), np.log([10 / 16, 5 / 16]), rtol=1e-5)


def test_every_item_of_a_large_catalogue_can_be_drawn():
    """Ten million, some a million times as frequent as others: each has places of its own, in proportion to its share."""
    counts = np.zeros(10_000_001, np.int64)
    counts[1::1000] = 1_000_000
    found = stops(Sampler(counts, 1.0).shares)
    sizes = np.diff(found, prepend=0, append=PLACES)
    assert len(sizes) == 10_000_000 and sizes.min() > 0
    odds = counts[1:] + 1.0
    assert np.abs(sizes / PLACES * odds.sum() / odds - 1.0).max() < 1e-4


def test_draws_reach_both_ends_and_no_further():
    for items in (1, 2, 5):
        drawn = Sampler(np.zeros(items + 1, np.int64), 0.0).draw(500, tf.constant([3, 4])).numpy()
        assert sorted(set(drawn)) == list(range(1, items + 1)) and drawn.dtype == np.int32


@pytest.mark.parametrize("seen_too", [False, True])
def test_sparse_scores_give_the_lists_of_dense_ones(seen_too):
    from scipy import sparse

    from recsys.metrics.baselines import top

    rng = np.random.default_rng(3)
    # quarters, so that there are ties; some users have fewer candidates than the list is long
    scores = sparse.random(400, 90, 0.2, "csr", np.float32, rng, data_rvs=lambda n: rng.integers(1, 5, n) / 4)
    seen = sparse.random(400, 90, 0.1, "csr", np.float32, rng) if seen_too else None
    allowed = rng.random(90) < 0.9
    allowed[0] = False
    rows, begun = sparse.csr_matrix((400, 90), dtype=np.float32), []

    def answered(dense):
        def of(part):
            start = sum(begun)
            begun.append(part.shape[0])
            found = scores[start : start + part.shape[0]]
            return found.toarray() if dense else found

        begun.clear()
        return top(of, rows, seen, 10, allowed)

    assert (np.diff(scores.indptr) < 10).any()
    np.testing.assert_array_equal(answered(dense=False), answered(dense=True))
