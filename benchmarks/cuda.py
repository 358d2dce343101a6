"""What XLA makes of every shipped experiment's training step for NVIDIA cards, on a machine without one.

    python -m benchmarks.cuda lower DIR                   # here: the steps as StableHLO for a GPU; ten minutes on two cores
    build/cuda/bin/python -m benchmarks.cuda compile DIR  # with jax-cuda12-plugin: XLA's CUDA compiler, by a card's description
    python -m benchmarks.cuda compare DIR                 # beside benchmarks/results/cuda.csv; --write takes its place

`make cuda` does all three. The first step is lowered with the batch, the sizes and the precision (bfloat16) that one card would have, on
the data of the experiment or, where it is not at hand, made data of its form; and of every model, small, with eight examples. Known by it:
that XLA's compiler takes each operation, what becomes a call of cuDNN or cuBLAS, how much memory a step takes, what is multiplied in
float32. Not known: time, the libraries' choice of algorithms and the memory that these want, what a card does. A loop's body counts once.
"""

import argparse
import collections
import csv
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "benchmarks" / "results" / "cuda.csv"
LIMITED = ("data.limit=2048",)


class Card(NamedTuple):
    """As NVIDIA's data sheets give them; `shared`: bytes of shared memory that a block may opt into."""

    capability: tuple[int, int]
    cores: int
    memory: int  # bytes
    bandwidth: int  # bytes/s
    cache: int  # bytes, L2
    shared: int


CARDS = {
    "A100": Card((8, 0), 108, 85_899_345_920, 2_039_000_000_000, 41_943_040, 166_912),
    "H100": Card((9, 0), 132, 84_929_347_584, 3_352_320_000_000, 52_428_800, 232_448),
    "RTX 4090": Card((8, 9), 128, 25_386_352_640, 1_008_000_000_000, 75_497_472, 101_376),
}

COLUMNS = ("experiment", "card", "batch", "by", "weights", "gigaflop", "float32", "argument_mib", "temporary_mib", "kernels", "fusions",
           "cudnn", "cublas", "other_calls", "transfers", "update_kernels", "update_temporary_mib", "host")
# what no GPU computes around the compiled parts of a step, and why it may stay: some numbers, or a clock
ON_HOST = {"RandomIndexShuffle": "the order of the examples", "Timestamp": "how long the step waited for input"}


def files(folder: str, *overrides: str) -> tuple[str, ...]:
    return (f"data.path=FILES/{folder}", *overrides)


def tfds(*overrides: str) -> tuple[str, ...]:
    return (*LIMITED, *overrides)


# experiment -> overrides; FILES is the folder of data sets as their owners publish them, MADE one of made data
GIVEN: dict[str, tuple[str, ...]] = {
    "nlp/ag_news": ("data.source=table", "data.name=null", "data.path=MADE/texts.csv", "data.text_key=text", "data.label_key=label"),
    "nlp/answers": files("answers"),
    "nlp/clinc_bag": (),
    "nlp/clinc_best": (),
    "nlp/clinc_minilm_whole": (),
    "nlp/dialogue": ("data.path=MADE/dialogues.csv", "data.text_key=[asked, answered]", "data.validation=0.2", "data.test=0.2"),
    "nlp/find": ("data.path=MADE/pairs.csv", "data.validation=0.2", "data.test=0.2"),
    "nlp/finetune": ("data.path=MADE/texts.csv", "model.preset=minilm_l6"),
    "nlp/imdb_bag": tfds(),
    "nlp/imdb_best": tfds(),
    "nlp/imdb_minilm_whole": tfds(),
    "nlp/language": files("shakespeare"),
    "nlp/quickstart": (),
    "nlp/sts_bi": files("sts"),
    "nlp/table": ("data.path=MADE/texts.csv",),
    "nlp/tags": files("tags/wnut17"),
    "nlp/translation": files("multi30k"),
    "recsys/bandit": files("bandit/random/men/men.csv"),
    "recsys/clicks": ("data.path=MADE/clicks.csv", "data.min_count=1"),
    "recsys/movielens_rating": (),
    "recsys/movielens_retrieval": (),
    "recsys/movielens_sequential": (),
    "recsys/quickstart": (),
    "recsys/table": ("data.path=MADE/events.csv",),
    "speech/connected_digits_ctc": ("data.strings=200", "data.test_strings=40"),
    "speech/connected_digits_whisper": ("data.strings=200", "data.test_strings=40"),
    "speech/labels": ("data.path=MADE/several.csv", "data.label_key=label", "data.split_key=split", "data.validation=validation",
                      "data.test=test"),
    "speech/librispeech_conformer": ("data.source=synthetic", "data.name=null", "data.train=null", "data.validation=0.1", "data.test=0.1",
                                     "tokens={unit: characters}", "train.batch_size=32", "train.micro_batch_size=null"),
    "speech/quickstart": (),
    "speech/speech_commands": ("data.source=synthetic", "data.name=null", "data.validation=0.1", "data.test=0.1"),
    "speech/spoken_digit": (),
    "speech/spoken_digit_new_speaker": (),
    "speech/yes_no_ctc": (),
    "vision/cifar10_cnn": tfds(),
    "vision/cifar10_fast": tfds(),
    "vision/cifar10_lite0": tfds(),
    "vision/detection": files("bccd"),
    "vision/digits": (),
    "vision/fashion_mnist_best": tfds(),
    "vision/fashion_mnist_cnn": tfds(),
    "vision/folder": files("hand_signs", "data.validation=0.1", "data.test=0.2"),
    "vision/imagenet_resnet50": ("data.source=folder", "data.name=null", "data.streaming=false", "data.path=MADE/thousand", "data.test=0.1",
                                 "data.validation=0.1", "train.batch_size=128"),
    "vision/instances": ("data.source=table", "data.path=FILES/nuclei/images.csv", "data.image_key=file", "data.mask_key=labels"),
    "vision/segmentation": files("camvid"),
}
# no step trains them: fitted at once, frozen encoders with a fitted head, and networks that are judged as they are
FITTED = {"nlp/clinc_minilm", "nlp/imdb_minilm", "nlp/labels", "nlp/numbers", "speech/numbers", "speech/sounds", "speech/voices",
          "speech/spoken_digit_whisper", "speech/whisper", "speech/yes_no_whisper", "vision/labels", "vision/numbers", "vision/yolox"}


def shipped() -> list[str]:
    return sorted(f"{file.parent.name}/{file.stem}" for file in (ROOT / "configs").glob("*/*.yaml"))


# --- here: from an experiment to StableHLO

def lower(folder: Path, names: list[str], data: Path) -> None:
    """Writes NAME.gradients.mlir and NAME.update.mlir, and lowered.json with what is said of each."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from pipelines.base.errors import ConfigError, DataError
    from tests import rehearsal, test_gpu_rehearsal

    folder.mkdir(parents=True, exist_ok=True)
    rehearsal.believe_in_a_gpu()
    kept = folder / "lowered.json"
    known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    with tempfile.TemporaryDirectory() as made:
        write_data(Path(made))
        cases = {name: (name, [text.replace("FILES", str(data)).replace("MADE", made) for text in given]) for name, given in GIVEN.items()}
        for name, (text, given) in test_gpu_rehearsal.prepared(Path(made) / "small").items():  # every model, small and with eight examples
            cases[name] = (text, ["train.batch_size=8", *given])
        for name in names or cases:
            try:
                found = rehearsal.rehearse(*cases[name], whole=True)
            except (ConfigError, DataError) as error:  # its data or encoder is not here; `compare` says so again
                print(f"{name}: left out: {error}", flush=True)
                continue
            for what, text in found.pop("made").items():
                (folder / f"{file_name(name)}.{what}.mlir").write_text(text, encoding="utf-8")
            known[name] = found
            kept.write_text(json.dumps(known, indent=1), encoding="utf-8")
            print(f"{name}: {json.dumps(found)}", flush=True)


def file_name(name: str) -> str:
    return name.replace("/", "-").replace(" ", "_")


def write_data(folder: Path) -> None:
    """What recipes on a reader's own data get."""
    import numpy as np
    from PIL import Image

    from tests import contract_cases, numbers_made

    for make in (numbers_made.texts, numbers_made.pairs, numbers_made.dialogues):
        make(folder)
    draw = np.random.default_rng(0)
    words = [f"word{number}" for number in range(5000)]

    def table(name: str, head: list[str], rows: Iterator[list]) -> None:
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([*([head] if head else []), *rows])

    table("texts.csv", ["text", "label"], ([" ".join(draw.choice(words, 40)), f"kind{row % 4}"] for row in range(2000)))
    table("pairs.csv", ["question", "answer"], ([" ".join(draw.choice(words, 12)), " ".join(draw.choice(words, 40))] for _ in range(500)))
    table("clicks.csv", [], ([row % 2, *draw.integers(0, 100, 13), *(f"v{one}" for one in draw.integers(0, 1000, 26))]
                                                      for row in range(8000)))
    table("events.csv", ["user", "item", "timestamp"], ([f"u{row % 600}", f"i{draw.integers(0, 3000)}", 1_600_000_000 + 60 * row]
                                                        for row in range(30_000)))
    for number in range(1000):
        place = folder / "thousand" / f"class{number:04}"
        place.mkdir(parents=True)
        for copy in range(3):
            Image.fromarray(draw.integers(0, 255, (64, 64, 3), np.uint8)).save(place / f"{copy}.png")
    contract_cases.sounds_of_several(folder)


# --- in an environment with XLA's CUDA compiler

def described(name: str) -> str:
    """A card as XLA reads it."""
    card = CARDS[name]
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: {card.shared + 1024}
  threads_per_core_limit: 2048 core_count: {card.cores} fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: {card.bandwidth} l2_cache_size: {card.cache} clock_rate_ghz: 1.7
  device_memory_size: {card.memory} shared_memory_per_block_optin: {card.shared}
  cuda_compute_capability {{ major: {card.capability[0]} minor: {card.capability[1]} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 7 }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: "{name}"
"""


def compile_all(folder: Path, names: list[str]) -> None:
    """Writes compiled.json: NAME.WHAT -> card -> what the compiler made of it, or {"error": text}."""
    os.environ.setdefault("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0")
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir
    from jax.experimental import topologies

    file = folder / "compiled.json"
    done = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    devices = {card: topologies.get_topology_desc(platform="cuda", target_config=described(card), topology="1x1x1").devices[0]
               for card in CARDS}
    for source in sorted(folder.glob("*.mlir")):
        name = source.name.removesuffix(".mlir")
        if names and name.rpartition(".")[0] not in map(file_name, names):
            continue
        done[name] = {}
        for card, device in devices.items():
            options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
            try:
                with mlir.make_ir_context():
                    module = ir.Module.parse(unpacked(source.read_text(encoding="utf-8")))
                    made = device.client.compile(module, xla_client.DeviceList((device,)), options)
                memory = made.get_compiled_memory_stats()
                done[name][card] = {**counted(made.hlo_modules()[0].to_string()), "argument": memory.argument_size_in_bytes,
                                    "temporary": memory.temp_size_in_bytes, "output": memory.output_size_in_bytes}
            except Exception as error:
                done[name][card] = {"error": str(error)[:2000]}
        print(f"{name}: {json.dumps(done[name])}", flush=True)
        file.write_text(json.dumps(done, indent=1), encoding="utf-8")


def unpacked(text: str) -> str:
    """StableHLO with a byte for each truth value of its constants, as MLIR reads them by now, where TensorFlow writes eight in one."""
    def bytes_of(found: re.Match) -> str:
        count, packed = math.prod(int(size) for size in found[2].split("x") if size), bytes.fromhex(found[1])
        if len(packed) == count:
            return found[0]
        each = "".join("01" if packed[place // 8] >> place % 8 & 1 else "00" for place in range(count))
        return f'dense<"0x{each}"> : tensor<{found[2]}i1>'

    return re.sub(r'dense<"0x([0-9A-F]+)"> : tensor<((?:\d+x)*)i1>', bytes_of, text)


# what starts nothing on the card: names of what is there, other views of it, and ends of what was started before
FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "while", "conditional", "call", "partition-id",
        "replica-id", "copy-done", "async-start", "async-done", "async-update", "opt-barrier", "optimization-barrier"}
TRANSFERS = {"infeed", "outfeed", "send", "recv", "send-done", "recv-done"}
OPERATION = re.compile(r"(?:\((?:[^()]|\([^()]*\))*\)|\S+) ([a-z][\w\-]*)\(")  # behind the type of what it gives


def counted(text: str) -> dict[str, Any]:
    """Of an optimised module: kernels, fusions, calls by library and transfers to the host or from it."""
    inside = set(re.findall(r"(?:calls|to_apply)=%?([\w.\-]+)", text))  # of fusions and reductions: parts of one kernel
    found = {"kernels": 0, "fusions": 0, "transfers": 0}
    calls: collections.Counter[str] = collections.Counter()
    within = ""
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            within = line.removeprefix("ENTRY ").lstrip("%").split(" ")[0]
        elif " = " in line and within and within not in inside:
            kind = OPERATION.match(line.partition(" = ")[2])
            if kind is None:
                raise ValueError(f"not an instruction of XLA's: {line[:300]}")
            found["transfers"] += kind[1] in TRANSFERS or "S(5)" in line
            found["fusions"] += kind[1] == "fusion"
            found["kernels"] += kind[1] not in FREE
            calls.update(re.findall(r'custom_call_target="([^"]+)"', line))
    return {**found, "calls": dict(calls)}


# --- what is said

TENSOR = re.compile(r"tensor<((?:\d+x)*)(\w+)>")


def products(text: str) -> tuple[float, float]:
    """(floating-point operations of the matrix products and convolutions of a StableHLO module that something depends on, those of them in
    float32 or wider)."""
    total, wide = 0.0, 0.0
    for line in needed(text):
        if "stablehlo.dot_general" not in line and "stablehlo.convolution" not in line:
            continue
        types = TENSOR.findall(line.partition(" loc(")[0].rpartition(" : ")[2])
        left, right, result = ([int(size) for size in sizes.split("x") if size] for sizes, _ in types[:3])
        if "dot_general" in line:
            places = re.search(r"contracting_dims = \[([\d, ]*)\] x", line)
            summed = math.prod(left[int(place)] for place in re.findall(r"\d+", places[1])) if places else 1
        else:
            kernel = re.search(r"x\[([^\]]*)\]->", line)
            assert kernel is not None, line
            summed = math.prod(size for size, name in zip(right, kernel[1].split(",")) if name.strip() != "o")
        operations = 2.0 * math.prod(result) * summed
        total += operations
        wide += operations if types[0][1] in ("f32", "f64") else 0.0
    return total, wide


def needed(text: str) -> list[str]:
    """Its lines without operations whose results nothing takes: TensorFlow leaves gradients of constants in."""
    kept: list[str] = []
    for function in re.split(r"^  func\.func ", text, flags=re.MULTILINE):
        wanted: set[str] = set()
        for line in reversed(function.splitlines()):  # what is used stands before its use, but within loops, which stay whole
            gives, equals, takes = line.partition(" = ")
            names = re.findall(r"%\w+", gives)
            if equals and names and wanted.isdisjoint(names) and not line.endswith("{"):
                continue
            wanted.update(re.findall(r"%\w+", takes if equals else line))
            kept.append(line)
    return kept


def table(folder: Path) -> list[dict[str, str]]:
    """A row for each experiment and card."""
    lowered = json.loads((folder / "lowered.json").read_text(encoding="utf-8"))
    compiled = json.loads((folder / "compiled.json").read_text(encoding="utf-8"))
    rows = []
    for name, known in sorted(lowered.items()):
        file = folder / f"{file_name(name)}.gradients.mlir"
        total, wide = products(file.read_text(encoding="utf-8")) if file.exists() else (0.0, 0.0)
        for card in CARDS:
            row: dict[str, Any] = {"experiment": name, "card": card, "batch": known["batch"], "by": "XLA" if known["xla"] else "cuDNN",
                                   "weights": known["weights"]}
            parts = {what: compiled[key][card] for what in ("gradients", "update") if (key := f"{file_name(name)}.{what}") in compiled}
            for what, part in parts.items():
                if "error" in part:
                    raise SystemExit(f"{name}: XLA does not compile the {what} for {card}: {part['error']}")
            if step := parts.get("gradients"):
                calls = step["calls"]
                kinds = {"cudnn": "__cudnn", "cublas": "__cublas"}
                row |= {library: sum(count for call, count in calls.items() if call.startswith(start)) for library, start in kinds.items()}
                others = {call: count for call, count in calls.items() if not call.startswith(tuple(kinds.values()))}
                row |= {"gigaflop": f"{total / 1e9:.3g}", "float32": f"{wide / total if total else 0:.1%}",
                        "argument_mib": mib(step["argument"]), "temporary_mib": mib(step["temporary"]), "kernels": step["kernels"],
                        "fusions": step["fusions"], "other_calls": "; ".join(f"{call} {count}" for call, count in sorted(others.items()))}
            if update := parts.get("update"):
                row |= {"update_kernels": update["kernels"], "update_temporary_mib": mib(update["temporary"])}
            row["host"] = "; ".join(sorted({one.partition(" ")[0] for one in known["host"]}))
            row["transfers"] = sum(part["transfers"] for part in parts.values())
            rows.append({column: str(row.get(column, "")) for column in COLUMNS})
    return rows


def mib(value: int) -> str:
    return f"{value / 2**20:.1f}"


def kept() -> list[dict[str, str]]:
    """The rows of the table that is kept."""
    lines = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def differences(old: list[dict[str, str]], new: list[dict[str, str]]) -> list[str]:
    """What a reader of the two tables has to know: counts of calls and memory that moved by over a tenth, other libraries, transfers."""
    before = {(row["experiment"], row["card"]): row for row in old}
    found = []
    for row in new:
        name = f"{row['experiment']} on {row['card']}"
        if int(row["transfers"]):
            found.append(f"{name}: {row['transfers']} transfers to the host or from it within the step")
        found += [f"{name}: no GPU computes {one}, which is copied to the host in every step" for one in row["host"].split("; ")
                  if one and one not in ON_HOST]
        then = before.get((row["experiment"], row["card"]))
        if then is None:
            found.append(f"{name}: has no row yet")
            continue
        for column in COLUMNS[2:]:
            was, now = then[column], row[column]
            if was != now and moved(was, now, 1.0 if column.endswith("mib") else 0.0):
                found.append(f"{name}: {column} was {was or 'empty'}, is {now or 'empty'}")
    return found


def moved(was: str, now: str, least: float) -> bool:
    """Whether two entries are other words, or numbers further apart than a tenth and `least`."""
    try:
        one, other = (float(text.rstrip("%")) for text in (was, now))
    except ValueError:
        return True
    return abs(one - other) > 0.1 * max(one, other) + least


def compare(folder: Path, names: list[str], write: bool) -> None:
    """Prints what differs from the table that is kept, and ends with status 1 where anything does; `write`: keeps what came out instead."""
    rows = table(folder)
    if write:
        from datetime import date

        from tests.test_gpu_rehearsal import CASES

        new = {row["experiment"] for row in rows}  # what was not compiled keeps its rows
        rows += [row for row in kept() if row["experiment"] not in new and row["experiment"] in {*GIVEN, *CASES}]
        rows.sort(key=lambda row: row["experiment"])
        with open(TABLE, "w", newline="", encoding="utf-8") as file:
            file.write("# The first training step of each shipped experiment, and of every model (small), as XLA compiles it for a card "
                       f"without one; a loop counts once, arithmetic is that of products. By make cuda, {date.today()}.\n")
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return
    new = {row["experiment"] for row in rows}
    missing = {row["experiment"] for row in kept()} - new if not names else set()
    found = [*differences(kept(), rows), *(f"{name}: has rows, and was not compiled" for name in sorted(missing))]
    print("\n".join(found) or f"{len(rows)} rows, as {TABLE.relative_to(ROOT)} has them")
    if found:
        raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("lower", "compile", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="shipped experiments and models; all where none is named")
    parser.add_argument("--files", type=Path, default=Path("~/quartet-files"), help="data sets as their owners publish them")
    parser.add_argument("--write", action="store_true", help="keep the table")
    asked = parser.parse_args()
    if asked.what == "lower":
        lower(asked.folder, asked.names, asked.files.expanduser())
    elif asked.what == "compile":
        compile_all(asked.folder, asked.names)
    else:
        compare(asked.folder, asked.names, asked.write)


if __name__ == "__main__":
    sys.exit(main())
