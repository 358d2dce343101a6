"""The cross-entropy of one label per example, the weight of each class in it, and the accuracy without a model."""

from collections.abc import Sequence

import tensorflow as tf

from pipelines.base.errors import ConfigError


def cross_entropy(outputs: tf.Tensor, targets: tf.Tensor, *, smoothing: float = 0.0) -> tf.Tensor:
    """Cross-entropy in nats, [batch] float32.

    Args:
        outputs: logits [batch, classes].
        targets: labels [batch] int32, or the share of each class [batch, classes] float32.
        smoothing: the share of the target that is spread over all classes (Szegedy et al. 2016).
    """
    logits = tf.cast(outputs, tf.float32)
    if targets.shape.rank == 1 and not smoothing:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    classes = logits.shape[-1]
    wanted = tf.one_hot(targets, classes) if targets.shape.rank == 1 else targets
    return tf.nn.softmax_cross_entropy_with_logits(wanted * (1.0 - smoothing) + smoothing / classes, logits)


def softened(outputs: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
    """Kullback-Leibler divergence of the softmax of outputs / temperature from the teacher's, times temperature squared, [batch] float32:
    so its gradients keep their size (Hinton et al. 2015).

    Args:
        outputs, teacher: logits [batch, classes].
    """
    ours, theirs = (tf.nn.log_softmax(tf.cast(logits, tf.float32) / temperature) for logits in (outputs, teacher))
    return temperature * temperature * tf.reduce_sum(tf.exp(theirs) * (theirs - ours), -1)


def class_weights(setting: str | dict[str, float], classes: list[str], counts: list[int]) -> list[float] | None:
    """Weight of each class in the training loss, or None where all are 1.

    Args:
        setting: `loss.class_weights`: none, balanced, or {class: weight}. `balanced` is n / (classes x count) (King and Zeng 2001, as
            scikit-learn computes it); a class that train lacks weighs 0.
        counts: examples of each class in train.

    Raises:
        ConfigError: a class that the data do not have.
    """
    if setting == "none":
        return None
    if isinstance(setting, dict):
        unknown = sorted(set(setting) - set(classes))
        if unknown:
            raise ConfigError(f"loss.class_weights: the data have no class {unknown[0]!r} (there are: {', '.join(classes)})")
        return [setting.get(name, 1.0) for name in classes]
    return [sum(counts) / (len(classes) * count) if count else 0.0 for count in counts]


def largest_share(counts: Sequence[int] | None) -> tuple[str, float] | None:
    """The accuracy without a model: the share of the largest class, of the examples of each; None where they are not known."""
    return ("accuracy", max(counts) / sum(counts)) if counts and sum(counts) else None
