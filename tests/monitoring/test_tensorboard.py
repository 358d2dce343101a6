"""What the writer wrote, as TensorBoard's own readers read it."""

import io
import threading
import wave

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.util import tensor_util

from pipelines.base.figures import learning_curves
from pipelines.monitoring.tensorboard import Writer

pytestmark = pytest.mark.figures


def read(folder):
    """run -> tag -> [(step, array)], and the multiplexer."""
    everything = dict.fromkeys(("scalars", "images", "audio", "text", "histograms"), 0)
    multiplexer = EventMultiplexer(tensor_size_guidance=everything)
    multiplexer.AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    found = {run: {tag: [(event.step, tensor_util.make_ndarray(event.tensor_proto)) for event in multiplexer.Tensors(run, tag)]
                   for tag in tags["tensors"]} for run, tags in multiplexer.Runs().items()}
    return found, multiplexer


def steps(folder, run=".", tag="loss"):
    return [step for step, _ in read(folder)[0][run][tag]]


def test_scalars_of_train_and_validation_stand_in_runs_of_their_own(tmp_path):
    with Writer(tmp_path / "train") as train, Writer(tmp_path / "validation") as validation:
        train.scalars({"loss": 0.5, "speed/examples_per_second": 2000}, 10)
        train.scalars({"loss": np.float32(0.25), "broken": float("nan")}, 20)
        validation.scalars({"loss": 0.75}, 20)
    found, multiplexer = read(tmp_path)
    assert set(found) == {"train", "validation"}
    assert [(step, float(value)) for step, value in found["train"]["loss"]] == [(10, 0.5), (20, 0.25)]
    assert float(found["validation"]["loss"][0][1]) == 0.75 and np.isnan(found["train"]["broken"][0][1])
    assert multiplexer.SummaryMetadata("train", "loss").plugin_data.plugin_name == "scalars"


def test_points_can_be_read_while_the_run_goes_on(tmp_path):
    writer = Writer(tmp_path)
    writer.scalars({"loss": 1.0}, 1)
    assert steps(tmp_path) == [1]
    writer.close()


def test_a_resume_drops_what_came_after_its_step(tmp_path):
    with Writer(tmp_path) as first:
        for step in range(10, 60, 10):
            first.scalars({"loss": 1.0, "only_before": 1.0}, step)
    with Writer(tmp_path, resume_step=30) as second:
        second.scalars({"loss": 2.0}, 40)
    with Writer(tmp_path, resume_step=40) as third:
        third.scalars({"loss": 3.0}, 50)
    assert [(step, float(value)) for step, value in read(tmp_path)[0]["."]["loss"]] == [(10, 1), (20, 1), (30, 1), (40, 2), (50, 3)]
    assert steps(tmp_path, tag="only_before") == [10, 20, 30]


def test_a_resume_after_a_kill_reads_past_the_torn_record(tmp_path):
    with Writer(tmp_path) as first:
        for step in (10, 20, 30):
            first.scalars({"loss": 1.0}, step)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-7])
    with Writer(tmp_path, resume_step=10) as second:
        second.scalars({"loss": 2.0}, 20)
    assert [(step, float(value)) for step, value in read(tmp_path)[0]["."]["loss"]] == [(10, 1), (20, 2)]


def test_a_resume_at_step_zero_keeps_step_zero(tmp_path):
    with Writer(tmp_path) as first:
        first.text("experiment", "task: x", 0)
        first.scalars({"loss": 1.0}, 1)
    with Writer(tmp_path, resume_step=0) as second:
        second.scalars({"loss": 2.0}, 2)
    assert steps(tmp_path, tag="experiment") == [0] and steps(tmp_path) == [2]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images_without_captions_come_back_bit_for_bit(tmp_path, channels):
    images = np.random.default_rng(0).integers(0, 256, (3, 6, 8, channels), dtype=np.uint8)
    with Writer(tmp_path) as writer:
        writer.images("inputs", images, 5)
    found, multiplexer = read(tmp_path)
    ((step, (width, height, *encoded)),) = found["."]["inputs"]
    assert (step, width, height, len(encoded)) == (5, b"8", b"6", 3)
    for image, data in zip(images, encoded):
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))).reshape(image.shape), image)
    assert multiplexer.SummaryMetadata(".", "inputs").plugin_data.plugin_name == "images"


def test_images_with_captions_and_figures_are_one_picture_of_its_own_size(tmp_path):
    with Writer(tmp_path) as writer:
        writer.images("inputs", np.zeros((4, 8, 8, 3), np.uint8), 1, captions=["cat", "dog", "<b>", "$x$"])
        writer.figure("curves", learning_curves([{"step": 1, "train/loss": 1.0}]), 1)
        writer.images("none", np.zeros((0, 8, 8, 3), np.uint8), 1, captions=[])
    found, _ = read(tmp_path)
    for tag in ("inputs", "curves"):
        ((_, (width, height, data)),) = found["."][tag]
        assert Image.open(io.BytesIO(data)).size == (int(width), int(height)) and int(width) > 300


def test_images_of_another_type_are_refused(tmp_path):
    with Writer(tmp_path) as writer, pytest.raises(ValueError, match="uint8 expected, got"):
        writer.images("inputs", np.zeros((1, 8, 8, 3), np.float32), 0)


def test_text_audio_and_histogram(tmp_path):
    samples = np.stack([np.sin(np.arange(800) / 5), np.full(800, 2.0)]).astype(np.float32)
    values = np.array([0.0, 0.0, 1.0, 2.0, np.nan, np.inf])
    with Writer(tmp_path) as writer:
        writer.text("experiment", "# task\n`x`", 0)
        writer.audio("clips", samples, 8000, 7, captions=["one", "<two>"])
        writer.audio("uneven", [samples[0], samples[1][:10]], 8000, 7)
        writer.histogram("weights", values, 7, bins=4)
        writer.histogram("empty", np.array([]), 7)
    found, multiplexer = read(tmp_path)
    tags = found["."]
    assert tags["experiment"][0][1].item() == b"# task\n`x`"
    ((step, clips),) = tags["clips"]
    assert step == 7 and clips.shape == (2,)
    assert tags["clips captions"][0][1].item() == b"1. one\n2. \\<two\\>"
    with wave.open(io.BytesIO(clips[0])) as file:
        assert (file.getframerate(), file.getnframes(), file.getsampwidth()) == (8000, 800, 2)
        assert np.allclose(np.frombuffer(file.readframes(800), "<i2") / 32767, samples[0], atol=1e-4)
    with wave.open(io.BytesIO(clips[1])) as file:
        assert set(np.frombuffer(file.readframes(800), "<i2")) == {32767}  # cut off, not wrapped around
    assert tags["uneven"][0][1].shape == (2,)
    assert tags["weights"][0][1].tolist() == [[0.0, 0.5, 2.0], [0.5, 1.0, 0.0], [1.0, 1.5, 1.0], [1.5, 2.0, 1.0]]
    assert tags["empty"][0][1].shape == (0, 3)
    plugins = {tag: multiplexer.SummaryMetadata(".", tag).plugin_data.plugin_name for tag in tags}
    assert plugins == {"experiment": "text", "clips": "audio", "clips captions": "text", "uneven": "audio", "weights": "histograms",
                       "empty": "histograms"}


def test_hparams_have_settings_status_and_metrics(tmp_path):
    with Writer(tmp_path) as writer:
        writer.hparams({"train.epochs": 3, "train.learning_rate.peak": np.float32(0.5).item(), "model.name": "cnn", "train.nesterov": True,
                        "train.ema": None, "list": [1, 2]}, {"test/accuracy": 0.75}, name="trial 7", step=30)
    found, multiplexer = read(tmp_path)
    assert [(step, float(value)) for step, value in found["."]["hparam/test/accuracy"]] == [(30, 0.75)]
    contents = multiplexer.PluginRunToTagToContent("hparams")["."]
    start = hparams_metadata.parse_session_start_info_plugin_data(contents[hparams_metadata.SESSION_START_INFO_TAG])
    assert start.group_name == "trial 7"
    assert start.hparams["train.epochs"].number_value == 3 and start.hparams["model.name"].string_value == "cnn"
    assert start.hparams["train.nesterov"].bool_value is True
    assert start.hparams["train.ema"].string_value == "null" and start.hparams["list"].string_value == "[1, 2]"
    end = hparams_metadata.parse_session_end_info_plugin_data(contents[hparams_metadata.SESSION_END_INFO_TAG])
    assert end.status == 1  # STATUS_SUCCESS
    assert hparams_metadata.EXPERIMENT_TAG not in contents  # TensorBoard would take the first it finds for every run


def test_a_search_says_which_columns_hparams_has_and_in_which_order(tmp_path):
    with Writer(tmp_path) as writer:
        writer.hparams_config({"rate": (1e-4, 1e-2), "width": (8, 64), "name": ["cnn", "vit"], "on": [False, True], "list": [[1], [2, 3]],
                               "mixed": [None, 1]}, [("loss", "validation", "epoch/loss"), ("accuracy", "", "hparam/validation/accuracy")])
    _, multiplexer = read(tmp_path)
    contents = multiplexer.PluginRunToTagToContent("hparams")["."]
    about = hparams_metadata.parse_experiment_plugin_data(contents[hparams_metadata.EXPERIMENT_TAG])
    assert [one.display_name for one in about.metric_infos] == ["loss", "accuracy"]
    assert (about.metric_infos[0].name.group, about.metric_infos[0].name.tag) == ("validation", "epoch/loss")
    space = {one.name: one for one in about.hparam_infos}
    assert list(space) == ["rate", "width", "name", "on", "list", "mixed"]
    assert (space["rate"].domain_interval.min_value, space["width"].domain_interval.max_value) == (1e-4, 64)
    assert [value.string_value for value in space["list"].domain_discrete.values] == ["[1]", "[2, 3]"]
    assert len(space["on"].domain_discrete.values) == 2 and not space["mixed"].domain_discrete.values


def test_custom_scalars_layout(tmp_path):
    with Writer(tmp_path) as writer:
        writer.custom_scalars({"Learning": {"loss": ["^loss$", "epoch/loss"]}, "Speed": {"examples/s": ["speed/.*"]}})
    found, _ = read(tmp_path)
    layout = layout_pb2.Layout.FromString(found["."]["custom_scalars__config__"][0][1].item())
    assert [category.title for category in layout.category] == ["Learning", "Speed"]
    assert list(layout.category[0].chart[0].multiline.tag) == ["^loss$", "epoch/loss"]


def test_a_folder_that_cannot_be_written_is_said_once_and_stops_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    said = []
    writer = Writer(tmp_path / "file", on_failure=said.append)
    writer.scalars({"loss": 1.0}, 1)
    writer.flush()
    writer.close()
    assert len(said) == 1 and str(tmp_path / "file") in said[0] and "Training continues." in said[0]


def test_a_disk_that_fills_up_is_said_once_and_stops_nothing(tmp_path):
    said = []
    writer = Writer(tmp_path, on_failure=said.append)
    writer.scalars({"loss": 1.0}, 1)
    writer._records = tf.io.TFRecordWriter("/dev/full")
    for step in range(5):
        writer.histogram("weights", np.arange(100_000), step, bins=50_000)
    writer.close()
    assert len(said) == 1 and "No space left" in said[0]
    assert steps(tmp_path) == [1]


def test_vectors_for_the_projector_stand_with_their_names(tmp_path):
    with Writer(tmp_path) as writer:
        writer.projector("items", np.eye(2), {"title": ["one\ttwo", ""], "id": ["7", "8"]})
        writer.projector("words", np.eye(2), ["a", " "])
    assert (tmp_path / "projector" / "items.tsv").read_text() == "1\t0\n0\t1\n"
    assert (tmp_path / "projector" / "items_names.tsv").read_text() == "title\tid\none two\t7\n-\t8\n"
    assert (tmp_path / "projector" / "words_names.tsv").read_text() == "a\n-\n"
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert 'tensor_path: "projector/items.tsv"' in config and 'metadata_path: "projector/words_names.tsv"' in config


def test_vectors_that_cannot_be_written_are_said_once_and_stop_nothing(tmp_path):
    said = []
    writer = Writer(tmp_path, on_failure=said.append)
    (tmp_path / "projector").write_text("where the folder would be")
    writer.projector("items", np.eye(2), ["a", "b"])
    writer.scalars({"loss": 1.0}, 1)
    writer.close()
    assert len(said) == 1 and "Training continues." in said[0]


def test_writing_starts_no_thread_and_is_quick(tmp_path):
    import time

    before = threading.active_count()
    with Writer(tmp_path) as writer:
        began = time.process_time()
        for step in range(200):
            writer.scalars({"loss": 1.0, "accuracy": 0.5, "learning_rate": 0.1}, step)
        assert (time.process_time() - began) / 200 < 5e-3
        assert threading.active_count() == before
        began = time.process_time()
        writer.images("inputs", np.random.default_rng(0).integers(0, 256, (1, 1024, 1024, 1), dtype=np.uint8), 0)
        assert time.process_time() - began < 2


def test_two_writers_of_one_process_keep_their_order(tmp_path):
    for value in range(12):  # file names are sorted as text: a serial 9 must come before 10
        with Writer(tmp_path, resume_step=value * 10 if value else None) as writer:
            writer.scalars({"loss": float(value)}, value * 10 + 10)
    assert [(step, float(value)) for step, value in read(tmp_path)[0]["."]["loss"]] == [(value * 10 + 10, value) for value in range(12)]
