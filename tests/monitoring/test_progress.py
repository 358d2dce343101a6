"""The progress bar on a terminal of any width, and plain lines elsewhere."""

import io
import os
import re
import subprocess
import sys
import time

import pytest
from rich.console import Console

from pipelines.monitoring import progress
from pipelines.monitoring.progress import Progress

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def lines(progress_file):
    return progress_file.getvalue().splitlines()


def run(file, **options):
    with Progress(20, 10, file=file, **options) as shown:
        shown.note("digits: train 1,437 [x] :smile:")
        shown.update(5, 1234.5, {"loss": 0.5, "accuracy": 0.81})
        shown.warning("34% of the time goes into waiting")
        shown.update(10, 1234.5, {"loss": 0.4, "accuracy": 0.85})
        shown.epoch_line(1, {"train/loss": 0.4, "train/accuracy": 0.85, "validation/loss": 0.5})


def test_without_a_terminal_lines_are_plain():
    file = io.StringIO()
    run(file)
    assert not CONTROL.search(file.getvalue())
    assert lines(file)[:2] == ["digits: train 1,437 [x] :smile:", "warning: 34% of the time goes into waiting"]
    assert re.fullmatch(r"epoch 1/2  \d+ ms  train loss 0.4000 accuracy 85.0 %  validation loss 0.5000", lines(file)[2])
    assert len(lines(file)) == 3


def test_without_a_terminal_the_state_comes_every_so_often(monkeypatch):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    file = io.StringIO()
    run(file)
    assert "epoch 1/2  step 5/20  loss 0.5000  1,234 examples/s  accuracy 81.0 %" in lines(file)


def test_quiet_shows_warnings_alone():
    file = io.StringIO()
    run(file, quiet=True)
    assert lines(file) == ["warning: 34% of the time goes into waiting"]
    file = io.StringIO()
    run(file, quiet=True, bar=True)
    assert [CONTROL.sub("", line) for line in lines(file)] == ["warning: 34% of the time goes into waiting"]


@pytest.mark.parametrize("width", [1, 5, 12, 20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("step", [0, 1, 10, 20])
def test_the_bar_is_one_line_of_any_width(width, step):
    state = progress._State(20, 10)
    if step:
        state.update(0, 0.0, {})
        state.update(step, 123456.7, {"loss": 0.51234, "accuracy": 0.812, "top5_accuracy": 0.99})
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=False).print(state)
    assert len(lines(file)) == 1 and len(lines(file)[0]) <= max(width - 1, 1)
    if step and width >= 120:
        assert f"step {step}/20" in lines(file)[0] and "loss 0.5123" in lines(file)[0] and "top5_accuracy 99.0 %" in lines(file)[0]


def test_time_left_is_at_the_pace_since_the_first_update(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    state = progress._State(100, 10)
    now[0] += 60  # compiling
    state.update(1, 1.0, {})
    assert state.left() is None
    now[0] += 9
    state.update(10, 1.0, {})
    assert state.left() == pytest.approx(90)
    assert state.facts()[0] == "1 min 30 s left"
    state.update(100, 1.0, {})
    assert state.left() == 0 and "left" not in state.line()


def test_time_left_waits_for_some_seconds_and_is_the_least_until_an_epoch_was_evaluated(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    state = progress._State(100, 10)
    state.update(0, 1.0, {})
    now[0] += 2
    state.update(2, 1.0, {})
    assert "left" not in state.line()
    now[0] += 6
    state.update(8, 1.0, {})
    assert state.facts()[0] == "over 1 min 32 s left"
    now[0] += 12
    state.update(10, 1.0, {})
    assert state.facts()[0] == "3 min 00 s left"


PROGRAM = """
import sys, time
from pipelines.monitoring.progress import Progress
with Progress(3000, 1000) as shown:
    shown.note("hello")
    for step in range(0, 3001, 100):
        shown.update(step, 1000.0, {"loss": 0.5})
        time.sleep(0.01)
        if step == 1500:
            print("from elsewhere")
            shown.warning("look out")
    shown.epoch_line(3, {"validation/loss": 0.25})
print("done")
"""


def on_a_terminal(columns, **environment):
    """What the program writes to a pseudo-terminal of that width."""
    import fcntl
    import pty
    import struct
    import termios

    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    values = {name: value for name, value in os.environ.items() if name not in ("CI", "COLUMNS", "NO_COLOR")}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=other, stdout=other, stderr=other, close_fds=True,
                               env={**values, "TERM": "xterm-256color", "PYTHONPATH": os.getcwd(), **environment})
    os.close(other)
    written = b""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        written += part
    os.close(main)
    assert process.wait(10) == 0
    return written.decode()


@pytest.mark.parametrize("columns", [30, 100])
def test_on_a_terminal_the_bar_moves_and_is_gone_at_the_end(columns):
    written = on_a_terminal(columns)
    assert "━" in written and "\x1b[?25l" in written and "\x1b[?25h" in written  # the cursor is hidden, and given back
    plain = [line for line in CONTROL.sub("", written).replace("\r", "\n").splitlines() if line.strip()]
    for expected in ("hello", "from elsewhere", "warning: look out", "done"):
        assert expected in plain
    assert any(re.match(r"epoch 3/3 .* validation loss 0.2500", line) for line in plain)
    assert all(len(line) < columns for line in plain if "━" in line)


def test_in_ci_lines_are_plain_even_on_a_terminal():
    written = on_a_terminal(100, CI="true")
    assert "━" not in written and "hello" in written and "\x1b[?25l" not in written
