"""Programs in a process that has TensorFlow and nothing of Keras or of this project, as somebody who was given a model runs them.

One such process, started when first needed, runs all programs of a process, each in a namespace of its own: TensorFlow is
imported once.
"""

import atexit
import functools
import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import contextlib
import importlib.machinery
import io
import json
import os
import sys
import traceback

FORBIDDEN = {"keras", "quartet", "pipelines", "vision", "speech", "nlp", "recsys", "keras_hub", "keras_rs", "tf_keras"} - set(sys.argv[1:])

class Forbidden:  # TensorFlow looks where keras lies, which it may; importing it fails
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FORBIDDEN:
            return importlib.machinery.ModuleSpec(name, self, origin=f"/nowhere/{name}/__init__.py")

    def create_module(self, spec):
        raise ImportError(f"{spec.name} is forbidden here")

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Forbidden())
replies = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print themselves is no reply
for line in sys.stdin:
    asked, printed, failed = json.loads(line), io.StringIO(), None
    os.chdir(asked["folder"])
    sys.argv = ["alone.py", *asked["arguments"]]
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(asked["program"], "alone.py", "exec"), {"__name__": "__main__"})
    except BaseException:
        failed = traceback.format_exc()
    print(json.dumps([printed.getvalue(), failed]), file=replies, flush=True)
"""


@functools.cache
def process(*allowed: str) -> subprocess.Popen:
    """The process of this process; it ends with it. `allowed` are modules that it may import, where a library needs them."""
    started = subprocess.Popen([sys.executable, "-I", "-c", PROGRAM, *allowed], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True,
                               env={"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"})
    atexit.register(started.kill)
    return started


def run(program: str, *arguments: str | Path, folder: Path, needs: tuple[str, ...] = ()) -> str:
    """What the program prints; it runs in `folder` with the arguments in sys.argv, once the modules that it needs are imported."""
    there = process(*(["keras"] if "tensorflow_text" in needs else []))  # its layers derive from tf.keras'
    program = "".join(f"import {name}\n" for name in needs) + program
    assert there.stdin and there.stdout
    asked = {"program": program, "arguments": [str(one) for one in arguments], "folder": str(folder)}
    print(json.dumps(asked), file=there.stdin, flush=True)
    reply = there.stdout.readline()
    assert reply, f"the process ended with status {there.wait(10)}"
    printed, failed = json.loads(reply)
    assert failed is None, failed
    return printed
