"""An experiment for running texts: files of plain text, or a column of a table."""

from pathlib import Path

from nlp.data.document_files import split_files
from pipelines.base.errors import DataError
from pipelines.config.draft import Draft, Entry, section
from pipelines.data import text_rows
from pipelines.data.columns import by_name
from pipelines.data.divide import find
from pipelines.machine.startup import start_tensorflow

FEWEST = 10_000  # bytes without which there is nothing to learn
CHARACTERS = 5_000_000  # bytes below which characters are better than pieces of words
LENGTH = 128  # tokens that are seen at a time
SIZES = ((2_000_000, 192, 4, 6, 512, 0.1), (50_000_000, 256, 6, 8, 704, 0.1), (1 << 62, 384, 8, 8, 1024, 0.0))
STEPS = 3000  # that a network from scratch wants, about
BATCH = 32


def draft(path: Path) -> Draft:
    """Raises DataError for too little text."""
    start_tensorflow()
    table = path.is_file() and path.suffix.lower() in text_rows.SUFFIXES and path.suffix.lower() != ".txt"
    files = {"all": [path]} if table else split_files(path)
    names = list(files)
    train = files[find("train", names) or names[0]]
    size = sum(file.stat().st_size for file in train)
    if size < FEWEST:
        raise DataError(f"{path}: {size:,} bytes are too few to learn a language from; give {FEWEST:,} or more")
    entries: list[Entry] = [("source", "table" if table else "text", ""),
                            ("path", str(path), "" if path.is_absolute() else "from the current directory")]
    if table:
        columns = next(iter(text_rows.records(path, named=True)))[1]
        entries.append(("text_key", by_name(columns, ["text"]).get("text") or columns[0], ""))
    entries += [("validation", find("validation", names) or 0.1, "chooses the epoch"),
                ("test", find("test", names) or 0.1, "judged once, at the end")]
    letters = size < CHARACTERS
    _, width, depth, heads, hidden, dropout = next(one for one in SIZES if size < one[0])
    tokens = size if letters else size / 4.0
    epochs = min(30, max(1, round(STEPS * BATCH * LENGTH / tokens)))
    found = (f"Found: {size:,} bytes of training text in {len(train):,} file{'s' if len(train) > 1 else ''}.",)
    body = "\n".join([
        "task: nlp.language_model", section("data", entries),
        section("tokens", [("name", "characters", "or bytes, pieces")] if letters else [
            ("name", "pieces", "or bytes, characters"), ("vocabulary", 8000, "")]),
        section("model", [("name", "transformer", "from scratch"), ("length", LENGTH, "tokens that are seen at a time"),
                          ("width", width, ""), ("depth", depth, ""), ("heads", heads, ""), ("hidden", hidden, ""),
                          ("dropout", dropout, "more for less text")]),
        section("writing", [("most", 100, "tokens written at most; what they follow has the rest of model.length")]),
        section("train", [("epochs", epochs, ""), ("batch_size", BATCH, "windows per update"),
                          ("optimizer", {"name": "adamw", "weight_decay": 0.1, "options": {"beta_2": 0.99}}, ""),
                          ("learning_rate", {"peak": 0.003 if width < 256 else 0.001, "schedule": "cosine", "warmup": 0.05}, ""),
                          ("clip", {"global_norm": 1.0}, "")])])
    return Draft(f"What comes next in {path.name}.", found, body, "counts of runs of up to 6 tokens")
