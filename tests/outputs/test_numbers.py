"""Numbers: how columns are read, scales, losses, scores, and metrics beside what scipy and scikit-learn have."""

from types import SimpleNamespace

import keras
import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.config.schema import Evaluate
from pipelines.data.number_columns import NumberColumns, without_targets_left_out
from pipelines.data.source import ArraySource
from pipelines.encoders import linear_head
from pipelines.encoders.features import OnFeatures
from pipelines.outputs import number_metrics, number_scales
from pipelines.outputs.number_scales import Scales
from pipelines.outputs.numbers import Numbers
from pipelines.outputs.settings import NumberEvaluate, NumberLoss, NumberTarget
from pipelines.task.units import EXAMPLES


def source(*columns) -> ArraySource:
    return ArraySource({"target": np.array(columns, np.float32).T}, title="rows")


def output(targets, loss=None, **facts) -> Numbers:
    experiment = SimpleNamespace(loss=loss or NumberLoss(), evaluate=NumberEvaluate(), target=NumberTarget(), model=None)
    return Numbers(SimpleNamespace(experiment=experiment, facts={"targets": targets, **facts}, input=None))


def learned(*columns, **target) -> list[dict]:
    return number_scales.learn(source(*columns), [f"t{number}" for number in range(len(columns))], NumberTarget(**target))[0]


def test_a_head_on_many_features_of_few_examples_is_better_than_the_mean():
    rng = np.random.default_rng(0)
    cause = rng.normal(size=(460, 1))
    features = (0.15 * cause * rng.normal(size=(1, 800)) + rng.normal(size=(460, 800))).astype(np.float32)
    number = (10 + 2 * cause[:, 0] + 2 * rng.normal(size=460)).astype(np.float32)  # half of the variance can be known
    train, others = (ArraySource({"features": features[part], "target/0": number[part, None]}) for part in (slice(160), slice(160, None)))
    numbers = output(learned(number[:160]))
    task = OnFeatures(SimpleNamespace(input=SimpleNamespace(), output=numbers), tf.TensorSpec([]), 1)
    head = keras.Sequential([keras.Input((800,)), keras.layers.Dense(1)])
    fitted = linear_head.fit(task, head, train, None, 1, 0)
    given = numbers.scales.numbers(head(others.arrays["features"])).numpy()[:, 0]
    error, mean = (np.abs(one - number[160:]).mean() for one in (given, number[:160].mean()))
    assert fitted.strength > 1 and error < 0.9 * mean, (fitted, error, mean)


# ---- reading

def table(folder, text):
    path = folder / "data.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("cell, message", [
    ("cheap", "data.csv:3: 'cheap' in column price"), ("12 EUR", "data.csv:3: '12 EUR' in column price"),
    ("-3", "data.csv:3: -3 in column price is below target.low, 0"),
    ("1e9", r"data.csv:3: 1e\+09 in column price is above target.high, 100")])
def test_what_is_no_number_is_named_by_its_line(tmp_path, cell, message):
    path = table(tmp_path, f"price\n1\n{cell}\n3\n")
    with pytest.raises(DataError, match=message):
        NumberColumns.of("price", 0.0, 100.0).in_table(pa.table({"price": ["1", cell, "3"]}), path)


def test_empty_cells_are_missing_and_a_comma_is_a_point(tmp_path):
    columns = NumberColumns.of(["a", "b"])
    found = columns.in_table(pa.table({"a": ["1,5", "", "NA"], "b": [1.0, None, float("nan")]}), tmp_path / "t.csv")
    np.testing.assert_array_equal(found, np.array([[1.5, 1], [np.nan, np.nan], [np.nan, np.nan]], np.float32))


def test_arrays_have_a_column_for_each_name():
    assert NumberColumns.of("a").in_array([1, 2], "x").shape == (2, 1)
    assert NumberColumns.of(["a", "b"]).in_array(np.ones((3, 2)), "x").shape == (3, 2)
    with pytest.raises(DataError, match=r"has the shape \[3, 2\]"):
        NumberColumns.of("a").in_array(np.ones((3, 2)), "x")


def test_examples_without_any_number_are_left_out_and_counted():
    notes: list[str] = []
    kept = without_targets_left_out(lambda split: source([1, np.nan, 3], [1, np.nan, np.nan]), ["a", "b"], notes)("train")
    assert len(kept) == 2 and kept.number_targets.shape == (2, 2)
    assert "1 of 3 examples have no number in a and b" in notes[0] and "1 of 3 examples lack some" in notes[1]


# ---- scales

def test_a_skewed_number_is_learned_as_its_logarithm():
    prices = np.random.default_rng(0).lognormal(3, 1, 500)
    assert learned(prices)[0]["scale"] == "log"
    assert learned(prices, scale="linear")[0]["scale"] == "linear"
    assert learned(prices - prices.min())[0]["scale"] == "linear"  # one of them is 0
    assert learned(np.random.default_rng(0).normal(50, 5, 500))[0]["scale"] == "linear"
    with pytest.raises(DataError, match=r"rows\[1\]: -1 in column t0 has no logarithm"):
        learned([1, -1, 2], scale="log")
    with pytest.raises(DataError, match="train has the number 2 alone"):
        learned([2, 2])


def test_scales_return_what_they_were_given_within_limits():
    values = np.random.default_rng(0).lognormal(3, 1, (200, 1)).astype(np.float32)
    for one in ("log", "linear"):
        scales = Scales(learned(values[:, 0], scale=one))
        scaled = scales.learned(tf.constant(values)).numpy()
        assert abs(scaled.mean()) < 1e-3 and abs(scaled.std() - 1) < 1e-3
        np.testing.assert_allclose(scales.numbers(tf.constant(scaled)), values, rtol=1e-3)
    scales = Scales(learned(values[:, 0], low=5.0, high=9.0, scale="linear"))
    assert scales.numbers(tf.constant([[-50.0], [50.0]])).numpy().tolist() == [[5.0], [9.0]]
    assert np.isnan(scales.learned(tf.constant([[np.nan]])).numpy()).all()


# ---- losses and scores

@pytest.mark.parametrize("name, expected", [("squared", [0.5 * 9, 0.5 * 0.25]), ("absolute", [3, 0.5]), ("huber", [2.5, 0.125])])
def test_losses(name, expected):
    targets = [{"name": "a", "unit": None, "mean": 0.0, "std": 1.0, "low": None, "high": None, "scale": "linear", "centre": 0.0,
                "spread": 1.0}]
    loss = output(targets, NumberLoss(name=name)).loss(tf.constant([[3.0], [0.5]]), tf.constant([[0.0], [0.0]]), True)
    np.testing.assert_allclose(loss, expected)


def test_the_quantiles_loss_is_smallest_at_the_quantiles():
    draws = np.random.default_rng(0).normal(size=20_000).astype(np.float32)
    one = output([{**learned(draws)[0], "centre": 0.0, "spread": 1.0}], NumberLoss(name="quantiles"))

    def loss(ends):
        return float(tf.reduce_mean(one.loss(tf.repeat(tf.constant([ends]), len(draws), 0), tf.constant(draws[:, None]), True)))

    best = [-1.645, 0.0, 1.645]
    for place in range(3):
        for step in (-0.2, 0.2):
            assert loss(best) < loss([value + step * (number == place) for number, value in enumerate(best)])


def test_missing_numbers_have_no_part_in_loss_gradient_and_score():
    targets = learned([1, 2, 3], [10, 20, 30])
    one = output(targets)
    outputs, truth = tf.Variable([[0.3, 9.0]]), tf.constant([[2.0, np.nan]])
    with tf.GradientTape() as tape:
        loss = one.loss(outputs, truth, True)
    gradient = tape.gradient(loss, outputs).numpy()
    assert np.isfinite(loss).all() and gradient[0, 0] != 0 and gradient[0, 1] == 0
    alone = output(targets[:1]).scores(tf.constant([[0.3]]), tf.constant([[2.0]]))["mae"].numpy()
    np.testing.assert_allclose(one.scores(outputs, truth)["mae"], alone / targets[0]["std"], rtol=1e-6)


def test_mixed_examples_have_mixed_numbers():
    mixed = output(learned([1, 2, 3])).targets({"target": tf.constant([[1.0], [3.0]])},
                                               {"partner": tf.constant([1, 0]), "share": tf.constant([0.75, 0.5])})
    assert mixed["target"].numpy().tolist() == [[1.5], [2.0]]


def test_an_answer_has_an_interval_in_its_unit():
    known = output(learned([1, 2, 3], unit="m"), intervals=[{"share": 0.9, "edges": [], "margins": [1.0]}])
    answers = known.answer(lambda inputs: inputs, tf.constant([[0.0]]))
    response = {name: float(value[0]) for name, value in known.respond(answers).items()}
    spread = np.std([1, 2, 3])
    assert response == pytest.approx({"value": 2.0, "low": 2.0 - spread, "high": 2.0 + spread})
    assert known.answers.meanings == {"value": "t0, in m", "low": "the lower end of its 90% interval",
                                      "high": "the upper end of its 90% interval"}
    several = output(learned([1, 2, 3], [4, 5, 7]))
    assert set(several.respond(several.answer(lambda inputs: inputs, tf.constant([[0.0, 0.0]])))) == {"t0", "t1"}


# ---- metrics

def test_metrics_are_those_of_scikit_learn_and_scipy():
    draw = np.random.default_rng(0)
    truth = np.round(draw.normal(size=300), 1)
    values = truth + draw.normal(0, 0.5, 300)
    found = number_metrics.of_column(number_metrics.Answered(values, truth, values - 1, values + 1), 200, EXAMPLES)
    assert found["mae"].value == pytest.approx(sklearn.metrics.mean_absolute_error(truth, values))
    assert found["rmse"].value == pytest.approx(sklearn.metrics.root_mean_squared_error(truth, values))
    assert found["r2"].value == pytest.approx(sklearn.metrics.r2_score(truth, values))
    assert found["pearson"].value == pytest.approx(scipy.stats.pearsonr(truth, values).statistic)
    assert found["pearson"].low < found["pearson"].value < found["pearson"].high
    assert found["spearman"].value == pytest.approx(scipy.stats.spearmanr(truth, values).statistic)
    assert found["coverage"].value == pytest.approx(np.mean(np.abs(values - truth) <= 1))
    assert found["interval_width"].value == pytest.approx(2)
    for metric in found.values():
        assert metric.low is None or metric.low <= metric.value <= metric.high


def test_a_resampled_rank_correlation_is_that_of_the_repeated_pairs():
    draw = np.random.default_rng(0)
    first, second = draw.integers(0, 8, 40).astype(float), draw.normal(size=40)
    counts = draw.integers(0, 3, (5, 40))
    found = number_metrics.rank_correlation(first, second, counts.astype(float))
    for value, own in zip(found, counts):
        assert value == pytest.approx(scipy.stats.spearmanr(np.repeat(first, own), np.repeat(second, own)).statistic)
    assert np.isnan(number_metrics.rank_correlation(np.ones(4), np.arange(4.0), np.ones((1, 4)))).all()


def test_a_judgement_of_several_numbers_has_each_in_its_unit():
    draw = np.random.default_rng(0)
    truth = np.stack([draw.normal(100, 10, 80), draw.normal(0, 1, 80)], 1)
    truth[:5, 1] = np.nan
    values = np.nan_to_num(truth) + draw.normal(0, [5, 0.5], (80, 2))
    targets = learned(truth[:, 0], truth[:, 1], unit=["cm", "kg"])
    result = number_metrics.judgement(number_metrics.Answered(values, truth, values - 8, values + 8), targets, Evaluate(), EXAMPLES, str)
    rows = result.tables["per_target"]
    assert [(row["target"], row["unit"], row["n"]) for row in rows] == [("t0", "cm", 80), ("t1", "kg", 75)]
    assert set(result.figures) == {"predicted_and_true", "residuals"} and len(result.tables["coverage"]) == 8
    assert result.metrics["r2"].value == pytest.approx(np.mean([row["r2"] for row in rows]))
    expected = number_metrics.distance(values, truth, np.array([[one["std"] for one in targets]]))
    assert result.metrics["mae"].value == pytest.approx(expected.mean())
