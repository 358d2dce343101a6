"""The next item from a log: recsys/table, as shipped, beside PyTorch on the same log: events a second, and lists after the same time.

python -m benchmarks.next_items interactions.csv             # for MovieLens-1M some 30 minutes on 2 cores; needs the extra `bench`
python -m benchmarks.next_items interactions.csv --whole     # of train alone, each user's last there is test: nothing before it is missing

The log has columns user_id, item_id, order (of a user's events) and split (train, validation, test: each user's last). The peers
(benchmarks.torch_next_items) are the same network but for its taste, and SASRec, over the same windows, one in each row, with the same
loss, for as long as our training took.
"""

import argparse
import csv
import tempfile
from pathlib import Path

from benchmarks.product import machine, peer, train


def read(log: str) -> list[dict[str, str]]:
    """The rows of a log, in order."""
    with open(log, newline="", encoding="utf-8") as file:
        return sorted(csv.DictReader(file), key=lambda row: int(row["order"]))


def written(rows: list[dict[str, str]], folder: str) -> str:
    """The path of a log with these rows."""
    path = Path(folder) / "log.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def whole(log: str, folder: str) -> str:
    """The train events of the log alone: each user's last is test, and of every third user the last but one validation."""
    rows = [row for row in read(log) if row["split"] == "train"]
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row["user_id"], []).append(place)
    for number, mine in enumerate(places.values()):
        rows[mine[-1]]["split"] = "test"
        if number % 3 == 0 and len(mine) > 2:
            rows[mine[-2]]["split"] = "validation"
    return written(rows, folder)


def compare(log: str, epochs: int | None, peers: list[str]) -> None:
    more = [f"train.epochs={epochs}"] if epochs else []
    report = train("recsys/table", f"data.path={log}", "data.user_key=user_id", "data.item_key=item_id", "data.time_key=order",
                   "data.split_key=split", "data.validation=validation", "data.test=test", *more, domain="recsys")
    timing, metrics = report["timing"], report["metrics"]
    events = timing["examples_per_second"] * report["data"]["facts"]["targets_per_window"]
    print(f"quartet: R@10 {metrics['test/hit_rate@10']['value']:.4f}, NDCG@10 {metrics['test/ndcg@10']['value']:.4f}, {timing['epochs']} "
          f"epochs, {events:,.0f} events/s, {timing['train_seconds']:.0f} s of training", flush=True)
    for row in report["tables"]["test/model_and_baselines"]:
        print(f"  {row['of']}: R@10 {row['hit_rate@10']:.4f}, NDCG@10 {row['ndcg@10']:.4f}", flush=True)
    for what in peers:
        found = peer("torch_next_items", log, what, str(timing["train_seconds"]))
        print(f"PyTorch, {what}: R@10 {found['recall']:.4f}, NDCG@10 {found['ndcg']:.4f}, {found['epochs']:.1f} epochs, "
              f"{found['events_per_second']:,.0f} events/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("--whole", action="store_true", help="judge each user's last train event")
    parser.add_argument("--epochs", type=int, help="of ours; default: as shipped")
    parser.add_argument("--peers", nargs="*", default=["hstu", "sasrec"], choices=["hstu", "sasrec"])
    asked = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        compare(whole(asked.log, folder) if asked.whole else asked.log, asked.epochs, asked.peers)


if __name__ == "__main__":
    main()
