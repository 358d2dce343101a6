"""The plainest ratings: mean, plus what a user and an item are above or below it. Baseline, and where the models begin."""

from dataclasses import dataclass

import numpy as np

ROUNDS, USER_SHRINK, ITEM_SHRINK = 15, 5.0, 3.0


@dataclass(frozen=True)
class Biases:
    """mean; user [1 + users], item [1 + items]: 0 for the unknown."""

    mean: float
    user: np.ndarray
    item: np.ndarray

    def __call__(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """mean + user + item, [n] float64."""
        return self.mean + self.user[users] + self.item[items]


def fit(users: np.ndarray, items: np.ndarray, ratings: np.ndarray, user_count: int, item_count: int) -> Biases:
    """Alternating means, each shrunk towards 0 as if so many ratings without a bias stood beside (Koren 2009, section 2.1).

    Args:
        users, items: [n], from 1; 0: unknown, which gets no bias.
        ratings: [n].
    """
    ratings = np.asarray(ratings, np.float64)
    mean = float(ratings.mean())
    user, item = np.zeros(user_count + 1), np.zeros(item_count + 1)
    of_user, of_item = np.bincount(users, minlength=user_count + 1), np.bincount(items, minlength=item_count + 1)
    for _ in range(ROUNDS):
        item = np.bincount(items, ratings - mean - user[users], item_count + 1) / (of_item + ITEM_SHRINK)
        item[0] = 0.0
        user = np.bincount(users, ratings - mean - item[items], user_count + 1) / (of_user + USER_SHRINK)
        user[0] = 0.0
    return Biases(mean, user, item)
