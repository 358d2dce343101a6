"""Which of a user's train ratings an event of ranking is predicted from: those before it, or all where events are held out at random."""

import numpy as np

from pipelines.data.split import draws
from recsys.data.catalogue import Catalogue
from recsys.data.protocol import TRAIN
from recsys.settings import InteractionData

# for the place that an event's history ends before: before its time; all of it, and the time is a second after its last; all of it, those
# nearest to its time first
BEFORE, ALL, AROUND = -1, -2, -3


def all_known(data: InteractionData) -> bool:
    """Whether a held-out event is judged with all train ratings of its user, and not with the earlier ones alone.

    So it is where events are held out whatever their time: at random, or by the data's own splits where no times are known.
    """
    if data.split_key is not None:
        return data.source not in ("synthetic", "tfds") and data.time_key is None
    return data.protocol == "random"


def timeless(data: InteractionData) -> bool:
    """Whether the data have no times, so that a user's ratings have no age."""
    return all_known(data) and data.time_key is None


def known_at(data: InteractionData) -> int:
    """The code for the history of an event at a time."""
    return ALL if timeless(data) else AROUND if all_known(data) else BEFORE


def random_order(count: int, seed: int) -> np.ndarray:
    """[count] float64, in place of times: the order of the rows would be one of items that are the same for all users."""
    return np.argsort(np.argsort(draws(count, seed, "order"), kind="stable")).astype(np.float64)


def judged_with(data: InteractionData) -> str:
    """In a sentence, for the report."""
    if not all_known(data):
        return "Each event is judged with the train ratings of its user that are at least a second older"
    return "Each event is judged with all train ratings of its user" + ("" if timeless(data) else ", those nearest in time first")


def whole(times: np.ndarray) -> np.ndarray:
    """Seconds as [n] int64."""
    return np.round(times).astype(np.int64)


def places(catalogue: Catalogue, times: np.ndarray, data: InteractionData) -> np.ndarray:
    """[n] int64: of each event, the place in the histories that its own ends before, or a code.

    Train events have what comes before them whatever the protocol, so that none is predicted from itself.
    """
    at = visible(catalogue, times)
    if all_known(data):
        at[catalogue.parts != TRAIN] = known_at(data)
    return at


def visible(catalogue: Catalogue, times: np.ndarray) -> np.ndarray:
    """[n] int64: of each event, the place in the histories that its user's train events before its second end at.

    Events of the same second are not seen: nothing says which came first, and a request, which has a time alone, is answered so too.

    Args:
        times: [n] int64, seconds.
    """
    at = np.zeros(len(times), np.int64)
    order = np.lexsort((times, catalogue.users))
    order = order[catalogue.users[order] > 0]
    if not len(order):
        return at
    train = catalogue.parts[order] == TRAIN
    before = np.cumsum(train) - train  # train events before each, over all users in the order of users
    new = np.r_[True, (np.diff(catalogue.users[order]) != 0) | (np.diff(times[order]) != 0)]
    at[order] = before[new][np.cumsum(new) - 1]
    return at
