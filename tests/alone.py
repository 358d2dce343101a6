"""Programs in a process that has TensorFlow and nothing of Keras or of this project, as somebody who was given a model runs them."""

import subprocess
import sys
from pathlib import Path

FORBID = """
import importlib.machinery
import sys

class Forbidden:  # TensorFlow looks where keras lies, which it may; importing it fails
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("keras", "pipelines", "vision", "speech", "nlp", "recsys", "keras_hub", "keras_rs", "tf_keras"):
            return importlib.machinery.ModuleSpec(name, self, origin=f"/nowhere/{name}/__init__.py")

    def create_module(self, spec):
        raise ImportError(f"{spec.name} is forbidden here")

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Forbidden())
"""


def run(program: str, *arguments: str | Path, folder: Path) -> str:
    """What the program prints; it runs in `folder` with the arguments in sys.argv."""
    (folder / "alone.py").write_text(FORBID + program, encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", "alone.py", *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
