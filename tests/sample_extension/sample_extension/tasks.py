"""An output from outside: classes that stand in an order, such as small, middle and large, for images as for texts."""

from typing import Literal

import numpy as np
import tensorflow as tf

import quartet
from nlp.settings import TextClassification
from nlp.tasks.classification import TextTask
from vision.settings import ImageClassification
from vision.tasks.image_task import ImageTask


class Grades(quartet.Output):
    """Of k classes in their order the model says k - 1 times whether an example lies beyond one (Cheng et al. 2008, "A Neural Network
    Approach to Ordinal Regression"): logits [batch, k - 1]."""

    watch = ("off_by", "min")
    answers = quartet.Answers({"grade": "the class", "beyond": "the probability that it lies beyond each class but the last"})

    @property
    def width(self):
        return len(self.facts["classes"]) - 1

    def name_of(self, target):
        return self.facts["classes"][int(target)]

    def targets(self, examples, changes=None):
        return {"label": tf.cast(examples["label"], tf.int32)} if "label" in examples else {}

    def loss(self, outputs, targets, training):
        beyond = tf.cast(targets[:, None] > tf.range(self.width)[None], tf.float32)
        return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(beyond, tf.cast(outputs, tf.float32)), -1)

    def scores(self, outputs, targets):
        return {"off_by": tf.cast(tf.abs(self._grade(outputs > 0.0) - targets), tf.float32)}

    def respond(self, answers):
        beyond = tf.sigmoid(tf.cast(answers["answer"], tf.float32))
        return {"grade": tf.gather(tf.constant(self.facts["classes"]), self._grade(beyond > 0.5)), "beyond": beyond}

    def baseline(self, train, features):
        """The class that lies in the middle of train's."""
        middle = int(np.median(train.labels))
        always = tf.where(tf.range(self.width) < middle, 1.0, -1.0)
        return quartet.Baseline("the class in the middle", answer=lambda inputs: tf.tile(always[None], [tf.shape(inputs)[0], 1]))

    @staticmethod
    def _grade(beyond):
        return tf.reduce_sum(tf.cast(beyond, tf.int32), -1)


class GradedImages(ImageClassification):
    """One of some classes in an order per image."""

    task: Literal["sample.graded_images"]


class GradedTexts(TextClassification):
    """One of some classes in an order per text."""

    task: Literal["sample.graded_texts"]


@quartet.register_task(GradedImages)
class GradedImagesTask(ImageTask):
    output_class = Grades


@quartet.register_task(GradedTexts)
class GradedTextsTask(TextTask):
    output_class = Grades
