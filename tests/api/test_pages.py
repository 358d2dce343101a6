"""docs/python.md and docs/quartet.ipynb run as they stand; in a notebook the stop button leaves the kernel alive and the run resumable."""

import os
import re
import signal
import threading

import nbformat
import pytest
from nbclient import NotebookClient

from tests.finished_run import ROOT, environment
from tests.waiting import until

LONG = 'run = quartet.train("vision/digits", {"train.epochs": 500, "train.precision": "float32", "evaluate.baseline": False}, name="long")'
STOPPED = 'try:\n    ' + LONG + '\nexcept quartet.Interrupted as error:\n    print("stopped:", error)'


@pytest.mark.slow(seconds=70)
@pytest.mark.usefixtures("forked_trials")
def test_every_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/python.md").read_text(encoding="utf-8"), re.M | re.S)
    assert len(examples) > 6
    names: dict[str, object] = {"__name__": "__main__"}
    for example in examples:
        exec(compile(example, "docs/python.md", "exec"), names)
    said = capsys.readouterr().out
    assert "did you mean train.epochs?" in said and "positive" in said


@pytest.mark.slow
def test_the_notebook_runs_and_survives_its_stop_button(tmp_path, monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(ROOT / "docs/quartet.ipynb", as_version=4)
    stopped = nbformat.v4.new_code_cell(STOPPED)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
        progress, report = (cell.outputs for cell in notebook.cells if cell.source.startswith(("run = ", "run")))
        assert any("epoch 4/4" in output.data.get("text/html", "") for output in progress if "data" in output)
        assert "Better than the cheap baseline" in report[0].data["text/html"]
        assert "<iframe" in report[0].data["text/html"] and "data:image/png" in report[0].data["text/html"]

        notebook.cells.append(stopped)
        log = tmp_path / "runs/vision/digits/long/metrics.jsonl"

        def stop(**_: object) -> None:
            until(lambda: log.exists() and log.stat().st_size)
            os.kill(client.km.provisioner.pid, signal.SIGINT)  # as the stop button does

        threading.Thread(target=stop, daemon=True).start()
        client.execute_cell(stopped, len(notebook.cells) - 1)
        assert "stopped: interrupted at step" in "".join(output.get("text", "") for output in stopped.outputs)
        notebook.cells.append(nbformat.v4.new_code_cell('quartet.load("vision/digits/long").state'))
        client.execute_cell(notebook.cells[-1], len(notebook.cells) - 1)
        assert notebook.cells[-1].outputs[0].data["text/plain"] == "'interrupted'"
