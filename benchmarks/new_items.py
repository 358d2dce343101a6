"""Items that nobody had yet: a tenth of a catalogue is in test alone, and known by its columns.

python -m benchmarks.new_items interactions.csv movies.csv --lists genres          # MovieLens-1M: 10 minutes on 2 cores
python -m benchmarks.new_items interactions.csv movies.parquet --lists genres --vectors title_vector

The log has columns user_id, item_id, order and split (train, validation, test: each user's last), the table of items item_id. A second
tenth is in validation alone, and each user's last train event, too. The peer is `content`: cosines of the history's columns.
"""

import argparse
import random
import tempfile

from benchmarks.next_items import read, written
from benchmarks.product import machine, train

MODELS = {
    "towers": ("recsys/movielens_retrieval", ("train.epochs=4",)),
    "hstu": ("recsys/table", ("train.epochs=6",)),
}


def held_out(log: str, folder: str) -> str:
    """The log with all events of a tenth of the items in test, of another tenth in validation, and each user's last train event, too."""
    rows = read(log)
    items = sorted({row["item_id"] for row in rows})
    random.Random(0).shuffle(items)
    tenth = len(items) // 10
    parts = {item: "test" if place < tenth else "validation" for place, item in enumerate(items[: 2 * tenth])}
    last = {}
    for row in rows:
        row["split"] = parts.get(row["item_id"], row["split"])
        if row["split"] == "train":
            last[row["user_id"]] = row
    for row in last.values():
        row["split"] = "validation"
    return written(rows, folder)


def compare(log: str, items: str, columns: list[str], models: list[str]) -> None:
    keys = ("source=table", "name=null", f"path={log}", "user_key=user_id", "item_key=item_id", "time_key=order", "split_key=split",
            "validation=validation", "test=test", f"items={items}", "title_key=null", *columns)
    for name in models:
        config, more = MODELS[name]
        report = train(config, *(f"data.{key}" for key in keys), "train.keep=last", *more, domain="recsys")
        print(f"{name}: {report['timing']['train_seconds']:.0f} s of training", flush=True)
        for split in ("validation", "test"):
            for row in report["tables"][f"{split}/new_and_known"]:
                figures = ", ".join(f"{key.partition(',')[0]} {value:.4f}" for key, value in row.items() if key.endswith("ndcg@10"))
                print(f"  {split}, {row['judged']}, {row['users']:,} users, NDCG@10: {figures}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("items")
    for kind in ("numbers", "categories", "lists", "vectors"):
        parser.add_argument(f"--{kind}", nargs="*", default=[], metavar="COLUMN")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    asked = parser.parse_args()
    print(machine(), flush=True)
    columns = [f"{kind}=[{', '.join(getattr(asked, kind))}]" for kind in ("numbers", "categories", "lists", "vectors")]
    with tempfile.TemporaryDirectory() as folder:
        compare(held_out(asked.log, folder), asked.items, columns, asked.models)


if __name__ == "__main__":
    main()
