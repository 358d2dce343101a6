"""What the features of an encoder say of a data set: near copies across splits, doubtful labels, and examples unlike all others.

Features are compared by the cosine of their differences from the mean of all, which all vectors have in common.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.config.messages import listed
from pipelines.data.check import Finding

ALIKE = 0.95  # cosine from which two examples of different splits are near copies
NEIGHBOURS = 10  # of an example, whose similarity is compared with the usual one
MARGIN = 0.6  # between the scores of another class and of its own, of 1 for right and 0 for wrong, from which a label is doubtful
FEWEST = 5  # examples of a class whose labels can be doubted
_RIDGE = 0.5  # of directions of length 1
FAR = 6.0  # deviations, by the median, below the usual similarity of neighbours from which an example is unlike all others
_BLOCK = 256  # rows of similarities at a time
_TINY = 1e-12


@dataclass(frozen=True)
class Part:
    """The examples of a split that are compared.

    Attributes:
        split: its name.
        vectors: [examples, width] float32.
        labels: [examples] class of each, -1 for none; None where an example may have several, or there are no classes.
        name: number of an example -> what it is called.
    """

    split: str
    vectors: np.ndarray
    labels: np.ndarray | None
    name: Callable[[int], str]


@dataclass(frozen=True)
class _Near:
    """Of each example, over all parts: numbers of its nearest others, nearest first, and their similarity, both [examples, nearest]."""

    numbers: np.ndarray
    similarity: np.ndarray


def findings(parts: Sequence[Part], classes: Sequence[str]) -> list[Finding]:
    """Near copies and doubtful labels as warnings, examples unlike all others as a note; the clearest of each first."""
    where = np.concatenate([np.full(len(part.vectors), place) for place, part in enumerate(parts)])
    own = np.concatenate([np.arange(len(part.vectors)) for part in parts])
    units = _directions(np.concatenate([part.vectors for part in parts]))

    def called(place: int) -> str:
        part = parts[where[place]]
        return f"{part.name(int(own[place]))} ({part.split})"

    found = _copies(parts, where, units, called)
    if len(units) > NEIGHBOURS:
        near = _nearest(units, min(NEIGHBOURS, len(units) - 1))
        if all(part.labels is not None for part in parts) and len(classes) > 1:
            labels = np.concatenate([part.labels for part in parts if part.labels is not None])
            found += _doubtful(units, labels, classes, called)
        found += _strangers(near, called)
    return found


def _directions(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors.astype(np.float32)
    vectors = vectors - vectors.mean(0, dtype=np.float64).astype(np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), _TINY)


def _blocks(units: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, similarities of these rows to all examples)."""
    for start in range(0, len(units), _BLOCK):
        yield start, units[start:start + _BLOCK] @ units.T


def _nearest(units: np.ndarray, count: int) -> _Near:
    numbers = np.zeros((len(units), count), np.int64)
    similarity = np.zeros((len(units), count), np.float32)
    for start, cosine in _blocks(units):
        rows = np.arange(len(cosine))
        cosine[rows, start + rows] = -np.inf  # an example is no neighbour of itself
        some = np.argpartition(-cosine, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(cosine, some, 1), axis=1, kind="stable")
        numbers[start + rows] = np.take_along_axis(some, order, 1)
        similarity[start + rows] = np.take_along_axis(cosine, numbers[start + rows], 1)
    return _Near(numbers, similarity)


def _copies(parts: Sequence[Part], where: np.ndarray, units: np.ndarray, called: Callable[[int], str]) -> list[Finding]:
    """Of each example outside of the first part, the one most like it in a part before its own."""
    pairs = []
    for start, cosine in _blocks(units):
        for row in range(len(cosine)):
            place = start + row
            before = int(np.searchsorted(where, where[place]))
            if before:
                other = int(np.argmax(cosine[row, :before]))
                if cosine[row, other] >= ALIKE:
                    pairs.append((float(cosine[row, other]), place, other))
    if not pairs:
        return []
    pairs.sort(key=lambda pair: -pair[0])
    others = listed([part.split for part in parts[1:]], "and")
    return [Finding("warning", (
        f"nearly the same by their features in more than one split: {len(pairs):,} examples of {others} are at least {ALIKE:.0%} alike to "
        "one of another split, so what is judged on them may have been seen before"),
        tuple(f"{called(place)} = {called(other)}, {share:.1%} alike" for share, place, other in pairs))]


def _doubtful(units: np.ndarray, labels: np.ndarray, classes: Sequence[str], called: Callable[[int], str]) -> list[Finding]:
    """Examples that a linear classifier of all the others takes for another class by far.

    It is ridge regression on the classes' indicators, whose answer for an example without that example has a closed form (Allen 1974).
    """
    places = np.flatnonzero(labels >= 0)
    known = labels[places]
    targets = np.eye(len(classes))[known]
    inputs = np.concatenate([units[places].astype(np.float64), np.ones((len(places), 1))], 1)
    weights = np.linalg.solve(inputs.T @ inputs + _RIDGE * np.eye(inputs.shape[1]), inputs.T)
    leverage = np.einsum("nd,dn->n", inputs, weights)
    scores = targets - (targets - inputs @ (weights @ targets)) / np.maximum(1.0 - leverage, _TINY)[:, None]
    rows = np.arange(len(places))
    own = scores[rows, known]
    scores[rows, known] = -np.inf
    other = scores.argmax(1)
    margin = scores[rows, other] - own
    enough = np.bincount(known, minlength=len(classes)) >= FEWEST
    found = np.flatnonzero((margin >= MARGIN) & enough[known] & enough[other])
    if not len(found):
        return []
    found = found[np.argsort(-margin[found], kind="stable")]
    return [Finding("warning", (
        f"{len(found):,} examples may have the wrong label: by their features, a linear classifier of all the others takes them for "
        "another class by far"),
        tuple(f"{called(int(places[row]))} is {classes[known[row]]}, looks like {classes[other[row]]}" for row in found))]


def _strangers(near: _Near, called: Callable[[int], str]) -> list[Finding]:
    """Examples whose neighbours are far less like them than is usual."""
    usual = near.similarity.mean(1)
    middle = float(np.median(usual))
    spread = 1.4826 * float(np.median(np.abs(usual - middle)))
    found = np.flatnonzero(usual < middle - FAR * spread) if spread > 0 else np.array([], np.int64)
    if not len(found):
        return []
    found = found[np.argsort(usual[found], kind="stable")]
    return [Finding("note", (
        f"{len(found):,} examples are unlike all others by their features ({middle:.0%} alike to their neighbours is usual); they may be "
        "damaged, or not belong here"), tuple(f"{called(int(place))}, {usual[place]:.0%}" for place in found))]
