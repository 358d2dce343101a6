"""The facts of this machine that the doctor judges: versions, GPU and driver, processor, memory, disks. Imports no TensorFlow.
What was measured of a processor is kept per user, by its name and instructions.
"""

import contextlib
import ctypes
import glob
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.base.files import write_json
from pipelines.base.json_text import parse_json
from pipelines.machine import memory
from pipelines.machine.environment import DISTRIBUTION, version

BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # x86 and ARM; without one a convolution takes 10 to 28 times as long


def processor_name() -> str:
    """As the system calls it."""
    return _line("model name") or platform.processor() or platform.machine()


def instructions() -> set[str]:
    """The processor's flags; empty where the system does not tell them."""
    return set(_line("flags", "Features").split())


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _line(*names: str) -> str:
    """The value of the first such line of /proc/cpuinfo; empty where it cannot be read."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(names):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def measurements(name: str) -> Path:
    """The file of one kind of measurement."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "quartet" / f"{name}.json"


def read_measured(file: Path) -> dict[str, Any]:
    """Key -> value; empty where nothing was kept, or the file cannot be read."""
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def keep_measured(file: Path, key: str, value: Any) -> None:
    """Where it cannot be written, it is measured again next time."""
    with contextlib.suppress(OSError):
        write_json(file, {**read_measured(file), key: value})


PROBE_SECONDS = 300.0
# what TensorFlow 2.21 opens at run time; the `gpu` extra brings it
LIBRARIES = {"cudart": 12, "cublas": 12, "cublasLt": 12, "cufft": 11, "cusolver": 11, "cusparse": 12, "cudnn": 9, "nccl": 2}
HIDING = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


@dataclass
class Machine:
    """The facts of a machine.

    Attributes:
        pci: names or numbers of NVIDIA graphics processors on the bus.
        module: version of the kernel's NVIDIA module, or None.
        smi: what nvidia-smi printed, or None where it is missing; `smi_works` says whether it succeeded.
        missing: libraries of CUDA that cannot be opened, with the reason.
        probe: the result of pipelines.machine.probe with TensorFlow; `error` and `log` where that failed.
    """

    python: str = ""
    requirements: list[str] = field(default_factory=list)
    versions: dict[str, str | None] = field(default_factory=dict)
    pci: int = 0
    module: str | None = None
    smi: str | None = None
    smi_works: bool = False
    missing: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    probe: dict[str, Any] = field(default_factory=dict)
    processor: str = ""
    cores: int = 1
    flags: set[str] = field(default_factory=set)
    memory: int | None = None
    disks: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    prepared: dict[str, list[str]] = field(default_factory=dict)
    tools: dict[str, bool] = field(default_factory=dict)


def gather(runs: Path) -> Machine:
    """The facts of this machine."""
    smi = _run(["nvidia-smi"])
    requirements = _requirements()
    machine = Machine(
        python=platform.python_version(), requirements=requirements, versions={name: version(name) for name in map(_name, requirements)},
        pci=len(_nvidia_on_bus()), module=_module(), smi=None if smi is None else smi[1], smi_works=smi is not None and smi[0] == 0,
        variables={name: value for name, value in os.environ.items()
                   if name in (*HIDING, "LD_LIBRARY_PATH") or name.startswith(("TF_", "XLA_", "OMP_", "KERAS_", "CUDA_CACHE_"))},
        processor=processor_name(), cores=cores(), flags=instructions(), memory=memory.free(), disks=_disks(runs), prepared=_prepared(),
        tools={name: shutil.which(name) is not None or Path(sys.executable).with_name(name).exists() for name in ("tensorboard", "git")})
    if machine.pci or machine.module or machine.smi:
        machine.missing = _missing()
    machine.probe = _probe()
    return machine


def _requirements() -> list[str]:
    """Of the installed distribution without its extras, else of the checkout's pyproject.toml."""
    try:
        return [text for text in importlib.metadata.requires(DISTRIBUTION) or [] if "extra ==" not in text]
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        import tomllib  # Python 3.11

        with open(Path(__file__).resolve().parents[2] / "pyproject.toml", "rb") as file:
            return list(tomllib.load(file)["project"]["dependencies"])
    except (ImportError, OSError, KeyError, ValueError):
        return []


def _name(requirement: str) -> str:
    from packaging.requirements import Requirement

    return Requirement(requirement).name


def _probe() -> dict[str, Any]:
    """pipelines.machine.probe in a process of its own, so that a crash of TensorFlow ends only that one."""
    try:
        done = subprocess.run([sys.executable, "-m", "pipelines.machine.probe"],
                              capture_output=True, text=True, errors="replace", check=False,
                              timeout=PROBE_SECONDS, env={**os.environ, "PYTHONPATH": _python_path()})
    except subprocess.TimeoutExpired:
        return {"error": f"no answer after {PROBE_SECONDS:.0f} s"}
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        how = f"ended by signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
        return {"error": how, "log": done.stderr}
    return {**result, "log": done.stderr}


def _python_path() -> str:
    return os.pathsep.join(filter(None, (str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH"))))


def _nvidia_on_bus() -> list[str]:
    devices = []
    for device in glob.glob("/sys/bus/pci/devices/*"):
        try:
            vendor, kind = ((Path(device) / name).read_text(encoding="ascii").strip() for name in ("vendor", "class"))
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):  # NVIDIA, display controllers
            devices.append(device)
    return devices


def _module() -> str | None:
    try:
        first = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return None
    number = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", first)
    return number[1] if number else first.strip()


def _missing() -> dict[str, str]:
    """Libraries that neither the system nor the packages of the `gpu` extra have."""
    missing = {}
    for name, number in LIBRARIES.items():
        file = f"lib{name}.so.{number}"
        try:
            ctypes.CDLL(file)
        except OSError as error:
            if not glob.glob(os.path.join(sysconfig.get_path("purelib"), "nvidia", "*", "lib", file)):
                missing[file] = str(error)
    return missing


def _run(command: list[str]) -> tuple[int, str] | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30, check=False)
    except FileNotFoundError:
        return None
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout + done.stderr


def _disks(runs: Path) -> dict[str, tuple[str, int | None]]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "quartet"
    return {"runs": _disk(runs), "cache": _disk(cache), "data": _disk(_data_dir())}


def _disk(folder: Path) -> tuple[str, int | None]:
    """(the folder, bytes free there or None where it cannot be written)."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    return str(folder), shutil.disk_usage(there).free if os.access(there, os.W_OK) else None


def _data_dir() -> Path:
    return Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def _prepared() -> dict[str, list[str]]:
    """Data sets that TFDS has prepared: a folder with a version and its dataset_info.json."""
    folder = _data_dir()
    infos = glob.glob(str(folder / "*" / "**" / "dataset_info.json"), recursive=True)
    names = {Path(info).relative_to(folder).parts[0] for info in infos}
    return {str(folder): sorted(names - {"downloads"})}
