"""Answers inputs with a converted model, without Quartet and TensorFlow. Beside it stand decode.py and runtimes.py, and manifest.json
names the packages that they need.

    python answer.py INPUT...
"""

import json
import sys
from pathlib import Path


class Model:
    """The model of a folder.

    `answer` takes what an input is, a path or a text, and gives a dict: label, confidence and probabilities of classes, or the
    model's numbers by name.
    """

    def __init__(self, folder="."):
        import decode
        import runtimes

        folder = Path(folder)
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        self._core = runtimes.load(manifest["runtime"], folder / "model" / manifest["core"], manifest["shares"])
        self._names = [one["name"] for one in manifest["answers"]]
        facts = json.loads((folder / "model" / "facts.json").read_text(encoding="utf-8"))
        self._decode, self._settings, self._classes = decode, {**manifest["decode"], "facts": facts}, manifest["classes"]

    def answer(self, given):
        values = self._core(self._decode.decode(self._settings, given))
        answers = {name: value[0] for name, value in zip(self._names, values)}
        if hasattr(self._decode, "words"):
            return self._decode.words(self._settings, answers)
        if self._classes is None or "probabilities" not in answers:
            return answers
        shares = answers["probabilities"]
        return {"label": self._classes[int(shares.argmax())], "confidence": float(shares.max()),
                "probabilities": dict(zip(self._classes, shares.tolist()))}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python answer.py INPUT...")
    sys.path.insert(0, str(Path(__file__).parent))
    model = Model(Path(__file__).parent)
    for given in sys.argv[1:]:
        answer = model.answer(given)
        print(given, answer.get("label", answer), *([f"{answer['confidence']:.3f}"] if "confidence" in answer else []), sep="\t")
