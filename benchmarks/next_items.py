"""The next item from a log: recsys/table, as shipped, beside PyTorch on the same log: events a second, and lists after the same time.

python -m benchmarks.next_items interactions.csv     # about 40 minutes on 2 cores for MovieLens-1M; needs the extra `bench`

The log has columns user_id, item_id, order (of a user's events) and split (train, validation, test: each user's last). The peers
(benchmarks.torch_next_items) are the same network but for its taste, and SASRec, over the same windows, one in each row, with the same
loss, for as long as our training took.
"""

import argparse

from benchmarks.product import machine, peer, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("--epochs", type=int, help="of ours; default: as shipped")
    parser.add_argument("--peers", nargs="*", default=["hstu", "sasrec"], choices=["hstu", "sasrec"])
    asked = parser.parse_args()
    print(machine(), flush=True)
    more = [f"train.epochs={asked.epochs}"] if asked.epochs else []
    report = train("recsys/table", f"data.path={asked.log}", "data.user_key=user_id", "data.item_key=item_id", "data.time_key=order",
                   "data.split_key=split", "data.validation=validation", "data.test=test", *more, domain="recsys")
    seconds, metrics = report["timing"]["train_seconds"], report["metrics"]
    print(f"quartet: R@10 {metrics['test/hit_rate@10']['value']:.4f}, NDCG@10 {metrics['test/ndcg@10']['value']:.4f}, {seconds:.0f} s of "
          f"training, {report['timing']['examples_per_second']:.0f} rows/s", flush=True)
    for row in report["tables"]["test/model_and_baselines"]:
        print(f"  {row['of']}: R@10 {row['hit_rate@10']:.4f}, NDCG@10 {row['ndcg@10']:.4f}", flush=True)
    for what in asked.peers:
        found = peer("torch_next_items", asked.log, what, str(seconds))
        print(f"PyTorch, {what}: R@10 {found['recall']:.4f}, NDCG@10 {found['ndcg']:.4f}, {found['epochs']:.1f} epochs, "
              f"{found['events_per_second']:,.0f} events/s", flush=True)


if __name__ == "__main__":
    main()
