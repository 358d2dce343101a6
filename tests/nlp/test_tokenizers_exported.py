"""The tokenizers of encoders in saved models: pieces of bytes (BPE) and of SentencePiece; WordPiece has the contract's cases."""

import pytest

from nlp.tasks.tagging import Tagging
from pipelines.config.load import from_text
from pipelines.machine import devices
from pipelines.runs.folder import RunFolder
from pipelines.serving.load import LoadedRun
from quartet import task_testing
from tests.encoders import tiny

TEXTS = ["Book the taxi, please!", "", "\u00dcber 3 caf\u00e9s \U0001f600 now", "a  b\tc"]
TAGGED = """
task: nlp.tagging
data: {source: conll, path: '', validation: 0.2, test: null}
model: {name: pretrained, preset: '', limit: 40}
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [tiny.roberta, tiny.albert, tiny.xlm_roberta])
def test_a_saved_model_cuts_texts_as_the_run_does(kind, tmp_path):
    """Of tags, whose answers are places of words; the weights are as they begin."""
    pytest.importorskip("keras_hub", reason="needs the extra `pretrained`: what it tests is not tested here")
    lines = [line for number in range(30) for line in ("the\tO", f"taxi{number % 3}\tB-thing", ",\tO", "Caf\u00e9\tB-place", "")]
    (tmp_path / "a.conll").write_text("\n".join(lines), encoding="utf-8")
    known = from_text(TAGGED, [f"data.path={tmp_path / 'a.conll'}", f"model.preset={kind(tmp_path / 'preset')}"], file="tagged.yaml")
    task = Tagging(known.experiment)
    task.facts = task.splits().facts
    machine = devices.prepare(known.experiment.train.model_copy(update={"devices": 1}), precision="float32")
    run = LoadedRun(task, task.model(), known.experiment, RunFolder(tmp_path), machine, "float32", "tagged")
    task_testing.check_export(run, [{"text": text.encode()} for text in [*TEXTS, "the taxi1 , Caf\u00e9 " * 5]], tmp_path)
