"""A language model as a folder that Hugging Face's programs read. Quartet itself serves the run, and not this folder."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from extensions.convert import options
from pipelines.base.errors import ConfigError
from pipelines.base.progress import Say
from pipelines.runs.folder import RunFolder
from pipelines.serving.forms import Form

if TYPE_CHECKING:
    from pipelines.serving.load import LoadedRun


README = """{run} as a language model in Llama's shape, float32, changes of low rank added to the weights.

transformers   AutoModelForCausalLM.from_pretrained("{folder}"), AutoTokenizer.from_pretrained("{folder}")
vLLM           vllm serve {folder}
llama.cpp      python convert_hf_to_gguf.py {folder}

Texts are cut by GPT-2's rule: tokens can differ from those of the training where several blanks, or a blank and an
apostrophe, stand beside one another.
"""


class HuggingFace(Form):
    """config.json, model.safetensors and the tokenizer; of dialogues with their template."""

    def wanted(self) -> bool:
        return str(options.asked.made_for) == self.name

    def export(self, run: "LoadedRun", target: Path, *, replace: bool, say: Say) -> None:
        from pipelines.serving.export import writing

        try:
            from safetensors.numpy import save_file
        except ImportError:
            raise ConfigError("--for huggingface needs the extra: pip install 'keras-quartet[pretrained]' (there is no "
                              "safetensors)") from None
        writer = run.task.writer(run.model)
        if writer is None or writer.hugging_face is None:
            raise ConfigError(f"--for huggingface: {run.name} has no form that Hugging Face's programs read; language models from a "
                              "preset in Llama's shape have one")
        files = writer.hugging_face()
        with writing(run, target, replace=replace) as staging:
            for name, content in files.items():
                if name.endswith(".safetensors"):
                    save_file(content, staging / name, metadata={"format": "pt"})
                    (staging / name).chmod(0o644)
                elif isinstance(content, bytes):
                    (staging / name).write_bytes(content)
                else:
                    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=1)
                    (staging / name).write_text(text, encoding="utf-8")
            text = README.format(run=f"{run.name}/{run.folder.path.name}", folder=target.name)
            (staging / "README.txt").write_text(text, encoding="utf-8")
        say(f"for          transformers, vLLM and llama.cpp's converter: {', '.join(files)}")

    def load(self, folder: RunFolder) -> "LoadedRun":
        raise ConfigError(f"{folder.path}: is for Hugging Face's programs; serve the run that it was made from")
