"""`quartet check` ends with an error wherever `train` stops before its first step, in every domain, for the same reason."""

import pytest

from pipelines.base.errors import QuartetError
from pipelines.commands.check import check
from tests.hostile.data import ALLOWED, REFUSED


def refusals(experiment) -> tuple[str, str]:
    """(what check says, what train says before its first step); empty where they let it pass."""
    from pipelines.runs.launch import task_class
    from pipelines.training.preparation import prepare

    said = ["", ""]
    try:
        found = check(experiment)
        said[0] = "\n".join(finding.text for finding in found.findings if finding.level == "error")
        assert bool(said[0]) is found.failed
    except QuartetError as error:
        said[0] = str(error)
    try:
        prepare(experiment, task_class(experiment.task), precision="float32")
    except QuartetError as error:
        said[1] = str(error)
    return said[0], said[1]


@pytest.mark.parametrize("name", REFUSED)
def test_what_train_refuses_check_refuses(tmp_path, name):
    checked, trained = refusals(REFUSED[name](tmp_path))
    assert trained, "training begins with it"
    assert trained in checked or "has 1 class of which train has no example" in checked


@pytest.mark.parametrize("name", ["one text of each class", "one item, ratings", "users of one event, ratings"])
def test_what_train_takes_check_takes(tmp_path, name):
    assert refusals(ALLOWED[name](tmp_path)) == ("", "")


def test_what_is_wrong_besides_the_data_is_found_too(tmp_path):
    experiment = REFUSED["texts of one class"](tmp_path)  # its table is written anew below, with two classes
    rows = "".join(f"room {number},{('low', 'high')[number % 2]}\n" for number in range(20))
    (tmp_path / "texts.csv").write_text("text,label\n" + rows)
    frozen = experiment.model_copy(update={"train": experiment.train.model_validate(
        {**experiment.train.model_dump(), "freeze": {"layers": ["no_such_layer"]}})})
    checked, trained = refusals(frozen)
    assert trained.startswith("train.freeze.layers: 'no_such_layer' matches no layer") and trained in checked
