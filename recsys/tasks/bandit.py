"""recsys.bandit: which action to choose in a context, learned from choices that were made and logged."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors, origin
from pipelines.task.contract import Answers, Condensed, Output, Task
from pipelines.task.intervals import Statistic
from pipelines.task.results import Judgement
from recsys.data.facts import BanditFacts
from recsys.metrics.off_policy import Choices
from recsys.metrics.policy_metrics import judge_policies
from recsys.models.policy import chances
from recsys.models.store import columns_example, ids_of
from recsys.settings import BANDIT_MODELS
from recsys.settings import Bandit as Experiment
from recsys.tasks.choices import LoggedChoices, LoggedSource

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

SHARPNESS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0)  # tried on validation
SURE = 0.68  # level of the interval whose lower bound decides there
BELOW_ONE = 1 - 1e-6  # whose product with a sum is below that sum, however it is rounded
TOP = 20  # actions that an answer lists


class Policy(Output):
    """Probabilities of actions, and one that is drawn by them."""

    experiment: Experiment
    input: LoggedChoices
    answers = Answers(
        {"action": "the action that was drawn; log it, with `probability` and what it earns",
         "probability": "the probability with which it was drawn",
         "actions": "the most probable actions, most probable first",
         "probabilities": "of these",
         "rewards": "what each of these is expected to earn here",
         "count": "how many of the list are valid"},
        ranked=("actions", "probabilities", "rewards"))

    @property
    def watch(self) -> tuple[str, str]:  # type: ignore[override]
        """The loss of the model of rewards, which is steadier than any estimate of the policy's value where rewards are rare; the value by
        SNIPS where that model has no part in the policy."""
        return ("snips", "max") if self.experiment.loss.name == "ips" else ("reward_loss", "min")

    @property
    def scale(self) -> float:
        """The unit of rewards: their deviation in train; 1 where they are 0 or 1 and the model gives logits."""
        return 1.0 if self.facts["binary"] else float(self.facts["label"]["std"])

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        return {name: examples[name] for name in ("action", "reward", "propensity") if name in examples}

    def loss(self, outputs: Tensors, targets: Tensors, training: bool) -> tf.Tensor:
        """[batch] float32: of the model of rewards the log loss in nats, or the squared error in units of the rewards' variance; of what
        the log does the squared error of the propensity's logarithm; less the value of the policy in units of the rewards' deviation."""
        known = targets["action"] >= 0
        logged = _of(tf.nn.log_softmax(outputs["logged"]), targets["action"]) - tf.math.log(targets["propensity"])
        loss, name = self._reward_loss(outputs, targets) + tf.where(known, tf.square(logged), 0.0), self.experiment.loss.name
        if name == "direct":
            return loss
        outputs = {**outputs, "logged": tf.stop_gradient(outputs["logged"])}
        label, rewards = self.facts["label"], tf.stop_gradient(self._rewards(outputs))
        policy = self._chances(outputs, 1.0)
        weight = tf.minimum(_of(policy, targets["action"]) / targets["propensity"], self.experiment.loss.clip)
        if name == "ips":
            value = weight * (targets["reward"] - label["mean"])
        else:
            value = tf.reduce_sum(policy * rewards, -1) + weight * (targets["reward"] - _of(rewards, targets["action"]))
        return loss - value / float(label["std"])

    def scores(self, outputs: Tensors, targets: Tensors) -> Tensors:
        """The value of the policy as learned, doubly robust [batch] and by SNIPS [batch, 2], and the loss of the model of rewards."""
        policy, rewards = self._chances(outputs, 1.0), self._rewards(outputs)
        weight = _of(policy, targets["action"]) / targets["propensity"]
        value = tf.reduce_sum(policy * rewards, -1) + weight * (targets["reward"] - _of(rewards, targets["action"]))
        return {"doubly_robust": value, "snips": tf.stack([weight * targets["reward"], weight], -1),
                "reward_loss": self._reward_loss(outputs, targets)}

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        return {"snips": lambda sums: np.divide(sums[:, 0], sums[:, 1], out=np.zeros(len(sums)), where=sums[:, 1] > 0)}

    def _reward_loss(self, outputs: Tensors, targets: Tensors) -> tf.Tensor:
        logged = _of(outputs["rewards"], targets["action"])
        if self.facts["binary"]:
            loss = tf.nn.sigmoid_cross_entropy_with_logits(targets["reward"], logged)
        else:
            loss = tf.square((logged - targets["reward"]) / self.scale)
        return tf.where(targets["action"] >= 0, loss, 0.0)

    def _rewards(self, outputs: Tensors) -> tf.Tensor:
        """Expected rewards, [batch, actions] float32."""
        if self.facts["binary"]:
            return tf.sigmoid(outputs["rewards"])
        return tf.clip_by_value(outputs["rewards"], self.facts["label"]["low"], self.facts["label"]["high"])

    def _chances(self, outputs: Tensors, sharpness: float, there: tf.Tensor | None = None) -> tf.Tensor:
        return chances(outputs, sharpness=sharpness, explore=self.experiment.model.explore, there=there)

    @property
    def _sharpness(self) -> float:
        given = self.experiment.model.sharpness
        return float(self.facts.get("sharpness", 1.0) if given is None else given)

    def answer(self, model: Callable[[Any], Any], inputs: Any) -> Tensors:
        """Judged: the model's outputs. Of requests: action [batch] int32 from 1 (0: none is open), probability [batch], and the likeliest
        actions with their probabilities and expected rewards, [batch, at most TOP]."""
        outputs = model(inputs)
        if "draw" not in inputs:
            return dict(outputs)
        count = len(self.facts["item_ids"])
        there = ~_marked(inputs["exclude"], count)
        policy = self._chances(outputs, self._sharpness, there)
        sums = tf.cumsum(policy, axis=-1)
        drawn = tf.argmax(sums > tf.minimum(inputs["draw"], BELOW_ONE)[:, None] * sums[:, -1:], -1, tf.int32)
        open_ = tf.reduce_any(there, -1)
        best, places = tf.math.top_k(policy, min(TOP, count))
        return {
            "action": tf.where(open_, drawn + 1, 0),
            "probability": _of(policy, drawn),
            "actions": tf.where(best > 0, places + 1, 0),
            "probabilities": best,
            "rewards": tf.gather(self._rewards(outputs), places, batch_dims=1),
        }

    def respond(self, answers: Tensors) -> Tensors:
        """action [batch] as the log has it, probability [batch], actions, probabilities, rewards [batch, at most TOP], count [batch]."""
        ids = self.facts["item_ids"]
        count = tf.reduce_sum(tf.cast(answers["actions"] > 0, tf.int32), -1)
        return {**answers, "action": ids_of(answers["action"], ids), "actions": ids_of(answers["actions"], ids), "count": count}

    # ---- judging

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        """Of each choice what the estimators need: at each of `_tried` the probability of the logged action [n, tried] and the reward that
        is expected under the policy, the predicted reward of the logged action, and what is expected of cheap policies."""
        outputs = {name: tf.constant(value) for name, value in answers.items()}
        rewards, action = self._rewards(outputs), targets["action"]
        found = []
        for sharpness in self._tried:  # one after the other: actions may be many
            policy = self._chances(outputs, sharpness)
            found.append((_of(policy, action).numpy(), tf.reduce_sum(policy * rewards, -1).numpy()))
        cheap = {f"of_{name}": tf.linalg.matvec(rewards, tf.constant(policy, tf.float32)).numpy() for name, policy in self._cheap.items()}
        return {
            "chances": np.stack([chance for chance, _ in found], 1),
            "expected": np.stack([expected for _, expected in found], 1),
            "predicted": tf.where(action >= 0, _of(rewards, action), self.facts["label"]["mean"]).numpy(),
            **cheap,
        }, targets

    @property
    def _tried(self) -> tuple[float, ...]:
        given = self.experiment.model.sharpness
        return (*SHARPNESS, self._sharpness) if given is None else (given,)

    @property
    def _cheap(self) -> dict[str, np.ndarray]:
        """Policies that know no context, name -> [actions] float64: the best action by train, explored as the model does, and all alike."""
        rates, explore = np.asarray(self.facts["rates"]), self.experiment.model.explore
        best = np.full(len(rates), explore / len(rates))
        best[int(rates.argmax())] += 1 - explore
        return {"best action": best, "even choices": np.full(len(rates), 1 / len(rates))}

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        """`sharpness`: the one whose value on validation is surest to be high, by the lower bound of `Choices.bounds`."""
        if self.experiment.model.sharpness is not None:
            return {}
        sure = [self._choices(answers, targets, column).bounds(*self._limits, level=SURE)[0] for column in range(len(SHARPNESS))]
        return {"sharpness": SHARPNESS[int(np.argmax(sure))]}

    @property
    def _limits(self) -> tuple[float, float]:
        return float(self.facts["label"]["low"]), float(self.facts["label"]["high"])

    def _choices(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], column: int) -> Choices:
        return Choices(targets["reward"], targets["propensity"], answers["chances"][:, column], answers["predicted"],
                       answers["expected"][:, column])

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        base, numbers = origin(source)
        if not isinstance(base, LoggedSource):
            raise TypeError("recsys.bandit judges its own sources")
        tried = self._tried
        model = self._choices(answers, targets, tried.index(self._sharpness))
        action = targets["action"]
        cheap = {name: Choices(targets["reward"], targets["propensity"], np.where(action >= 0, policy[action], 0.0), answers["predicted"],
                               answers[f"of_{name}"]) for name, policy in self._cheap.items()}
        judgement = judge_policies(
            model, cheap, limits=self._limits, units=self.input.units_of(base, numbers), resamples=self.experiment.evaluate.bootstrap,
            places=None if base.places is None else base.places[numbers], loss=self._losses(answers, targets))
        ids = [None, *self.facts["item_ids"]]
        judgement.predictions = {
            "choice": [source.name(number) for number in range(len(source))], "action": [ids[number + 1] for number in action],
            "reward": targets["reward"], "propensity": targets["propensity"], "probability": model.chances, "weight": model.weights,
            "expected_reward": model.expected}
        how = "as the experiment says" if self.experiment.model.sharpness is not None else "by validation"
        evenly = f"{self.experiment.model.explore:.1%} of its choices are drawn evenly"
        judgement.notes += [self.facts["divided"], f"Sharpness {self._sharpness:g} ({how}); {evenly}" if self._sharpness else
                            f"The policy chooses as the log did (sharpness 0, {how}): no gain is sure; {evenly}"]
        return judgement

    def _losses(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        """[n], of the model of rewards; of known actions."""
        known = targets["action"] >= 0
        predicted, rewards = answers["predicted"][known].astype(np.float64), targets["reward"][known]
        if not self.facts["binary"]:
            return ((predicted - rewards) / self.scale) ** 2
        predicted = np.clip(predicted, 1e-7, 1 - 1e-7)
        return -np.where(rewards > 0.5, np.log(predicted), np.log(1 - predicted))


def _of(values: tf.Tensor, action: Any) -> tf.Tensor:
    """[batch], of each row the value of its action; 0 where that is -1."""
    action = tf.convert_to_tensor(action)
    return tf.where(action >= 0, tf.gather(values, tf.maximum(action, 0), batch_dims=1), 0.0)


def _marked(numbers: tf.Tensor, count: int) -> tf.Tensor:
    """[batch, count] bool, which of 1 .. count are among the row's numbers [batch, any] int32 (0: none)."""
    rows = tf.repeat(tf.range(tf.shape(numbers)[0]), tf.shape(numbers)[1])
    places = tf.stack([rows, tf.reshape(numbers, [-1])], -1)
    times = tf.scatter_nd(places, tf.ones_like(rows), [tf.shape(numbers)[0], count + 1])
    return times[:, 1:] > 0


class BanditTask(Task):
    """recsys.bandit. Facts: those of `LoggedChoices`, and `sharpness`."""

    input_class, output_class = LoggedChoices, Policy
    facts_schema = BanditFacts
    input: LoggedChoices
    output: Policy
    experiment: Experiment

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None,
                epoch: tf.Tensor | None = None) -> tuple[Any, Any]:
        """Targets are always by name."""
        inputs, changes = self.input.prepare(examples, keys=keys, seed=seed, epoch=epoch)
        return inputs, self.output.targets(examples, changes) or None

    def model(self) -> keras.Model:
        facts = self.facts
        rates, habits = np.asarray(facts["rates"], np.float64), np.asarray(facts["habits"], np.float64)
        if facts["binary"]:
            rates = np.clip(rates, 1e-6, 1 - 1e-6)
            rates = np.log(rates / (1 - rates))
        model: keras.Model = BANDIT_MODELS.build(
            self.experiment.model, actions=len(rates), features=list(facts["features"].values()), rates=rates,
            habits=habits, scale=self.output.scale, follows=self.experiment.loss.name == "direct")
        model(columns_example(self.input.columns))
        catalogue = self.input.catalogue
        if model.store is not None and catalogue is not None and catalogue.item_features:
            model.store.fill(catalogue.item_features)
        return model

    def show(self, source: Source, writer: "Writer", step: int, *, inputs: Any = None, targets: Any = None, split: str = "train") -> None:
        values = {**inputs, **targets}
        rows = [" | ".join(_short(value[row].numpy()) for value in values.values()) for row in range(len(targets["reward"]))]
        writer.text("inputs of the model", "\n".join([" | ".join(values), "|".join(["---"] * len(values)), *rows]), step)


def _short(value: np.ndarray) -> str:
    return f"{value:.3g}" if value.ndim == 0 else " ".join(f"{part:.3g}" for part in value.ravel()[:8])
