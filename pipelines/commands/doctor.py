"""`quartet doctor`: what this machine can do and what to fix. Imports no TensorFlow: that is tried in a process of its own.

Facts are gathered in pipelines.machine.hardware; what they mean is decided here, apart from that, so that every verdict can be tested.
"""

import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.commands import cards
from pipelines.commands.cards import State
from pipelines.machine.environment import DISTRIBUTION
from pipelines.machine.hardware import HIDING, Machine, gather
from pipelines.machine.precision import FASTER, of_capability

FLAGS = ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "neon", "asimd", "bf16")
LOW_MEMORY, LOW_DISK = 4 << 30, 5 << 30
DRIVER_OF_CUDA = {12: 525, 13: 580}  # oldest driver of each major version of CUDA (NVIDIA, CUDA compatibility)


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis: what was examined, its condition, and what to do about it."""

    name: str
    state: State
    text: str
    remedy: str = ""


def examine(runs: Path, card: str | None = None) -> list[Finding]:
    """Looks at this machine, or at what a card that it has not would meet here. Takes some seconds: TensorFlow is started, and two
    convolutions are timed. Raises ConfigError where the card is not known."""
    if card is not None:
        cards.named(card)
    machine = gather(runs)
    return diagnose(machine) if card is None else of_card(card, machine)


def diagnose(machine: Machine) -> list[Finding]:
    """What the facts mean."""
    parts = (_versions, _tensorflow, _gpu, _processor, _room, _data, _rest)
    return [finding for part in parts for finding in part(machine)]


def text(findings: Iterable[Finding]) -> str:
    """For the terminal: a line each, with the remedy below; the broken and doubtful once more at the end, counted."""
    every = list(findings)
    signs = {"ok": "ok     ", "note": "       ", "warning": "WARNING", "broken": "BROKEN "}
    width = max((len(one.name) for one in every), default=0)
    lines = []
    for one in every:
        lines.append(f"{signs[one.state]}  {one.name:<{width}}  {one.text}")
        if one.remedy:
            lines.append(f"{'':9}{'':<{width}}  -> {one.remedy}")
    counts = {state: sum(one.state == state for one in every) for state in ("broken", "warning")}
    lines.append("")
    if not any(counts.values()):
        lines.append("Nothing to fix.")
    else:
        lines.append(f"{counts['broken']} broken, {counts['warning']} doubtful.")
    return "\n".join(lines)


def _versions(machine: Machine) -> list[Finding]:
    from packaging.requirements import Requirement

    findings = [Finding("python", "ok", f"{machine.python} ({platform.machine()})")]
    if not machine.requirements:
        return [*findings, Finding("versions", "note", "not checked: neither an installation nor its pyproject.toml is there",
                                   f"pip install {DISTRIBUTION}")]
    wrong = []
    for text in machine.requirements:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        there, install = machine.versions.get(requirement.name), f"pip install '{requirement.name}{requirement.specifier}'"
        if there is None:
            wrong.append(Finding(requirement.name, "broken", "is not installed", install))
        elif not requirement.specifier.contains(there, prereleases=True):
            wrong.append(Finding(requirement.name, "warning", f"{there} is installed, tested is {requirement.specifier}", install))
    if not wrong:
        main = ", ".join(f"{name} {machine.versions[name]}" for name in ("tensorflow", "keras", "numpy") if machine.versions.get(name))
        findings.append(Finding("versions", "ok", f"{main}; all {len(machine.requirements)} requirements are met"))
    return findings + wrong


def _tensorflow(machine: Machine) -> list[Finding]:
    probe = machine.probe
    if probe.get("error"):
        log = probe.get("log", "").strip().splitlines()
        message = next((line for line in reversed(log) if line.strip()), probe["error"])
        remedy = "pip install --force-reinstall tensorflow; see the text above"
        if "avx" not in machine.flags and platform.machine() in ("x86_64", "AMD64"):
            remedy = "this processor has no AVX, which TensorFlow's builds need: use another machine"
        elif "numpy" in message.lower():
            remedy = "pip install 'numpy>=2.1,<3'"
        return [Finding("tensorflow", "broken", f"does not start: {probe['error']}: {message[:300]}", remedy)]
    build = probe.get("build", {})
    kind = "built for the CPU"
    if build.get("is_cuda_build"):
        kind = f"built for CUDA {build.get('cuda_version')} and cuDNN {build.get('cudnn_version')}"
    return [Finding("tensorflow", "ok", f"{probe.get('version')}, {kind}; starts in {probe.get('seconds', 0.0):.1f} s")]


def _gpu(machine: Machine) -> list[Finding]:
    probe, build = machine.probe, machine.probe.get("build", {})
    gpus = probe.get("gpus", [])
    findings = [_one_gpu(gpu) for gpu in gpus]
    if gpus:
        capabilities = dict.fromkeys(tuple(gpu["capability"]) for gpu in gpus if gpu.get("capability"))
        findings += [_kernels(machine, one) for one in capabilities if build.get("cuda_compute_capabilities")]
        driver = _driver(machine.smi)
        if driver:
            findings.append(Finding("driver", "ok", driver))
        return findings
    hidden = {name: value for name, value in machine.variables.items() if name in HIDING and value in ("", "-1", "none", "void")}
    if hidden:
        name, value = next(iter(hidden.items()))
        return [Finding("gpu", "warning" if machine.smi_works else "note", f"hidden by {name}={value!r}", f"unset {name}")]
    if machine.smi is not None and not machine.smi_works:
        return [_broken_driver(machine)]
    if machine.smi_works or machine.module:
        return _unseen(machine, build)
    if machine.pci:
        return [Finding("driver", "broken", f"{machine.pci} NVIDIA GPU on the bus, and no driver",
                        "install NVIDIA's driver (Ubuntu: sudo ubuntu-drivers install) and reboot; start a container with --gpus all")]
    if platform.system() == "Darwin":
        return [Finding("gpu", "note", "TensorFlow trains on the CPU here (Apple's tensorflow-metal is not supported by Keras 3)")]
    if platform.system() == "Windows":
        return [Finding("gpu", "note", "TensorFlow has no GPU support on Windows itself", "to use an NVIDIA GPU, install in WSL 2")]
    return [Finding("gpu", "note", "no NVIDIA GPU: training is on the CPU")]


def _one_gpu(gpu: dict[str, Any]) -> Finding:
    capability = gpu.get("capability")
    shown = ".".join(map(str, capability)) if capability else "unknown"
    title = f"{gpu.get('device_name', 'GPU')}, compute capability {shown}"
    if gpu.get("error"):
        return Finding(gpu["name"], "broken", f"{title}: a convolution fails: {gpu['error'][:300]}", _remedy_of(gpu["error"]))
    free, total = gpu.get("free"), gpu.get("total")
    room = f", {free / 2**30:.1f} of {total / 2**30:.1f} GiB free" if free is not None and total else ""
    if free is not None and total and free < 0.5 * total:
        return Finding(gpu["name"], "warning", f"{title}{room}: other processes hold the rest", "nvidia-smi names them")
    precision = of_capability(tuple(capability) if capability else (0, 0))
    return Finding(gpu["name"], "ok", f"{title}{room}; computes in {precision}, with XLA")


def _kernels(machine: Machine, capability: tuple[int, int]) -> Finding:
    """Whether TensorFlow is compiled for such a GPU."""
    built = machine.probe["build"]["cuda_compute_capabilities"]
    return Finding("kernels", *cards.kernels(capability, built, machine.variables.get("CUDA_CACHE_DISABLE") == "1"))


def of_card(name: str, machine: Machine) -> list[Finding]:
    """What a card that is not here will meet with this machine's TensorFlow. Raises ConfigError where its name is not known."""
    capability, build = cards.named(name), machine.probe.get("build", {})
    shown = ".".join(map(str, capability))
    if not build.get("cuda_compute_capabilities"):
        return [*_tensorflow(machine), Finding("gpu", "broken", "this TensorFlow is built for the CPU, and uses no card",
                                               "pip uninstall tensorflow-cpu; pip install 'keras-quartet[gpu]'")]
    cuda = int(str(build.get("cuda_version", "0")).partition(".")[0])
    return [
        *_tensorflow(machine),
        Finding("card", "ok", f"{name}, compute capability {shown}; computes in {of_capability(capability)}, with XLA"),
        _kernels(machine, capability),
        Finding("driver", "note", f"has to be {DRIVER_OF_CUDA.get(cuda, 'one')} or newer, for CUDA {cuda}; in a container the host's"),
        Finding("cuda", "note", f"CUDA {build.get('cuda_version')} and cuDNN {build.get('cudnn_version')} come with the extra `gpu`",
                "pip install 'keras-quartet[gpu]'")]


def _remedy_of(error: str) -> str:
    low = error.lower()
    if "dnn" in low:
        return "cuDNN does not start: pip install --force-reinstall 'keras-quartet[gpu]', and take other cuDNN out of LD_LIBRARY_PATH"
    if "memory" in low or "oom" in low:
        return "its memory is in use: nvidia-smi names the processes"
    if "ptxas" in low or "ptx" in low:
        return "the driver is older than this GPU's code needs: install a newer one"
    return "nvidia-smi and `dmesg | grep -i nvrm` say more; a reboot often helps"


def _broken_driver(machine: Machine) -> Finding:
    message = next((line for line in (machine.smi or "").splitlines() if line.strip()), "nvidia-smi fails")
    if "mismatch" in message.lower():
        loaded = f"the loaded kernel module is {machine.module}, " if machine.module else ""
        return Finding("driver", "broken", f"{message}: {loaded}the libraries are of another version (the driver was updated while it ran)",
                       "reboot; or stop all GPU programs and: sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; sudo modprobe nvidia")
    if "couldn't communicate" in message.lower() or "has failed" in message.lower():
        return Finding("driver", "broken", message, "the kernel module is not loaded: sudo modprobe nvidia; if that fails after a kernel "
                       "update, install the driver again (sudo dkms autoinstall, or the driver's package) and reboot")
    if "no devices" in message.lower():
        return Finding("driver", "broken", message, "the driver finds no working GPU: `dmesg | grep -i nvrm` says why; start a container "
                       "with --gpus all")
    return Finding("driver", "broken", message, "reboot; if it stays, install the driver again")


def _unseen(machine: Machine, build: dict[str, Any]) -> list[Finding]:
    """The driver works, and TensorFlow sees no GPU."""
    driver = _driver(machine.smi) or f"kernel module {machine.module}"
    if not build:  # TensorFlow does not start, which is reported elsewhere
        return [Finding("driver", "ok", driver)]
    if not build.get("is_cuda_build"):
        return [Finding("gpu", "broken", f"{driver}; this TensorFlow is built for the CPU",
                        "pip uninstall tensorflow-cpu; pip install 'keras-quartet[gpu]'")]
    if machine.missing:
        names = ", ".join(sorted(machine.missing))
        why = next(iter(machine.missing.values()))
        return [Finding("cuda", "broken", f"{driver}; TensorFlow cannot open {names} ({why})", "pip install 'keras-quartet[gpu]'")]
    major = int(str(build.get("cuda_version", "0")).partition(".")[0] or 0)
    number = re.search(r"Driver Version:\s*(\d+)", machine.smi or "")
    if number and int(number[1]) < DRIVER_OF_CUDA.get(major, 0):
        return [Finding("driver", "broken", f"{driver} is too old for CUDA {major}", f"install driver {DRIVER_OF_CUDA[major]} or newer")]
    log = [line for line in machine.probe.get("log", "").splitlines() if re.search(r"cuda|gpu|dlopen", line, re.IGNORECASE)]
    reason = f": {log[-1].strip()[:300]}" if log else ""
    return [Finding("gpu", "broken", f"{driver}, and TensorFlow sees no GPU{reason}", "TF_CPP_MAX_VLOG_LEVEL=3 python -c "
                    "'import tensorflow as tf; tf.config.list_physical_devices()' names what it looked for")]


def _driver(smi: str | None) -> str | None:
    number = re.search(r"Driver Version:\s*([\d.]+)", smi or "")
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", smi or "")
    return None if number is None else f"driver {number[1]}" + (f", good for CUDA {cuda[1]}" if cuda else "")


def _processor(machine: Machine) -> list[Finding]:
    has = "".join(f", {name}" for name in FLAGS if name in machine.flags)
    findings = [Finding("processor", "ok", f"{machine.processor}, {machine.cores} core{'s' * (machine.cores > 1)}{has}")]
    if platform.machine() in ("x86_64", "AMD64") and machine.flags and "avx2" not in machine.flags:
        findings.append(Finding("processor", "warning", "no AVX2: training on it is several times slower", "in a virtual machine, pass the "
                                "host's processor through (CPU model: host)"))
    gain = machine.probe.get("bfloat16_gain")
    if gain and not machine.probe.get("gpus"):
        use = "is used for precision: auto" if gain >= FASTER else "is not used: float32 is as fast"
        findings.append(Finding("bfloat16", "ok", f"a convolution is {gain:.1f} x as fast as in float32; bfloat16 {use}"))
    return findings


def _room(machine: Machine) -> list[Finding]:
    findings = []
    if machine.memory is not None:
        little = machine.memory < LOW_MEMORY
        findings.append(Finding("memory", "warning" if little else "ok", f"{machine.memory / 2**30:.1f} GiB free",
                                "close other programs, or set data.cache: disk and a smaller train.batch_size" if little else ""))
    for what, (place, free) in machine.disks.items():
        if free is None:
            remedy = f"fix its permissions, or choose another: {_other(what)}"
            findings.append(Finding(what, "broken", f"{place}: cannot be written", remedy))
        else:
            little = free < LOW_DISK
            findings.append(Finding(what, "warning" if little else "ok", f"{place}: {free / 2**30:.1f} GiB free",
                                    f"free some space, or choose another: {_other(what)}" if little else ""))
    return findings


def _other(what: str) -> str:
    return {"runs": "--runs DIR", "cache": "data.cache_folder", "data": "data.data_dir, or TFDS_DATA_DIR"}.get(what, "another disk")


def _data(machine: Machine) -> list[Finding]:
    return [Finding("data sets", "ok" if names else "note", f"{place}: {', '.join(names) if names else 'none prepared yet'}",
                    "" if names else "python -m tensorflow_datasets build NAME prepares one; vision/digits needs none")
            for place, names in machine.prepared.items()]


def _rest(machine: Machine) -> list[Finding]:
    findings = []
    if not machine.tools.get("tensorboard", True):
        findings.append(Finding("tensorboard", "warning", "its command is not there", "pip install tensorboard"))
    remarks = {
        "TF_ENABLE_ONEDNN_OPTS": ("0", "switches oneDNN off: training on the CPU is slower"),
        "TF_USE_LEGACY_KERAS": ("1", "asks for Keras 2, which this project does not work with"),
        "TF_DETERMINISTIC_OPS": ("1", "slows training; train.deterministic does it where it is wanted"),
    }
    for name, (value, meaning) in remarks.items():
        if machine.variables.get(name, "").lower() in (value, {"1": "true", "0": "false"}[value]):
            findings.append(Finding(name, "warning", f"{name}={machine.variables[name]} {meaning}", f"unset {name}"))
    backend = machine.variables.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        findings.append(Finding("KERAS_BACKEND", "broken", f"Keras is set to use {backend}", "unset KERAS_BACKEND"))
    return findings
