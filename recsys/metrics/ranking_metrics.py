"""How recommendation lists did, beside the baselines, by user activity and item popularity, with the protocol in the open."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.task.intervals import certain, measured, resampled_sums
from pipelines.task.results import Judgement, Metric
from pipelines.task.units import Units
from recsys.metrics import baselines, per_user
from recsys.metrics.rating_metrics import add_verdict, thirds
from recsys.metrics.users import Basis, Held, UserSource, spread
from recsys.settings import RankedEvaluate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USERS = Units("user")  # an example is a user
DIVERSE = 1_000  # users whose lists' diversity is computed, at most
SHOWN = 10  # items of a sample user's list in the report


def judge_lists(
    lists: np.ndarray,
    fallback: np.ndarray,
    source: UserSource,
    numbers: np.ndarray,
    settings: RankedEvaluate,
    *,
    protocol: str,
    items: int,
    chosen: list[int],
    itself: str | None = None,
    new: np.ndarray | None = None,
) -> Judgement:
    """Everything about one split.

    Args:
        lists: [users, longest cut-off] items, 0 where there are no more.
        fallback: [users] bool, answered by popularity.
        source, numbers: the users, as places in the source.
        chosen: places in `numbers` of the users whose lists are shown.
        itself: the baseline that the model is, which is then none.
        new: [users, any], the best of the items that train does not have.
    """
    basis, people = source.basis, source.people
    rows, held_items, counts = people.pairs(numbers)
    judgement, lead = Judgement(), settings.cutoffs[0]
    names = {"model": lists}
    matrix = people.matrix(basis.items, numbers)
    nothing = np.diff(matrix.indptr) == 0
    for name in settings.baselines:
        scores = basis.scores(name, settings, final=source.final) if name != itself else None
        if scores is not None:
            names[name] = baselines.top(scores, matrix, matrix if settings.exclude_seen else None, lists.shape[1], basis.allowed)
        if callable(scores) and nothing.any():  # they know histories alone: as the model does, they answer others by popularity
            names[name][nothing] = baselines.top(basis.popular(final=source.final), matrix[nothing], None, lists.shape[1], basis.allowed)
    hits = {name: per_user.hits(one, rows, held_items, basis.items) for name, one in names.items()}
    values = {name: {k: per_user.per_user(hit, counts, k) for k in settings.cutoffs} for name, hit in hits.items()}
    several = bool((counts > 1).any())
    events = int(basis.counts.sum())
    means = _means(
        {("model", metric, k): of[metric] for k, of in values["model"].items() for metric in of}
        | {(name, metric, lead): of[lead][metric] for name, of in values.items() for metric in ("ndcg", "hit_rate")}
        | {("model", "novelty", lead): per_user.novelty(lists, lead, basis.counts, events),
           ("model", "head", lead): per_user.head(lists, lead, basis.counts)}, settings.bootstrap)
    for k in settings.cutoffs:
        for metric in ("ndcg", "hit_rate", "mrr", *(["recall", "map"] if several else [])):
            judgement.metrics[f"{metric}@{k}"] = means["model", metric, k]
    judgement.metrics[f"coverage@{lead}"] = Metric(per_user.coverage(lists, lead, items), None, None, len(lists), USERS.name)
    judgement.metrics[f"gini@{lead}"] = Metric(per_user.gini(lists, lead, items), None, None, len(lists), USERS.name)
    judgement.metrics[f"head@{lead}"] = means["model", "head", lead]
    judgement.metrics[f"novelty@{lead}"] = means["model", "novelty", lead]
    some = spread(len(lists), DIVERSE)
    diverse = {name: per_user.diversity(one[some], lead, basis.vectors) for name, one in names.items()}
    judgement.metrics[f"diversity@{lead}"] = _means({("model", "diversity", lead): diverse["model"]}, settings.bootstrap)[
        "model", "diversity", lead]
    judgement.tables["model_and_baselines"] = [
        {**_row(name, values[name][lead], means[name, "ndcg", lead], means[name, "hit_rate", lead], names[name], lead, basis.counts, items),
         f"diversity@{lead}": float(diverse[name].mean())} for name in names
    ]
    if not several:  # with one item held out, recall is the hit rate and MAP is MRR
        judgement.tables["model_and_baselines"] = [
            {name: value for name, value in row.items() if name not in (f"recall@{lead}", f"map@{lead}")}
            for row in judgement.tables["model_and_baselines"]
        ]
    others = [name for name in names if name != "model"]
    if others:
        best = max(others, key=lambda name: float(values[name][lead]["ndcg"].mean()))
        ours, theirs = values["model"][lead]["ndcg"], values[best][lead]["ndcg"]
        sums = resampled_sums(np.stack([ours - theirs, np.ones(len(ours))], 1), resamples=settings.bootstrap)
        add_verdict(judgement, f"ndcg@{lead}", float(ours.mean()), best, float(theirs.mean()), sums[:, 0] / sums[:, 1], lower=False)
    seen = "items that the user had before are no candidates" if settings.exclude_seen else "also items that the user had before"
    judgement.notes += [
        protocol,
        f"Candidates: all {items:,} items of the catalogue, never a sample; {seen}. Cut-offs: {', '.join(map(str, settings.cutoffs))}",
        "Intervals and tests draw users",
        *basis.notes,
        *(["Baselines are fitted to train and validation, with what validation chose"] if source.final and others else []),
    ]
    cold = int(np.sum(held_items <= 0))
    if cold:
        judgement.notes.append(
            f"{cold:,} of {len(held_items):,} held-out events are of items of which nothing is known: they count as missed, for baselines "
            "too"
        )
    if fallback.any():
        judgement.notes.append(
            f"{int(fallback.sum()):,} of {len(fallback):,} users are unknown and without history: they got the most popular items"
        )
    shelf = None if new is None else New(new, {
        name: baselines.top(scores, matrix, matrix if settings.exclude_seen else None, new.shape[1], basis.new)
        for name in names if name == "content" and (scores := basis.scores(name, settings, final=source.final)) is not None})
    if apart := new_and_known(names, hits, people, numbers, rows, held_items, basis, lead, settings.bootstrap, shelf):
        judgement.tables["new_and_known"] = apart
    judgement.tables["by_group"] = _groups(values, lead, source, numbers, rows, held_items, basis.counts)
    judgement.tables["sample_lists"] = sample_lists(lists, source, numbers, chosen)
    judgement.figures["cutoffs"] = _cutoffs_figure(values, settings)
    judgement.figures["popularity"] = _popularity_figure(names, lead, basis.counts)
    return judgement


def _means(values: dict[tuple[str, str, int], np.ndarray], resamples: int) -> dict[tuple[str, str, int], Metric]:
    """The means of values [users], by (whose, metric, k), with intervals; users are drawn once for all of them."""
    table = np.stack(list(values.values()), 1)
    drawn = resampled_sums(table, resamples=resamples, units=USERS) / len(table)
    metrics = (measured(float(table[:, place].mean()), drawn[:, place], len(table), USERS) for place in range(len(values)))
    return {key: certain(metric) if key[1] == "hit_rate" else metric for key, metric in zip(values, metrics)}


def _row(
    name: str,
    values: dict[str, np.ndarray],
    ndcg: Metric,
    hit: Metric,
    lists: np.ndarray,
    k: int,
    counts: np.ndarray,
    items: int,
) -> dict[str, Any]:
    return {
        "of": name,
        f"ndcg@{k}": ndcg.value,
        f"ndcg@{k}_low": ndcg.low,
        f"ndcg@{k}_high": ndcg.high,
        f"hit_rate@{k}": hit.value,
        f"hit_rate@{k}_low": hit.low,
        f"hit_rate@{k}_high": hit.high,
        f"recall@{k}": float(values["recall"].mean()),
        f"mrr@{k}": float(values["mrr"].mean()),
        f"map@{k}": float(values["map"].mean()),
        f"coverage@{k}": per_user.coverage(lists, k, items),
        f"novelty@{k}, bits": float(per_user.novelty(lists, k, counts, int(counts.sum())).mean()),
        f"gini@{k}": per_user.gini(lists, k, items),
        f"head@{k}": float(per_user.head(lists, k, counts).mean()),
        "train events of an item shown": float(per_user.popularity(lists, k, counts).mean()),
    }


@dataclass
class New:
    """Lists of items that train does not have, and of no others: the model's, and those of baselines that know such items."""

    model: np.ndarray
    others: dict[str, np.ndarray]


def new_and_known(names: dict[str, np.ndarray], hits: dict[str, np.ndarray], people: Held, numbers: np.ndarray, rows: np.ndarray,
                  held_items: np.ndarray, basis: Basis, k: int, resamples: int, shelf: New | None = None) -> list[dict[str, Any]]:
    """NDCG of model and baselines by whether train knows the user, and of what train knows, and what it does not, alone; nothing where it
    knows everything.

    One row is the warm one: known users, judged by those of their held-out items that train has. In the last one new items are ranked
    among themselves, beside what an order by chance has on average.

    Args:
        names, hits: lists [users, any] of model and baselines, and where they have held-out items.
        shelf: lists of new items alone.
    """
    known, warm = basis.has("users", people.users[numbers]), basis.has("items", held_items)
    cold = (held_items > 0) & ~warm
    if known.all() and warm.all():
        return []
    every, of_train, of_new = (np.bincount(rows[mask], minlength=len(numbers)) for mask in (np.ones(len(rows), bool), warm, cold))
    listed = {name: basis.has("items", one) for name, one in names.items()}
    of_old = {name: hit & listed[name] for name, hit in hits.items()}
    found = []

    def add(label: str, users: np.ndarray, counts: np.ndarray, hits: dict[str, np.ndarray], **more: float) -> None:
        if not users.any():
            return
        values = {(name, "ndcg", k): per_user.per_user(hit[users], counts[users], k)["ndcg"] for name, hit in hits.items()}
        means = _means(values, resamples)
        ours, held = means["model", "ndcg", k], int(counts[users].sum())
        share = 0.0 if counts is of_new else int(of_train[users].sum()) / held
        found.append({
            "judged": label, "users": int(users.sum()), "held-out events": held, "of items that train has": share,
            **{f"{name}, ndcg@{k}": metric.value for (name, _, _), metric in means.items()}, **more,
            f"model, ndcg@{k}_low": ours.low, f"model, ndcg@{k}_high": ours.high})

    add("new users", ~known, every, hits)
    add("known users", known, every, hits)
    add("known users, items that train has", known & (of_train > 0), of_train, of_old)
    add("items that train does not have", of_new > 0, of_new, {name: hit & ~listed[name] for name, hit in hits.items()})
    if shelf is not None:
        lists = {"model": shelf.model, **shelf.others}
        chance = per_user.by_chance(of_new[of_new > 0], k, int(basis.new.sum()))
        add("the same, among themselves", of_new > 0, of_new,
            {name: per_user.hits(one, rows, held_items, basis.items) for name, one in lists.items()}, **{f"chance, ndcg@{k}": chance})
    return found


def _groups(
    values: dict[str, dict[int, dict[str, np.ndarray]]],
    k: int,
    source: UserSource,
    numbers: np.ndarray,
    rows: np.ndarray,
    held_items: np.ndarray,
    counts: np.ndarray,
) -> list[dict[str, Any]]:
    """NDCG, hit rate and MRR of model and baselines by the user's visible events, and by the train events and the age of the (rarest,
    newest) held-out item that train has; 0 where it has none of them."""
    there, known = rows[held_items > 0], held_items[held_items > 0]

    def least(values: np.ndarray) -> np.ndarray:
        found = np.full(len(numbers), np.inf)
        np.minimum.at(found, there, values[known])
        return np.where(np.isfinite(found), np.floor(found), 0.0).astype(np.int64)

    groups = {"user's events": source.visible_counts[numbers], "held-out item's train events": least(counts)}
    if source.basis.days is not None:
        groups["days since the held-out item first came"] = least(source.basis.days)
    return [
        {
            "group": label,
            "users": int(mask.sum()),
            **{
                f"{name}, {metric}@{k}": float(of[k][metric][mask].mean())
                for metric in ("ndcg", "hit_rate", "mrr")
                for name, of in values.items()
            },
        }
        for label, mask in thirds(groups)
    ]


def sample_lists(lists: np.ndarray, source: UserSource, numbers: np.ndarray, chosen: list[int]) -> list[dict[str, Any]]:
    """For a few users: the latest items of their history, what was held out, and what is recommended; by title."""
    titles = ["?", *source.basis.titles]
    people, rows = source.people, []
    for place in chosen:
        number = int(numbers[place])
        visible = people.visible[people.visible_of[number] : people.visible_of[number + 1]]
        held = people.held[people.held_of[number] : people.held_of[number + 1]]
        rows.append(
            {
                "user": str(people.names[number]),
                "latest": "; ".join(titles[item] for item in visible[-5:]),
                "held out": "; ".join(titles[max(0, item)] for item in held[:5]),
                "recommended": "; ".join(titles[item] + (" ✓" if item in held else "") for item in lists[place][:SHOWN] if item > 0),
            }
        )
    return rows


def _cutoffs_figure(values: dict[str, dict[int, dict[str, np.ndarray]]], settings: RankedEvaluate) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 3.8), layout="constrained")
    cuts = sorted(settings.cutoffs)
    for axes, metric, label in zip(figure.subplots(1, 2), ("ndcg", "hit_rate"), ("NDCG@k", "Hit rate@k")):
        for name, of in values.items():
            axes.plot(cuts, [of[k][metric].mean() for k in cuts], "o-", label=name.replace("_", " "), lw=2.5 if name == "model" else 1.2)
        axes.set_xlabel("k, length of the list")
        axes.set_title(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def _popularity_figure(names: dict[str, np.ndarray], k: int, counts: np.ndarray) -> "Figure":
    """How often items of each tenth of the catalogue, most popular first, are shown."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = figure.subplots()
    order = np.argsort(-counts[1:], kind="stable")
    tenth = np.empty(len(order), np.int64)
    tenth[order] = np.arange(len(order)) * 10 // max(1, len(order))
    for name, lists in names.items():
        shown = lists[:, :k]
        shares = np.bincount(tenth[shown[shown > 0] - 1], minlength=10) / max(1, int((shown > 0).sum()))
        axes.plot(range(1, 11), shares, "o-", label=name.replace("_", " "), lw=2.5 if name == "model" else 1.2)
    events = np.bincount(tenth, counts[1:], minlength=10) / max(1, counts[1:].sum())
    axes.plot(range(1, 11), events, "--", color="0.5", label="train events")
    axes.set_xlabel("tenth of the catalogue, most popular first")
    axes.set_ylabel("share")
    axes.set_title(f"Popularity of what is shown (first {k} places)")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    return figure
