"""A text run from table to saved model: trained, judged again, asked for answers in every way, exported; several labels and rejection."""

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from pipelines.commands import main
from pipelines.runs.folder import RunFolder
from pipelines.serving.evaluate import evaluate, own_split
from pipelines.serving.export import export
from pipelines.serving.load import load_run
from pipelines.serving.predict import Predictor
from pipelines.training.evaluation import Evaluator
from quartet import task_testing
from tests import processes
from tests.finished_run import ROOT, environment, quartet

pytestmark = pytest.mark.slow(seconds=77)

SHARES = {"probabilities", "confidence"}
SHARED = ("train.precision=float32", "train.devices=cpu", "evaluate.bootstrap=100")

USE = """
import sys
import json
import numpy as np
import tensorflow as tf

texts = json.load(open(sys.argv[1]))
found = {}
for place, folder in enumerate(sys.argv[3:]):
    model = tf.saved_model.load(folder)
    serve = model.signatures["serving_default"]
    for size in (1, len(texts)):
        for name, value in serve(text=tf.constant(texts[:size])).items():
            found[f"{place}/{name}/{size}"] = value.numpy().astype(str) if value.dtype == tf.string else value.numpy()
np.savez(sys.argv[2], **found)
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of the quick start's sentences, with some of no class; label sets beside."""
    from nlp.data.quickstart import sentences

    texts, labels, _ = sentences()
    folder = tmp_path_factory.mktemp("table")
    with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label", "tags"])
        for number, (text, label) in enumerate(list(zip(texts, labels))[::4]):
            tags = [label, *(["polite"] if "please" in text or "could" in text else [])]
            writer.writerow([number, text, label, ";".join(tags)])
        for number in range(40):
            writer.writerow([1000 + number, f"zebra quantum {number} ünïcode 👍 東京", "nothing", ""])
    return folder / "t.csv"


@pytest.fixture(scope="module")
def runs(table):
    """Finished runs of four models, trained in one process."""
    folder = table.parent / "runs"
    small = ["train.epochs=3", "train.batch_size=32", *SHARED, f"data.path={table}", "evaluate.worst=4", "evaluate.baseline=false",
             "monitor.tensorboard=false"]
    asked = {
        "bag": ["reject={label: nothing, train: uniform}", "train.epochs=8", "tokens.buckets=20000", "monitor.tensorboard=true"],
        "many": ["data.label_key=tags", "data.labels=many", "tokens={name: subwords, vocabulary: 200}", "train.epochs=6",
                 "model={name: bag, width: 16, pool: root}", "train.learning_rate.peak=0.03"],
        "cnn": ["model={name: cnn, width: 16, filters: 8}", "tokens={name: words, least: 1, limit: 32}", "monitor.tensorboard=true"],
        "bayes": ["model={name: bag, naive_bayes: true}", "tokens={name: hashed, distinct: true, buckets: 20000}",
                  "train.tables={optimizer: adagrad, learning_rate: 0.02}"],
        "tf_idf": ["model={name: bag, linear: true, rarity: true, drop_tokens: 0.2}", "train.learning_rate.peak=30",
                   "tokens={name: hashed, characters: [5, 5], distinct: true, buckets: 8192, character_buckets: 4096}",
                   "train.optimizer={name: sgd}", "train.tables={optimizer: sgd}"]}
    code = ("import sys, json\nfrom pipelines.commands.main import main\nasked, runs = json.loads(sys.argv[1]), sys.argv[2]\n"
            "for name, settings in asked.items():\n"
            "    sys.argv = ['quartet', 'train', 'nlp/table', *settings, '--runs', runs, '--name', name]\n"
            "    try:\n        main()\n    except SystemExit as end:\n        assert not end.code, (name, end.code)\n")
    processes.run("-c", code, json.dumps({name: [*small, *more] for name, more in asked.items()}), folder, check=True)
    return {name: folder / "nlp" / "table" / name for name in asked}


@pytest.fixture(scope="module")
def loaded(runs):
    return {name: load_run(RunFolder(path), where="cpu") for name, path in runs.items()}


@pytest.fixture(scope="module")
def judged(loaded):
    """By run: (texts, answers) of the test split as the evaluation answers them."""
    found = {}
    for name, run in loaded.items():
        source, _, _ = own_split(run, "test")
        evaluator = Evaluator(run.task, run.model, source, machine=run.machine, batch=64)
        found[name] = source.texts.numpy().tolist(), evaluator.answers()[0]["probabilities"]
    return found


def test_reports_say_what_a_text_run_must(runs):
    report = json.loads((runs["bag"] / "report" / "report.json").read_text())
    metrics = report["metrics"]
    assert metrics["test/accuracy"]["value"] > 0.6 and metrics["test/out_of_scope_recall"]["value"] > 0.5
    assert {"test/out_of_scope_auroc", "test/macro_f1", "test/calibration_error", "test/accuracy_with_rejection"} <= set(metrics)
    mistakes = report["tables"]["test/worst_mistakes"]
    assert mistakes and all(row["text"] and "words" in row for row in mistakes) and any(row["words"] for row in mistakes)
    many = json.loads((runs["many"] / "report" / "report.json").read_text())
    assert many["metrics"]["test/micro_f1"]["value"] > 0.5 and "test/subset_accuracy" in many["metrics"]
    assert (runs["many"] / "report" / "figures" / "precision_recall.png").exists()
    facts = json.loads((runs["bag"] / "model" / "facts.json").read_text())
    assert 0 < facts["threshold"] < 1 and "nothing" not in facts["classes"]


def test_a_run_is_judged_again_as_it_was(runs, loaded):
    for name in ("bag", "many"):
        before = json.loads((runs[name] / "report" / "report.json").read_text())["metrics"]
        found = evaluate(loaded[name]).judgement.metrics
        for metric, value in found.items():
            assert value.value == pytest.approx(before[f"test/{metric}"]["value"], abs=1e-6), metric


def test_other_data_are_judged(runs, loaded, table, tmp_path):
    other = tmp_path / "more.csv"
    other.write_text("text,label\ncall a taxi to the airport,taxi\nthe shower is broken again,complaint\nzebra quantum,nothing\n")
    found = evaluate(loaded["bag"], data=other)
    assert found.judgement.metrics["accuracy"].n == 2 and found.judgement.metrics["out_of_scope_recall"].n == 1
    # a run with texts of no class in splits of their own is judged where there are none, in another kind of table
    apart = loaded["bag"].experiment.reject.model_copy(update={"splits": "{split}_oos"})
    run = replace(loaded["bag"], experiment=loaded["bag"].experiment.model_copy(update={"reject": apart}))
    other.with_suffix(".psv").write_text(other.read_text().replace(",", "|"))
    found = evaluate(run, data=other.with_suffix(".psv"))
    assert found.judgement.metrics["accuracy"].n == 2 and found.judgement.metrics["out_of_scope_recall"].n == 1
    other.write_text("text,tags\ncall a taxi please,polite;taxi\nthe shower is broken,complaint\n")
    found = evaluate(loaded["many"], data=other, overrides=["data.label_key=tags"])
    assert {row["class"]: row["support"] for row in found.judgement.tables["per_class"] if row["support"]} == {
        "polite": 1, "taxi": 1, "complaint": 1}
    other.write_text("text,label\ncall a taxi,taxi\nfly,plane\n")
    from pipelines.base.errors import DataError

    with pytest.raises(DataError, match="'plane'"):
        evaluate(loaded["bag"], data=other)


def test_the_saved_models_answer_as_the_evaluation_in_tensorflow_alone(loaded, judged, tmp_path, monkeypatch):
    texts, _ = judged["cnn"]
    texts = [*[text.decode() for text in texts], "", "ÀÉ 👍🏽 東京", "word " * 5000]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    folders = [export(run, tmp_path / name) for name, run in loaded.items()]
    task_testing.run_bare(USE, tmp_path / "texts.json", tmp_path / "out.npz", *folders, folder=tmp_path)
    found = np.load(tmp_path / "out.npz")
    for place, (name, run) in enumerate(loaded.items()):
        own_texts, expected = judged[name]
        if own_texts == [text.encode() for text in texts[:-3]]:
            np.testing.assert_allclose(found[f"{place}/probabilities/{len(texts)}"][:-3], expected, atol=1e-5, err_msg=name)
        else:
            answers = [one.values["probabilities"] for one in Predictor(run).predict(texts)]
            np.testing.assert_allclose(found[f"{place}/probabilities/{len(texts)}"], answers, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(found[f"{place}/probabilities/1"][0], found[f"{place}/probabilities/{len(texts)}"][0], atol=1e-5)
    assert found[f"0/label/{len(texts)}"][-2] in (*loaded["bag"].task.output.classes, "nothing")
    readme = (tmp_path / "bag" / "README.txt").read_text()
    assert "needs TensorFlow 2.21 or later, nothing else" in readme
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec("\n".join(line[4:] for line in readme.splitlines() if line.startswith("    ")), names)
    assert names["answer"]["label"].shape == (1,)


def test_answers_are_those_of_the_evaluation(loaded, judged):
    for name, run in loaded.items():
        texts, expected = judged[name]
        answers = list(Predictor(run, batch=50).predict([text.decode() for text in texts]))
        np.testing.assert_allclose([one.values["probabilities"] for one in answers], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["bag", "many", "cnn", "tf_idf"])
def test_plain_texts_take_a_short_way_to_the_same_answers(loaded, name):
    run = loaded[name]
    usual = Predictor(run)
    texts = ["a room for two, please!", "When is breakfast?", "zebra quantum 7", "été à la mer", "", "zzzz qqqq"]
    rows = [(text, run.task.input.requests.take(text)) for text in texts]
    together = usual.together(rows)  # not all are plain
    for one, other in zip(usual.together(rows[:3]), together):
        assert {name: one.values[name] for name in one.values if name not in SHARES} == {
            name: other.values[name] for name in other.values if name not in SHARES}
        for share in SHARES & set(one.values):
            np.testing.assert_allclose(one.values[share], other.values[share], atol=1e-5)


def call(run, *arguments, **options):
    return CliRunner().invoke(main.app, ["predict", str(run), *arguments], **options)


def test_predict_takes_texts_files_and_tables(runs, tmp_path):
    (tmp_path / "lines.txt").write_text("the shower is broken\n\nwifi password please\n")
    (tmp_path / "t.csv").write_text('id,text,label\n7,"taxi, please",taxi\n8\n9,fresh towels,towels\n')
    done = call(runs["bag"], str(tmp_path / "t.csv"), "--format", "csv")
    rows = list(csv.reader(io.StringIO(done.stdout)))
    assert rows[0] == ["id", "text", "label", "predicted_label", "confidence", "warning", "error"]
    assert rows[1][:3] == ["7", "taxi, please", "taxi"] and rows[3][0] == "9"
    assert rows[2] == ["", "", "", "", "", "", f"{tmp_path / 't.csv'}:3: 1 field where the header has 3"]
    done = call(runs["bag"], "a single text", str(tmp_path / "lines.txt"), "missing.csv", "--format", "jsonl", "--top", "2")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["input"] for answer in answers] == ["a single text", "the shower is broken", f"{tmp_path / 'lines.txt'}:2",
                                                       "wifi password please", "missing.csv"]
    assert [answer.get("warning") for answer in answers[:4]] == [None, None, "the text is empty", None]
    assert answers[-1]["error"] == "No such file or directory" or "No such file" in answers[-1]["error"]
    assert len(answers[0]["top"]) == 2
    (tmp_path / "long.txt").write_text("a request that is longer than the sixty characters by which a text is called on the screen\n" * 2)
    done = call(runs["bag"], str(tmp_path / "long.txt"), "--format", "csv")
    assert {row[0] for row in list(csv.reader(io.StringIO(done.stdout)))[1:]} == set((tmp_path / "long.txt").read_text().splitlines())
    (tmp_path / "mails.csv").write_text("id,body,more\n7,the shower is broken,x\n")
    assert "--set data.text_key=COLUMN" in call(runs["bag"], str(tmp_path / "mails.csv")).output
    done = call(runs["bag"], str(tmp_path / "mails.csv"), "--set", "data.text_key=body", "--format", "csv")
    assert done.stdout.splitlines()[1].startswith("7,the shower is broken,x,") and done.stdout.splitlines()[1].endswith(",")
    done = call(runs["many"], "please call a taxi", "--format", "csv")
    assert done.stdout.splitlines()[0] == "input,labels,warning,error"


def test_an_answer_says_where_it_is_no_more_than_a_guess(runs, loaded, tmp_path):
    strange = "Ωμέγα"
    for name in ("tf_idf", "cnn"):
        asked = ["the shower is broken", strange, f"the {strange}", "", " \n"]
        notes = [one.values["warning"] for one in Predictor(loaded[name]).together([(text, {"text": text}) for text in asked])]
        unknown = "no word of the text is in the training data" if name == "cnn" else ""  # by hash, every word is known
        assert notes == ["", unknown, "", "the text is empty", "the text is empty"]
    shown = call(runs["cnn"], "the shower is broken").stdout
    assert "warning" not in shown and "no word of the text" in call(runs["cnn"], "the shower is broken", strange).stdout


def test_standard_input_is_answered_line_by_line(runs):
    process = subprocess.Popen([sys.executable, "-m", "quartet", "predict", str(runs["bag"]), "-"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment())
    try:
        process.stdin.write(b"the shower is broken\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith(b"input,label,confidence")
        assert process.stdout.readline().startswith(b"the shower is broken,")  # though the input goes on
        process.stdin.write("wifi 👍\n".encode())
        process.stdin.flush()
        assert process.stdout.readline().startswith("wifi 👍,".encode())
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()


@pytest.mark.parametrize("name", ["cnn", "bag"])
def test_tensorboard_has_texts_and_a_projector(runs, loaded, name):
    folder = runs[name] / "tensorboard" / "train"
    records = [record for path in folder.glob("events*") for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()]
    shown = [record for record in records if b"texts as the model reads them" in record]
    assert len(shown) > 1 and sum(record.count(b" the ") + record.count(b" a ") for record in shown) > len(shown)
    vectors = (folder / "projector" / "words.tsv").read_text().splitlines()
    words = (folder / "projector" / "words_names.tsv").read_text(encoding="utf-8").splitlines()
    assert len(vectors) == len(words) > 50
    assert "words.tsv" in (folder / "projector_config.pbtxt").read_text()
    # the vector beside a word is the one that its token is looked up with
    run = loaded[name]
    place = 20  # of the most frequent
    number = run.task.input.tokenizer.ids(tf.constant([words[place]]))[0, 0]
    np.testing.assert_allclose([float(value) for value in vectors[place].split("\t")],
                               run.model.get_layer("embedding").variable.value[number], rtol=1e-4, atol=1e-6)


def test_the_command_line_trains_the_quick_start(tmp_path):
    quick = ("train.epochs=1", *SHARED, "evaluate.baseline=false", "monitor.tensorboard=false")
    done = quartet(*quick, "--runs", str(tmp_path), module="nlp.train", cwd=tmp_path)
    assert done.returncode == 0 and "test accuracy" in done.stdout + done.stderr
