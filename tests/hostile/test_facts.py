"""facts.json that no training wrote: refused with the file and the field, in every domain, before anything is built from it."""

import json

import pytest

from pipelines.base.errors import ConfigError
from pipelines.base.stored import read
from pipelines.config.load import load, resolved_yaml
from pipelines.runs.folder import RunFolder
from tests.hostile.records import FACTS, IMAGES, make_run, text, with_


def schema(task: str):
    from pipelines.runs.launch import task_class

    return task_class(task.split()[0]).facts_schema


@pytest.mark.parametrize("task", FACTS)
def test_sound_facts_come_back_as_they_were(tmp_path, task):
    (tmp_path / "facts.json").write_bytes(text(FACTS[task][0]))
    assert read(tmp_path / "facts.json", schema(task)).model_dump(exclude_unset=True, by_alias=True) == FACTS[task][0]


@pytest.mark.parametrize(("task", "number"), [(task, number) for task in FACTS for number in range(len(FACTS[task][1]))])
def test_nonsense_is_refused(tmp_path, task, number):
    sound, wrong = FACTS[task]
    path, value = wrong[number]
    (tmp_path / "facts.json").write_bytes(text(with_(sound, path, value)))
    with pytest.raises(ConfigError, match=rf"facts\.json: (cannot be read|{path.split('|')[0]})"):
        read(tmp_path / "facts.json", schema(task))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000, text({}), text({**IMAGES, "channels": 4}),
                                     text({**IMAGES, "classes": None})])
def test_a_run_with_them_is_not_loaded(tmp_path, content):
    from pipelines.serving.load import load_run

    folder = RunFolder(make_run(tmp_path / "vision/digits/bad"))
    folder.experiment.write_text(resolved_yaml(load("vision/digits").experiment))
    folder.model.mkdir()
    (folder.model / "model.keras").write_bytes(b"")
    folder.facts.write_bytes(content)
    with pytest.raises(ConfigError, match=r"facts\.json: "):
        load_run(folder, where="cpu")


def test_facts_of_another_experiment(tmp_path):
    """Sound by themselves, and not the experiment's: fewer bands than its features have; no vocabulary."""
    from pipelines.runs.launch import task_class

    for name, facts, message in (("speech/spoken_digit", {**FACTS["speech.classification"][0], "mean": [0.0]}, "mean: 1 numbers for"),
                                 ("nlp/quickstart", {"classes": ["a", "b"]}, None)):
        experiment = load(name, check_paths=False).experiment
        found = task_class(experiment.task)(experiment, json.loads(json.dumps(facts))).facts_error()
        assert (found is None) if message is None else (found or "").startswith(message), found
