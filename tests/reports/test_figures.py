"""Figures are whole PNGs that show what they are given; how they look was judged by eye."""

import io
import warnings

import numpy as np
import pytest
from PIL import Image

from pipelines.base import figures
from pipelines.outputs import classification, classification_figures

pytestmark = pytest.mark.figures


def drawn(figure):
    return np.asarray(Image.open(io.BytesIO(figures.png(figure))).convert("RGB"))


@pytest.mark.parametrize("count", [2, 10, 20, 21, 100, 600])
def test_confusion_of_any_number_of_classes(count):
    rng = np.random.default_rng(0)
    matrix = np.diag(rng.integers(1, 50, count)) + (rng.random((count, count)) < 0.05)
    matrix[0] = 0  # a class without examples
    figure = classification_figures.confusion(matrix, [f"class {k}" for k in range(count)])
    image = drawn(figure)
    assert 300 < image.shape[0] < 2000 and 300 < image.shape[1] < 2000
    if count <= 20:
        assert "no examples" in [text.get_text() for text in figure.axes[0].texts]


def test_confusion_writes_the_shares_of_rows():
    figure = classification_figures.confusion(np.array([[3, 1], [0, 5]]), ["cat", "dog"])
    assert {"75", "25", "100"} <= {text.get_text() for text in figure.axes[0].texts}
    with pytest.raises(ValueError, match="for 3 classes"):
        classification_figures.confusion(np.eye(2), list("abc"))


def test_the_most_frequent_confusion_is_listed_first():
    matrix = np.diag(np.full(30, 10))
    matrix[3, 7] = 5
    matrix[1, 2] = 2
    figure = classification_figures.confusion(matrix, [f"k{k}" for k in range(30)])
    labels = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert labels[:2] == ["k3 → k7", "k1 → k2"]
    assert [text.get_text() for text in figure.axes[1].texts] == [" 5 (33 %)", " 2 (17 %)"]


def test_a_single_confusion_among_a_thousand_classes_stays_visible():
    matrix = np.diag(np.full(1000, 100))
    clean = drawn(classification_figures.confusion(matrix, [str(k) for k in range(1000)], listed=0))
    matrix[100, 900] = 40
    spotted = drawn(classification_figures.confusion(matrix, [str(k) for k in range(1000)], listed=0))
    assert clean.shape == spotted.shape and (np.abs(clean.astype(int) - spotted).max(axis=2) > 100).sum() >= 4


def test_names_are_shown_as_they_are_and_without_warnings():
    names = ["$5 & $6", "a_b^c", "日本", "x" * 60]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = classification_figures.confusion(np.eye(4) * 5, names)
        figures.png(figure)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[:3] == names[:3] and len(labels[3]) == 18


def test_reliability_of_full_empty_and_single_bins():
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4]])
    rows = classification.reliability(classification.classified(probabilities, np.array([0, 1])))
    figure = classification_figures.reliability(rows, error=0.123)
    drawn(figure)
    assert figure.axes[0].get_title(loc="left") == "Reliability: calibration error 12.3 %"
    drawn(classification_figures.reliability([{**row, "count": 0} for row in rows]))


def rows_of_a_run():
    rows = []
    for step in range(10, 101, 10):
        rows.append({"step": step, "epoch": step / 50, "time_s": 1.0, "train/loss": 100 / step, "train/accuracy": 0.5, "learning_rate": 0.1,
                     "gradient_norm": 1.0, "memory_bytes": 1})
        if step % 50 == 0:
            rows.append({"step": step, "epoch": step // 50, "epoch/loss": 1.0, "validation/loss": 2.0, "validation/accuracy": 0.4})
    return rows


@pytest.mark.parametrize("rows", [[], [{"step": 0, "epoch": 0, "time_s": 0.1}], [{"step": 1, "train/loss": float("nan")}]])
def test_where_nothing_was_logged_there_are_no_curves(rows):
    assert figures.learning_curves(rows) is None


def test_learning_curves_have_a_panel_for_each_quantity():
    figure = figures.learning_curves(rows_of_a_run(), best_epoch=2)
    drawn(figure)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["Loss", "Accuracy", "Learning rate", "Gradient norm"]
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["train", "validation", "kept"]


def test_of_rows_written_twice_the_later_counts():
    rows = [{"step": 1, "train/loss": 5.0}, {"step": 2, "train/loss": 4.0}, {"step": 2, "train/loss": 3.0}, {"step": 3, "train/loss": None}]
    line = figures.learning_curves(rows).axes[0].lines[0]
    assert list(line.get_xdata()) == [1, 2] and list(line.get_ydata()) == [5.0, 3.0]


@pytest.mark.parametrize("rows", [
    [{"step": 1, "train/loss": 0.5}, {"step": 2, "train/loss": float("nan")}], [{"step": 1, "epoch": 1, "train/loss": 0.0}]])
def test_learning_curves_of_hardly_anything(rows):
    drawn(figures.learning_curves(rows))


def test_a_wide_range_of_loss_is_drawn_on_a_plainly_labelled_log_scale():
    figure = figures.learning_curves([{"step": s, "train/loss": 10.0**-s} for s in range(5)])
    drawn(figure)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "0.01" in labels and not any("$" in label for label in labels)


@pytest.mark.parametrize("shape", [(1, 8, 8, 1), (36, 32, 32, 3), (7, 20, 40, 4), (70, 8, 8, 3), (0, 8, 8, 3)])
def test_image_grid(shape):
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    drawn(figures.image_grid(images, [f"said {k}\nis cat" for k in range(shape[0])], title="Worst mistakes"))
    drawn(figures.image_grid(images))


def test_image_grid_keeps_pixels_sharp_and_colours_right():
    images = np.zeros((1, 2, 2, 3), np.uint8)
    images[0, 0, 0] = (255, 0, 0)
    images[0, 1, 1] = (0, 0, 255)
    image = drawn(figures.image_grid(images)).reshape(-1, 3)
    colours, counts = np.unique(image, axis=0, return_counts=True)
    common = {tuple(colour) for colour, count in zip(colours.tolist(), counts) if count > 1000}
    assert common == {(255, 255, 255), (0, 0, 0), (255, 0, 0), (0, 0, 255)}


def test_image_grid_refuses_other_shapes():
    with pytest.raises(ValueError, match="uint8 expected, got"):
        figures.image_grid(np.zeros((2, 8, 8, 3)))


def test_the_same_figure_gives_the_same_bytes_and_no_global_state_changes():
    import matplotlib

    before = dict(matplotlib.rcParams)
    first, second = (figures.png(figures.learning_curves(rows_of_a_run())) for _ in range(2))
    assert first == second and dict(matplotlib.rcParams) == before


def test_shortened():
    assert figures.shortened("short", 10) == "short"
    assert figures.shortened("a very long class name", 12) == "a very…name" and len(figures.shortened("x" * 99, 12)) == 12
