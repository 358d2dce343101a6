"""Small data made for tests, with numbers to predict - how bright a picture is, what a text costs, how high a tone - and with
things to find.
"""

import json
from pathlib import Path

import numpy as np

THINGS = {"chair": 40.0, "table": 120.0, "lamp": 25.0, "bed": 300.0, "shelf": 80.0, "stool": 15.0}
KINDS = {"old": 0.5, "plain": 1.0, "new": 1.5, "golden": 3.0}


def pictures(folder: Path, count: int = 240) -> list[str]:
    """An array of grey pictures, whose brightness is the number; settings of an experiment on them."""
    draw = np.random.default_rng(0)
    bright = draw.uniform(20, 230, count)
    images = np.clip(bright[:, None, None] + draw.normal(0, 20, (count, 12, 12)), 0, 255).astype(np.uint8)
    np.savez(folder / "pictures.npz", image=images, label=bright.astype(np.float32))
    return ["data.source=npz", f"data.path={folder / 'pictures.npz'}"]


def texts(folder: Path, count: int = 240) -> list[str]:
    """A table of things for sale with their price and weight, of which some are missing."""
    draw = np.random.default_rng(0)
    lines = ["text,price,weight"]
    for number in range(count):
        thing, kind = (list(names)[draw.integers(len(names))] for names in (THINGS, KINDS))
        price = THINGS[thing] * KINDS[kind] * draw.lognormal(0, 0.1)
        weight = "" if number % 9 == 0 else f"{THINGS[thing] / 4 + draw.normal():.2f}"
        lines.append(f"a {kind} {thing} number {number},{price:.2f},{weight}")
    (folder / "texts.csv").write_text("\n".join(lines) + "\n")
    return ["data.source=table", f"data.path={folder / 'texts.csv'}"]


def pairs(folder: Path, count: int = 240) -> list[str]:
    """A table of pairs of offers, with how much of the two is the same, and whether the thing is."""
    draw = np.random.default_rng(0)
    lines = ["sentence1,sentence2,score,label"]
    for _ in range(count):
        (thing, other), (kind, another) = (draw.choice(list(names), 2) for names in (THINGS, KINDS))
        same, alike = draw.random(2) < 0.5
        second = f"the {kind if alike else another} {thing if same else other} for sale"
        lines.append(f"a {kind} {thing},{second},{3 * same + 2 * alike},{'same' if same else 'other'}")
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    return [f"data.path={folder / 'pairs.csv'}"]


def tagged(folder: Path, count: int = 240) -> list[str]:
    """CoNLL columns of offers that name a thing, of one or two words, and a place; the tags are BIO."""
    draw = np.random.default_rng(0)
    lines = []
    for _ in range(count):
        thing, kind = (draw.choice(list(names)) for names in (THINGS, KINDS))
        town = draw.choice(["Bern", "Oslo", "Rome"])
        tagged_ = [("a", "O"), (kind, "B-thing"), (thing, "I-thing")] if draw.random() < 0.5 else [("the", "O"), (thing, "B-thing")]
        tagged_ += [("from", "O"), (town, "B-place"), (".", "O")] if draw.random() < 0.7 else [("please", "O")]
        lines += [f"{word}\t{tag}" for word, tag in tagged_] + [""]
    (folder / "tagged.conll").write_text("\n".join(lines))
    return [f"data.path={folder / 'tagged.conll'}"]


def answers(folder: Path, count: int = 240) -> list[str]:
    """JSON as SQuAD 2 has it: of what colour a thing is, of which each fifth passage says nothing."""
    draw = np.random.default_rng(0)
    paragraphs = []
    for number in range(count):
        colours = draw.choice(["red", "deep blue", "sea green"], 2).tolist()
        passage = f"the taxi is {colours[0]} . the room is {colours[1]} ." + " please book breakfast ." * int(draw.integers(3))
        thing = ["taxi", "room"][number % 2] if number % 5 else "wifi"
        start = passage.find(f"the {thing} is ") + len(f"the {thing} is ")
        true = [{"text": colours[number % 2], "answer_start": start}] if number % 5 else []
        paragraphs.append({"context": passage, "qas": [{"id": str(number), "question": f"the {thing} ?", "answers": true}]})
    (folder / "answers.json").write_text(json.dumps({"data": [{"title": "things", "paragraphs": paragraphs}]}))
    return [f"data.path={folder / 'answers.json'}"]


def translations(folder: Path, count: int = 240) -> list[str]:
    """A table of offers with what they are in a language of two rules: words are turned round, and the thing stands first."""
    draw = np.random.default_rng(0)
    lines = ["source\ttarget"]
    for _ in range(count):
        thing, kind = (str(draw.choice(list(names))) for names in (THINGS, KINDS))
        town = str(draw.choice(["Bern", "Oslo", "Rome"]))
        lines.append(f"a {kind} {thing} in {town}.\t{thing[::-1]} {kind[::-1]}, {town}.")
    (folder / "translations.tsv").write_text("\n".join(lines) + "\n")
    return [f"data.path={folder / 'translations.tsv'}"]


def verses(folder: Path, count: int = 200) -> list[str]:
    """A running text of lines that are alike."""
    draw = np.random.default_rng(0)
    words = list(KINDS), list(THINGS), ["Bern", "Oslo", "Rome"]
    lines = ["a {} {} stands in {}.\n".format(*(draw.choice(some) for some in words)) for _ in range(count)]
    (folder / "verses.txt").write_text("".join(lines))
    return [f"data.path={folder / 'verses.txt'}"]


def dialogues(folder: Path, count: int = 120) -> list[str]:
    """Questions that are answered in one way."""
    draw = np.random.default_rng(0)
    said = [(str(draw.choice(["find", "see", "take"])), str(draw.choice(["bed", "room", "taxi"]))) for _ in range(count)]
    (folder / "dialogues.csv").write_text("asked,answered\n" + "".join(f"{verb} a {thing},{thing} {verb}\n" for verb, thing in said))
    return [f"data.path={folder / 'dialogues.csv'}"]


def tones(folder: Path, count: int = 120) -> list[str]:
    """A table of recordings of a tone at 8 kHz with its height in semitones above 200 Hz."""
    import soundfile

    draw = np.random.default_rng(0)
    lines = ["file,semitones"]
    for number in range(count):
        height = draw.uniform(0, 36)
        times = np.arange(4000) / 8000
        tone = 0.3 * np.sin(2 * np.pi * 200 * 2 ** (height / 12) * times) + draw.normal(0, 0.01, len(times))
        soundfile.write(folder / f"{number}.wav", tone, 8000)
        lines.append(f"{number}.wav,{height:.3f}")
    (folder / "tones.csv").write_text("\n".join(lines) + "\n")
    return ["data.source=table", f"data.path={folder / 'tones.csv'}"]
