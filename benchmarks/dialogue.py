"""Dialogues: their data, the model before training, and how fast texts are written, alone, beside transformers, and for many at once.

    python -m benchmarks.dialogue data FOLDER        1,000, 200 and 200 dialogues of CLINC150: utterances answered with JSON
    python -m benchmarks.dialogue before FOLDER PRESET    of the first 200 of test, answers of that form, by the preset as it is, and with
                                                     writing.form, which needs the extra `constrained`
    python -m benchmarks.dialogue speed PRESET       tokens/s of one text in float32, beside transformers where torch can be imported
    python -m benchmarks.dialogue many PRESET        tokens/s of 16 streaming clients of a server, against one after the other
"""

import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SIZES = {"train": 1000, "validation": 200, "test": 200}
ASKED = "Explain why the sky is blue, in a few sentences."
TOKENS, CLIENTS, REPEATS = 64, 16, 3


def data(folder: Path) -> None:
    """Writes train.jsonl, validation.jsonl and test.jsonl."""
    import tensorflow_datasets as tfds

    builder = tfds.builder("clinc_oos")
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in SIZES.items():
        rows = list(tfds.as_numpy(builder.as_dataset(split=split)))
        random.Random(0).shuffle(rows)
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for row in rows[:count]:
                text, name = row["text"].decode(), row["intent_name"].decode()
                answer = json.dumps({"intent": name, "words": len(text.split())})
                file.write(json.dumps({"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]}) + "\n")


def before(folder: Path, preset: str) -> None:
    """How many answers have the form, and the right intent, of a preset that is told of it, with an example; and of one that must."""
    from pipelines.serving.load import reading_as
    from pipelines.serving.presets import of_preset

    train = [json.loads(line)["messages"] for line in (folder / "train.jsonl").read_text().splitlines()]
    example, intents = train[0], sorted({json.loads(one[1]["content"])["intent"] for one in train})
    schema = {"type": "object", "properties": {"intent": {"enum": intents}, "words": {"type": "integer"}}, "required": ["intent", "words"]}
    system = ("You name the intent of an utterance, and count its words. Answer with JSON alone, such as "
              f"{example[1]['content']} for the utterance: {example[0]['content']}")
    rows = [json.loads(line)["messages"] for line in (folder / "test.jsonl").read_text().splitlines()][:200]
    told, must = [{"role": "system", "content": system}], [f"writing.form.json_schema={json.dumps(schema)}"]
    for name, first, more in (("alone", [], []), ("told of the form", told, []), ("alone, with writing.form", [], must)):
        run = reading_as(of_preset(preset, "talk", what="language model"), ["writing.most=32", *more])
        prompts = [run.task.output.prompt([*first, row[0]]) for row in rows]
        written = run.task.output.answered(run.model, prompts)
        print(f"{name}: {sum(intent_of(one) is not None for one in written)} of {len(rows)} answers have the form, "
              f"{sum(intent_of(one) == intent_of(row[1]['content']) for one, row in zip(written, rows))} the right intent; such as "
              f"{written[0]!r:.120}", flush=True)


def intent_of(answer: str) -> str | None:
    """None where it has not the form."""
    try:
        found = json.loads(answer)
    except ValueError:
        return None
    return found["intent"] if isinstance(found, dict) and sorted(found) == ["intent", "words"] else None


def speed(preset: str) -> None:
    """Ours, and transformers' reading of the same weights."""
    import numpy as np
    import tensorflow as tf

    from pipelines.serving.presets import of_preset

    run = of_preset(preset, "talk", what="language model")
    writer = run.task.writer(run.model)
    prompt = writer.prompt([{"role": "user", "content": ASKED}])
    steps = writer.steps(1)

    def ours() -> list[int]:
        ids, logits = [], steps.begin(tf.constant(0), tf.constant(prompt))
        for number in range(TOKENS):
            ids.append(int(np.argmax(logits[0, 2:])) + 2)
            logits = steps.follow(tf.constant(ids[-1:]), tf.constant([len(prompt) + number]))
        return [one - 1 for one in ids]

    mine = ours()
    times = [timed(ours) for _ in range(REPEATS)]
    print(f"ours: {TOKENS / min(times):.1f} tokens/s of one text, float32, best of {REPEATS}")
    with tempfile.TemporaryDirectory() as folder:
        from safetensors.numpy import save_file

        for name, content in writer.hugging_face().items():
            if name.endswith(".safetensors"):
                save_file(content, Path(folder) / name, metadata={"format": "pt"})
            else:
                (Path(folder) / name).write_text(content if isinstance(content, str) else json.dumps(content))
        program = f"""
import sys, time, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained({folder!r}, dtype=torch.float32)
ids = torch.tensor([{(prompt - 1).tolist()}])
def write():
    with torch.inference_mode():
        return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens={TOKENS}, min_new_tokens={TOKENS}, do_sample=False,
                              pad_token_id=0)[0, ids.shape[1]:].tolist()
found, times = write(), []
for _ in range({REPEATS}):
    began = time.perf_counter(); write(); times.append(time.perf_counter() - began)
print(found); print(min(times))
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"transformers: {done.stderr.strip().splitlines()[-1]}")
        return
    theirs, seconds = done.stdout.strip().splitlines()[-2:]
    same = next((place for place, pair in enumerate(zip(mine, json.loads(theirs))) if pair[0] != pair[1]), TOKENS)
    print(f"transformers: {TOKENS / float(seconds):.1f} tokens/s; ours {float(seconds) / min(times):.2f} x; "
          f"the first {same} tokens are the same")


def timed(what) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def many(preset: str) -> None:
    """Over HTTP, by server-sent events; the server and its clients share the processors."""
    from extensions.chat.openai import OpenAI
    from pipelines.serving.load import reading_as
    from pipelines.serving.predict import Predictor
    from pipelines.serving.presets import of_preset
    from tests.serving import toy_server

    run = reading_as(of_preset(preset, "talk", what="language model"), [f"writing.most={TOKENS}"])
    with toy_server.running(Predictor(run), protocols=[OpenAI()]) as server:

        def ask(number: int) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
            connection.request("POST", "/v1/chat/completions", json.dumps({
                "messages": [{"role": "user", "content": f"{ASKED} Name {number + 2} reasons."}], "stream": True, "max_tokens": TOKENS,
                "stream_options": {"include_usage": True}}))
            last = [line for line in connection.getresponse().read().split(b"\n\n") if line.startswith(b"data: {")][-1]
            return int(json.loads(last[6:])["usage"]["completion_tokens"])

        ask(0)
        began, written = time.perf_counter(), 0
        for number in range(CLIENTS // 4):
            written += ask(number)
        alone = written / (time.perf_counter() - began)
        counts: list[int] = []
        threads = [threading.Thread(target=lambda number=number: counts.append(ask(number))) for number in range(CLIENTS)]
        began = time.perf_counter()
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        together = sum(counts) / (time.perf_counter() - began)
    print(f"{CLIENTS} clients at once: {together:.1f} tokens/s; one after the other {alone:.1f}; {together / alone:.1f} x")


if __name__ == "__main__":
    name, *given = sys.argv[1:]
    {"data": lambda: data(Path(given[0])), "before": lambda: before(Path(given[0]), given[1]), "speed": lambda: speed(*given),
     "many": lambda: many(*given)}[name]()
