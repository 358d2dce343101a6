"""nlp.question_answering: the answer to a question as it stands in a passage, or that there is none."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nlp.data.answers import answers_of
from nlp.data.facts import AnswerFacts
from nlp.data.passages import ANSWERS, load_questions
from nlp.metrics import answer_judging, passage_overlap
from nlp.metrics.exactness import compare
from nlp.models import reader
from nlp.models.reader import IMPOSSIBLE
from nlp.settings import PassageAnswers
from nlp.tasks.pairs import DOUBLED, Pairs
from nlp.tasks.places import PlaceTask
from nlp.tasks.texts import BLANK, unpacked
from nlp.tokens import passages
from nlp.tokens.offsets import in_characters, placed_tokens
from pipelines.data.lengths import Lengths
from pipelines.data.source import Source, Tensors
from pipelines.serving.output import WARNING
from pipelines.task.contract import Answers, Condensed, Features, Output, SetScores, Splits
from pipelines.task.results import Baseline, Judgement

COUNT, LETTERS, SIZE = "count", "characters", "size"  # of the answers; the passage as code points, and how many these are
PLACES = ("starts", "ends", LETTERS)


class Passages(Pairs):
    """Inputs of the model are [batch, time, 2] int32 (nlp.tokens.passages). Examples have `starts` and `ends`, [batch, time] int32, between
    which characters of the passage the word of each token lies; `characters` [batch, any] int32, the passage as code points; and
    `answers` [batch, any, 2] int32, places of the true ones in characters."""

    experiment: PassageAnswers  # type: ignore[assignment]

    @property
    def lengths(self) -> Lengths:  # type: ignore[override]
        return Lengths("length", most=self.experiment.limit, others={ANSWERS: COUNT, LETTERS: SIZE})

    def splits(self) -> Splits:
        return load_questions(self.experiment, self.facts)

    def receive(self, raw: Tensors) -> Tensors:
        """As Pairs; a passage that is longer than what is read is warned of."""
        examples = super().receive(raw)
        whole = tf.strings.length(tf.strings.regex_replace(raw["text_pair"], f"{BLANK}$", ""), unit="UTF8_CHAR")
        beyond = (tf.reduce_max(examples["ends"], 1) < whole) & (examples[WARNING] == "")
        return {**examples, WARNING: tf.where(beyond, "the passage is longer than what is read (model.limit)", examples[WARNING])}

    def _cut(self, raw: Tensors) -> Tensors:
        settings, passage = self.experiment.model, raw["text_pair"]
        tokens, kinds, starts, ends = passages.behind(
            self.tokenizer.ids(raw["text"]), placed_tokens(self.tokenizer, passage, settings.limit), limit=settings.limit,
            asked=settings.question, marks=self.tokenizer.marks, doubled=self.facts["backbone"]["class"] in DOUBLED)
        letters, places = in_characters(passage, starts, ends)
        return {"tokens": passages.padded(tokens, kinds), "length": tf.cast(tokens.row_lengths(), tf.int32),
                "starts": places[0], "ends": places[1], LETTERS: letters.to_tensor(), SIZE: tf.cast(letters.row_lengths(), tf.int32)}

    def _others(self, raw: Tensors) -> Tensors:
        """The places of answers as numbers, with their count."""
        rest = super()._others(raw)
        if ANSWERS not in rest:
            return rest
        places, count = unpacked(rest.pop(ANSWERS), 2)
        return {**rest, ANSWERS: places, COUNT: count}


class Spans(Output):
    """Outputs of the model are logits of an answer's first and last token, [batch, time, 2]; targets are `answers`, `starts`, `ends` and
    `characters`, as `Passages` has them. Where train has questions without an answer, the first token stands for none."""

    watch = ("answer_f1", "max")
    answers = Answers(
        {"answer": "the answer as it stands in the passage; empty where there is none", "sentence": "the passage's sentence with it",
         "score": "the probability of it among all places, 0 to 1", "no_answer": "the probability that the passage has none, 0 to 1",
         "answers": "the most probable answers, best first; they may overlap", "starts": "the first character of each, from 0",
         "ends": "the character behind the last of each", "scores": "the probability of each", "count": "how many there are"},
        ranked=("answers", "starts", "ends", "scores"), beside=PLACES)
    input: Passages
    experiment: PassageAnswers

    # ---- learning

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        return {name: examples[name] for name in (ANSWERS, *PLACES)} if ANSWERS in examples else {}

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """-log of the probability of the true answers together, where both ends are drawn by themselves, and 1, [batch] float32 each; 0 and
        0 where all of them lie behind what is read."""
        first, last, there = self._tokens(targets)
        chances = tf.nn.log_softmax(tf.cast(outputs, tf.float32), 1)
        own = tf.gather(chances[..., 0], first, batch_dims=1) + tf.gather(chances[..., 1], last, batch_dims=1)
        found = -tf.reduce_logsumexp(tf.where(there, own, IMPOSSIBLE), 1)
        nothing, read = self._has_none(targets), tf.reduce_any(there, 1)
        if self.facts["unanswerable"]:
            found, read = tf.where(nothing, -tf.reduce_sum(chances[:, 0], -1), found), read | nothing
        return tf.where(read, found, 0.0), tf.cast(read, tf.float32)

    def _tokens(self, targets: Tensors) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The first and the last token of each answer, and whether these are read, [batch, any] each."""
        begin, end = (value[:, :, None] for value in tf.unstack(targets[ANSWERS], axis=-1))
        starts, ends = (targets[name][:, None] for name in ("starts", "ends"))
        words = ends > starts
        after, before = words & (ends > begin), words & (starts < end)
        first = tf.argmax(tf.cast(after, tf.int32), 2, tf.int32)
        last = tf.shape(starts)[2] - 1 - tf.argmax(tf.cast(tf.reverse(before, [2]), tf.int32), 2, tf.int32)
        there = (end[..., 0] > 0) & tf.reduce_any(after, 2) & tf.reduce_any(before, 2) & (first <= last)
        return first, last, there

    @staticmethod
    def _has_none(targets: Tensors) -> tf.Tensor:
        return tf.reduce_all(targets[ANSWERS][..., 1] == 0, 1)

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """start_accuracy and end_accuracy: whether the most probable token of each end is that of a true answer."""
        first, last, there = self._tokens(targets)
        right = {}
        for number, (name, true) in enumerate((("start_accuracy", first), ("end_accuracy", last))):
            best = tf.argmax(outputs[..., number], 1, tf.int32)
            hit = tf.reduce_any((true == best[:, None]) & there, 1)
            right[name] = tf.cast(tf.where(self._has_none(targets), best == 0, hit), tf.float32)
        return right

    # ---- answers

    def answer(self, model: Callable[[Any], tf.Tensor], inputs: tf.Tensor) -> Tensors:
        """first and last [batch, best] int32, tokens of the most probable answers; chances [batch, best] float32, of each among all places
        that may be one, none included, 0 behind the last; and nothing [batch] float32, that of no answer."""
        settings = self.experiment.answer
        begin, end = tf.unstack(tf.cast(model(inputs), tf.float32), axis=2)
        time = tf.shape(begin)[1]
        size = tf.range(settings.longest)
        place = tf.range(time)[:, None] + size
        padded = tf.pad(end, [[0, 0], [0, settings.longest]], constant_values=IMPOSSIBLE)
        together = begin[..., None] + tf.gather(padded, place, axis=1)  # [batch, time, longest]
        nothing = together[:, 0, 0]  # the first token, which begins no answer
        together = tf.reshape(tf.where((tf.range(time) == 0)[:, None], IMPOSSIBLE, together), [-1, time * settings.longest])
        whole = tf.reduce_logsumexp(tf.concat([together, nothing[:, None]], 1), 1, keepdims=True)
        best, which = tf.math.top_k(together, settings.best)
        chances = tf.where(best > IMPOSSIBLE / 2, tf.exp(best - whole), 0.0)
        first = which // settings.longest
        return {"first": first, "last": first + which % settings.longest, "chances": chances,
                "nothing": tf.where(nothing > IMPOSSIBLE / 2, tf.exp(nothing - whole[:, 0]), 0.0)}

    def respond(self, answers: Tensors) -> Tensors:
        """answer and sentence [batch] string, score and no_answer [batch] float32; answers [batch, best] string, starts and ends int32 and
        scores float32, empty and 0 behind the last, and count [batch] int32."""
        letters = tf.pad(answers[LETTERS], [[0, 0], [0, 1]])
        none = answers["nothing"] > self._threshold() if self.facts["unanswerable"] else tf.zeros_like(answers["nothing"], tf.bool)
        given = (answers["chances"] > 0.0) & ~none[:, None]
        starts, ends = (tf.where(given, tf.gather(answers[name], answers[token], batch_dims=1), 0)
                        for name, token in (("starts", "first"), ("ends", "last")))
        texts = _cut_out(letters, starts, ends)
        begin, end = _sentence(letters, starts[:, :1], ends[:, :1])
        scores = tf.where(given, answers["chances"], 0.0)
        return {"answer": texts[:, 0], "sentence": tf.strings.strip(_cut_out(letters, begin, end)[:, 0]), "score": scores[:, 0],
                "no_answer": answers["nothing"], "answers": texts, "starts": starts, "ends": ends, "scores": scores,
                "count": tf.reduce_sum(tf.cast(given, tf.int32), 1)}

    def _threshold(self) -> float:
        chosen = self.facts.get("no_answer_threshold")
        return 0.5 if chosen is None else chosen

    # ---- judging

    def compare(self, answer: str, true: Any) -> tuple[float, float]:
        """(F1, exact match) of an answer in words; true ones as a table's column has them (nlp.data.answers). Raises DataError."""
        return compare(answer, [text for text, _ in answers_of(true)])

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        """How good the most probable answers are, with the places of all; a baseline gives them as they are."""
        if "f1" in answers:
            return answers, {}
        given = answers["chances"] > 0.0
        starts, ends = (np.where(given, np.take_along_axis(answers[name], answers[token], 1), 0)
                        for name, token in (("starts", "first"), ("ends", "last")))
        scores = answer_judging.compared(starts[:, 0], ends[:, 0], targets[ANSWERS], targets[LETTERS])
        return {**scores, "starts": starts, "ends": ends, "chances": answers["chances"], "nothing": answers["nothing"]}, {}

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        return {"no_answer_threshold": answer_judging.threshold_of(answers)} if self.facts["unanswerable"] else {}

    @property
    def set_scores(self) -> SetScores:
        """answer_f1 and exact_match, with the best threshold for these answers where none is chosen yet."""
        def compute(answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, float]:
            threshold = self.facts.get("no_answer_threshold")
            if threshold is None and self.facts["unanswerable"]:
                threshold = answer_judging.threshold_of(answers)
            f1, exact, _ = answer_judging.scored(answers, threshold)
            return {"answer_f1": float(f1.mean()), "exact_match": float(exact.mean())}

        return SetScores({"answer_f1": "max", "exact_match": "max"}, compute)

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        return answer_judging.judge(self, answers, source)

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        return answer_judging.scored(answers, self.facts.get("no_answer_threshold"))[0]

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return passage_overlap.fit(train)


class QuestionAnswering(PlaceTask):
    """nlp.question_answering. Facts: `unanswerable`, `no_answer_threshold`, and those of an encoder."""

    input_class = Passages
    output_class = Spans
    facts_schema = AnswerFacts
    hub_name = "question-answering"
    samples = "questions with their answers"
    input: Passages
    output: Spans
    experiment: PassageAnswers

    def model(self) -> keras.Model:
        return reader.build(self.experiment.model, facts=self.facts)

    def marked(self, source: Source, numbers: list[int]) -> list[str]:
        return answer_judging.marked_questions(source, numbers)


def _cut_out(letters: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """The texts between places [batch, n] of code points [batch, any], [batch, n] string."""
    width = tf.shape(letters)[1]
    row = tf.repeat(tf.range(tf.shape(letters)[0])[:, None] * width, tf.shape(starts)[1], 1)
    places = tf.ragged.range(tf.reshape(row + starts, [-1]), tf.reshape(row + ends, [-1]))
    found = places.with_flat_values(tf.gather(tf.reshape(letters, [-1]), places.flat_values))
    return tf.reshape(tf.strings.unicode_encode(found, "UTF-8"), tf.shape(starts))


def _sentence(letters: tf.Tensor, start: tf.Tensor, end: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The first character of the sentence in which an answer begins, and the one behind that in which it ends, [batch, 1] int32 each; a
    sentence ends with a line, with a full mark of Chinese, and with a mark before a blank. 0 and 0 where there is no answer."""
    def among(signs: str, values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any([values == ord(sign) for sign in signs], 0)

    after = tf.pad(letters, [[0, 0], [0, 1]])[:, 1:]
    stops = among("\n\u3002\uff01\uff1f", letters) | (among(".!?", letters) & (among(" \t\n\r\u00a0", after) | (after == 0)))
    number = tf.cumsum(tf.cast(stops, tf.int32), 1, exclusive=True)
    low, high = (tf.gather(number, place, batch_dims=1) for place in (start, tf.maximum(end - 1, 0)))
    inside = (number >= low) & (number <= high) & (letters > 0) & (end > 0)
    begin = tf.argmax(tf.cast(inside, tf.int32), 1, tf.int32)[:, None]
    return begin, begin + tf.reduce_sum(tf.cast(inside, tf.int32), 1, keepdims=True)
