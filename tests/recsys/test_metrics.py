"""Metrics against scikit-learn and against definitions written out, on random cases."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import log_loss, ndcg_score, roc_auc_score

from pipelines.task import intervals
from pipelines.task.results import Judgement
from recsys.metrics import baselines, per_user
from recsys.metrics.ranking_metrics import New, new_and_known
from recsys.metrics.rating_metrics import Predicted, auc, judge_clicks, judge_ratings, log_losses
from recsys.metrics.users import COLD, Basis, Held

USERS, ITEMS = 60, 40


@pytest.fixture
def case():
    rng = np.random.default_rng(3)
    scores = rng.random((USERS, ITEMS))
    relevant = rng.random((USERS, ITEMS)) < 0.1
    relevant[np.arange(USERS), rng.integers(0, ITEMS, USERS)] = True
    lists = np.argsort(-scores, axis=1) + 1
    users, items = np.nonzero(relevant)
    return scores, relevant, lists.astype(np.int32), users, (items + 1).astype(np.int32)


@pytest.mark.parametrize("k", [1, 5, 10, 40])
def test_ndcg_is_scikit_learns(case, k):
    scores, relevant, lists, users, items = case
    found = per_user.per_user(per_user.hits(lists, users, items, ITEMS), relevant.sum(1), k)["ndcg"]
    expected = [ndcg_score(relevant[[user]].astype(float), scores[[user]], k=k) for user in range(USERS)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("k", [1, 5, 10])
def test_the_others_are_as_defined(case, k):
    _, relevant, lists, users, items = case
    found = per_user.per_user(per_user.hits(lists, users, items, ITEMS), relevant.sum(1), k)
    for user in range(USERS):
        good = {item for item in range(1, ITEMS + 1) if relevant[user, item - 1]}
        places = [place for place, item in enumerate(lists[user, :k].tolist(), 1) if item in good]
        assert found["hit_rate"][user] == float(bool(places))
        assert found["recall"][user] == pytest.approx(len(places) / len(good))
        assert found["mrr"][user] == pytest.approx(1 / places[0] if places else 0)
        precisions = [(number + 1) / place for number, place in enumerate(places)]
        assert found["map"][user] == pytest.approx(sum(precisions) / min(k, len(good)))


def test_unknown_items_are_missed_and_gaps_never_hit():
    lists = np.array([[3, 1, 0]], np.int32)
    found = per_user.hits(lists, np.array([0, 0, 0]), np.array([1, -1, 0]), 5)
    assert found.tolist() == [[False, True, False]]
    assert per_user.per_user(found, np.array([3]), 2)["recall"].tolist() == pytest.approx([1 / 3])


def test_gini_and_head():
    alike, alone = np.array([[1, 2], [3, 4]]), np.array([[1, 0], [1, 0]])
    assert per_user.gini(alike, 2, 4) == pytest.approx(0.0) and per_user.gini(alone, 2, 4) == pytest.approx(0.75)
    assert per_user.gini(np.zeros((2, 2), int), 2, 4) == 0.0
    rng = np.random.default_rng(0)
    lists = rng.integers(1, 21, (30, 5))
    often = np.bincount(lists.ravel(), minlength=21)[1:]
    pairs = np.abs(often[:, None] - often[None, :]).sum() / (2 * 20 * often.sum())  # the mean difference: Gini's other formula
    assert per_user.gini(lists, 5, 20) == pytest.approx(pairs)
    counts = np.r_[0, np.arange(20)]  # items 19 and 20 are the head
    assert per_user.head(np.array([[20, 1], [19, 20], [0, 0]]), 2, counts).tolist() == [0.5, 1.0, 0.0]


def test_diversity_is_one_less_the_mean_cosine():
    who = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 0]], float)  # users by items 1 to 4; nobody had 4
    matrix = np.c_[np.zeros(3), who / np.sqrt(np.maximum(who.sum(0), 1))]
    lists = np.array([[1, 2, 3], [2, 1, 0], [4, 1, 0], [3, 0, 0], [0, 0, 0]])
    found = per_user.diversity(lists, 3, sparse.csc_matrix(matrix))
    cosines = matrix.T @ matrix
    assert found[0] == pytest.approx(1 - (cosines[1, 2] + cosines[1, 3] + cosines[2, 3]) / 3)
    assert found[1:].tolist() == pytest.approx([0.0, 1.0, 1.0, 1.0])


def test_recent_popularity_halves_with_age():
    found = baselines.recent(np.array([1, 1, 2, 0]), np.array([0.0, 10.0, 20.0, 20.0]), 3, half_life=10.0)
    assert found.tolist() == [1.0, 0.75, 1.0, 0.0]


def test_coverage_novelty_popularity():
    lists, counts = np.array([[1, 2], [1, 0]]), np.array([0, 8, 2, 0])
    assert per_user.coverage(lists, 2, 3) == pytest.approx(2 / 3)
    assert per_user.novelty(lists, 2, counts, 16).tolist() == pytest.approx([2.0, 1.0])
    assert per_user.popularity(lists, 2, counts).tolist() == pytest.approx([5.0, 8.0])


def test_auc_and_log_loss_are_scikit_learns():
    rng = np.random.default_rng(0)
    true = (rng.random(500) < 0.3).astype(float)
    said = np.round(np.clip(0.3 + 0.2 * true + rng.normal(0, 0.2, 500), 0.01, 0.99), 2)  # with ties
    low, value, high = auc(said, true)
    assert value == pytest.approx(roc_auc_score(true, said)) and low < value < high
    assert log_losses(said, true).mean() == pytest.approx(log_loss(true, said))


def test_a_worse_model_is_said_to_be_worse():
    rng = np.random.default_rng(0)
    true = rng.normal(3.5, 1.0, 400)
    users = np.repeat(np.arange(40), 10)
    better, worse = true + rng.normal(0, 0.1, 400), true + rng.normal(0, 1.0, 400)
    groups = {"events": np.repeat(np.arange(40), 10)}
    bad = judge_ratings(Predicted(worse, true, {"good": better}, users, groups), resamples=200)
    assert any("does NOT beat the best baseline, good" in note for note in bad.notes)
    good = judge_ratings(Predicted(better, true, {"bad": worse}, users, groups), resamples=200)
    assert any("The model beats the best baseline, bad" in note for note in good.notes)
    assert good.metrics["rmse"].value == pytest.approx(np.sqrt(np.mean((better - true) ** 2)))
    half = np.full(400, 0.5)
    clicks = judge_clicks(Predicted(half, (true > 3.5).astype(float), {"same": half}, None, groups), resamples=200)
    assert any("does NOT clearly beat" in note for note in clicks.notes)


@pytest.mark.parametrize("k", [1, 3, 10, 40])
def test_recall_mrr_and_map_are_keras_rs(case, k):
    """MAP is divided there by all relevant items, also where the list is shorter than these."""
    import keras_rs

    scores, relevant, lists, users, items = case
    held = relevant.sum(1)
    found = per_user.per_user(per_user.hits(lists, users, items, ITEMS), held, k)
    found["map"] *= np.minimum(k, held) / held
    for name, kind in (("recall", "RecallAtK"), ("mrr", "MeanReciprocalRank"), ("map", "MeanAveragePrecision")):
        measure = getattr(keras_rs.metrics, kind)(k=k)
        measure.update_state(relevant.astype(np.float32), scores.astype(np.float32))
        assert found[name].mean() == pytest.approx(float(measure.result()), abs=1e-6), name


def test_a_list_shorter_than_k_is_judged_by_k():
    """Three items are all there are to recommend, of five that are held out: the best list of ten would have had five."""
    hit = np.array([[True, False, True]])
    found = per_user.per_user(hit, np.array([5]), 10)
    discounts = 1 / np.log2(np.arange(2, 7))
    assert found["ndcg"][0] == pytest.approx((discounts[0] + discounts[2]) / discounts.sum())
    assert found["map"][0] == pytest.approx((1 + 2 / 3) / 5) and found["recall"][0] == pytest.approx(2 / 5)


def test_users_are_drawn_once_for_all_means(monkeypatch):
    """Each interval is that of the mean by itself, and a share of which all are alike has Wilson's."""
    from recsys.metrics import ranking_metrics

    rng = np.random.default_rng(0)
    values = {("model", "ndcg", 10): rng.random(50), ("ease", "hit_rate", 10): (rng.random(50) < 0.3) * 1.0,
              ("knn", "hit_rate", 5): np.zeros(50)}
    draw, drawn = ranking_metrics.resampled_sums, []
    monkeypatch.setattr(ranking_metrics, "resampled_sums", lambda *args, **options: drawn.append(1) or draw(*args, **options))
    found = ranking_metrics._means(values, 200)
    assert len(drawn) == 1
    for key, of in values.items():
        alone = (intervals.share if key[1] == "hit_rate" else intervals.mean)(of, resamples=200, units=ranking_metrics.USERS)
        assert [found[key].value, found[key].low, found[key].high] == pytest.approx([alone.value, alone.low, alone.high])
        assert (found[key].n, found[key].unit) == (alone.n, alone.unit)


@pytest.mark.parametrize("k", [1, 5, 10])
def test_hit_rate_is_scikit_learns(case, k):
    """With one item held out it is the accuracy of the first k classes."""
    from sklearn.metrics import top_k_accuracy_score

    scores, _, lists, _, _ = case
    held = np.random.default_rng(4).integers(0, ITEMS, USERS)
    found = per_user.per_user(per_user.hits(lists, np.arange(USERS), held + 1, ITEMS), np.ones(USERS, int), k)
    assert found["hit_rate"].mean() == pytest.approx(top_k_accuracy_score(held, scores, k=k, labels=np.arange(ITEMS)))


def test_auc_by_users_is_what_drawing_users_gives():
    """Users who click more or less than others: drawn whole, they spread more than their events would."""
    from pipelines.task.intervals import resample_counts

    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(60), 25)
    liking = rng.normal(0, 1.5, 60)[users]
    true = (rng.random(len(users)) < 1 / (1 + np.exp(-liking))).astype(float)
    said = np.round(1 / (1 + np.exp(-rng.normal(0.7 * liking, 1.0))), 2)
    drawn = [
        roc_auc_score(true, said, sample_weight=counts[users]) for block in resample_counts(60, resamples=600) for counts in block
    ]
    low, value, high = auc(said, true, users)
    assert value == pytest.approx(roc_auc_score(true, said))
    assert (high - low) / 3.92 == pytest.approx(np.std(drawn), rel=0.12)
    plain_low, _, plain_high = auc(said, true)
    assert high - low > 1.2 * (plain_high - plain_low)
    alone = auc(said, true, np.arange(len(true)))  # every event a user: DeLong's
    assert alone[0] == pytest.approx(plain_low, abs=1e-3) and alone[2] == pytest.approx(plain_high, abs=1e-3)


@pytest.mark.parametrize("k", [1, 4, 9, 30, 50])
def test_the_best_are_those_of_a_whole_stable_sort(k):
    rng = np.random.default_rng(k)
    values = rng.integers(0, 6, (300, 30)).astype(np.float32)  # ties everywhere, of zeros too
    seen = sparse.csr_matrix((rng.random((300, 30)) < 0.3).astype(np.float32))
    allowed = rng.random(30) < 0.9
    allowed[0] = False
    for scores in (lambda rows: values[rows.toarray()[:, 0].astype(int)], values[0]):
        numbers = sparse.csr_matrix(np.arange(300, dtype=np.float32)[:, None])
        expected = np.where(allowed, values if callable(scores) else np.tile(scores, (300, 1)), -np.inf)
        expected[seen.toarray() > 0] = -np.inf
        order = np.argsort(-expected, axis=1, kind="stable")[:, :k]
        order = np.where(np.isfinite(np.take_along_axis(expected, order, 1)), order, 0)
        found = baselines.top(scores, numbers, seen, k, allowed)
        assert np.array_equal(found, np.pad(order, ((0, 0), (0, k - order.shape[1]))))


def test_a_model_that_does_not_beat_the_best_baseline_says_so_first():
    """Better, alike, and worse, of which is warned: in ratings, where less is better, too."""
    rng = np.random.default_rng(0)
    true, noise = rng.normal(size=400), rng.normal(size=(2, 400))

    def judged(ours: float, theirs: float) -> Judgement:
        said, other = true + ours * noise[0], true + theirs * noise[1]
        return judge_ratings(Predicted(said, true, {"mean": other}, np.arange(400) % 50, {}), resamples=200)

    assert judged(0.5, 1.0).compared.startswith("Better than the cheap baseline (") and judged(0.5, 1.0).beaten is None
    assert judged(1.0, 1.0).compared.startswith("No better than the cheap baseline") and judged(1.0, 1.0).beaten is None
    assert str(judged(1.0, 0.5).beaten).startswith("The model is worse than its cheap baseline, ")


def test_new_users_and_new_items_are_judged_apart():
    """Of four users one is not in train; of the six held-out items two are not."""
    people = Held(np.array([1, 2, 0, 3], np.int32), np.arange(4), np.zeros(0, np.int32), np.zeros(5, np.int64),
                  np.array([1, COLD, 2, 3, COLD, 4], np.int32), np.array([0, 2, 3, 4, 6]))
    lists = {"model": np.array([[1, 2], [1, 2], [3, 1], [1, 2]], np.int32), "popularity": np.zeros((4, 2), np.int32)}
    numbers = np.arange(4)
    rows, held, _ = people.pairs(numbers)

    def judged(people, numbers, rows, held, new: int = 0, shelf=None):
        ids = SimpleNamespace(user_ids=range(3), item_ids=range(4), new_users=0, new_items=new, counts=np.zeros(5))
        hits = {name: per_user.hits(one, rows, held, 4) for name, one in lists.items()}
        return new_and_known(lists, hits, people, numbers, rows, held, Basis(ids, [], True), 2, resamples=50, shelf=shelf)

    new, known, warm = judged(people, numbers, rows, held)
    assert [row["users"] for row in (new, known, warm)] == [1, 3, 3]
    assert [row["held-out events"] for row in (new, known, warm)] == [1, 5, 3]
    assert known["of items that train has"] == pytest.approx(3 / 5) and warm["of items that train has"] == 1.0
    assert new["model, ndcg@2"] == 1.0 and new["popularity, ndcg@2"] == 0.0
    second = 1 / np.log2(3)  # of user 2 the item stands second; user 1 has one of two, user 3 none
    assert warm["model, ndcg@2"] == pytest.approx((1.0 + second + 0.0) / 3)
    assert known["model, ndcg@2"] == pytest.approx((1 / (1 + second) + second + 0.0) / 3)
    # of the four items the last two are new: one stands first in the list of user 2 alone, though by itself it is on that of user 3, too
    new, known, warm, cold, alone = judged(people, numbers, rows, held, 2, New(np.array([[3, 4]] * 4), {"content": np.array([[4, 3]] * 4)}))
    assert warm["users"] == 2 and warm["model, ndcg@2"] == pytest.approx((1.0 + second) / 2)
    assert [cold["users"], cold["held-out events"], cold["of items that train has"]] == [2, 2, 0.0] and cold["model, ndcg@2"] == 0.5
    assert alone["model, ndcg@2"] == pytest.approx((1 + second) / 2) == alone["content, ndcg@2"] == pytest.approx(alone["chance, ndcg@2"])
    one = np.array([1], np.int32)
    everything = Held(one, np.arange(1), people.visible, np.zeros(2, np.int64), one, np.array([0, 1]))
    assert judged(everything, np.array([0]), np.array([0]), np.array([1])) == []
