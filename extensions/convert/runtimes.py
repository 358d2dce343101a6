"""The numeric core of a converted model, computed by LiteRT, ONNX Runtime or OpenVINO on one thread: arrays in, arrays out.

`quartet export` puts a copy of this file beside the model, so it imports neither TensorFlow nor anything of this project.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

PACKAGES = {"litert": "ai-edge-litert", "onnx": "onnxruntime", "openvino": "openvino"}
SHAPES = 8  # input shapes for which LiteRT's memory is kept


class LiteRT:
    """A .tflite file. An interpreter is one thread's at a time, and has one shape of input: there is one for each of the last shapes."""

    def __init__(self, file: Path):
        from ai_edge_litert.interpreter import Interpreter

        self._content, self._make = Path(file).read_bytes(), Interpreter
        self._lock = threading.Lock()
        self._ready: dict = {}
        self._for((1,))

    def _for(self, shape: tuple) -> tuple:
        """(interpreter, index of its input, indices of its outputs) for inputs of a shape."""
        if shape in self._ready:
            return self._ready[shape]
        if len(self._ready) < SHAPES:
            interpreter = self._make(model_content=self._content, num_threads=1)
            runner = interpreter.get_signature_runner()
            (put,) = (one["index"] for one in runner.get_input_details().values())
            got = [one["index"] for _, one in sorted(runner.get_output_details().items())]
            del runner  # which holds on to the memory that is laid out next
        else:
            interpreter, put, got = self._ready.pop(next(iter(self._ready)))
        if len(shape) > 1:  # else the first, made to see whether it can be loaded
            interpreter.resize_tensor_input(put, list(shape))
            interpreter.allocate_tensors()
            self._ready[shape] = interpreter, put, got
        return interpreter, put, got

    def __call__(self, values: np.ndarray) -> list:
        with self._lock:
            interpreter, put, got = self._for(values.shape)
            interpreter.set_tensor(put, values)
            interpreter.invoke()
            return [interpreter.get_tensor(index) for index in got]


class Onnx:
    """A .onnx file."""

    def __init__(self, file: Path):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name
        self._outputs = sorted(one.name for one in self._session.get_outputs())

    def __call__(self, values: np.ndarray) -> list:
        return self._session.run(self._outputs, {self._input: values})


class OpenVino:
    """An .xml file, with its weights in the .bin beside it; in float32, which some processors would leave otherwise."""

    def __init__(self, file: Path):
        import openvino

        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY"}
        compiled = in_own_thread(lambda: openvino.Core().compile_model(str(file), "CPU", settings))
        self._lock, self._request = threading.Lock(), compiled.create_infer_request()
        self._outputs = sorted(compiled.outputs, key=lambda one: min(one.get_names()))

    def __call__(self, values: np.ndarray) -> list:
        with self._lock:
            answers = self._request.infer([values])
            return [np.array(answers[one]) for one in self._outputs]


def in_own_thread(work):
    """What `work` gives, called in a thread that ends with it; for what loads OpenVINO's processor plugin.

    The plugin gives the thread that loads it another stack for signals, and unmaps that when it is freed, whoever frees it and in
    whatever order: the next signal to the main thread, such as Ctrl-C, would end the process without a word.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


class Shares:
    """Another runtime, some of whose answers are shares of 1: in 8 bits their sum is off by what each was rounded, which is put right."""

    def __init__(self, compute, places: list):
        self._compute, self._places = compute, set(places)

    def __call__(self, values: np.ndarray) -> list:
        answers = self._compute(values)
        return [one / np.maximum(one.sum(-1, keepdims=True), 1e-6) if place in self._places else one for place, one in enumerate(answers)]


RUNTIMES = {"litert": LiteRT, "onnx": Onnx, "openvino": OpenVino}


def load(runtime: str, file: Path, shares: list):
    """The function of arrays that a file holds; `shares` are places of answers, see Shares."""
    compute = RUNTIMES[runtime](file)
    return Shares(compute, shares) if shares else compute
