"""The settings of models and their losses. Imports no TensorFlow."""

from typing import ClassVar, Literal

from pipelines.config.schema import Section, Share, WithHeads, setting
from pipelines.config.variants import Variants
from recsys.settings.interactions import Count

ID_DROPOUT = (
    "where data.items or data.users have some that train does not have, and columns that say what these are like: items and users that a "
    "training step knows by their columns alone (DropoutNet, Volkovs et al. 2017); of towers users wherever they have columns, since a "
    "request may describe another; 0: what train does not have is unknown"
)
# what a model knows by its columns alone, too
BY_COLUMNS = property(lambda self: ("item", "user") if self.id_dropout else ())
ITEMS_BY_COLUMNS = property(lambda self: ("item",) if self.id_dropout else ())
LENGTH = "latest items of a history that count"
TIED = "the vectors of the items of a history are those by which answers are scored, too"
TASTE = (
    "add a linear map of the sum of the vectors of those `length` items to the network's prediction: taste beside the latest items (after "
    "FISSA, Lin et al. 2020)"
)


class SampledSoftmax(Section):
    """The loss over all items or over a sample of them."""

    name: Literal["full", "sampled", "gbce"] = setting(
        "full", "full: softmax over all items; sampled: over the positive one and some that are drawn; gbce: generalised binary "
        "cross-entropy of these (gSASRec, Petrov and Macdonald 2023, arXiv:2308.07192)"
    )
    negatives: int = setting(1000, "sampled, gbce: items drawn for each step, shared by the batch", unit="items", ge=1)
    power: float = setting(0.5, "sampled, gbce: items are drawn by their frequency in train to this power; 0: uniformly", ge=0.0, le=1.0)
    calibration: float = setting(0.75, "gbce: 1 makes up for how few items are drawn, 0 is plain binary cross-entropy", ge=0.0, le=1.0)


SEQUENTIAL_MODELS, RETRIEVAL_MODELS, RANKING_MODELS = Variants(), Variants(), Variants()


class OfHistory(Section):
    """What all models of histories have."""

    packs: ClassVar[bool] = True  # short histories share a row of the batch
    length: int = setting(50, LENGTH, unit="items", ge=2)
    width: int = setting(64, "embedding size, and units", ge=4)
    depth: int = setting(1, "attention blocks, or recurrent layers", ge=1)
    dropout: Share = setting(0.3, "dropout", unit="share")
    tied: bool = setting(True, TIED)
    taste: bool = setting(False, TASTE)
    id_dropout: Share = setting(0.1, ID_DROPOUT, unit="share")
    described = ITEMS_BY_COLUMNS


@SEQUENTIAL_MODELS.register("recsys.models.sequential:SasrecModel")
class Sasrec(OfHistory, WithHeads):
    """Self-attention over the history, after Kang and McAuley 2018 (arXiv:1808.09781)."""

    name: Literal["sasrec"]
    heads: int = setting(1, "attention heads", ge=1)


@SEQUENTIAL_MODELS.register("recsys.models.sequential:HstuModel")
class Hstu(Sasrec):
    """Attention that adds up instead of averaging, with gates (HSTU, Zhai et al. 2024, arXiv:2402.17152), without times."""

    name: Literal["hstu"]  # type: ignore[assignment]
    length: int = setting(200, LENGTH, unit="items", ge=2)
    depth: int = setting(2, "attention blocks", ge=1)
    tied: bool = setting(False, TIED)
    taste: bool = setting(True, TASTE)


@SEQUENTIAL_MODELS.register("recsys.models.sequential:GruModel")
class Gru(OfHistory):
    """A gated recurrent network over the history, after Hidasi et al. 2016 (arXiv:1511.06939)."""

    packs: ClassVar[bool] = False
    name: Literal["gru"]


@RETRIEVAL_MODELS.register("recsys.models.towers:TowersModel")
class Towers(Section):
    """Two towers, one for users and one for items, whose dot product is the score."""

    name: Literal["towers"]
    width: int = setting(64, "size of the vectors of both towers", ge=4)
    user_id: bool = setting(True, "a vector for each user; without it users are their histories and features")
    history: int = setting(20, "latest items of the user's history that the user tower averages; 0: none", unit="items", ge=0)
    hidden: list[Count] = setting(list, "units of the dense layers of each tower; none: the sum of the embeddings")
    dropout: Share = setting(0.1, "dropout on the towers' inputs", unit="share")
    temperature: float = setting(0.1, "scores are cosines divided by this where normalise is on", gt=0.0)
    normalise: bool = setting(True, "vectors of both towers have length 1")
    popularity: bool = setting(True, "a bias for each item, which learns how popular it is")
    id_dropout: Share = setting(0.1, ID_DROPOUT, unit="share")
    described = BY_COLUMNS


class ClosedForm(Section):
    """A model that knows a user by the whole history alone, and is fitted at once: no step trains it, and `train.epochs` and the optimizer
    mean nothing to it."""

    closed_form: ClassVar[bool] = True  # fitted to whole histories before the first step, and there is none
    described: ClassVar[tuple[str, ...]] = ()
    decay: float | None = setting(
        None, "an item of the history counts by how many events ago it came, to minus this power: 0 all alike, 1 the latest most; null: 0, "
        "0.5, 0.75 or 1, the best on validation; without validation 0.75 of events in order, else 0", ge=0.0, le=4.0
    )
    refit: bool = setting(
        True, "once validation has chosen and is judged, fit to train and validation together: so test is answered, and the model saved"
    )


@RETRIEVAL_MODELS.register("recsys.models.closed_form:EaseModel")
class Ease(ClosedForm):
    """A linear model of items on items in closed form (Steck 2019, arXiv:1905.03375)."""

    name: Literal["ease"]
    rank: int = setting(
        1024, "eigenvectors kept: EASE at that rank, and exactly EASE where users or items are no more than that", unit="vectors", ge=1
    )
    l2: float | None = setting(
        None, "regularisation; null: the best on validation of shares of the leading eigenvalues, 0.3 without validation", gt=0.0
    )
    damping: float | None = setting(
        None, "events count by the user's and the item's number of events to minus this power: 0 is EASE itself; null: 0 or 0.25, the "
        "better on validation, 0.125 without validation", ge=0.0, le=0.5
    )


@RETRIEVAL_MODELS.register("recsys.models.closed_form:ItemKnnModel")
class ItemKnn(ClosedForm):
    """Items that users had together, or one after another (Sarwar et al. 2001; Ludewig and Jannach 2018, arXiv:1803.09587)."""

    name: Literal["item_knn"]
    neighbours: int = setting(100, "most similar items kept for each", unit="items", ge=1, le=10_000)
    ordered: bool | None = setting(
        None, "count an item for those that users had next after it, not for all that they had; null: the better on validation, without "
        "validation true of events in order"
    )
    shrink: float = setting(10.0, "similarities count as if so many users had had one item without the other", unit="users", ge=0.0)
    recency: float | None = setting(
        None, "a candidate counts by its share of the events of late over its share of all, to this power: 0 not at all; null: 0, 0.5 or "
        "1, the best on validation; without validation, or without times, 0", ge=0.0, le=2.0
    )
    prior: float | None = setting(
        None, "what is popular of late counts beside the similarities, the most popular item as much as this share of the usual best "
        "similarity; null: 0, 0.1, 0.3, 1, 3 or 10, the best on validation; without validation or times 0", ge=0.0, le=100.0
    )
    half_lives: Literal[4, 16, 64, 256] | None = setting(
        None, "recency and prior: how many times within the time of train an event loses half of its weight; null: the best on "
        "validation, 16 without"
    )


class RetrievalLoss(Section):
    """In-batch softmax (Yi et al. 2019), with further negatives."""

    correction: bool = setting(True, "subtract each in-batch negative's log frequency, so that popular items are not penalised for it")
    negatives: int = setting(0, "further items drawn for each step, shared by the batch", unit="items", ge=0)
    power: float = setting(0.5, "further items are drawn by their frequency in train to this power; 0: uniformly", ge=0.0, le=1.0)
    hard: int = setting(0, "keep only this many hardest negatives of each example (keras-rs HardNegativeMining); 0: all", ge=0)


@RANKING_MODELS.register("recsys.models.ranking:DcnModel")
class Dcn(Section):
    """Deep and cross network (DCN-v2, Wang et al. 2021, arXiv:2008.13535), with keras-rs' FeatureCross."""

    name: Literal["dcn"]
    width: int = setting(16, "embedding size of ids, categories and lists", ge=1)
    cross: int = setting(2, "cross layers", ge=0)
    rank: int | None = setting(None, "low-rank projection of the cross layers; null: full matrices", ge=1)
    hidden: list[Count] = setting(lambda: [64, 32], "units of the deep part", min_length=1)
    dropout: Share = setting(0.2, "dropout in the deep part and on embeddings", unit="share")
    history: int = setting(0, "attend to this many earlier ratings of the user (needs user, item and rating); 0: none", unit="items", ge=0)
    id_dropout: Share = setting(0.2, ID_DROPOUT, unit="share")
    described = BY_COLUMNS


@RANKING_MODELS.register("recsys.models.ranking:DlrmModel")
class Dlrm(Section):
    """Deep learning recommendation model (Naumov et al. 2019, arXiv:1906.00091), with keras-rs' DotInteraction."""

    name: Literal["dlrm"]
    width: int = setting(16, "embedding size, and of the bottom network's output", ge=1)
    bottom: list[Count] = setting(lambda: [64, 32], "units of the network over the numbers")
    hidden: list[Count] = setting(lambda: [64, 32], "units of the top network", min_length=1)
    dropout: Share = setting(0.2, "dropout in the top network and on embeddings", unit="share")
    history: int = setting(0, "attend to this many earlier ratings of the user (needs user, item and rating); 0: none", unit="items", ge=0)
    id_dropout: Share = setting(0.2, ID_DROPOUT, unit="share")
    described = BY_COLUMNS


@RANKING_MODELS.register("recsys.models.closed_form:FactorsModel")
class Factors(Section):
    """Mean, biases, and the product of a user's and an item's factors by alternating least squares (Koren, Bell and Volinsky 2009).

    No step trains it: `train.epochs` and the optimizer mean nothing to it.
    """

    name: Literal["factors"]
    closed_form: ClassVar[bool] = True
    described: ClassVar[tuple[str, ...]] = ()
    history: ClassVar[int] = 0
    rank: int = setting(16, "factors of a user and an item", ge=1, le=256)
    l2: float | None = setting(
        None, "penalty on the factors, in standard deviations of the ratings; null: the best on validation of 40, 20, 10, 5 and 2.5; "
        "without validation 20", gt=0.0
    )
    refit: bool = setting(
        True, "once validation has chosen and is judged, fit to train and validation together: so test is answered, and the model saved"
    )


class RankingLoss(Section):
    """What is predicted."""

    name: Literal["rating", "click"] = setting(
        "rating", "rating: squared error of a number, evaluated by RMSE; click: log loss of 0 or 1, evaluated by AUC"
    )


BANDIT_MODELS = Variants()


@BANDIT_MODELS.register("recsys.models.policy:PolicyModel")
class Policy(Section):
    """How the log chose, how much more or less the policy takes each action, and what each earns: products of a vector of the context and
    one of each action."""

    name: Literal["policy"] = setting(..., "policy: as described above")
    width: int = setting(16, "size of the vectors of contexts, actions and categories", ge=1)
    hidden: list[Count] = setting(lambda: [64], "units of dense layers over the context; none: linear")
    dropout: Share = setting(0.1, "dropout on the context", unit="share")
    explore: float = setting(
        0.02, "share of the choices that are drawn evenly from all actions: what is never chosen is never learned of", unit="share",
        ge=0.0, le=1.0
    )
    sharpness: float | None = setting(
        None, "how far the policy leaves the log's: 0 chooses as the log did, 1 as learned, more the best action the more often; null: of "
        "0 to 64 the one whose value on validation is surest to be high; 1 without validation", ge=0.0, le=1e6
    )


class PolicyLoss(Section):
    """How the policy is learned from choices of another; the model of rewards is learned beside it in any case."""

    name: Literal["doubly_robust", "ips", "direct"] = setting(
        "doubly_robust", "doubly_robust: raises the doubly robust estimate of the policy's value; ips: the value by inverse propensities, "
        "rewards counted from their mean; direct: the policy follows the model of rewards"
    )
    clip: float = setting(100.0, "a choice weighs at most this much (its probability now, over that in the log)", ge=1.0)
