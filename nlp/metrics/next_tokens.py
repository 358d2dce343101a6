"""How well a text is foretold: bits for each of its bytes, and how much what stands before it helps; and the cheap model beside it."""

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nlp.data.documents import ANSWERED, TOKENS
from pipelines.base import figures
from pipelines.data.source import Source
from pipelines.task import intervals
from pipelines.task.results import Baseline, Judgement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = 16  # of a window, whose losses stand beside one another
ORDER = 6  # tokens of the longest runs that are counted
MOST = 2_000_000  # tokens of train whose runs are counted
SHOWN = 300  # characters of a text in a table
Arrays = dict[str, np.ndarray]


def judge(output: Any, answers: Arrays, source: Source) -> Judgement:
    """Bits a byte and perplexity with intervals, by place in the window, and the windows that are foretold worst."""
    settings, units = output.experiment.evaluate, output.input.units(source)
    how: Any = {"resamples": settings.bootstrap, "units": units}
    sums = {"bits_per_byte": np.stack([answers["nats"] / np.log(2.0), answers["bytes"]], 1),
            "perplexity": np.stack([answers["nats"], answers["count"]], 1)}
    metrics = {name: intervals.interval(values.astype(np.float64), output.statistics[name], **how) for name, values in sums.items()}
    each = sums["bits_per_byte"][:, 0] / np.maximum(sums["bits_per_byte"][:, 1], 1.0)
    names = [source.name(number) for number in range(len(source))]
    judgement = Judgement(metrics, units=units, notes=units.notes(), predictions={
        "example": names, "nats": answers["nats"], "tokens": answers["count"], "bytes": answers["bytes"], "bits_per_byte": each})
    total, count, size = (float(answers[name].sum()) for name in ("nats", "count", "bytes"))
    judgement.notes.append(f"{int(count):,} tokens of {int(size):,} bytes; {total / max(1.0, count):.3f} nats a token. Each "
                           f"is foretold by at most {output.experiment.limit} before it, in its own window.")
    judgement.figures["loss_by_place"] = by_place(answers, output.experiment.limit)
    order = np.argsort(-np.where(answers["bytes"] > 20, each, 0.0), kind="stable")[:settings.worst]
    if len(order):
        tokens = source.gather(order.astype(np.int64))[TOKENS].numpy()
        texts = output.texts(tokens[:, 1:output.experiment.limit + 1])
        judgement.tables["worst_mistakes"] = [
            {"number": int(at), "example": names[at], "bits_per_byte": float(each[at]), "text": text[:SHOWN]}
            for at, text in zip(order, texts)]
    return judgement


def by_place(answers: Arrays, limit: int) -> "Figure":
    nats, counts = answers["parts"].sum(0)[:, 0], answers["parts"].sum(0)[:, 1]
    middle = (np.arange(PARTS) + 0.5) * limit / PARTS
    with figures.style():
        drawn = figures.new_figure(5.0, 3.5)
        axis = drawn.add_subplot()
        axis.plot(middle[counts > 0], (nats / np.maximum(counts, 1.0))[counts > 0], marker=".")
        axis.set(xlabel="tokens seen before", ylabel="nats a token", xlim=(0, limit), ylim=(0, None))
    return drawn


def fit(train: Source, sizes: np.ndarray, length: int) -> Baseline:
    """Runs of tokens, each order mixed with the shorter one by how many different tokens followed (Witten and Bell 1991).

    Args:
        train: windows, of which each second half is the next one's first.
        sizes: bytes of each token.
    """
    windows = train.gather(np.arange(min(len(train), max(1, MOST // length))))[TOKENS].numpy()[:, :length]
    stream = windows[windows > 0].tolist()
    followed: list[dict[tuple[int, ...], dict[int, int]]] = [defaultdict(dict) for _ in range(ORDER)]
    for order in range(ORDER):
        table = followed[order]
        for place in range(order, len(stream)):
            counts = table[tuple(stream[place - order:place])]
            counts[stream[place]] = counts.get(stream[place], 0) + 1
    totals = [{context: sum(counts.values()) for context, counts in table.items()} for table in followed]

    def chance(before: list[int], token: int) -> float:
        share = 1.0 / len(sizes)
        for order in range(min(ORDER, len(before) + 1)):
            context = tuple(before[len(before) - order:])
            counts = followed[order].get(context)
            if counts is None:
                break
            total, kinds = totals[order][context], len(counts)
            share = (counts.get(token, 0) + kinds * share) / (total + kinds)
        return share

    def answers(source: Source) -> Arrays:
        values = source.gather(np.arange(len(source)))
        tokens = values[TOKENS].numpy()[:, :length + 1]
        losses = np.zeros((len(tokens), length))
        for row, window in enumerate(tokens.tolist()):
            for place in range(1, len(window)):
                if window[place] == 0:
                    break
                losses[row, place - 1] = -np.log(chance(window[max(0, place - ORDER + 1):place], window[place]))
        own = values[ANSWERED].numpy() if ANSWERED in values else tokens > 0
        return summed(losses, tokens[:, 1:], sizes, own[:, 1:])

    return Baseline(f"counts of runs of up to {ORDER} tokens", answers=answers)


def summed(losses: np.ndarray, tokens: np.ndarray, sizes: np.ndarray, own: np.ndarray) -> Arrays:
    """What is kept of losses [n, length] of tokens [n, length] int32, of which those count that are `own` [n, length] bool."""
    place = np.minimum(np.arange(tokens.shape[1]) * PARTS // tokens.shape[1], PARTS - 1)
    parts = np.stack([np.stack([(np.where(own, value, 0.0) * (place == part)).sum(1) for part in range(PARTS)], 1)
                      for value in (losses, np.ones_like(losses))], 2)
    return {"nats": parts[..., 0].sum(1), "count": own.sum(1).astype(float), "bytes": np.where(own, sizes[tokens], 0).sum(1).astype(float),
            "parts": parts}


Sampler = Callable[[list[str]], list[str]]


def continuations(write: Sampler, texts: list[str]) -> list[dict[str, Any]]:
    """What is written behind the beginnings of texts, beside what truly follows."""
    halves = [(text[:len(text) // 2], text[len(text) // 2:]) for text in texts if len(text) > 20]
    written = write([first for first, _ in halves]) if halves else []
    return [{"text": first[-SHOWN:], "written": own[:SHOWN], "true": true[:SHOWN]} for (first, true), own in zip(halves, written)]
