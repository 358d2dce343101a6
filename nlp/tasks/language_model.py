"""nlp.language_model: what comes next in a running text."""

import json
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nlp.data.documents import TOKENS, load_documents
from nlp.data.facts import LanguageFacts
from nlp.metrics import next_tokens
from nlp.settings import LANGUAGE_MODELS, LanguageModel
from nlp.tasks.texts import TextRequests
from nlp.tokens import units
from nlp.tokens.alphabet import Alphabet
from nlp.tokens.base import FIRST, PAD, joined
from nlp.tokens.normalise import quoted
from pipelines.base.errors import ConfigError, DataError
from pipelines.base.formatting import escaped
from pipelines.data import draws
from pipelines.data.source import Source, Tensors
from pipelines.outputs.automata import compile_form
from pipelines.outputs.tokens import cross_entropy
from pipelines.serving.output import WARNING
from pipelines.task import intervals, writer
from pipelines.task.contract import Answers, Condensed, Features, Input, Output, Requests, Signature, Splits, Task
from pipelines.task.results import Baseline, Judgement
from pipelines.task.units import Units, units_of

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

CROP = 0  # the stream of draws by which windows of train begin elsewhere in each epoch
FORMS = 16  # of requests, that are kept
SHOWN = 3  # texts in TensorBoard each epoch, and in a report


class Documents(Input):
    """Inputs of the model are {"tokens"} [batch, length + 1] int32, the first of which stands before the others; of what is to be written
    on {"prompt"} [batch, any]. Facts: `vocabulary`."""

    experiment: LanguageModel

    @property
    def signature(self) -> Signature:  # type: ignore[override]
        return Signature(
            {"text": f"UTF-8: what is written on; its last {self.room} tokens are seen",
             "warning": "why what is written means little; else empty"},
            {"text": "tf.constant(['Once upon a time'])"}, ("tensorflow_text",) if self.experiment.own_tokens else (),
            lambda: self.alphabet.resources)

    @property
    def alphabet(self) -> Alphabet:
        cached = getattr(self, "_alphabet", None)
        if cached is None or cached[0] is not self.facts:
            self._alphabet = cached = self.facts, self._made()
        return cached[1]

    def _made(self) -> Alphabet:
        return units.make(self.experiment.cutting, self.facts)

    @property
    def room(self) -> int:
        """Tokens of what is written on that are seen."""
        return self.experiment.limit - self.experiment.writing.most

    @cached_property
    def requests(self) -> Requests:
        return Prompts(self)

    def splits(self) -> Splits:
        return load_documents(self.experiment, self.facts)

    def decode(self, raw: Tensors, key: tf.Tensor | None = None) -> Tensors:
        return dict(raw)

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None,
                ) -> tuple[Tensors, Tensors]:
        """Windows of train, which are stored twice as long, begin somewhere in their first half."""
        if "prompt" in examples:
            return {"prompt": examples["prompt"]}, {}
        tokens, size = examples[TOKENS], self.experiment.limit + 1
        if keys is None or tokens.shape[1] == size:
            return {TOKENS: tokens[:, :size]}, {TOKENS: tokens[:, :size]}
        begin = draws.integers(keys, CROP, 0, self.experiment.limit - 1)
        tokens = tf.gather(tokens, begin[:, None] + tf.range(size), batch_dims=1)
        return {TOKENS: tokens}, {TOKENS: tokens}

    def units(self, source: Source) -> Units:
        """Documents, where there are several."""
        return units_of(source, None if source.groups is None else "document")

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        return {"text": tf.TensorSpec([None], tf.string)}

    def receive(self, raw: Tensors) -> Tensors:
        """Texts [batch] string into {"prompt"} [batch, any] int32, a document's beginning first."""
        ids = self.alphabet.ids(raw["text"])
        begin = tf.RaggedTensor.from_tensor(tf.fill([ids.nrows(), 1], self.alphabet.end))
        (whole,) = joined([[begin], [ids]])
        return self.seen(whole)

    def fits(self, text: str) -> bool:
        """Whether a text could be seen whole, by its length alone."""
        return len(text) <= self.experiment.limit * self.alphabet.longest

    def cut(self, text: str) -> np.ndarray:
        """The tokens of a text, [n] int32. Raises DataError for one that is far too long, without a look at it."""
        if not self.fits(text):
            limit = self.experiment.limit
            raise DataError(f"a text of {len(text):,} characters is more than the {limit:,} tokens that are seen (model.length)")
        with tf.device("CPU:0"):
            ids: np.ndarray = self.alphabet.ids(tf.constant([text])).flat_values.numpy().astype(np.int32)
        return ids

    def seen(self, ids: tf.RaggedTensor) -> Tensors:
        """Tokens [batch, None] int32 as {"prompt"}, with a warning where not all are seen."""
        long = ids.row_lengths() > self.room
        warning = tf.where(long, f"the text has more than the {self.room} tokens that are seen; its end counts", "")
        return {"prompt": ids[:, -self.room:].to_tensor(PAD), WARNING: warning}


class Prompts(TextRequests):
    """Texts that are written on: each answer takes many steps."""

    read_at_once = (64, 32)


class NextTokens(Output):
    """Outputs of the model are logits of the tokens behind the first, [batch, length, tokens] float32; targets are the tokens, [batch,
    length + 1] int32, 0 where there is padding."""

    watch = ("bits_per_byte", "min")
    answers = Answers({"written": "what is written behind the text",
                       "confidence": "mean probability of the written tokens; not calibrated"})
    dialogues: ClassVar[bool] = False
    input: Documents
    experiment: LanguageModel

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        if TOKENS not in examples:
            return {}
        return {TOKENS: changes[TOKENS] if changes else examples[TOKENS][:, :self.experiment.limit + 1]}

    def _losses(self, outputs: tf.Tensor, targets: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Of each token: nats, bytes, and whether it counts, [batch, length] float32."""
        truth, own = self._counted(targets)
        sizes = tf.gather(tf.constant(self.input.alphabet.sizes, tf.float32), truth)
        return cross_entropy(tf.cast(outputs, tf.float32), truth) * own, sizes * own, own

    def _counted(self, targets: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """The tokens that are foretold, [batch, length] int32, and 1.0 for those that count."""
        truth = targets[:, 1:]
        return truth, tf.cast(truth != PAD, tf.float32)

    def _truth(self, inputs: Any) -> Any:
        """The targets, which the inputs hold."""
        return inputs[TOKENS]

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Cross-entropy in nats, summed over a window's tokens, and how many these are, [batch] float32 each."""
        losses, _, own = self._losses(outputs, targets)
        return tf.reduce_sum(losses, 1), tf.reduce_sum(own, 1)

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """bits_per_byte and perplexity."""
        losses, sizes, own = self._losses(outputs, targets)
        nats = tf.reduce_sum(losses, 1)
        return {"bits_per_byte": tf.stack([nats / np.log(2.0), tf.reduce_sum(sizes, 1)], 1),
                "perplexity": tf.stack([nats, tf.reduce_sum(own, 1)], 1)}

    @property
    def statistics(self) -> Mapping[str, intervals.Statistic]:
        def mean(sums: np.ndarray) -> np.ndarray:
            return sums[:, 0] / np.maximum(sums[:, 1], 1.0)

        return {"bits_per_byte": mean, "perplexity": lambda sums: np.exp(mean(sums))}

    def answer(self, model: Callable[[Any], Any], inputs: Any) -> Tensors:
        """Of a window how its tokens are foretold (nlp.metrics.next_tokens), of a prompt what is written behind it."""
        if TOKENS not in inputs:
            return dict(model(inputs))
        losses, sizes, own = self._losses(model(inputs), self._truth(inputs))
        places = tf.one_hot(tf.range(self.experiment.limit) * next_tokens.PARTS // self.experiment.limit, next_tokens.PARTS)
        parts = tf.stack([tf.matmul(value, places) for value in (losses, own)], 2)
        return {"nats": tf.reduce_sum(losses, 1), "count": tf.reduce_sum(own, 1), "bytes": tf.reduce_sum(sizes, 1), "parts": parts}

    def respond(self, answers: Tensors) -> Tensors:
        """written [batch] string, confidence [batch] float32."""
        text = self.input.alphabet.texts(answers["tokens"])
        for stop in self.experiment.writing.stop:
            text = tf.strings.regex_replace(text, f"(?s){quoted(stop)}.*", "")
        return {"written": text, "confidence": answers["confidence"]}

    def texts(self, tokens: np.ndarray) -> list[str]:
        """What tokens [n, time] int32 write."""
        with tf.device("CPU:0"):
            return [text.decode() for text in self.input.alphabet.texts(tf.constant(tokens)).numpy().tolist()]

    def written(self, model: Any, texts: list[str]) -> list[str]:
        """What a model writes behind texts."""
        with tf.device("CPU:0"):
            inputs, _ = self.input.prepare({"prompt": self.input.receive({"text": tf.constant(texts)})["prompt"]})
        run = tf.function(lambda some: self.respond(self.answer(lambda each: model(each, training=False), some)), autograph=False)
        return [text.decode() for text in run(inputs)["written"].numpy()]

    @cached_property
    def way(self) -> writer.Way:
        """How texts are written. Raises ConfigError where their form cannot be followed, or is longer than they may be."""
        how = self.experiment.writing
        try:
            form = None if how.form is None else self.form(how.form.asked)
        except DataError as error:
            raise ConfigError(f"writing.form: {error}") from None
        if form is not None and form.left[0] > how.most:
            raise ConfigError(f"writing.most: {how.most} tokens, and the shortest text of writing.form has {form.left[0]}")
        return writer.Way(how.most, how.temperature, how.top_k, how.top_p, how.repetition, how.seed, tuple(how.stop), how.fewest, form)

    def form(self, asked: Mapping[str, Any]) -> writer.Automaton:
        """The automaton of a form; the last ones are kept. Raises DataError."""
        key = json.dumps(asked, default=str)
        if key not in self._forms:
            made = compile_form(asked, self.input.alphabet.trie, self.input.alphabet.end)
            for old in list(self._forms)[:len(self._forms) + 1 - FORMS]:
                self._forms.pop(old, None)
            self._forms[key] = made
        return self._forms[key]

    @cached_property
    def _forms(self) -> dict[str, writer.Automaton]:
        return {}

    def writer(self, model: Any) -> writer.Writer:
        from nlp.models.language_huggingface import files
        from nlp.models.language_steps import LanguageSteps

        limit = self.experiment.limit
        text = tf.function(lambda ids: self.input.alphabet.texts(ids[None])[0], input_signature=[tf.TensorSpec([None], tf.int32)],
                           autograph=False)

        def said(ids: list[int]) -> str:
            return str(text(np.array(ids, np.int32)).numpy().decode())

        end, template = self.input.alphabet.end, self.facts.get("template")
        foreign = partial(files, model, self.facts, end=end, limit=limit, template=template) if self.experiment.own_tokens else None
        return writer.Writer(lambda rows: LanguageSteps(model, rows=rows, most=limit), self.prompt, said, self.way, limit, end, FIRST,
                             self.form, dialogues=self.dialogues, hugging_face=foreign)

    def prompt(self, sent: Any) -> np.ndarray:
        """The tokens of a text that is to be written on, [n] int32. Raises DataError."""
        if not isinstance(sent, str):
            raise DataError("a text is wanted, and no messages: this model was trained on running texts")
        return np.concatenate([[self.input.alphabet.end], self.input.cut(sent)]).astype(np.int32)

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        return answers, {}

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        return next_tokens.judge(self, answers, source)

    def explain(self, model: keras.Model, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        """Adds texts that are written on."""
        size = self.input.room
        tokens = source.gather(np.linspace(0, len(source) - 1, min(SHOWN, len(source)), dtype=np.int64))[TOKENS].numpy()[:, 1:2 * size]
        rows = next_tokens.continuations(lambda texts: self.written(model, texts), self.texts(tokens))
        if rows:
            judgement.tables["written"] = rows

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        return answers["nats"] / np.log(2.0) / np.maximum(answers["bytes"], 1.0)

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return next_tokens.fit(train, self.input.alphabet.sizes, self.experiment.limit)


class LanguageModelling(Task):
    """nlp.language_model. Facts: `vocabulary`."""

    input_class = Documents
    output_class = NextTokens
    facts_schema = LanguageFacts
    hub_name = "text-generation"
    input: Documents
    output: NextTokens
    experiment: LanguageModel

    def facts_error(self) -> str | None:
        if self.experiment.own_tokens:
            missing = next((name for name in ("backbone", "tokenizer") if self.facts.get(name) is None), None)
            return f"{missing}: field required" if missing else None
        return "vocabulary: field required" if self.input.alphabet.learns and not self.facts.get("vocabulary") else None

    def model(self) -> keras.Model:
        experiment, alphabet = self.experiment, self.input.alphabet
        more = {"end": alphabet.end, "facts": self.facts} if experiment.own_tokens else {}
        return LANGUAGE_MODELS.build(experiment.model, size=alphabet.size, writing=self.output.way, **more)

    def writer(self, model: keras.Model) -> writer.Writer:
        return self.output.writer(model)

    def freeze(self, model: keras.Model) -> None:
        model.how = self.output.way

    def show_epoch(self, model: keras.Model, writer: "Writer", step: int, *, examples: Tensors, inputs: Any, targets: Any) -> None:
        """Texts of train, written on; now and then, as that takes a while."""
        if not self.drawing.due():
            return
        with self.drawing:
            size = self.input.room
            begun = self.output.texts(inputs[TOKENS][:SHOWN, 1:size].numpy())
            texts = self.output.written(model, begun)
        writer.text("written", "\n\n".join(f"{escaped(before)} **{escaped(text)}**" for before, text in zip(begun, texts)), step)
