"""Learning from logged choices beside obp: policies from logs whose truth is known, and estimators on the Open Bandit sample.

    python -m benchmarks.bandit policies [--peer PYTHON] [--seeds 0 1 2]     # about 15 min on 2 cores
    python -m benchmarks.bandit estimators LOG --peer PYTHON                  # LOG: one of the sample's tables, such as random/men/men.csv

PYTHON has `pip install obp==0.4.1 torch`. Policies: rows of classified data are contexts, classes are actions, an action earns 1 where it
is the row's class; a logging policy chooses once for each row of train, and what a policy earns on the rows of test is then known for
each action. Logs: even, and by a logistic regression on a twentieth of train, mixed with a fifth of even choices.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.product import machine

LOSSES = ("doubly_robust", "ips", "direct")


def sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """name -> (contexts [n, width], rewards of every action [n, actions])."""
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine

    found = {}
    for name, load in (("digits", load_digits), ("wine", load_wine), ("breast_cancer", load_breast_cancer)):
        contexts, classes = load(return_X_y=True)
        found[name] = contexts.astype(np.float64), np.eye(int(classes.max()) + 1)[classes]
    questions = Path("~/quartet-files/questions/train.csv").expanduser()
    if questions.exists():
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        with open(questions, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        _, classes = np.unique([row["label"] for row in rows], return_inverse=True)
        words = TfidfVectorizer(min_df=3).fit_transform([row["question"] for row in rows])
        found["questions"] = TruncatedSVD(60, random_state=0).fit_transform(words), np.eye(int(classes.max()) + 1)[classes]
    draw = np.random.default_rng(1)
    contexts = draw.normal(size=(6000, 5))
    chances = 1 / (1 + np.exp(3.5 - contexts @ draw.normal(0, 0.7, (5, 20)) - draw.normal(0, 0.5, 20)))  # rewards of some 5 %
    found["rare"] = contexts, chances
    return found


def logged(contexts: np.ndarray, rewards: np.ndarray, how: str, seed: int) -> dict[str, np.ndarray]:
    """A log of the first 70 % of the rows in drawn order, and the others to be tested on."""
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(seed)
    order = draw.permutation(len(contexts))
    contexts, rewards = contexts[order], rewards[order]
    count, train = rewards.shape[1], round(0.7 * len(contexts))
    policy = np.full((train, count), 1 / count)
    if how == "fitted":
        some = max(5 * count, train // 20)
        model = LogisticRegression(C=0.1, max_iter=1000).fit(_standard(contexts)[:some], rewards[:some].argmax(1))
        known = np.zeros((train, count))
        known[:, model.classes_] = model.predict_proba(_standard(contexts)[:train])
        policy = 0.8 * known + 0.2 / count
    actions = (policy.cumsum(1) < draw.random(train)[:, None]).sum(1).clip(max=count - 1)
    rows = np.arange(train)
    return {"contexts": contexts[:train], "actions": actions, "propensities": policy[rows, actions], "tested": contexts[train:],
            "rewards": (draw.random(train) < rewards[rows, actions]).astype(np.int64), "truth": rewards[train:], "count": np.array(count),
            "logging": np.array(float((policy * rewards[:train]).sum(1).mean()))}


def _standard(values: np.ndarray) -> np.ndarray:
    return np.asarray((values - values.mean(0)) / (values.std(0) + 1e-9))


def experiment(path: Path, width: int, loss: str) -> dict[str, Any]:
    """What `quartet new` writes for such a table, but that nothing is explored, as by the peers."""
    return {"task": "recsys.bandit", "data": {"source": "table", "path": str(path), "item_key": "action", "rating_key": "reward",
                                              "propensity_key": "propensity", "numbers": [f"x{number}" for number in range(width)],
                                              "protocol": "random", "validation": 0.2, "test": None},
            "model": {"name": "policy", "explore": 0.0}, "loss": {"name": loss}, "monitor": {"tensorboard": False},
            "evaluate": {"bootstrap": 100}, "train": training(path)}


def training(path: Path) -> dict[str, Any]:
    """The training that `quartet new` proposes."""
    from recsys.new import bandit_training

    with open(path, encoding="utf-8") as file:
        return bandit_training(sum(1 for _ in file) - 1)


def ours(log: dict[str, np.ndarray], loss: str, folder: Path) -> np.ndarray:
    """[m, actions], the policy's probabilities for the tested contexts."""
    import quartet

    path, width = folder / "log.csv", log["contexts"].shape[1]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["action", "reward", "propensity", *(f"x{number}" for number in range(width))])
        for row in zip(log["actions"], log["rewards"], log["propensities"], log["contexts"]):
            writer.writerow([f"a{row[0]}", *row[1:3], *row[3]])
    run = quartet.train(experiment(path, width, loss), runs=folder / loss)
    answers = run.predict([json.dumps({f"x{number}": value for number, value in enumerate(row)}) for row in log["tested"].tolist()])
    policy = np.zeros((len(log["tested"]), int(log["count"])))
    for number, answer in enumerate(answers):
        for action, chance in zip(answer["actions"], answer["probabilities"]):
            policy[number, int(action[1:])] = chance
    return policy


def theirs(log: dict[str, np.ndarray], python: str, folder: Path) -> dict[str, np.ndarray]:
    np.savez(folder / "log.npz", **log)
    script = Path(__file__).parent / "obp_policies.py"
    subprocess.run([python, str(script), str(folder / "log.npz"), str(folder / "answers.npz")], check=True, stdout=subprocess.DEVNULL)
    return dict(np.load(folder / "answers.npz"))


def policies(python: str | None, seeds: list[int], chosen: list[str]) -> None:
    """True values of policies learned from logs."""
    for name, (contexts, rewards) in sets().items():
        if chosen and name not in chosen:
            continue
        for how in ("even", "fitted"):
            if name == "rare" and how == "fitted":
                continue
            values: dict[str, list[float]] = {}
            for seed in seeds:
                log = logged(contexts, rewards, how, seed)
                with tempfile.TemporaryDirectory() as folder:
                    found = {f"quartet {loss}": ours(log, loss, Path(folder)) for loss in LOSSES}
                    found |= theirs(log, python, Path(folder)) if python else {}
                truth = log["truth"]
                values.setdefault("logging", []).append(float(log["logging"]))
                values.setdefault("best", []).append(float(truth.max(1).mean()))
                for policy, chances in found.items():
                    values.setdefault(policy, []).append(float((chances * truth).sum(1).mean()))
            print(f"{name}, {how}: " + "; ".join(f"{policy} {statistics.mean(each):.3f} {[round(one, 3) for one in each]}"
                                                 for policy, each in values.items()), flush=True)


def estimators(path: str, python: str) -> None:
    """Our estimates and obp's of one policy on a log of the Open Bandit sample: a softmax of drawn scores, with drawn rewards."""
    from recsys.metrics.off_policy import ESTIMATORS, Choices

    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    actions = np.array([int(row["item_id"]) for row in rows])
    rewards = np.array([float(row["click"]) for row in rows])
    propensities = np.array([float(row["propensity_score"]) for row in rows])
    draw = np.random.default_rng(0)
    chances = draw.dirichlet(np.ones(actions.max() + 1), len(rows))
    predicted = draw.uniform(0, 0.02, chances.shape)
    number = np.arange(len(rows))
    choices = Choices(rewards, propensities, chances[number, actions], predicted[number, actions], (chances * predicted).sum(1))
    threshold = float(np.quantile(choices.weights, 0.9))
    sums = choices.terms(threshold).sum(0, keepdims=True)
    mine = {name: float(statistic(sums)[0]) for name, statistic in ESTIMATORS.items()}
    with tempfile.TemporaryDirectory() as folder:
        other = theirs({"actions": actions, "rewards": rewards, "propensities": propensities, "chances": chances, "predicted": predicted,
                        "threshold": np.array(threshold)}, python, Path(folder))
    for name, value in mine.items():
        peer = float(other[f"estimate {name}"])
        print(f"{name}: {value:.9f}, obp {peer:.9f}, difference {value - peer:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["policies", "estimators"])
    parser.add_argument("log", nargs="?")
    parser.add_argument("--peer")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--sets", nargs="+", default=[])
    asked = parser.parse_args()
    print(machine(), flush=True)
    if asked.what == "policies":
        policies(asked.peer, asked.seeds, asked.sets)
    elif asked.log is None or asked.peer is None:
        sys.exit("estimators: needs a log, and --peer PYTHON")
    else:
        estimators(asked.log, asked.peer)


if __name__ == "__main__":
    main()
