"""Synthetic interactions for trying things out without data or network. They show that everything runs, and nothing about people.

Users like a few of some themes; items belong to themes and come in series, whose next part a user takes next; ratings follow
liking. So a model has something to learn for each of the three tasks.
"""

import hashlib

import numpy as np
import pyarrow as pa

from recsys.data.log import Ids, Log

USERS, ITEMS, THEMES, SERIES = 400, 300, 10, 6
SEED = 20261121


def made_log(users: int = USERS, items: int = ITEMS, seed: int = SEED, low: int = 8, high: int = 40) -> Log:
    """Interactions of `users` with `items`, `low` to `high` each, with rating, time, and the items' theme and title.

    The columns are called user, item, rating, time, theme, title. Ids are texts: u17, i4.
    """
    rng = np.random.default_rng(seed)
    theme = np.arange(items) * THEMES // items
    quality = rng.normal(0, 0.5, items)
    popularity = np.exp(rng.normal(0, 1.0, items))
    taste = rng.dirichlet(np.full(THEMES, 0.2), users)
    mood = rng.normal(0, 0.4, users)
    rows: list[tuple[int, int, float, int]] = []
    for user in range(users):
        odds = popularity * (0.02 + taste[user][theme])
        chosen: list[int] = []
        count = int(rng.integers(low, high))
        while len(chosen) < min(count, items // 2):
            following = chosen[-1] + 1 if chosen else -1
            if chosen and following % SERIES and following < items and following not in chosen and rng.random() < 0.6:
                chosen.append(following)
                continue
            item = int(rng.choice(items, p=odds / odds.sum()))
            if item not in chosen:
                chosen.append(item)
        start = int(rng.integers(0, 300 * 86_400))
        for place, item in enumerate(chosen):
            liking = 3.3 + mood[user] + quality[item] + 2.0 * (taste[user][theme[item]] - 0.2) + rng.normal(0, 0.5)
            rows.append((user, item, float(np.clip(np.round(liking * 2) / 2, 0.5, 5.0)), 1_700_000_000 + start + place * 3600))
    order = rng.permutation(len(rows))
    who, what, rating, time = (np.asarray(values)[order] for values in zip(*rows))
    item_ids = np.array([f"i{number}" for number in range(items)])
    user_ids = np.array([f"u{number}" for number in range(users)])
    features = pa.table(
        {
            "theme": pa.array([f"theme {number}" for number in theme[what]]),
            "title": pa.array([f"Theme {theme[i]}, series {i // SERIES}, part {i % SERIES + 1}" for i in what]),
        }
    )
    digest = hashlib.sha256(f"made 1 {users} {items} {seed} {low} {high}".encode()).hexdigest()[:16]
    return Log(
        who.astype(np.int32),
        what.astype(np.int32),
        Ids(user_ids),
        Ids(item_ids),
        rating.astype(np.float32),
        time.astype(np.float64),
        None,
        features,
        None,
        None,
        np.arange(len(rows)),
        "synthetic interactions",
        digest=digest,
        notes=("The interactions are synthetic, made by this package; the numbers say that everything works, nothing more",),
    )
