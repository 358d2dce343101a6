"""One replica within `strategy.run`: its number and its own copies of variables, read and written without the other replicas."""

from collections.abc import Sequence

import keras
import tensorflow as tf


class Replica:
    """The replica that is being traced."""

    def __init__(self, strategy: tf.distribute.Strategy):
        self.strategy = strategy
        self.context = tf.distribute.get_replica_context()
        self.number = int(tf.get_static_value(self.context.replica_id_in_sync_group))

    def copy(self, variable: keras.Variable) -> tf.Variable:
        return self.strategy.experimental_local_results(variable.value)[self.number]

    def values(self, variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
        return [tf.convert_to_tensor(self.copy(variable)) for variable in variables]
