"""Seeded splits: a share of the examples held out, by class, with groups kept together.

A split is a function of (labels, groups, share, seed) alone - not of the platform, the file system's order or
the training seed - so that runs with one split_seed are evaluated on the same examples.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.data.source import Source, class_counts

COUNTED = 10_000  # classes, at most, of which the examples in each split are told


@dataclass(frozen=True)
class Split:
    """Two sides of a set of examples, each int64, ascending; `notes` are for the report."""

    kept: np.ndarray
    held: np.ndarray
    notes: tuple[str, ...] = ()


def hold_out(
    share: float, *, count: int, seed: int, purpose: str, labels: np.ndarray | None = None, groups: np.ndarray | None = None,
) -> Split:
    """Holds out a share of `count` examples.

    With labels, every class is held out in the same share (largest remainders), keeping at least one example of each.
    With groups, whole groups go to one side, as near the share and the class balance as a greedy search with exchanges finds.

    Args:
        share: 0 < share < 1.
        count: examples in all.
        seed: data.split_seed.
        purpose: of the held-out part ("validation", "test"); purposes draw differently from one seed.
        labels: [count] class of each example.
        groups: [count] group of each example.

    Raises:
        DataError: too few examples or groups for two sides.
    """
    if count < 2:
        raise DataError(f"{count} example{'s' if count != 1 else ''} cannot be divided into train and {purpose}; "
                        f"set data.{purpose} to 0 or to a named split")
    size = min(count - 1, max(1, int(np.floor(share * count + 0.5))))
    if groups is not None:
        return _by_group(size, seed=seed, purpose=purpose, groups=np.asarray(groups), labels=labels)
    held, notes = _by_class(size, count=count, seed=seed, purpose=purpose, labels=labels)
    return Split(np.setdiff1d(np.arange(count), held), held, notes)


def hold_out_pieces(share: float, pieces: np.ndarray, *, seed: int, purpose: str, labels: np.ndarray | None = None) -> Split:
    """As `hold_out`, where some examples are pieces of longer recordings, of which neighbours are alike.

    Of enough recordings whole ones are held out; of fewer the end of each, so that both sides have every recording but no piece between
    two of the other side.

    Args:
        pieces: [count], the recording of each example, -1 for an example by itself; pieces of a recording stand in its order.
    """
    own, tied = np.flatnonzero(pieces < 0), np.flatnonzero(pieces >= 0)
    recordings, codes, counts = np.unique(pieces[tied], return_inverse=True, return_counts=True)
    size = max(1, int(np.floor(share * len(tied) + 0.5)))
    if len(recordings) > 1 and share * len(recordings) >= 1:
        order = np.argsort(draws(len(recordings), seed, f"{purpose} recordings"), kind="stable")
        before = np.cumsum(counts[order]) - counts[order]
        chosen = np.zeros(len(recordings), bool)
        chosen[order[before + counts[order] / 2 <= size]] = True
        chosen[order[0]], chosen[order[-1]] = True, False
        mask, how = chosen[codes], f"whole ones ({chosen.sum()})"
    else:
        quotas = _quotas(size, counts, 1, draws(len(counts), seed, f"{purpose} recordings"))
        ordered = np.lexsort((np.arange(len(codes)), codes))
        rank = np.empty(len(codes), np.int64)  # of each piece within its recording
        rank[ordered] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
        mask, how = rank >= (counts - quotas)[codes], "the end of each"
    rest = hold_out(share, count=len(own), seed=seed, purpose=purpose, labels=None if labels is None else labels[own]) if len(own) else (
        Split(np.zeros(0, np.int64), np.zeros(0, np.int64)))
    note = f"{purpose}: of {len(recordings)} long recordings that are cut into pieces {how}, {int(mask.sum()):,} of {len(tied):,} pieces"
    return Split(np.sort(np.concatenate([own[rest.kept], tied[~mask]])), np.sort(np.concatenate([own[rest.held], tied[mask]])),
                 (*rest.notes, note))


def folds(of: int, *, count: int, seed: int, labels: np.ndarray | None = None, groups: np.ndarray | None = None,
          pieces: np.ndarray | None = None) -> np.ndarray:
    """The fold of each example, [count] int64 from 0 to of - 1; -1 for what always stays in train: all that there is of a class.

    Args:
        labels: classes are divided evenly.
        groups: all examples of one share a fold, and folds are as alike in size and classes as a greedy choice makes them.
        pieces: as `hold_out_pieces` takes them; whole recordings share a fold, or of fewer than folds each is cut into parts.
    """
    drawn = draws(count, seed, "folds")
    classes = np.zeros(count, np.int64) if labels is None else np.unique(labels, return_inverse=True)[1]
    if groups is None and pieces is not None and np.any(pieces >= 0):
        order = np.lexsort((np.arange(count), pieces))
        sizes = np.bincount(pieces + 1)
        rank = np.empty(count, np.int64)  # of each piece within its recording
        rank[order] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        cut = rank * of // sizes[pieces + 1] if np.count_nonzero(sizes[1:]) < of else 0
        groups = np.where(pieces >= 0, pieces * of + cut, -1 - np.arange(count))
    fold = np.empty(count, np.int64)
    if groups is None:
        order = np.lexsort((drawn, classes))
        fold[order] = np.arange(count) % of
        single = (np.bincount(classes) == 1) & (labels is not None)
        fold[single[classes]] = -1
        return fold
    names, codes = np.unique(groups.astype(str), return_inverse=True)
    table = np.zeros((len(names), int(classes.max()) + 1), np.int64)  # examples of each group and class
    np.add.at(table, (codes, classes), 1)
    scale, inside, chosen = 1.0 / np.maximum(table.sum(0), 1), np.zeros((of, table.shape[1])), np.empty(len(names), np.int64)
    for group in np.lexsort((draws(len(names), seed, "folds of groups"), -table.sum(1))):
        after = inside + table[group]
        grown = (scale * (after**2 - inside**2)).sum(1) + (after.sum(1) ** 2 - inside.sum(1) ** 2) / count
        chosen[group] = np.argmin(grown)
        inside[chosen[group]] = after[chosen[group]]
    whole = (inside == table.sum(0)) & (inside > 0) & (labels is not None)  # of folds that hold all of a class
    alone = np.array([np.any(whole[chosen[group]] & (table[group] > 0)) for group in range(len(names))])
    chosen[alone] = -1
    return chosen[codes]


def strata(source: Source) -> np.ndarray | None:
    """By what examples are divided evenly, [examples] int64: their class, or of several labels the rarest; None: nothing is known."""
    if source.sets is None:
        return source.labels
    counts = np.where(source.sets > 0, source.sets.sum(0), np.inf)
    return np.where(source.sets.any(1), counts.argmin(1), source.sets.shape[1])


def choose(size: int, *, count: int, seed: int, purpose: str, labels: np.ndarray | None = None) -> np.ndarray:
    """`size` of `count` examples, each class in its share: int64, ascending. All of them where size >= count."""
    if size >= count:
        return np.arange(count)
    return _by_class(size, count=count, seed=seed, purpose=purpose, labels=labels, leave=0)[0]


def describe(parts: dict[str, Source | None], classes: list[str] | None = None) -> dict[str, Any]:
    """The splits as written into report and environment: name -> examples, fingerprint, and of no more than COUNTED classes the
    examples of each."""
    described = {}
    for name, source in parts.items():
        if source is None:
            continue
        fact: dict[str, Any] = {"examples": len(source), "fingerprint": source.fingerprint()}
        counts = class_counts(source, len(classes)) if classes is not None and len(classes) <= COUNTED else None
        if classes is not None and counts is not None:
            fact["classes"] = {title: int(number) for title, number in zip(classes, counts)}
        described[name] = fact
    return described


def draws(count: int, seed: int, purpose: str) -> np.ndarray:
    """uint64 [count]: raw words of a counter-based generator, which NumPy promises to keep the same everywhere."""
    key = int.from_bytes(hashlib.sha256(f"quartet split {purpose} {seed}".encode()).digest()[:16], "little")
    return np.random.Philox(key=key).random_raw(count)


def _by_class(
    size: int, *, count: int, seed: int, purpose: str, labels: np.ndarray | None, leave: int = 1,
) -> tuple[np.ndarray, tuple[str, ...]]:
    drawn = draws(count, seed, purpose)
    if labels is None:
        return np.sort(np.argsort(drawn, kind="stable")[:size]), ()
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    quotas = _quotas(size, counts, leave, draws(len(counts), seed, f"{purpose} classes"))
    ordered = np.lexsort((drawn, codes))
    starts = np.cumsum(counts) - counts
    rank = np.empty(count, np.int64)  # place of each example within its class, in drawn order
    rank[ordered] = np.arange(count) - np.repeat(starts, counts)
    held = np.flatnonzero(rank < quotas[codes])
    missing = int(np.sum(quotas == 0))
    notes: tuple[str, ...] = ()
    if missing and leave:
        single = int(np.sum(counts == 1))
        notes = (f"{missing} of {len(counts)} classes have no example in {purpose}: too few examples for their share"
                 + (f" ({single} have only one, which stays in train)" if single else ""),)
    return held, notes


def _quotas(size: int, counts: np.ndarray, leave: int, ties: np.ndarray) -> np.ndarray:
    """Examples to take of each class: largest remainders of the equal share, at most all but `leave`."""
    limits = np.maximum(counts - leave, 0)
    exact = counts * (size / counts.sum())
    quotas = np.minimum(np.floor(exact + 1e-9).astype(np.int64), limits)
    while (short := min(size, int(limits.sum())) - int(quotas.sum())) > 0:
        open_ = np.flatnonzero(quotas < limits)
        # rounded, so that remainders equal on paper are equal here and the seed decides between them
        order = open_[np.lexsort((ties[open_], -np.round(exact - quotas, 9)[open_]))]
        quotas[order[:short]] += 1
    return quotas


def _by_group(size: int, *, seed: int, purpose: str, groups: np.ndarray, labels: np.ndarray | None) -> Split:
    names, codes = np.unique(groups.astype(str), return_inverse=True)
    if len(names) < 2:
        raise DataError(f"data.group_by: every example is in one group ({str(names[0])!r}), so nothing can be held out for {purpose}")
    classes = np.zeros(len(codes), np.int64) if labels is None else np.unique(labels, return_inverse=True)[1]
    width = int(classes.max()) + 1
    table = np.zeros((len(names), width), np.int64)  # examples of each group and class
    np.add.at(table, (codes, classes), 1)
    attempts = 8 if len(names) * width <= 100_000 else 1
    best, least = np.zeros(len(names), bool), np.inf
    for attempt in range(attempts):
        order = np.argsort(draws(len(names), seed, f"{purpose} groups {attempt}"), kind="stable")
        chosen, cost = _pick_groups(table, size, order)
        if cost < least - 1e-12:
            best, least = chosen, cost
    inside = best[codes]
    held = np.flatnonzero(inside)
    share, wanted = len(held) / len(codes), size / len(codes)
    notes = [f"{purpose}: {int(best.sum()):,} of {len(names):,} groups, {len(held):,} examples ({share:.1%}; {wanted:.1%} wanted)"]
    missing = int(np.sum((table[best].sum(0) == 0) & (table.sum(0) > 0)))
    if missing:
        notes.append(f"{missing} of {width} classes have no example in {purpose}: their groups could not be divided")
    return Split(np.flatnonzero(~inside), held, tuple(notes))


def _pick_groups(table: np.ndarray, size: int, order: np.ndarray) -> tuple[np.ndarray, float]:
    """Takes groups in `order` while that brings the held-out side nearer to its share, then exchanges while it helps."""
    totals = table.sum(0)
    target = totals * (size / totals.sum())
    scale = 1.0 / np.maximum(totals, 1)

    def cost(held: np.ndarray) -> float | np.ndarray:
        off = held - target
        return (off * off * scale).sum(-1) + off.sum(-1) ** 2 / size

    held, chosen, now = np.zeros(table.shape[1]), np.zeros(len(table), bool), float(cost(np.zeros(table.shape[1])))
    for group in order:
        after = held + table[group]
        value = float(cost(after))
        # a class must never leave train altogether
        if value < now and not np.any((after == totals) & (totals > 0)):
            held, now, chosen[group] = after, value, True
    if not chosen.any():  # every group is larger than twice the share: the smallest that leaves all classes in train
        allowed = [group for group in order if not np.any((table[group] == totals) & (totals > 0))]
        smallest = min(allowed or list(order), key=lambda group: table[group].sum())
        chosen[smallest], held = True, table[smallest].astype(float)
        return chosen, float(cost(held))
    for _ in range(len(table) if len(table) <= 2000 else 0):
        inside, outside = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        moves = [(1, group) for group in outside] + ([(-1, group) for group in inside] if len(inside) > 1 else [])
        signs = np.array([sign for sign, _ in moves])
        results = held + signs[:, None] * table[[group for _, group in moves]]
        values = np.where(np.any((results >= totals) & (totals > 0), axis=1), np.inf, cost(results))
        step = int(np.argmin(values))
        if values[step] >= now - 1e-12:
            break
        held, now = results[step], float(values[step])
        chosen[moves[step][1]] = not chosen[moves[step][1]]
    return chosen, now
