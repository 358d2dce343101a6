"""A numeric core in the forms of other runtimes: LiteRT in float32, with weights of 8 bits (dynamic range) or in 8 bits throughout (int8),
ONNX, and OpenVINO in float32 or in 8 bits throughout. Whether a form answers as the model does is for others to judge."""

import contextlib
import io
import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from extensions.convert.core import INPUT, Core
from extensions.convert.runtimes import PACKAGES, in_own_thread
from pipelines.base.errors import ConfigError
from pipelines.data.reasons import reason
from pipelines.machine.startup import silenced

OPSET = 18  # of ONNX


@dataclass(frozen=True)
class Format:
    """
    Attributes:
        runtime: what computes it (runtimes.RUNTIMES).
        exact: in float32, so that its answers can be the model's to 1e-5.
        file: its name.
        write: (core, calibration [n, ...], file).
        packages: that converting needs besides the runtime's, by module.
    """

    name: str
    runtime: Literal["litert", "onnx", "openvino"]
    exact: bool
    file: str
    write: Callable[[Core, np.ndarray, Path], None]
    packages: tuple[str, ...] = ()

    @property
    def installed(self) -> bool:
        return all(find_spec(name) is not None for name in (PACKAGES[self.runtime].replace("-", "_"), *self.packages))


def convert(core: Core, form: Format, calibration: np.ndarray, folder: Path) -> Path:
    """Writes a form below a folder. Returns its file.

    Args:
        calibration: inputs from train, for int8.

    Raises:
        ConfigError: the converter has no such operation, or failed.
    """
    file = folder / form.file
    try:
        with silenced() as said:
            form.write(core, calibration, file)
    except Exception as error:  # whatever a converter fails with
        raise ConfigError(f"the model cannot be converted to {form.name}: {_why(error, said)}") from error
    return file


def _litert(optimised: bool, whole: bool) -> Callable[[Core, np.ndarray, Path], None]:
    def write(core: Core, calibration: np.ndarray, file: Path) -> None:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([core.function], core.module)
        if optimised:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if whole:
            converter.representative_dataset = lambda: ([calibration[place:place + 1]] for place in range(len(calibration)))
        file.write_bytes(converter.convert())

    return write


def _onnx(core: Core, calibration: np.ndarray, file: Path) -> None:
    import onnx
    import tf2onnx

    spec = tf.TensorSpec(core.input.shape, core.input.dtype, name=INPUT)
    function = tf.function(lambda input_0: core.function(input_0), input_signature=[spec], autograph=False)
    model, _ = tf2onnx.convert.from_function(function, [spec], opset=OPSET, custom_op_handlers={"Erfc": (_erfc, [])}, output_path=str(file))
    lacking = {node.op_type for node in model.graph.node if not node.domain and not onnx.defs.has(node.op_type)}
    if lacking:  # what tf2onnx does not know it leaves as it is
        raise ValueError(f"it lacks {', '.join(sorted(lacking))}")


def _erfc(graph: Any, node: Any, name: str, arguments: Any) -> Any:
    """TensorFlow's Erfc, of GELU's exact form, as 1 - Erf: ONNX has the latter alone."""
    (given,), (result,) = node.input, node.output
    shape, dtype = graph.get_shape(result), graph.get_dtype(result)
    graph.remove_node(name)
    one = graph.make_const(f"{name}_one", np.ones([], np.float32)).output[0]
    erf = graph.make_node("Erf", [given], name=f"{name}_erf", shapes=[shape], dtypes=[dtype]).output[0]
    return graph.make_node("Sub", [one, erf], name=name, outputs=[result], shapes=[shape], dtypes=[dtype])


def _openvino(whole: bool) -> Callable[[Core, np.ndarray, Path], None]:
    def write(core: Core, calibration: np.ndarray, file: Path) -> None:
        import openvino

        with tempfile.TemporaryDirectory() as place:
            tf.saved_model.save(core.module, place, signatures={"serving_default": core.function})
            model = openvino.convert_model(place)
        if whole:
            import nncf

            logging.getLogger("nncf").setLevel(logging.ERROR)
            examples = [calibration[at:at + 1] for at in range(len(calibration))]
            with contextlib.redirect_stdout(io.StringIO()):  # its progress
                model = in_own_thread(lambda: nncf.quantize(model, nncf.Dataset(examples), subset_size=len(examples)))
        openvino.save_model(model, str(file), compress_to_fp16=False)

    return write


LITERT = Format("LiteRT float32", "litert", True, "core.tflite", _litert(False, False))
DYNAMIC = Format("LiteRT dynamic range", "litert", False, "core.tflite", _litert(True, False))
INT8 = Format("LiteRT int8", "litert", False, "core.tflite", _litert(True, True))
ONNX = Format("ONNX", "onnx", True, "core.onnx", _onnx, ("tf2onnx",))
OPENVINO = Format("OpenVINO", "openvino", True, "core.xml", _openvino(False))
OPENVINO_INT8 = Format("OpenVINO int8", "openvino", False, "core.xml", _openvino(True), ("nncf",))


def _why(error: Exception, said: list[str]) -> str:
    """The operations that a converter lacks, where it names them; else what it says."""
    lines = [*str(error).splitlines(), *said]
    named = next((line.strip() for line in lines if line.startswith(("TF Select ops:", "Custom ops:"))), None)
    return f"it lacks {named.partition(':')[2].strip()}" if named else reason(error)


