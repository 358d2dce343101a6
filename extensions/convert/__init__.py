"""Other forms of a finished model: small and fast ones for LiteRT, ONNX Runtime and OpenVINO, each judged beside the model before it is
written, and answered without TensorFlow; the fastest behind `quartet serve`; and networks of fewer channels, which train further.
docs/serving.md shows each. Imports no TensorFlow and no package of theirs until it is needed.
"""

from pipelines.config.doors import COMMANDS, FORMS, OPTIONS

for _name in ("mobile", "onnx", "openvino"):
    FORMS.add(_name, "extensions.convert.form:Converted")
FORMS.add("huggingface", "extensions.convert.huggingface:HuggingFace")
FORMS.add("cpu", "extensions.convert.form:Fastest")
OPTIONS.add("convert export", "extensions.convert.options:exporting", commands=("export",))
OPTIONS.add("convert serve", "extensions.convert.options:serving", commands=("serve",))
COMMANDS.add("prune", "extensions.convert.commands:prune")
