"""The settings of private training, and what in an experiment would break its guarantee. Imports no TensorFlow."""

from pipelines.config.schema import Experiment, Section, setting


class Privacy(Section):
    """Differential privacy by DP-SGD (Abadi et al. 2016): each example's gradient is clipped, and noise is added to the sum of a batch.

    train.batch_size is then the mean size of a batch: every example is in it with the probability batch_size / examples, by itself.
    """

    epsilon: float | None = setting(
        None, "the most that the run may spend: without `noise`, the least noise that keeps it over all epochs is taken; with it, training "
        "stops before more is spent", gt=0.0)
    noise: float | None = setting(
        None, "standard deviation of the noise in the sum of a batch, as a multiple of `clip`; default: what `epsilon` needs", gt=0.0)
    clip: float = setting(1.0, "largest L2 norm of an example's gradient, over all weights", gt=0.0)
    delta: float = setting(1e-5, "the probability with which `epsilon` may not hold; well below 1 / training examples", gt=0.0, lt=1.0)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.epsilon is None and self.noise is None:
            found.append(("epsilon", "say how much may be spent (epsilon: 3), or how much noise there is (noise: 1.1)"))
        return found


class Private(Section):
    """What private training adds to `train`."""

    protects_examples = True

    privacy: Privacy | None = setting(None, "differential privacy for each training example (extra `privacy`)")

    def conflicts(self, experiment: Experiment) -> list[tuple[str, str]]:
        train, data, found = experiment.train, experiment.data, super().conflicts(experiment)
        if self.privacy is None:
            return found
        if any((train.clip.global_norm, train.clip.norm, train.clip.value)):
            found.append(("train.clip", "with train.privacy each example's gradient is clipped; set train.privacy.clip alone"))
        if train.teacher:
            found.append(("train.teacher", "what the teacher knows of the training data would reach the student, and train.privacy does "
                                           "not count it"))
        if train.start:
            found.append(("train.start", "what those weights know of the training data, train.privacy does not count"))
        if train.keep_state:
            found.append(("train.keep_state", "the state holds the key of the noise: whoever has it can take the noise away"))
        if train.precision == "float16":
            found.append(("train.precision", "float16 scales the loss by what the gradients were; with train.privacy take float32 or "
                                             "bfloat16"))
        if getattr(data, "streaming", False):
            found.append(("data.streaming", "train.privacy draws each batch from all examples by number, which a stream cannot give"))
        if getattr(getattr(experiment, "loss", None), "class_weights", None) == "balanced":
            found.append(("loss.class_weights", "balanced counts the classes of the training data, which train.privacy does not cover; "
                                                "give {class: weight}"))
        if experiment.seeds > 1:
            found.append(("seeds", "each run spends train.privacy's epsilon on the same data anew; train once"))
        head = getattr(getattr(getattr(experiment, "model", None), "finetune", None), "head", None)
        if head in ("linear", "fitted"):
            found.append(("model.finetune.head", f"{head} is fitted to the training data without noise; with train.privacy set "
                                                 "head: trained or new"))
        return found
