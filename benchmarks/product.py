"""Runs the product's own command line for a benchmark and reads its report; prints the machine's line."""

import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any


def train(config: str, *overrides: str, domain: str = "vision") -> dict[str, Any]:
    """`python -m <domain>.train CONFIG key=value ...` in a process and a run folder of its own; returns report.json."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", f"{domain}.train", config, *overrides, "--runs", runs, "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return json.loads(next(Path(runs).glob("**/report/report.json")).read_text(encoding="utf-8"))


def peer(module: str, *arguments: str) -> dict[str, Any]:
    """A peer's benchmark in a process of its own; returns the JSON of its last line."""
    done = subprocess.run([sys.executable, "-m", f"benchmarks.{module}", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"benchmarks.{module} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
                         "\nThe peers come with the extra: pip install 'keras-quartet[bench]'")
    return json.loads(done.stdout.strip().splitlines()[-1])


def machine() -> str:
    """One line: date, processor, cores, and what else loads it."""
    processor = platform.processor()
    flags = ""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii").splitlines()
        processor = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        flags = " with AVX512_BF16" if any("avx512_bf16" in line for line in lines if line.startswith("flags")) else ""
    except (OSError, StopIteration):
        pass
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return f"{date.today()}, {processor}{flags}, {os.cpu_count()} cores, Python {platform.python_version()}, load at start {load:.1f}"
