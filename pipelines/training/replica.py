"""One replica within `strategy.run`: its number and its own copies of variables, read and written without the other replicas."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from pipelines.machine.devices import Machine


class Replica:
    """The replica that is being traced. `number` is its number among those of all hosts, `place` among those of its own."""

    def __init__(self, machine: Machine):
        self.strategy = machine.strategy
        self.context = tf.distribute.get_replica_context()
        self.number = int(tf.get_static_value(self.context.replica_id_in_sync_group))
        self.place = self.number - machine.own.start

    def own(self, values: Any) -> Any:
        """This replica's of the values that a strategy distributes."""
        return self.strategy.experimental_local_results(values)[self.place]

    def copy(self, variable: keras.Variable) -> tf.Variable:
        return self.own(variable.value)

    def values(self, variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
        return [tf.convert_to_tensor(self.copy(variable)) for variable in variables]
