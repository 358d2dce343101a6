"""metrics.jsonl through resumes, kills and full disks."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from pipelines.base.errors import ConfigError
from pipelines.monitoring.metrics_log import MetricsLog, read_rows
from tests.waiting import until


def test_rows_come_back_as_they_went_in(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append({"step": 1, "epoch": 0.5, "time_s": 1.25, "train/loss": np.float32(0.5), "note": "ü\n"})
        assert read_rows(path)[0]["note"] == "ü\n"  # at once, not at close
        log.append({"step": 2, "train/loss": float("nan"), "big": np.int64(3)})
    first = {"step": 1, "epoch": 0.5, "time_s": 1.25, "train/loss": 0.5, "note": "ü\n"}
    assert read_rows(path) == [first, {"step": 2, "train/loss": None, "big": 3}]
    assert all(json.loads(line) for line in path.read_text().splitlines())
    assert read_rows(tmp_path / "absent.jsonl") == []


def test_a_new_run_begins_an_empty_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 9}\n')
    MetricsLog(path)
    assert path.read_text() == ""


def test_a_resume_drops_what_came_after_its_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        for step in (10, 20, 20, 30, 40):
            log.append({"step": step})
    with MetricsLog(path, resume_step=20) as log:
        assert [row["step"] for row in read_rows(path)] == [10, 20, 20]
        log.append({"step": 30, "again": True})
    assert [row["step"] for row in read_rows(path)] == [10, 20, 20, 30] and read_rows(path)[-1]["again"]
    MetricsLog(tmp_path / "new.jsonl", resume_step=5)
    assert read_rows(tmp_path / "new.jsonl") == []


@pytest.mark.parametrize("torn", [b'{"step": 30, "tra', b'{"step": 30', b'{"step": 30}', b"7\n", b'{"step": 30, "a": "\xff', b"\0\0\0\0"])
def test_a_torn_last_line_is_left_out_and_never_glued_to_the_next(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 10}\n{"step": 20}\n' + torn)
    whole = torn == b'{"step": 30}'  # only its line end is missing
    assert [row["step"] for row in read_rows(path)] == [10, 20] + [30] * whole
    with MetricsLog(path, resume_step=30) as log:
        log.append({"step": 40})
    assert [row["step"] for row in read_rows(path)] == [10, 20] + [30] * whole + [40]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(ConfigError, match=r"metrics.jsonl, line 2"):
        read_rows(path)


def test_a_line_without_step_is_refused(tmp_path):
    with pytest.raises(ValueError, match="step"):
        MetricsLog(tmp_path / "metrics.jsonl").append({"loss": 1.0})


def test_a_full_disk_leaves_whole_lines(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append({"step": 1})
    real = log._file

    class Full:
        """Takes a few bytes and then has no room."""

        room = 5

        def write(self, content):
            if not self.room:
                raise OSError(28, "No space left on device")
            taken, self.room = real.write(content[:self.room]), 0
            return taken

        def __getattr__(self, name):
            return getattr(real, name)

    log._file = Full()
    with pytest.raises(OSError, match="No space"):
        log.append({"step": 2})
    log._file = real
    log.append({"step": 3})
    assert [row["step"] for row in read_rows(log.path)] == [1, 3]


WRITER = """
import sys
from pipelines.monitoring.metrics_log import MetricsLog
path, step = sys.argv[1], int(sys.argv[2])
log = MetricsLog(path, resume_step=step or None)
print("ready", flush=True)
while True:
    step += 1
    log.append({"step": step, "padding": "x" * 3000})
"""


def test_killed_at_any_moment_it_goes_on(tmp_path):
    path = tmp_path / "metrics.jsonl"
    resume_step = 0
    for delay in (0.05, 0.01, 0.03, 0.002, 0.04):
        process = subprocess.Popen([sys.executable, "-c", WRITER, path, str(resume_step)], stdout=subprocess.PIPE)
        process.stdout.readline()
        until(lambda after=resume_step: path.read_bytes().count(b"\n") > after + 1)
        time.sleep(delay)  # to any moment of any later write
        process.kill()
        process.communicate()
        steps = [row["step"] for row in read_rows(path)]
        assert len(steps) > resume_step and steps == list(range(1, len(steps) + 1))
        resume_step = max(0, len(steps) - 3)
