"""A transform with a state: a moving average of gradients."""

import keras

import quartet
from sample_extension import Smooth


class Smoothed(quartet.Transform):
    """Each gradient becomes its mean with those before."""

    @classmethod
    def applies(cls, experiment):
        return experiment.train.added(Smooth).smooth > 0.0

    def build(self, weights):
        self.variables = [keras.Variable("zeros", shape=weight.shape, trainable=False, name="smoothed") for weight in weights]

    def update(self, change, state):
        share = self.experiment.train.added(Smooth).smooth
        mixed = [share * before + (1.0 - share) * gradient for before, gradient in zip(state, change.gradients)]
        return change._replace(gradients=mixed), mixed
