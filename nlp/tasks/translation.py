"""nlp.translation: texts that are written from texts, such as sentences in another language, or summaries."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from nlp.data.facts import WrittenFacts
from nlp.data.translations import load_translations
from nlp.metrics import translation_memory, translations
from nlp.settings import WRITERS, TextData, TextTranslation
from nlp.tasks.texts import TextRequests, Texts
from nlp.tokens import written
from nlp.tokens.base import FIRST, PAD, Tokenizer
from pipelines.base.formatting import escaped
from pipelines.data.lengths import Lengths
from pipelines.data.source import Source, Tensors
from pipelines.outputs.tokens import COUNT, WHOLE, WRITTEN, Tokens
from pipelines.serving.output import WARNING
from pipelines.task.contract import Answers, Features, Requests, SetScores, Splits, Task
from pipelines.task.results import Baseline, Judgement

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

SHOWN = 6  # texts in TensorBoard each epoch


class Sentences(Texts):
    """Inputs of the model are {"tokens", "written"}, [batch, time] int32 each: what is read, and, in training, what is to be written of it.
    Facts: `vocabulary`."""

    experiment: TextTranslation  # type: ignore[assignment]

    @property
    def lengths(self) -> Lengths:  # type: ignore[override]
        return Lengths("length", most=self.experiment.limit, others={WRITTEN: COUNT})

    @property
    def tokenizer(self) -> Tokenizer:
        return self._both[0]

    @property
    def _both(self) -> tuple[Tokenizer, Tokenizer]:
        """Of what is read, and of what is written, with one token more, so that it shows where a text is cut."""
        cached = getattr(self, "_tokenizers", None)
        if cached is None or cached[0] is not self.facts:
            limit, pieces = self.experiment.limit, self.facts["vocabulary"]
            self._tokenizers = cached = self.facts, (written.make(pieces, limit), written.make(pieces, limit + 1))
        return cached[1]

    @cached_property
    def requests(self) -> Requests:
        return SentenceRequests(self)

    def splits(self) -> Splits:
        return load_translations(self.experiment, self.facts)

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None,
                ) -> tuple[Tensors, Tensors]:  # type: ignore[override]
        return {name: examples[name] for name in ("tokens", WRITTEN) if name in examples}, {}

    def receive(self, raw: Tensors) -> Tensors:
        """As Texts; a text that is longer than what is read is warned of."""
        ids, limit = self._both[1].ids(raw["text"]), self.experiment.limit
        cut = self._padded(ids[:, :limit])
        long = ids.row_lengths() > limit
        return {**cut, WARNING: tf.where(long, f"the text is longer than the {limit} tokens that are read (tokens.limit)",
                                         self._warnings(raw["text"], cut["tokens"]))}

    def _others(self, raw: Tensors) -> Tensors:
        """The text that is to be written as tokens, with their count, and whether that is all of it."""
        rest = super()._others(raw)
        if "text_pair" not in rest:
            return rest
        texts, limit = rest.pop("text_pair"), self.experiment.limit
        ids = self._both[1].ids(texts[None] if texts.shape.rank == 0 else texts)
        count, ids = tf.cast(ids.row_lengths(), tf.int32), ids[:, :limit]
        more = {WRITTEN: ids.to_tensor(PAD), COUNT: tf.minimum(count, limit), WHOLE: tf.cast(count <= limit, tf.int32)}
        return rest | ({name: value[0] for name, value in more.items()} if texts.shape.rank == 0 else more)


class SentenceRequests(TextRequests):
    """Texts that are read, alone or in a column of a table."""

    input: Sentences

    @property
    def data(self) -> TextData:
        return self.input.experiment.data.read


class Written(Tokens):
    """Texts of pieces (nlp.tokens.written)."""

    watch = ("bleu", "max")
    answers = Answers({"written": "the text that is written", "confidence": "mean probability of the written tokens; not calibrated"})
    input: Sentences
    experiment: TextTranslation

    @property
    def end(self) -> int:
        return FIRST + len(self.facts["vocabulary"])

    @property
    def smoothing(self) -> float:
        return self.experiment.loss.smoothing

    def respond(self, answers: Tensors) -> Tensors:
        """written [batch] string, confidence [batch] float32."""
        return {"written": written.texts(answers["tokens"], self.facts["vocabulary"]), "confidence": answers["confidence"]}

    def texts(self, tokens: np.ndarray) -> list[str]:
        """What tokens [n, most] int32 write."""
        with tf.device("CPU:0"):
            return [text.decode() for text in written.texts(tf.constant(tokens), self.facts["vocabulary"]).numpy().tolist()]

    def compare(self, answer: str, true: Any) -> float:
        """chrF of a text beside the true one, 0 to 100."""
        return translations.corpus(translations.scorer("chrf", self.experiment.evaluate.tokenize), [answer], [str(true)])

    @property
    def set_scores(self) -> SetScores:
        """bleu and chrf, of the true texts as their pieces write them."""
        def compute(answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, float]:
            texts = self.texts(answers["tokens"]), self.texts(targets[WRITTEN])
            return {name: translations.corpus(translations.scorer(name, self.experiment.evaluate.tokenize), *texts)
                    for name in ("bleu", "chrf")}

        return SetScores({"bleu": "max", "chrf": "max"}, compute)

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        return translations.judge(self, answers, source)

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        """chrF of each text, 0 to 100."""
        metric = translations.scorer("chrf", self.experiment.evaluate.tokenize)
        return translations.score(metric, translations.counts(metric, self.texts(answers["tokens"]), self.texts(targets[WRITTEN])))

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        def tokens_of(texts: list[str]) -> np.ndarray:
            with tf.device("CPU:0"):
                return self.input.tokenizer.ids(tf.constant(texts)).to_tensor(PAD).numpy()

        return translation_memory.fit(train, tokens_of)


class Translation(Task):
    """nlp.translation. Facts: `vocabulary`."""

    input_class = Sentences
    output_class = Written
    facts_schema = WrittenFacts
    hub_name = "translation"
    input: Sentences
    output: Written
    experiment: TextTranslation

    def model(self) -> keras.Model:
        experiment = self.experiment
        return WRITERS.build(experiment.model, size=self.output.end + 1, most=experiment.most, writing=experiment.writing)

    def freeze(self, model: keras.Model) -> None:
        model.how, model.most = self.experiment.writing, self.experiment.most

    def show_epoch(self, model: keras.Model, writer: "Writer", step: int, *, examples: Tensors, inputs: Any, targets: Any) -> None:
        """Some training texts with what is written of them."""
        some = {name: value[:SHOWN] for name, value in inputs.items()}
        answers = self.output.answer(lambda batch: model(batch, training=False), some)
        texts = (self.output.texts(tokens) for tokens in (some["tokens"].numpy(), targets[WRITTEN][:SHOWN].numpy(),
                                                          answers["tokens"].numpy()))
        writer.text("written (read, true, written)", "\n\n".join(
            f"{escaped(read)}  \n{escaped(true)}  \n**{escaped(own)}**" for read, true, own in zip(*texts)), step)
