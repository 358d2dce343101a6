"""What the number of a name is: declared by whom it belongs to, and unknown where nobody did."""

import pytest

from pipelines.base.formatting import LOW, MetricKind, better, declare, kind_of
from pipelines.config.registry import domains


@pytest.mark.parametrize("name, direction, share", [
    ("validation/log_loss", "min", False), ("accuracy", "max", True), ("test/macro_f1", "max", True), ("recall_low", "max", True),
    ("label_error_rate", "min", True), ("input_wait_fraction", None, True), ("out_of_scope_auroc", "max", True),
    ("train_seconds", "min", False),
    ("test/wer", "min", True), ("class_eer", "min", True), ("ndcg@10", "max", True), ("hit_rate_at_5", "max", True),
    ("real_time_factor", "min", False), ("deletion_share", "min", True),
])
def test_direction_and_share(name, direction, share):
    assert domains()  # which declare theirs
    kind = kind_of(name)
    assert kind is not None and (kind.better, kind.share) == (direction, share)


@pytest.mark.parametrize("name", ["brier_score", "fid", "hausdorff_distance", "support", ""])
def test_what_nobody_declared_is_not_guessed(name):
    assert kind_of(name) is None and better(name) is None


def test_a_name_is_declared_once():
    declare({"toy_distance": LOW})
    declare({"toy_distance": LOW})
    with pytest.raises(ValueError, match="toy_distance is declared"):
        declare({"toy_distance": MetricKind("max")})
    assert better("validation/toy_distance") == "min"
