"""The doctor's verdicts on machines that are not this one, and a look at the one that is."""

import json
import sys

import pytest
from typer.testing import CliRunner

from pipelines.commands import main
from pipelines.commands.doctor import diagnose, of_card, text
from pipelines.machine import hardware, precision
from pipelines.machine.hardware import Machine
from pipelines.machine.precision import FASTER

CUDA = {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9",
        "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"]}
SMI = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4 |"
GPU = {"name": "GPU:0", "device_name": "NVIDIA L4", "capability": [8, 9], "free": 20 << 30, "total": 22 << 30}


def healthy(**changes) -> Machine:
    made = Machine(python="3.12.1", requirements=["tensorflow<2.22,>=2.21", "numpy>=2.1"],
                   versions={"tensorflow": "2.21.0", "numpy": "2.3.0"}, processor="a processor", cores=8,
                   probe={"version": "2.21.0", "build": CUDA, "seconds": 3.0, "gpus": [], "bfloat16_gain": 1.5},
                   flags={"avx", "avx2", "avx512_bf16"}, memory=16 << 30, disks={"runs": ("runs", 100 << 30)},
                   prepared={"data": ["cifar10"]}, tools={"tensorboard": True})
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def of(found: list, name: str):
    return next(one for one in found if one.name == name)


def test_nothing_to_mend():
    found = diagnose(healthy())
    assert {one.state for one in found} <= {"ok", "note"}
    assert of(found, "gpu").text == "no NVIDIA GPU: training is on the CPU"
    assert text(found).endswith("Nothing to fix.")


def test_a_working_gpu():
    found = diagnose(healthy(smi=SMI, smi_works=True, probe={"version": "2.21.0", "build": CUDA, "gpus": [GPU]}))
    assert of(found, "GPU:0").state == "ok"
    assert "compute capability 8.9, 20.0 of 22.0 GiB free; computes in bfloat16" in of(found, "GPU:0").text
    assert of(found, "driver").text == "driver 550.54.15, good for CUDA 12.4"


@pytest.mark.parametrize(("changes", "name", "state", "says", "remedy"), [
    ({"pci": 1}, "driver", "broken", "1 NVIDIA GPU on the bus, and no driver", "--gpus all"),
    ({"smi": "Failed to initialize NVML: Driver/library version mismatch", "module": "570.124.06"}, "driver", "broken",
     "the loaded kernel module is 570.124.06", "reboot"),
    ({"smi": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."}, "driver", "broken", "couldn't communicate",
     "modprobe"),
    ({"smi": "No devices were found"}, "driver", "broken", "No devices", "dmesg"),
    ({"smi": SMI, "smi_works": True, "missing": {"libcudnn.so.9": "cannot open shared object file"}}, "cuda", "broken",
     "cannot open libcudnn.so.9", "pip install 'keras-quartet[gpu]'"),
    ({"smi": SMI.replace("Driver Version: 550.54", "Driver Version: 470.10"), "smi_works": True}, "driver", "broken",
     "too old for CUDA 12", "525"),
    ({"smi": SMI, "smi_works": True, "probe": {"version": "2.21.0", "build": {"is_cuda_build": False}, "gpus": []}}, "gpu", "broken",
     "built for the CPU", "tensorflow-cpu"),
    ({"smi": SMI, "smi_works": True}, "gpu", "broken", "TensorFlow sees no GPU", "TF_CPP_MAX_VLOG_LEVEL"),
    ({"smi": SMI, "smi_works": True, "variables": {"CUDA_VISIBLE_DEVICES": "-1"}}, "gpu", "warning",
     "hidden by CUDA_VISIBLE_DEVICES", "unset"),
    ({"probe": {"build": CUDA, "gpus": [{**GPU, "error": "FailedPreconditionError: DNN library initialization failed"}]}}, "GPU:0",
     "broken", "a convolution fails", "cuDNN does not start"),
    ({"probe": {"build": CUDA, "gpus": [{**GPU, "free": 1 << 30}]}}, "GPU:0", "warning", "other processes hold the rest", "nvidia-smi"),
    ({"probe": {"error": "ended by signal 4", "log": ""}, "flags": {"sse4_2"}}, "tensorflow", "broken", "ended by signal 4", "no AVX"),
    ({"probe": {"error": "ImportError: numpy.core.multiarray failed to import", "log": ""}}, "tensorflow", "broken", "numpy", "numpy>=2.1"),
    ({"versions": {"tensorflow": None, "numpy": "2.3.0"}}, "tensorflow", "broken", "is not installed",
     "pip install 'tensorflow<2.22,>=2.21'"),
    ({"versions": {"tensorflow": "2.21.0", "numpy": "1.26.4"}}, "numpy", "warning", "1.26.4 is installed, tested is >=2.1", "pip install"),
    ({"flags": {"avx"}}, "processor", "warning", "no AVX2", "pass the host's processor through"),
    ({"memory": 1 << 30}, "memory", "warning", "1.0 GiB free", "data.cache: disk"),
    ({"disks": {"runs": ("runs", None)}}, "runs", "broken", "cannot be written", "--runs DIR"),
    ({"disks": {"cache": ("c", 1 << 30)}}, "cache", "warning", "1.0 GiB free", "data.cache_folder"),
    ({"variables": {"TF_USE_LEGACY_KERAS": "1"}}, "TF_USE_LEGACY_KERAS", "warning", "Keras 2", "unset"),
    ({"variables": {"TF_ENABLE_ONEDNN_OPTS": "0"}}, "TF_ENABLE_ONEDNN_OPTS", "warning", "oneDNN off", "unset"),
    ({"variables": {"KERAS_BACKEND": "jax"}}, "KERAS_BACKEND", "broken", "jax", "unset"),
])
def test_what_is_wrong_is_named_with_what_to_do(changes, name, state, says, remedy):
    wrong = [one for one in diagnose(healthy(**changes)) if one.name == name and one.state == state]
    assert len(wrong) == 1
    assert says in wrong[0].text and remedy in wrong[0].remedy
    assert wrong[0].remedy in text(diagnose(healthy(**changes)))


def test_no_bfloat16_where_it_is_slower():
    assert "not used" in of(diagnose(healthy(probe={"build": CUDA, "gpus": [], "bfloat16_gain": 0.6})), "bfloat16").text


@pytest.mark.parametrize("gain", [FASTER - 0.01, FASTER])
def test_what_is_said_of_bfloat16_is_what_training_does(gain, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(precision, "instructions", lambda: {"avx512_bf16"})
    monkeypatch.setattr(precision, "convolution_gain", lambda dtype: gain)
    monkeypatch.setattr(precision.platform, "machine", lambda: "x86_64")
    chosen, _ = precision.fastest(False, [])
    said = of(diagnose(healthy(probe={"build": CUDA, "gpus": [], "bfloat16_gain": gain})), "bfloat16").text
    assert ("is used for precision: auto" in said) == (chosen == "bfloat16") == (gain >= FASTER)


def test_bfloat16_is_timed_once_and_never_where_the_processor_lacks_its_instructions(monkeypatch, tmp_path):
    timed = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(precision.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(precision, "convolution_gain", lambda dtype: timed.append(dtype) or 2.0)
    monkeypatch.setattr(precision, "instructions", lambda: {"avx", "avx2", "fma"})
    assert precision.fastest(False, []) == ("float32", "the processor has no instructions for bfloat16") and not timed
    monkeypatch.setattr(precision, "instructions", lambda: {"avx2", "avx512_bf16"})
    assert precision.fastest(False, [])[0] == precision.fastest(False, [])[0] == "bfloat16" and timed == ["bfloat16"]
    monkeypatch.setattr(precision, "processor_name", lambda: "another")
    assert precision.fastest(False, [])[0] == "bfloat16" and len(timed) == 2


@pytest.mark.parametrize(("card", "state", "says", "remedy"), [
    ("T4", "ok", "compiled for compute capability 7.5", ""),  # sm_70 runs on 7.5
    ("GeForce RTX 3090", "ok", "8.6", ""),
    ("H100", "note", "from PTX of 9.0 at the first start, which takes minutes", "CUDA_CACHE_MAXSIZE"),
    ("nvidia rtx 5090", "warning", "newer than this TensorFlow knows", "train"),
    ("5.2", "broken", "none for compute capability 5.2; the lowest is 6.0", "train.devices=cpu"),
])
def test_what_a_card_that_is_not_here_will_meet(card, state, says, remedy):
    found = of_card(card, healthy())
    kernels = of(found, "kernels")
    assert kernels.state == state and says in kernels.text and remedy in kernels.remedy
    assert "525 or newer, for CUDA 12" in of(found, "driver").text
    assert ("bfloat16" in of(found, "card").text) == (card not in ("T4", "5.2"))


def test_a_card_here_is_told_the_same():
    hopper = {**GPU, "device_name": "NVIDIA H200", "capability": [9, 0]}
    machine = healthy(smi=SMI, smi_works=True, probe={"version": "2.21.0", "build": CUDA, "gpus": [hopper, hopper]})
    (kernels,) = [one for one in diagnose(machine) if one.name == "kernels"]
    assert kernels.state == "note" and "ComputeCache" in kernels.remedy
    machine.variables["CUDA_CACHE_DISABLE"] = "1"
    assert of(diagnose(machine), "kernels").state == "warning"


def test_a_card_for_which_there_is_no_tensorflow():
    assert of(of_card("A100", healthy(probe={"build": {"is_cuda_build": False}})), "gpu").state == "broken"
    done = CliRunner().invoke(main.app, ["doctor", "--card", "H10"])
    assert done.exit_code == 2 and "did you mean H100?" in done.output


def test_a_tensorflow_that_dies_is_a_finding(tmp_path, monkeypatch):
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\necho 'F0000 unlucky' >&2\nkill -ILL $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    found = hardware._probe()
    assert found["error"] == "ended by signal 4" and "unlucky" in found["log"]
    assert "unlucky" in of(diagnose(healthy(probe=found)), "tensorflow").text


def test_this_machine(tmp_path, monkeypatch):
    from pipelines.machine.probe import probe

    seen = probe()
    assert seen["version"] and "is_cuda_build" in seen["build"] and seen["bfloat16_gain"] > 0
    monkeypatch.setattr(hardware, "_probe", lambda: seen)
    done = CliRunner().invoke(main.app, ["doctor", "--json", "--runs", str(tmp_path)])
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert done.exit_code == int(any(one["state"] == "broken" for one in found.values()))
    assert found["tensorflow"]["state"] == "ok" and str(tmp_path) in found["runs"]["text"] and found["memory"]["text"].endswith("GiB free")
    done = CliRunner().invoke(main.app, ["doctor", "--runs", str(tmp_path)])
    assert "processor" in done.stdout


def test_broken_ends_with_1(monkeypatch):
    monkeypatch.setattr("pipelines.commands.doctor.gather", lambda runs: healthy(pci=2))
    assert CliRunner().invoke(main.app, ["doctor"]).exit_code == 1
