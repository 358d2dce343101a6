"""Named splits and shares, as data.validation and data.test ask for them."""

import numpy as np
import pytest

from pipelines.base.errors import DataError
from pipelines.config.schema import Data
from pipelines.data.divide import Warned, check_classes, divide, find
from pipelines.data.source import ArraySource


def pool(count=100, groups=None, classes=2):
    labels = np.arange(count) % classes
    return ArraySource({"number": np.arange(count)}, labels=labels, groups=groups)


def parts(names, groups=None, **settings):
    loaded = []

    def load(name):
        loaded.append(name)
        return pool(groups=groups)

    train, validation, test, notes = divide(names, load, Data.model_validate(settings), "the data")
    return [None if part is None else len(part) for part in (train, validation, test)], loaded, notes


def test_named_test_and_a_share_of_train_by_default():
    sizes, loaded, notes = parts(["train", "test"])
    assert sizes == [90, 10, 100] and sorted(loaded) == ["test", "train"]
    assert notes == ["validation: 10 of 100 examples held out, stratified, split_seed 0"]


def test_data_in_one_piece_give_up_a_fifth_for_test():
    sizes, loaded, notes = parts(["all"])
    assert sizes == [72, 8, 20] and loaded == ["all"]
    assert notes[0] == "the data: no test split is there, so 20% of all is held out for test"


@pytest.mark.parametrize("name", ["validation", "val", "valid", "dev"])
def test_usual_names_of_validation(name):
    sizes, loaded, _ = parts(["train", name, "test"], validation="validation")
    assert sizes == [100, 100, 100] and name in loaded


def test_own_splits_come_before_shares_and_shares_stand_in_for_what_is_missing():
    assert parts(["train", "val", "testing"])[0] == [100, 100, 100]
    sizes, _, notes = parts(["train", "dev"])
    assert sizes == [80, 100, 20] and notes[0] == "the data: no test split is there, so 20% of train is held out for test"
    assert parts(["test"])[0] == parts(["validation"])[0] == [72, 8, 20]  # in one piece, whatever it is called


def test_what_the_data_have_for_judging_and_is_not_used_is_a_warning():
    *_, notes = parts(["train", "val", "test", "extra"], validation=0.1, test=0.2)
    said = [note for note in notes if isinstance(note, Warned)]
    assert said == ["not used of the data: extra, test, val (data.validation and data.test choose)"]
    assert not any(isinstance(note, Warned) for note in parts(["train", "test", "extra"])[2])


def test_null_and_zero_leave_a_split_out_and_unused_ones_are_said():
    sizes, loaded, notes = parts(["train", "test", "val"], validation=0.0, test=None)
    assert sizes == [100, None, None] and loaded == ["train"]
    assert notes == ["not used of the data: test, val (data.validation and data.test choose)"]


def test_shares_of_all_for_test_then_of_train_for_validation():
    assert parts(["train"], test=0.3, validation=0.2)[0] == [56, 14, 30]


def test_train_is_the_same_data_whatever_the_training_seed():
    train, *_ = divide(["all"], lambda _: pool(), Data.model_validate({}), "x")
    again, *_ = divide(["all"], lambda _: pool(), Data.model_validate({}), "x")
    other, *_ = divide(["all"], lambda _: pool(), Data.model_validate({"split_seed": 1}), "x")
    assert train.fingerprint() == again.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(("names", "settings", "message"), [
    (["train", "tests"], {"test": "tetss"}, "data.test: tetss: the data has no such split; there are tests and train; "
                                            "did you mean tests\\? "
                                            "Otherwise set data.test to one of them, or to a share such as 0.1, or to null."),
    (["train", "val"], {"test": "testing"}, "data.test: testing: the data has no such split; there are train and val"),
    (["train", "test"], {"validation": "test"}, "split 'test' would be used twice"),
    (["train", "test"], {"test": "train"}, "split 'train' would be used twice"),
    (["a", "b"], {}, "the data has no split 'train'; there are a and b"),
    (["train", "test"], {"group_by": "who"}, "data.group_by: who: these data have no such groups"),
])
def test_splits_that_cannot_be(names, settings, message):
    with pytest.raises(DataError, match=message):
        parts(names, **settings)


def test_groups_across_the_datas_own_splits_are_an_error():
    with pytest.raises(DataError, match="group 'p0' stands in both train and test of the data's own splits"):
        parts(["train", "test"], groups=np.array([f"p{number // 10}" for number in range(100)]), group_by="who", validation=0.0)


def test_groups_stay_whole():
    groups = np.array([f"p{number // 5}" for number in range(100)])
    train, validation, test, _ = divide(["all"], lambda _: pool(groups=groups), Data.model_validate({"group_by": "who", "test": 0.2}), "x")
    sets = [set(part.groups) for part in (train, validation, test)]
    assert not (sets[0] & sets[1] or sets[0] & sets[2] or sets[1] & sets[2]) and len(set.union(*sets)) == 20


def test_limit_is_stratified_and_said():
    train, _, _, notes = divide(["train", "test"], lambda _: pool(), Data.model_validate({"limit": 10}), "x")
    assert np.bincount(train.labels).tolist() == [5, 5] and "train limited to 10 of 90 examples (data.limit)" in notes


def test_classes_that_train_lacks():
    with pytest.raises(DataError, match=r"x: test has classes of which train has no example: c \(such as array\[2\]\)"):
        check_classes({"train": pool(), "validation": None, "test": pool(classes=3)}, ["a", "b", "c"], "x")


def test_find_takes_slices_and_case():
    assert find("train[:10%]", ["train"]) == "train[:10%]" and find("test", ["Train", "TEST"]) == "TEST" and find("x", ["y"]) is None


def test_folds_of_train_stand_in_the_place_of_test_which_is_not_read():
    sizes, loaded, notes = parts(["train", "test"], validation=0, fold=[2, 5])
    assert sizes == [80, None, 20] and loaded == ["train"] and notes[0].startswith("fold 2 of 5: 20 of 100")
    whole, _, tested, _ = divide(["all"], lambda name: pool(), Data(validation=0, test=0.2), "the data")
    held = []
    for number in range(1, 5):
        train, _, fold, _ = divide(["all"], lambda name: pool(), Data(validation=0, test=0.2, fold=[number, 4]), "the data")
        names = [{one.name(place) for place in range(len(one))} for one in (train, fold)]
        assert names[0] | names[1] == {whole.name(place) for place in range(80)} and not names[0] & names[1]
        held += names[1]
    assert len(held) == len(set(held)) == 80 and not set(held) & {tested.name(place) for place in range(20)}


def test_groups_that_do_not_divide_into_folds():
    with pytest.raises(DataError, match=r"data.fold: 100 training examples in few groups do not divide into 5 folds"):
        parts(["train", "test"], groups=np.array(["a"] * 50 + ["b"] * 50), group_by="who", validation=0, fold=[5, 5])
