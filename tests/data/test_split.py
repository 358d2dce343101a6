"""Seeded splits: by class, by group, and the same everywhere."""

import numpy as np
import pytest

from pipelines.base.errors import DataError
from pipelines.data.source import ArraySource
from pipelines.data.split import choose, describe, folds, hold_out


def test_the_split_of_a_seed_is_written_down():
    """These numbers must never change: runs of other days and machines were judged on them."""
    assert hold_out(0.2, count=20, seed=0, purpose="validation").held.tolist() == [6, 8, 9, 19]
    labels = np.repeat([0, 1], [15, 5])
    assert hold_out(0.5, count=20, seed=0, purpose="validation", labels=labels).held.tolist() == [1, 3, 6, 8, 9, 10, 14, 15, 16, 19]


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_every_class_in_its_share(share):
    labels = np.repeat([0, 1, 2, 3], [1000, 200, 40, 8])
    split = hold_out(share, count=len(labels), seed=1, purpose="test", labels=labels)
    counts = np.bincount(labels[split.held], minlength=4)
    assert np.all(np.abs(counts - np.array([1000, 200, 40, 8]) * share) < 1)
    assert len(split.held) == round(1248 * share)
    assert sorted([*split.kept, *split.held]) == list(range(1248)) and np.all(np.diff(split.held) > 0)


def test_seed_and_purpose_decide():
    labels = np.arange(300) % 3
    first = hold_out(0.2, count=300, seed=0, purpose="validation", labels=labels).held
    assert np.array_equal(first, hold_out(0.2, count=300, seed=0, purpose="validation", labels=labels).held)
    assert not np.array_equal(first, hold_out(0.2, count=300, seed=1, purpose="validation", labels=labels).held)
    assert not np.array_equal(first, hold_out(0.2, count=300, seed=0, purpose="test", labels=labels).held)


def test_the_rest_that_does_not_divide_goes_to_different_classes():
    labels = np.repeat(np.arange(10), 5)  # 5 to hold out of 10 classes of half an example each
    held = [tuple(labels[hold_out(0.1, count=50, seed=seed, purpose="test", labels=labels).held]) for seed in range(5)]
    assert all(len(set(classes)) == 5 for classes in held) and len(set(held)) > 1


def test_a_class_of_one_stays_in_train_and_is_noted():
    labels = np.array([0] * 50 + [1] * 50 + [2])
    split = hold_out(0.5, count=101, seed=0, purpose="test", labels=labels)
    assert 2 not in labels[split.held] and 100 in split.kept
    assert split.notes == ("1 of 3 classes have no example in test: too few examples for their share "
                           "(1 have only one, which stays in train)",)


@pytest.mark.parametrize(("count", "share", "size"), [(2, 0.01, 1), (2, 0.99, 1), (3, 0.5, 2), (10, 0.05, 1)])
def test_both_sides_have_something(count, share, size):
    split = hold_out(share, count=count, seed=0, purpose="test")
    assert len(split.held) == size and len(split.kept) == count - size


def test_one_example_cannot_be_divided():
    with pytest.raises(DataError, match=r"1 example cannot be divided into train and test; set data.test to 0"):
        hold_out(0.5, count=1, seed=0, purpose="test")


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_never_on_two_sides(seed):
    rng = np.random.default_rng(seed)
    groups = np.array([f"patient{number}" for number in rng.integers(0, 60, 1000)])
    labels = rng.choice(3, 1000, p=[0.6, 0.3, 0.1])
    split = hold_out(0.2, count=1000, seed=seed, purpose="validation", labels=labels, groups=groups)
    assert not set(groups[split.held]) & set(groups[split.kept])
    assert abs(len(split.held) - 200) <= 10
    shares = np.bincount(labels[split.held], minlength=3) / np.bincount(labels, minlength=3)
    assert np.all(np.abs(shares - 0.2) < 0.05)
    assert "60 groups" in split.notes[0]


def test_groups_of_one_class_each_and_unequal_size():
    groups = np.repeat([f"g{number:02d}" for number in range(20)], np.arange(1, 21))
    labels = np.array([int(group[1:]) % 2 for group in groups])
    split = hold_out(0.25, count=len(groups), seed=0, purpose="test", labels=labels, groups=groups)
    shares = np.bincount(labels[split.held]) / np.bincount(labels)
    assert np.all(np.abs(shares - 0.25) < 0.06)


def test_different_seeds_hold_out_different_groups():
    groups = np.repeat([f"g{number}" for number in range(30)], 10)
    held = {tuple(sorted(set(groups[hold_out(0.2, count=300, seed=seed, purpose="test", groups=groups).held]))) for seed in range(6)}
    assert len(held) > 3


def test_a_class_within_one_group_stays_in_train():
    groups = np.array(["a"] * 40 + ["b"] * 40 + ["c"] * 20)
    labels = np.array([0] * 40 + [0] * 40 + [1] * 20)
    for seed in range(10):
        split = hold_out(0.2, count=100, seed=seed, purpose="test", labels=labels, groups=groups)
        assert 1 in labels[split.kept] and len(split.held)


def test_one_group_cannot_be_divided():
    with pytest.raises(DataError, match="every example is in one group \\('x'\\)"):
        hold_out(0.5, count=4, seed=0, purpose="test", groups=np.array(["x"] * 4))


def test_many_groups_take_little_time():
    import time

    groups = np.arange(60_000) // 3
    start = time.process_time()
    split = hold_out(0.1, count=60_000, seed=0, purpose="test", labels=np.arange(60_000) % 10, groups=groups)
    assert time.process_time() - start < 5
    assert abs(len(split.held) - 6000) < 30 and not set(groups[split.held]) & set(groups[split.kept])


def test_choose_keeps_the_classes_shares():
    labels = np.repeat([0, 1], [900, 100])
    chosen = choose(50, count=1000, seed=0, purpose="limit", labels=labels)
    assert np.bincount(labels[chosen]).tolist() == [45, 5]
    assert np.array_equal(choose(2000, count=1000, seed=0, purpose="limit"), np.arange(1000))


def test_describe_counts_and_identifies():
    source = ArraySource({"label": np.array([0, 1, 1])}, labels=np.array([0, 1, 1]))
    facts = describe({"train": source, "validation": source.subset([1]), "test": None}, ["a", "b"])
    assert facts["train"]["examples"] == 3 and facts["train"]["classes"] == {"a": 1, "b": 2}
    assert facts["validation"]["classes"] == {"a": 0, "b": 1} and "test" not in facts
    assert facts["train"]["fingerprint"] != facts["validation"]["fingerprint"]


def test_folds_hold_each_example_once_and_classes_in_their_shares():
    labels = np.repeat([0, 1, 2], [50, 20, 1])
    fold = folds(5, count=71, seed=0, labels=labels)
    counts = np.array([np.bincount(labels[fold == number], minlength=3) for number in range(5)])
    assert np.all(counts == [10, 4, 0]) and fold[-1] == -1  # what train would have none of stays in train


def test_folds_keep_groups_whole_and_classes_in_train():
    groups = np.array([f"speaker {number}" for number in np.arange(120) // 10])
    labels = np.where(groups == "speaker 3", 2, np.arange(120) % 2)
    fold = folds(4, count=120, seed=0, labels=labels, groups=groups)
    assert all(len(set(fold[groups == group])) == 1 for group in set(groups))
    assert sorted(np.bincount(fold[fold >= 0], minlength=4)) == [20, 30, 30, 30] and set(fold[labels == 2]) == {-1}


def test_folds_of_pieces_are_recordings_or_parts_of_them():
    pieces = np.repeat(np.arange(-1, 8), 10)
    fold = folds(4, count=90, seed=0, pieces=pieces)
    assert all(len(set(fold[pieces == recording])) == 1 for recording in range(8)) and len(set(fold[pieces < 0])) > 1
    one = folds(4, count=40, seed=0, pieces=np.zeros(40, int))
    assert np.count_nonzero(np.diff(one)) == 3  # four parts, none of them between two of another
