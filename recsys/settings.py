"""The settings of recommendation: interactions, protocols, models. Imports no TensorFlow."""

from typing import Annotated, Any, Literal

from pydantic import Field

from pipelines.config.schema import Evaluate, Experiment, Section, Share, TableData, setting

Count = Annotated[int, Field(ge=1)]
TASTE = (
    "add a linear map of the sum of the vectors of those `length` items to what the network foretells: taste beside what was last (after "
    "FISSA, Lin et al. 2020)"
)


class InteractionData(TableData):
    """Who did what with which item, and how the events are divided."""

    source: Literal["made", "tfds", "table"] = setting(
        ...,
        "made: synthetic interactions, made by this package without a network; tfds: a prepared TensorFlow data set; "
        "table: CSV, TSV, JSONL or Parquet with an interaction a row",
    )
    name: str | None = setting(None, "tfds: the data set, such as movielens/latest-small-ratings")
    path: str | None = setting(None, "table: the file", path=True)
    data_dir: str | None = setting(None, "tfds: the data directory; default as TFDS has it", path=True)
    user_key: str | None = setting("user", "column of the user's id: text or whole numbers, kept as given")
    item_key: str | None = setting("item", "column of the item's id: text or whole numbers, kept as given")
    time_key: str | None = setting(None, "column of the time: a number, or date and time; null: the order of the rows")
    time_format: Literal["auto", "s", "ms", "us", "ns", "iso", "day_first", "month_first", "year_first"] = setting(
        "auto",
        "how times are written: numbers since 1970 in s, ms, us or ns; iso (2026-09-17 14:05:00); day_first (17.09.2026), month_first "
        "(9/17/2026) or year_first (2026/9/17); auto: found over the whole column",
    )
    rating_key: str | None = setting(None, "column of the rating, weight or click (0 or 1), if there is one")
    split_key: str | None = setting(
        None, "table: column that says train, validation or test, or numbers of folds; it then stands for the protocol"
    )
    title_key: str | None = setting(None, "column with an item's title, of the interactions or of the item table, for reports")
    items: str | None = setting(None, "table of items, a row each, with the column item_key", path=True)
    users: str | None = setting(None, "table of users, a row each, with the column user_key", path=True)
    numbers: list[str] = setting(list, "feature columns that hold numbers; a missing one counts as train's mean")
    categories: list[str] = setting(list, "feature columns that hold one text or whole number each")
    lists: list[str] = setting(list, "feature columns that hold several values each: lists, or text divided by list_separator")
    list_separator: str = setting("|", "what divides the values of a list in CSV and TSV", min_length=1)
    list_length: int = setting(8, "most values of a list that count", unit="values", ge=1)
    min_count: int = setting(1, "times that a category must occur in train to be known", unit="events", ge=1)
    min_user_events: int = setting(1, "users with fewer events in train are left out, of validation and test, too", unit="events", ge=1)
    min_item_events: int = setting(1, "items with fewer events in train are left out, of validation and test, too", unit="events", ge=1)
    protocol: Literal["leave_last_out", "time", "random"] = setting(
        "leave_last_out",
        "leave_last_out: each user's last event is test, the one before validation; time: the latest share of all "
        "events; random: a random share of all events",
    )


class ImplicitData(InteractionData):
    """Interactions as positive feedback."""

    positive_from: float | None = setting(
        None, "ratings from this value on count as positive, lower ones are left out; null: every interaction counts"
    )


class RatedData(InteractionData):
    """Interactions with a rating or click to be foretold."""

    protocol: Literal["leave_last_out", "time", "random"] = setting(
        "random", "random: a random share of all events; time: the latest share; leave_last_out: each user's last event"
    )


class RankedEvaluate(Evaluate):
    """Judging recommendation lists: all items of the catalogue are candidates, never a sample."""

    cutoffs: list[Count] = setting(
        lambda: [10, 5, 20, 50], "lengths of the lists that are judged; the first leads the report", min_length=1
    )
    exclude_seen: bool = setting(True, "items that the user had before are no candidates")
    chunk: int = setting(8192, "items scored at a time, for bounded memory", unit="items", ge=64)
    baselines: list[Literal["popularity", "item_knn", "ease"]] = setting(
        lambda: ["popularity", "item_knn", "ease"], "what stands beside the model in the report"
    )
    ease_l2: list[float] = setting(
        lambda: [50.0, 100.0, 200.0, 500.0, 1000.0], "regularisations tried for EASE; the best on validation is judged", min_length=1
    )
    neighbours: int = setting(100, "item_knn: similar items kept for each", unit="items", ge=1)
    sample_users: int = setting(4, "users whose lists are shown in TensorBoard each epoch and in the report", unit="users", ge=0)


class SampledSoftmax(Section):
    """The loss over all items or over a sample of them."""

    name: Literal["full", "sampled"] = setting("full", "softmax over all items, or over the positive one and sampled others")
    negatives: int = setting(1000, "sampled: items drawn for each step, shared by the batch", unit="items", ge=1)
    power: float = setting(0.5, "sampled: items are drawn by their frequency in train to this power; 0: uniformly", ge=0.0, le=1.0)


class Sasrec(Section):
    """Self-attention over the history, after Kang and McAuley 2018 (arXiv:1808.09781)."""

    name: Literal["sasrec"]
    length: int = setting(50, "latest items of a history that count", unit="items", ge=2)
    width: int = setting(64, "embedding size", ge=4)
    depth: int = setting(1, "attention blocks", ge=1)
    heads: int = setting(1, "attention heads", ge=1)
    dropout: Share = setting(0.3, "dropout", unit="share")
    taste: bool = setting(False, TASTE)


class Gru(Section):
    """A gated recurrent network over the history, after Hidasi et al. 2016 (arXiv:1511.06939)."""

    name: Literal["gru"]
    length: int = setting(50, "latest items of a history that count", unit="items", ge=2)
    width: int = setting(64, "embedding size and units", ge=4)
    depth: int = setting(1, "recurrent layers", ge=1)
    dropout: Share = setting(0.3, "dropout", unit="share")
    taste: bool = setting(False, TASTE)


class Towers(Section):
    """Two towers, one for users and one for items, whose dot product is the score."""

    name: Literal["towers"] = setting("towers", "the one model there is for retrieval")
    width: int = setting(64, "size of the vectors of both towers", ge=4)
    user_id: bool = setting(True, "a vector for each user; without it users are their histories and features")
    history: int = setting(20, "latest items of the user's history that the user tower averages; 0: none", unit="items", ge=0)
    hidden: list[Count] = setting(list, "units of the dense layers of each tower; none: the sum of the embeddings")
    dropout: Share = setting(0.1, "dropout on the towers' inputs", unit="share")
    temperature: float = setting(0.1, "scores are cosines divided by this where normalise is on", gt=0.0)
    normalise: bool = setting(True, "vectors of both towers have length 1")
    popularity: bool = setting(True, "a bias for each item, which learns how popular it is")


class RetrievalLoss(Section):
    """In-batch softmax (Yi et al. 2019), with further negatives."""

    correction: bool = setting(True, "subtract each in-batch negative's log frequency, so that popular items are not punished for it")
    negatives: int = setting(0, "further items drawn for each step, shared by the batch", unit="items", ge=0)
    power: float = setting(0.5, "further items are drawn by their frequency in train to this power; 0: uniformly", ge=0.0, le=1.0)
    hard: int = setting(0, "keep only this many hardest negatives of each example (keras-rs HardNegativeMining); 0: all", ge=0)


class Dcn(Section):
    """Deep and cross network (DCN-v2, Wang et al. 2021, arXiv:2008.13535), with keras-rs' FeatureCross."""

    name: Literal["dcn"]
    width: int = setting(16, "embedding size of ids, categories and lists", ge=1)
    cross: int = setting(2, "cross layers", ge=0)
    rank: int | None = setting(None, "low-rank projection of the cross layers; null: full matrices", ge=1)
    hidden: list[Count] = setting(lambda: [64, 32], "units of the deep part", min_length=1)
    dropout: Share = setting(0.2, "dropout in the deep part and on embeddings", unit="share")
    history: int = setting(0, "attend to this many earlier ratings of the user (needs user, item and rating); 0: none", unit="items", ge=0)


class Dlrm(Section):
    """Deep learning recommendation model (Naumov et al. 2019, arXiv:1906.00091), with keras-rs' DotInteraction."""

    name: Literal["dlrm"]
    width: int = setting(16, "embedding size, and of the bottom network's output", ge=1)
    bottom: list[Count] = setting(lambda: [64, 32], "units of the network over the numbers")
    hidden: list[Count] = setting(lambda: [64, 32], "units of the top network", min_length=1)
    dropout: Share = setting(0.2, "dropout in the top network and on embeddings", unit="share")
    history: int = setting(0, "attend to this many earlier ratings of the user (needs user, item and rating); 0: none", unit="items", ge=0)


class RankingLoss(Section):
    """What is foretold."""

    name: Literal["rating", "click"] = setting(
        "rating", "rating: squared error of a number, judged by RMSE; click: log loss of 0 or 1, judged by AUC"
    )


def _data_problems(data: InteractionData) -> list[tuple[str, str]]:
    found = []
    if data.source == "tfds" and not data.name:
        found.append(("data.name", "source: tfds needs the data set's name, such as movielens/latest-small-ratings"))
    if data.source == "table" and not data.path:
        found.append(("data.path", "source: table needs a path"))
    for name in ("columns", "items", "users"):
        if getattr(data, name) and data.source != "table":
            found.append((f"data.{name}", f"{name} is for source: table, not {data.source}"))
    kinds = [*data.numbers, *data.categories, *data.lists]
    if data.group_by is not None:
        found.append(("data.group_by", "interactions are divided by data.protocol or data.split_key; groups are not looked at"))
    twice = sorted({name for name in kinds if kinds.count(name) > 1})
    if twice:
        found.append(("data.numbers", f"column {twice[0]!r} is named twice among data.numbers, data.categories and data.lists"))
    if data.protocol == "time" and data.time_key is None and data.source == "table" and data.split_key is None:
        found.append(("data.time_key", "protocol: time needs the column of the time"))
    if isinstance(data.test, str) and data.test not in ("test", "testing") and data.split_key is None:
        found.append(("data.test", "a share, test or null; a split's name needs data.split_key"))
    return found


class _Lists(Experiment):
    """What both tasks that answer with a list of items have."""

    data: ImplicitData
    evaluate: RankedEvaluate = setting(RankedEvaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + _data_problems(self.data)
        for name in ("user_key", "item_key"):
            if getattr(self.data, name) is None:
                found.append((f"data.{name}", "recommending needs users and items"))
        if self.data.positive_from is not None and self.data.rating_key is None and self.data.source == "table":
            found.append(("data.rating_key", "positive_from needs the column of the rating"))
        if self.train.watch is None and len(set(self.evaluate.cutoffs)) < len(self.evaluate.cutoffs):
            found.append(("evaluate.cutoffs", "a cut-off is named twice"))
        model: Any = getattr(self, "model", None)
        if model is not None and model.name == "sasrec" and model.width % model.heads:
            found.append(("model.width", f"{model.width} is not a multiple of model.heads = {model.heads}"))
        return found


class Sequential(_Lists):
    """Which item next, from the history."""

    task: Literal["recsys.sequential"]
    model: Annotated[Sasrec | Gru, Field(discriminator="name")]
    loss: SampledSoftmax = setting(SampledSoftmax, "the loss")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        for name in ("numbers", "categories", "lists", "users"):
            if getattr(self.data, name):
                text = "recsys.sequential knows a user by the ids of the history alone; recsys.retrieval and recsys.ranking take features"
                found.append((f"data.{name}", text))
        if self.data.items and not self.data.title_key:
            found.append(("data.items", "recsys.sequential takes nothing but titles from the table of items (data.title_key)"))
        return found


class Retrieval(_Lists):
    """Which items for this user."""

    task: Literal["recsys.retrieval"]
    model: Towers
    loss: RetrievalLoss = setting(RetrievalLoss, "the loss")


class Ranking(Experiment):
    """How much, or whether: ratings and clicks."""

    task: Literal["recsys.ranking"]
    data: RatedData
    model: Annotated[Dcn | Dlrm, Field(discriminator="name")]
    loss: RankingLoss = setting(RankingLoss, "what is foretold")

    def problems(self) -> list[tuple[str, str]]:
        data = self.data
        found = super().problems() + _data_problems(data)
        if data.rating_key is None and data.source == "table":
            found.append(("data.rating_key", "ranking needs the column of the rating or click"))
        if self.model.history and (self.loss.name == "click" or not data.user_key or not data.item_key):
            found.append(("model.history", "earlier ratings need data.user_key, data.item_key and loss: {name: rating}"))
        return found


EXPERIMENTS = {"recsys.ranking": Ranking, "recsys.retrieval": Retrieval, "recsys.sequential": Sequential}
QUICK_START = "recsys/quickstart"
