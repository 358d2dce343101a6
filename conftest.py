"""For all tests: their order, the processor and the memory that they take; what one test sets for its process is not the next one's."""

import faulthandler
import gc
import os
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests import undrawn

# what `quartet new` proposes must not depend on the presets of the machine that tests; tests of real ones name their folder
os.environ["QUARTET_PRESETS"] = os.path.join(os.path.dirname(__file__), "no presets")
os.environ["QUARTET_MINUTES"] = "0"  # `quartet new` tries nothing; tests of the race say how long
# Each process of the tests has about one core: several threads of each would only wait for one another.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
gc.disable()  # until all is imported: most of a million objects come to stay


def pytest_configure():
    """A process of the tests that ends by os._exit, as one of a group of hosts does, shows where: what it printed goes with it."""
    shown, leave, tests = os.dup(2), os._exit, os.getpid()

    def end(status):
        if os.getpid() == tests:  # no fork of it
            os.write(shown, f"\n{os.environ.get('PYTEST_CURRENT_TEST')} ended its process with status {status}\n".encode())
            faulthandler.dump_traceback(shown)
        leave(status)

    os._exit = end


def pytest_collection_modifyitems(items):
    """The slowest files first: begun last, one of them would leave the other processes idle at the end."""
    seconds: dict = {}
    for item in items:
        for mark in item.iter_markers("slow"):
            seconds[item.path] = max(seconds.get(item.path, 0), mark.kwargs.get("seconds", 10))
    items.sort(key=lambda item: -seconds.get(item.path, 0))


def pytest_collection_finish():
    gc.freeze()  # collections need not look at what was imported
    gc.set_threshold(10_000, 10, 10)  # tracing makes very many objects that live for long
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """A test draws the same whatever was drawn before it; Keras, too, takes the seeds of weights from Python's generator."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


@pytest.fixture(autouse=True)
def as_it_was():
    """Keras keeps its precision, and TensorFlow its determinism, for the process; a run sets them, bare layers mean neither."""
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].config.set_dtype_policy("float32")
    if "tensorflow" in sys.modules:
        from tensorflow.python.framework import config

        config.disable_op_determinism()  # there is no public way back


@pytest.fixture(autouse=True, scope="module")
def undrawn_figures(request):
    """Figures are not drawn, but in files marked `figures`."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.node.get_closest_marker("figures"):
            undrawn.draw_nothing(patch)
        yield


@pytest.fixture(scope="module")
def forked_trials():
    """Searches of this process have their trials from tests/processes.py: no search waits for an import of TensorFlow of its own."""
    from pipelines.tuning import trial_processes
    from tests import processes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial_processes, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": processes.Piped}))
        yield


@pytest.fixture(autouse=True, scope="module")
def freed(request):
    """The models and graphs of a file go with it; being in circles, they would stay until a collection, which is rare."""
    yield
    if "keras" in sys.modules and request.node.get_closest_marker("slow"):
        sys.modules["keras"].utils.clear_session()
