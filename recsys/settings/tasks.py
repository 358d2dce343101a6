"""The experiments of this domain: a task, its data and its model. Imports no TensorFlow."""

from typing import Annotated, Any, Literal

from pipelines.config.registry import register_task
from pipelines.config.schema import Experiment, setting
from recsys.settings.interactions import (
    IMPLICIT_SOURCES,
    LOGGED_SOURCES,
    RATED_SOURCES,
    ImplicitData,
    LoggedData,
    RankedEvaluate,
    RatedData,
)
from recsys.settings.models import (
    BANDIT_MODELS,
    RANKING_MODELS,
    RETRIEVAL_MODELS,
    SEQUENTIAL_MODELS,
    PolicyLoss,
    RankingLoss,
    RetrievalLoss,
    SampledSoftmax,
)


class _Lists(Experiment):
    """What both tasks that answer with a list of items have."""

    data: Annotated[ImplicitData, IMPLICIT_SOURCES]
    evaluate: RankedEvaluate = setting(RankedEvaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        problems = super().problems()
        for name in ("user_key", "item_key"):
            if getattr(self.data, name) is None:
                problems.append((f"data.{name}", "recommending needs users and items"))
        if self.data.positive_from is not None and self.data.rating_key is None and self.data.source == "table":
            problems.append(("data.rating_key", "positive_from needs the column of the rating"))
        if self.data.items and not any((self.data.title_key, self.data.numbers, self.data.categories, self.data.lists)):
            problems.append(("data.items", "nothing is taken from this table; name its columns in data.title_key, data.numbers, "
                             "data.categories or data.lists"))
        if self.train.watch is None and len(set(self.evaluate.cutoffs)) < len(self.evaluate.cutoffs):
            problems.append(("evaluate.cutoffs", "a cut-off is named twice"))
        return problems


@register_task("recsys.tasks.sequential:SequentialTask")
class Sequential(_Lists):
    """Which item next, from the history."""

    task: Literal["recsys.sequential"]
    model: Annotated[Any, SEQUENTIAL_MODELS]
    loss: SampledSoftmax = setting(SampledSoftmax, "the loss")

    def problems(self) -> list[tuple[str, str]]:
        problems = super().problems()
        if self.data.users:
            problems.append(("data.users", "recsys.sequential knows a user by the history alone; recsys.retrieval and recsys.ranking take "
                             "features of users"))
        return problems


@register_task("recsys.tasks.retrieval:RetrievalTask")
class Retrieval(_Lists):
    """Which items for this user."""

    task: Literal["recsys.retrieval"]
    model: Annotated[Any, RETRIEVAL_MODELS]
    loss: RetrievalLoss = setting(RetrievalLoss, "the loss of the towers")

    def problems(self) -> list[tuple[str, str]]:
        problems = super().problems()
        for name in ("numbers", "categories", "lists", "users"):
            if getattr(self.model, "closed_form", False) and getattr(self.data, name):
                text = f"model.name: {self.model.name} knows a user by the ids of the history alone; towers take features"
                problems.append((f"data.{name}", text))
        for name in ("recency", "prior"):
            if getattr(self.model, name, None) and self.data.source == "table" and self.data.time_key is None:
                problems.append((f"model.{name}", "what is popular of late needs the column of the time (data.time_key)"))
        return problems


@register_task("recsys.tasks.ranking:RankingTask")
class Ranking(Experiment):
    """How much, or whether: ratings and clicks."""

    task: Literal["recsys.ranking"]
    data: Annotated[RatedData, RATED_SOURCES]
    model: Annotated[Any, RANKING_MODELS]
    loss: RankingLoss = setting(RankingLoss, "what is predicted")

    def problems(self) -> list[tuple[str, str]]:
        data = self.data
        problems = super().problems()
        if data.rating_key is None and data.source == "table":
            problems.append(("data.rating_key", "ranking needs the column of the rating or click"))
        if getattr(self.model, "history", 0) and (self.loss.name == "click" or not data.user_key or not data.item_key):
            problems.append(("model.history", "earlier ratings need data.user_key, data.item_key and loss: {name: rating}"))
        if getattr(self.model, "closed_form", False):
            if self.loss.name == "click" or not data.user_key or not data.item_key:
                problems.append(("model.name", f"{self.model.name} needs data.user_key, data.item_key and loss: {{name: rating}}"))
            text = f"model.name: {self.model.name} knows users and items by their ids alone; dcn and dlrm take features"
            problems += [(f"data.{name}", text) for name in ("numbers", "categories", "lists") if getattr(data, name)]
        return problems


@register_task("recsys.tasks.bandit:BanditTask")
class Bandit(Experiment):
    """Which action to choose in a context, learned from logged choices (contextual bandits)."""

    task: Literal["recsys.bandit"]
    data: Annotated[LoggedData, LOGGED_SOURCES]
    model: Annotated[Any, BANDIT_MODELS]
    loss: PolicyLoss = setting(PolicyLoss, "how it is learned")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.data.source == "table" and not (self.data.numbers or self.data.categories or self.data.lists):
            found.append(("data.numbers", "name the columns of the context in data.numbers, data.categories or data.lists"))
        return found
