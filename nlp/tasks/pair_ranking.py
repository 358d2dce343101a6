"""nlp.pair_ranking: texts that belong together, such as questions with their answers, so that the one is found by the other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from nlp.data.facts import TokenFacts
from nlp.data.matching_pairs import KEYS, NEGATIVE, NEGATIVE_KEY, load_pairs, number_of
from nlp.metrics import pair_baseline, ranks
from nlp.settings import PairsRanking
from nlp.tasks.pairs import Pairs, PairTask, both_texts
from nlp.tokens.pairs import beside
from pipelines.data.source import Source, Tensors
from pipelines.task import intervals
from pipelines.task.contract import Answers, Condensed, Features, Learning, Output, SetScores, Splits
from pipelines.task.results import Baseline, Judgement

VECTORS = "vectors"
FAR = -1e9


class MatchingPairs(Pairs):
    """Pairs of which nothing is said; where data.negative_key names texts that do not belong, their tokens are a third column."""

    experiment: PairsRanking  # type: ignore[assignment]

    def splits(self) -> Splits:
        return load_pairs(self.experiment, self.facts)

    def _cut(self, raw: Tensors) -> Tensors:
        if NEGATIVE not in raw:
            return super()._cut(raw)
        tokens, length = beside(*(self.tokenizer.ids(raw[name]) for name in (*self.raw_spec(), NEGATIVE)))
        return {"tokens": tokens, "length": length}

    def read_from(self, raw: Tensors) -> list[str]:
        return [name for name in (*self.raw_spec(), NEGATIVE) if name in raw]

    def _others(self, raw: Tensors) -> Tensors:
        return {name: value for name, value in super()._others(raw).items() if name != NEGATIVE}


class Matches(Output):
    """Outputs of the model are the vectors of both texts, of length 1, [batch, 2, width] float32, and behind them that of the text that
    does not belong, where there are such; targets are {"first", "second"} and then "negative", [batch] int64, which equal texts share. An
    answer is how alike the two are."""

    watch = (ranks.METRICS[0], "max")
    width = 0  # no head: the vectors are the answer
    answers = Answers({"similarity": "the cosine of the vectors of both texts, -1 to 1"})
    learning = Learning(mixes="The other pairs (loss)", masked=True)
    input: MatchingPairs
    experiment: PairsRanking

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool, mask: tf.Tensor | None = None) -> tf.Tensor:
        """Of steps of training the cross-entropy of each text's own partner among those of the micro-batch, and alike from the other side
        (multiple negatives: Henderson et al. 2017, arXiv:1705.00652), [batch] float32. A text that stands in several pairs is nobody's
        negative there. Texts that do not belong are told from the first text's partner, too. Else, so that it does not depend on the
        batch, 1 - the cosine of both."""
        first, second = _both(outputs)
        if mask is None:
            return 1.0 - tf.reduce_sum(first * second, -1)
        alike = self.experiment.loss.scale * tf.matmul(first, second, transpose_b=True)
        equal = tf.reduce_any([targets[key][:, None] == targets[key][None] for key in KEYS], 0) | (mask[None] * mask[:, None] == 0.0)
        own = tf.linalg.diag_part(alike)
        alike = tf.where(equal & ~tf.eye(tf.shape(alike)[0], dtype=tf.bool), FAR, alike)
        from_first = alike
        if NEGATIVE_KEY in targets:
            negative, seconds = targets[NEGATIVE_KEY], targets[KEYS[1]]
            # of equal first texts all partners belong
            together = tf.cast(targets[KEYS[0]][:, None] == targets[KEYS[0]][None], tf.int32)
            belongs = tf.matmul(together, tf.cast(seconds[:, None] == negative[None], tf.int32)) > 0
            none = (negative == number_of(tf.constant("")))[None] | (mask[None] * mask[:, None] == 0.0)
            harder = self.experiment.loss.scale * tf.matmul(first, tf.cast(outputs, tf.float32)[:, 2], transpose_b=True)
            from_first = tf.concat([alike, tf.where(belongs | none, FAR, harder)], 1)
        return 0.5 * (tf.reduce_logsumexp(from_first, 1) + tf.reduce_logsumexp(tf.transpose(alike), 1)) - own

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """similarity: the cosine of each pair."""
        first, second = _both(outputs)
        return {"similarity": tf.reduce_sum(first * second, -1)}

    def answer(self, model: Callable[[Any], tf.Tensor], inputs: Any) -> Tensors:
        return {VECTORS: tf.stack(_both(model(inputs)), 1)}

    def respond(self, answers: Tensors) -> Tensors:
        """similarity [batch] float32."""
        return {"similarity": tf.reduce_sum(tf.reduce_prod(answers[VECTORS], 1), -1)}

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        return answers, targets

    @property
    def set_scores(self) -> SetScores:
        """The metrics of nlp.metrics.ranks, of each first text among the second ones of the split."""
        return SetScores(dict.fromkeys(ranks.METRICS, "max"), lambda answers, targets: {
            name: float(each.mean()) for name, each in ranks.of_ranks(self._ranks(answers, targets)[0]).items()})

    def _ranks(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        first, second = (answers[VECTORS][:, side] for side in (0, 1))
        return ranks.ranks(lambda some, others: first[some] @ second[others].T, *(targets[key] for key in KEYS))

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        units, settings = self.input.units(source), self.experiment.evaluate
        found, best = self._ranks(answers, targets)
        each = ranks.of_ranks(found)
        metrics = {name: intervals.mean(value, resamples=settings.bootstrap, units=units) for name, value in each.items()}
        texts = len(np.unique(targets[KEYS[1]]))
        judgement = Judgement(metrics, units=units, notes=[*units.notes(), f"Each text is looked for among {texts:,}, all of this split."],
                              predictions={"example": [source.name(number) for number in range(len(source))], "rank": found})
        judgement.figures["ranks"] = ranks.figure(found)
        worst = np.argsort(-found, kind="stable")[:settings.worst]
        worst = worst[found[worst] > 1]
        if len(worst):
            own, others = (both_texts(source.gather(tf.constant(some, tf.int64))) for some in (worst, best[worst]))
            judgement.tables["worst_mistakes"] = [
                {"example": source.name(int(number)), "rank": int(found[number]), "text": text, "text_pair": right, "found first": wrong}
                for number, text, right, wrong in zip(worst, *own, others[1])]
        return judgement

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        return ranks.of_ranks(self._ranks(answers, targets)[0])[self.watch[0]]

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return pair_baseline.fit_ranks(train, self.watch[0])


def _both(outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The vectors of both texts of pairs, [batch, width] float32 each."""
    outputs = tf.cast(outputs, tf.float32)
    return outputs[:, 0], outputs[:, 1]


class PairRanking(PairTask):
    """nlp.pair_ranking. Facts: those of an encoder."""

    input_class = MatchingPairs
    output_class = Matches
    facts_schema = TokenFacts
    output: Matches
    experiment: PairsRanking

    def samples(self, source: Source, ids: np.ndarray, targets: Any, step: int = 0) -> list[tuple[str, str]]:
        rows = source.gather((step * len(ids) + tf.range(len(ids), dtype=tf.int64)) % len(source))
        return [(first, f"| {second}") for first, second in zip(*both_texts(rows))]
