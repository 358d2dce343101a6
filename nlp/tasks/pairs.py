"""nlp.pair_classification and nlp.pair_regression: what is said of two texts, such as whether one follows from the other, or how alike they
are."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from nlp.data import requests
from nlp.data.facts import PairFacts
from nlp.metrics import pair_baseline
from nlp.settings import CrossEncoder, PairLinear, PairsClassification, PairsRegression, text_keys
from nlp.tasks.classification import SCORED, Classification, TextClasses, TextTask
from nlp.tasks.regression import Regression, TextNumbers
from nlp.tasks.texts import LARGE, SENTENCES, TextRequests, Texts
from nlp.tokens.pairs import after, beside
from pipelines.data.number_columns import TARGET
from pipelines.data.source import Source, Tensors
from pipelines.fitting.folds import fitting_part
from pipelines.outputs import label_metrics
from pipelines.serving.output import WARNING
from pipelines.task import intervals
from pipelines.task.contract import Features, Learning, Requests, Signature
from pipelines.task.form import Field
from pipelines.task.input import alone
from pipelines.task.results import Baseline, Judgement

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

DOUBLED = ("RobertaBackbone", "XLMRobertaBackbone")  # trained with two end marks between the texts of a pair
SHOWN = 280  # characters of a text in a table


class Pairs(Texts):
    """Inputs of the model are the tokens of two texts, [batch, time, 2] int32 (nlp.tokens.pairs). Facts: those of `Texts`."""

    experiment: PairsClassification | PairsRegression  # type: ignore[assignment]

    @property
    def signature(self) -> Signature:  # type: ignore[override]
        one = super().signature
        return Signature({"text": f"the first text ({text_keys(self.experiment.data)[0]}): {one.meanings['text']}",
                          "text_pair": f"the second ({text_keys(self.experiment.data)[1]})",
                          "warning": "why the answer is only a guess: a text is empty, or has no word of train; empty otherwise"},
                         {"text": "tf.constant(['a text, as it is'])", "text_pair": "tf.constant(['and another'])"}, one.needs,
                         one.resources)

    @cached_property
    def requests(self) -> Requests:
        return PairRequests(self)

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        return {name: tf.TensorSpec([None], tf.string) for name in ("text", "text_pair")}

    def receive(self, raw: Tensors) -> Tensors:
        """Two texts [batch] string each into tokens [batch, time, 2] int32, with a warning where the answer means little."""
        warnings = [self._warnings(raw[name], self.tokenizer.ids(raw[name]).to_tensor()) for name in self.raw_spec()]
        return {**self.cut(raw), WARNING: tf.where(warnings[0] == "", warnings[1], warnings[0])}

    def is_simple(self, row: dict[str, Any]) -> bool:
        return False

    def slow_to_decode(self, row: dict[str, Any]) -> bool:
        return any(len(row[name]) > LARGE for name in self.raw_spec())

    def _cut(self, raw: Tensors) -> Tensors:
        first, second = (self.tokenizer.ids(raw[name]) for name in self.raw_spec())
        if isinstance(self.experiment.model, CrossEncoder):
            doubled = self.facts["backbone"]["class"] in DOUBLED
            tokens, length = after(first, second, self.experiment.limit, self.tokenizer.marks, doubled=doubled)
        else:
            tokens, length = beside(first, second)
        return {"tokens": tokens, "length": length}


class PairRequests(TextRequests):
    """Pairs of texts, alone or in two columns of a table."""

    sends = ('two texts; in JSON a list of them, or an object of columns such as {"text": "...", "text_pair": "..."}; in plain text with a '
             "tab between")
    input: Pairs

    def take(self, sent: Any) -> dict[str, Any]:
        return requests.pair_example(sent, self.input.experiment.data)

    def typical(self) -> list[dict[str, Any]]:
        texts = [text.encode() for text in SENTENCES]
        return [{"text": text, "text_pair": other} for text, other in zip(texts, texts[1:] + texts[:1])]

    def form(self) -> list[Field]:
        return [Field("text", str(key)) for key in text_keys(self.input.experiment.data)]


def both_texts(rows: Tensors) -> tuple[list[str], list[str]]:
    """The first texts of examples and the second ones, shortened."""
    def shown(stored: bytes) -> str:
        text = " ".join(stored.decode("utf-8", "replace").split())
        return text if len(text) <= SHOWN else f"{text[:SHOWN - 3]}..."
    return tuple([shown(text) for text in rows[name].numpy().tolist()] for name in ("text", "text_pair"))  # type: ignore[return-value]


def _add_texts(judgement: Judgement, source: Source) -> None:
    """Puts both texts of each of the worst mistakes in the place of its number."""
    mistakes = judgement.tables.get("worst_mistakes") or []
    if mistakes:
        numbers = tf.constant([row.pop("number") for row in mistakes], tf.int64)
        for row, first, second in zip(mistakes, *both_texts(source.gather(numbers))):
            row |= {"text": first, "text_pair": second}


class PairClasses(TextClasses):
    """One class a pair. Of two classes also the F1 of the second, from the probability on that validation chose: fact `f1_threshold`."""

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        chosen = super().choose(answers, targets)
        inside = targets["label"] < len(self.classes)
        if len(self.classes) == 2 and len(np.unique(targets["label"][inside])) == 2:
            positive = (targets["label"][inside] == 1)[:, None]
            chosen["f1_threshold"] = label_metrics.label_threshold(answers["columns"][inside], positive)
        return chosen

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        judgement = super().judge(answers, targets, source)
        threshold, inside = self.facts.get("f1_threshold"), targets["label"] < len(self.classes)
        if threshold is not None and inside.any():
            given, true = answers["columns"][inside, 0] >= np.float32(threshold), targets["label"][inside] == 1
            pairs = np.stack([2.0 * (given & true), 1.0 * given + true], 1)
            judgement.metrics["best_f1"] = intervals.interval(
                pairs, lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1.0), resamples=self.experiment.evaluate.bootstrap,
                units=self.input.units(source).pick(np.flatnonzero(inside)))
            judgement.notes.append(f"best_f1 is of {self.classes[1]}, given from a probability of {threshold:.3f} on (by validation).")
        return judgement

    def explain(self, model: keras.Model, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        _add_texts(judgement, source)

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return None if isinstance(self.experiment.model, PairLinear) else pair_baseline.fit_classifier(train, len(self.classes))


class PairNumbers(TextNumbers):
    """Numbers of pairs, of which their order matters most."""

    watch = ("spearman", "max")
    experiment: PairsRegression

    @property
    def learning(self) -> Learning:  # type: ignore[override]
        if not self.experiment.loss.order:
            return super().learning
        return Learning(mixes="The order of the answers (loss.order)", masked=True, distance=True)

    def loss(self, outputs: tf.Tensor, targets: tf.Tensor, training: bool, mask: tf.Tensor | None = None) -> tf.Tensor:
        """As `Numbers.loss`; with a mask, which steps of training give, the order of the micro-batch is in the loss of each pair."""
        each, settings = super().loss(outputs, targets, training), self.experiment.loss
        if mask is None or not settings.order:
            return each
        truth, there = self._truth(targets)
        return each + settings.order * out_of_order(settings.order_scale * tf.cast(outputs, tf.float32), truth, there * mask[:, None])

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        """The report leads with the watched metric."""
        judgement = super().judge(answers, targets, source)
        leading = {name: metric for name, metric in judgement.metrics.items() if name == self.watch[0]}
        judgement.metrics = {**leading, **judgement.metrics}
        return judgement

    def explain(self, model: keras.Model, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        _add_texts(judgement, source)

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return None if isinstance(self.experiment.model, PairLinear) else pair_baseline.fit_numbers(train, self)


def out_of_order(answers: tf.Tensor, truth: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """log(1 + the sum of exp(answer b - answer a)) over all a and b of which a is truly higher: CoSENT (Su 2022, kexue.fm/archives/8847).
    The mean over the columns, a float32 scalar.

    Args:
        answers, truth, counts: [batch, columns] float32; where `counts` is 0 there is nothing to order.
    """
    apart, higher = answers[None] - answers[:, None], truth[:, None] > truth[None]
    counted = higher & (counts[:, None] * counts[None] > 0)  # [a, b, columns]
    terms = tf.reshape(tf.where(counted, apart, -1e9), [-1, answers.shape[-1]])
    return tf.reduce_mean(tf.reduce_logsumexp(tf.pad(terms, [[1, 0], [0, 0]]), 0))


class PairTask(TextTask):
    """What tasks on pairs share."""

    input_class = Pairs
    input: Pairs  # type: ignore[assignment]

    def show_model(self, model: keras.Model, writer: "Writer", step: int) -> None:
        """Nothing: tokens are those of an encoder, or have no vectors."""

    def samples(self, source: Source, ids: np.ndarray, targets: Any, step: int = 0) -> list[tuple[str, str]]:
        """(label, both texts) of as many pairs of the source as there are in a batch."""
        rows = source.gather((step * len(ids) + tf.range(len(ids), dtype=tf.int64)) % len(source))
        targets = alone(self.output.targets(rows))
        labels = (targets["label"] if isinstance(targets, dict) else targets).numpy()
        return [(self.output.name_of(label), f"{first} | {second}") for label, first, second in zip(labels, *both_texts(rows))]

    def fit_at_once(self, model: keras.Model, train: Source, features: Features) -> str | None:
        if not isinstance(self.experiment.model, PairLinear):
            return None
        from nlp.models import pair_overlap

        tokenizer, numbers = self.input.tokenizer, isinstance(self.output, PairNumbers)
        cut, targets = zip(*pair_overlap.cut(fitting_part(train, SCORED), tokenizer, TARGET if numbers else "label"))
        target = np.concatenate(targets)
        fitted = pair_overlap.fit_numbers(list(cut), self.output.fitted_to({TARGET: target}), tokenizer) if numbers else (
            pair_overlap.fit_classes(list(cut), target, len(self.output.classes), tokenizer))
        pair_overlap.put(model, fitted)
        return f"On the tf-idf overlap of both texts: {fitted.how}."


class PairClassification(PairTask, Classification):
    """nlp.pair_classification. Facts: those of nlp.classification, and `f1_threshold`."""

    facts_schema = PairFacts
    output: PairClasses  # type: ignore[assignment]
    of_one = PairClasses


class PairRegression(PairTask, Regression):
    """nlp.pair_regression. Facts: those of nlp.regression."""

    output_class = PairNumbers
    output: PairNumbers  # type: ignore[assignment]
