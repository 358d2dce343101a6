"""The report of a run: what it says, that nothing in the data becomes markup, and in which order its files appear."""

import base64
import html.parser
import json
import re

import numpy as np
import pytest

import speech.settings  # noqa: F401, declares error rates of words and characters
from pipelines.base import figures
from pipelines.base.formatting import escaped
from pipelines.config.schema import Experiment, Section, setting
from pipelines.data.source import Source
from pipelines.outputs import classification
from pipelines.outputs.per_class import per_class
from pipelines.reports import report
from pipelines.reports.blocks import Bullets, Code, Heading, Paragraph, Picture, Table, markdown
from pipelines.reports.html import page
from pipelines.reports.report import changed_settings
from pipelines.reports.run_report import facts_table, records_table
from pipelines.task.contract import Splits
from pipelines.task.results import Judgement, Metric


class Model(Section):
    name: str = setting(..., "kind")
    width: int = setting(64, "width")


class Wide(Model):
    depth: int = setting(2, "depth")


class Sample(Experiment):
    model: Model = setting(Model, "model")
    other: Model | Wide = setting(lambda: Model(name="a"), "other")


def settings(**train):
    return Sample.model_validate({"task": "vision.classification", "model": {"name": "cnn"}, "train": train})


class Counted(Source):
    """A number of examples that nobody reads."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def gather(self, numbers):
        raise NotImplementedError

    def name(self, number):
        return str(number)

    def fingerprint(self):
        return ""


def judged(names=("cat", "dog <b>|x|"), seed=0, note="first"):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet([1] * len(names), 40)
    answers = classification.classified(probabilities, rng.integers(0, len(names), 40), names)
    tables = {"per_class": per_class(answers), "worst_mistakes": classification.mistakes_table(answers, 3, "img[{}]".format)}
    return Judgement(classification.metrics(answers, resamples=100), tables, notes=[note])


def write(folder, **changes):
    splits = Splits(Counted(100), Counted(10), Counted(40), facts={"classes": ["cat", "dog"], "vocabulary": [f"w{k}" for k in range(5000)]},
                    skipped=tuple(f"bad{k}.jpg: empty" for k in range(25)), notes=("Validation: 10 %.",))
    curves = figures.learning_curves([{"step": 1, "train/loss": 1.0}, {"step": 2, "train/loss": 0.5}])
    arguments = {
        "task": "vision.classification", "experiment": "vision/pets", "run": "default",
        "judgements": {"validation": judged(seed=1), "test": judged()},
        "timing": {"train_seconds": 91.0, "setup_seconds": 4.2, "examples_per_second": 5521.4, "input_wait_fraction": 0.0147,
                   "epochs": 10},
        "meter": {"seconds": {"step": 90.0, "input": 10.0}, "shares": {"step": 0.9, "input": 0.1}}, "curves": curves, "splits": splits,
        "settings": settings(epochs=3), "environment": {"versions": {"keras": "3.15.1"}, "memory_bytes": 2**30},
        "notes": ["Kept: epoch 9."]}
    return report.write_report(folder, report.Reported(**(arguments | changes)))


def test_report_json_has_the_promised_shape(tmp_path):
    returned = write(tmp_path / "report")
    read = json.loads((tmp_path / "report/report.json").read_text())
    assert read == json.loads(json.dumps(returned))
    assert read["task"] == "vision.classification" and read["experiment"] == "vision/pets"
    assert set(read["metrics"]["test/accuracy"]) == {"value", "low", "high", "n", "unit", "units"}
    assert read["metrics"]["test/accuracy"]["n"] == read["metrics"]["test/accuracy"]["units"] == 40
    assert {"train_seconds", "setup_seconds", "examples_per_second", "input_wait_fraction"} <= set(read["timing"])
    assert read["data"]["examples"] == {"train": 100, "validation": 10, "test": 40}
    assert read["data"]["facts"]["vocabulary"]["count"] == 5000 and len(json.dumps(read)) < 20_000
    assert len(read["skipped"]) == 25 and "test/per_class" in read["tables"] and "validation/per_class" in read["tables"]
    assert read["settings"]["train"]["epochs"] == 3


def test_report_md_leads_with_the_result_and_tells_everything(tmp_path):
    content = write(tmp_path / "report")
    text = (tmp_path / "report/report.md").read_text()
    lines = text.splitlines()
    value = content["metrics"]["test/accuracy"]["value"]
    assert lines[0] == "# vision/pets: default"
    assert lines[2].startswith(f"**Accuracy {100 * value:.1f} % [")
    assert "on 40 test examples, after 1 min 31 s of training (10 epochs)." in lines[2]
    headings = [line[3:] for line in lines if line.startswith("## ")]
    assert headings == ["Metrics", "Learning curves", "Classes (test)", "Worst mistakes (test)", "Time", "Data",
                        "Settings that are not defaults", "Environment", "Use it"]
    plain = re.sub(r" +", " ", text)
    for expected in (
        "| | test (40 examples) | validation (40 examples) |", "| train.epochs | 3 | 10 |", "| task | vision.classification | – |",
        "- Kept: epoch 9.", "- Validation: 10 %.", "- first", "- bad0.jpg: empty", "- and 5 more, in report.json",
        f"quartet predict {tmp_path} INPUT...", "| step | 1 min 30 s | 90.0 % |", "| memory | 1.0 GiB |", "| versions.keras | 3.15.1 |",
        "w0, w1,", "(5,000 in all)", "![Loss, metrics and learning rate over training](figures/learning_curves.png)",
    ):
        assert expected in plain, expected
    assert text.count("- first") == 1


def test_every_picture_named_is_there(tmp_path):
    content = write(tmp_path / "report")
    assert content["figures"] == ["figures/learning_curves.png"]
    for name in re.findall(r"\]\((figures/[^)]+)\)", (tmp_path / "report/report.md").read_text()):
        assert (tmp_path / "report" / name).read_bytes().startswith(b"\x89PNG")


def test_nothing_is_left_half_written_and_json_comes_last(tmp_path, monkeypatch):
    order = []
    whole = report.write_whole

    def recording(path, content):
        order.append(path.name)
        whole(path, content)

    monkeypatch.setattr(report, "write_whole", recording)
    monkeypatch.setattr(report, "write_json", lambda path, value: order.append(path.name))
    write(tmp_path / "report")
    assert order == ["learning_curves.png", "report.html", "report.md", "model_card.md", "report.json"]
    assert not list((tmp_path / "report").rglob("*.part"))


class Checked(html.parser.HTMLParser):
    """Checks that tags are closed in order and that nothing is fetched; gathers text and tags."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.tags, self.images = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        given = dict(attributes)
        if tag == "img":
            self.images.append(given["src"])
        else:
            assert "src" not in given
        assert given.get("href", "#").startswith("#")
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_html_is_one_whole_file_that_fetches_nothing_and_runs_nothing(tmp_path):
    write(tmp_path / "report")
    source = (tmp_path / "report/report.html").read_text()
    checked = Checked()
    checked.feed(source)
    assert not checked.open and "script" not in checked.tags and "b" not in checked.tags and "http" not in source and "url(" not in source
    assert "dog <b>|x|" in checked.text
    assert [base64.b64decode(image.split(",")[1])[:4] for image in checked.images] == [b"\x89PNG"]
    names = re.findall(r'id="([^"]+)"', source)
    assert len(names) == len(set(names)) and set(re.findall(r'href="#([^"]+)"', source)) <= set(names)


def test_html_and_markdown_tell_the_same(tmp_path):
    write(tmp_path / "report")
    checked = Checked()
    checked.feed((tmp_path / "report/report.html").read_text())
    told = re.sub(r"\s+", "", "".join(checked.text))
    for line in (tmp_path / "report/report.md").read_text().splitlines():
        for cell in re.split(r"(?<!\\)\|", line):
            plain = re.sub(r"\\(?=[^\w\s])", "", re.sub(r"^(#+ |- |\*\*|!.*|```.*|:?-+:?$)|\*\*$", "", cell.strip()))
            assert re.sub(r"\s+", "", plain) in told, cell


def test_several_seeds(tmp_path):
    seeds = [{"seed": k, "metrics": {"test/accuracy": 0.7 + k / 100, "test/log_loss": 1.0}} for k in range(3)]
    content = write(tmp_path / "report", seeds=seeds)
    text = (tmp_path / "report/report.md").read_text()
    assert content["spread"]["test/accuracy"] == pytest.approx({"mean": 0.71, "std": 0.01, "n": 3})
    assert "over 3 seeds 71.0 %, spread 1.0 %." in text and "| spread | 1.0 % | 0 |" in text


def test_a_report_over_seeds_says_the_mean_once_and_names_the_first_run(tmp_path):
    seeds = [{"seed": k, "run": f"default-seed{k}", "metrics": {"test/accuracy": 0.5 + k / 4}} for k in range(3)]
    judgement = Judgement({"accuracy": Metric(0.75, 0.7, 0.8, 100)})
    write(tmp_path / "default" / "report", seeds=seeds, judgements={"test": judgement}, splits=None, curves=None)
    text = (tmp_path / "default/report/report.md").read_text()
    assert "; mean of 3 seeds, spread 25.0 %." in text and f"quartet predict {tmp_path / 'default-seed0'} INPUT..." in text
    assert "## Data" not in text and "skipped" not in text


def test_a_run_without_anything_judged_or_known(tmp_path):
    content = report.write_report(tmp_path, report.Reported(task="t", experiment="e", run="r", judgements={}, timing={}))
    assert content["metrics"] == {} and "Nothing was judged" in (tmp_path / "report.md").read_text()


def test_other_metrics_lead_where_asked_and_lists_of_other_domains_get_sections(tmp_path):
    judgement = Judgement({"wer": Metric(0.12, 0.1, 0.14, 300), "cer": Metric(0.04, 0.03, 0.05, 300)},
                          {"worst_words": [{"word": "the", "deletions": 3}]}, {}, [])
    write(tmp_path, judgements={"test": judgement}, lead="cer")
    text = (tmp_path / "report.md").read_text()
    assert "**Character error rate 4.0 % [3.0, 5.0] on 300 test examples" in text
    assert "## Worst words (test)" in text and "| the | 3 |" in text


def test_metrics_that_are_not_finite_do_not_break_it(tmp_path):
    write(tmp_path, judgements={"test": Judgement({"log_loss": Metric(float("nan"), None, None, 3)})})
    assert json.loads((tmp_path / "report.json").read_text())["metrics"]["test/log_loss"]["value"] is None
    assert "Log loss not finite on 3 test examples" in (tmp_path / "report.md").read_text()


def test_notes_of_one_split_name_it(tmp_path):
    content = write(tmp_path, judgements={"validation": judged(note="a"), "test": judged(note="b")}, notes=[])
    assert content["notes"] == ["Validation: 10 %.", "Test: b", "Validation: a"]


def test_changed_settings_name_every_difference():
    found = {change.name: (change.value, change.default, change.required) for change in changed_settings(settings(
        epochs=10, batch_size=64, learning_rate={"peak": 0.1}, early_stopping={"patience": 3}))}
    assert found == {
        "task": ("vision.classification", None, True), "train.batch_size": (64, 128, False), "train.learning_rate.peak": (0.1, 1e-3, False),
        "train.early_stopping.patience": (3, None, True), "model.name": ("cnn", None, True)}
    wide = Sample.model_validate({"task": "t", "model": {"name": "cnn"}, "other": {"name": "a", "depth": 4}})
    names = {change.name for change in changed_settings(wide, leave_out=("task", "model"))}
    assert names == {"other.name", "other.depth"}


def test_markdown_shows_texts_as_they_are():
    for text in ("a*b*", "<b>", "x|y", "`code`", "[a](b)", "_em_ a_b", "# no", "- no", "1. no", "a\\b", "$x$", "~~no~~"):
        assert not re.search(r"(?<!\\)[*<>`$~]", escaped(text)), text
    assert escaped("top5_accuracy") == "top5_accuracy" and escaped("[72.2, 74.0]") == "[72.2, 74.0]"
    assert escaped("# no") == "\\# no" and escaped("1. no") == "1\\. no" and escaped("_em_ a_b") == "\\_em\\_ a_b"
    table = markdown([Table(("a|b",), [["x\ny|z"]], [False])])
    assert table == "| a\\|b |\n| :-- |\n| x y\\|z |\n"
    assert markdown([Code("a ``` b", "text")]).startswith("````text\n")


def test_page_of_every_block():
    blocks = [Heading("One & two", 1), Paragraph("42 % < 1 min 05 s", lead=True), Heading("Same"), Bullets(["<i>"]), Heading("Same"),
              Picture("x.png", b"png", 'a "quote"'), Code("<x>"), Table(("n", "v"), [["a", "1"]], [False, True])]
    checked = Checked()
    source = page(blocks, title="A <title>")
    checked.feed(source)
    assert "<title>A &lt;title&gt;</title>" in source and "42&nbsp;% &lt; 1&nbsp;min&nbsp;05&nbsp;s" in source
    assert {'id="same"', 'id="same-4"'} <= set(re.findall(r'id="[^"]+"', source))


def test_long_tables_are_cut_to_the_lowest_and_say_where_the_rest_is():
    records = [{"class": str(k), "recall": k / 100, "recall_low": 0.0, "recall_high": 1.0} for k in reversed(range(100))]
    table, line = records_table(records, whole="report.json")
    assert isinstance(table, Table) and list(table.columns) == ["Class", "Recall"] and len(table.rows) == 40
    assert table.rows[0] == ["0", "0.0 % [0.0, 100.0]"] and list(table.right) == [False, True]
    assert line.text == "Shown: 40 of 100, lowest Recall. All: report.json."
    assert records_table([]) == [Paragraph("None.")]


def test_facts_table_writes_units_and_nested_names():
    table = facts_table({"train_seconds": 3.0, "a": {"b": [1, 2]}, "empty": [], "none": None, "on": True,
                         "classes": {f"c{k}": 10 for k in range(20)}, "cut": {"count": 300, "first": {"x": 1, "y": 2}}})
    counts = ", ".join(f"c{k}: 10" for k in range(12))
    assert table.rows == [["train", "3.0 s"], ["a.b", "1, 2"], ["empty", "–"], ["none", "–"], ["on", "yes"],
                          ["classes", f"{counts}, … (20 in all)"], ["cut", "x: 1, y: 2, … (300 in all)"]]
