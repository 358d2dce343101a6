"""Standard Keras callbacks in the loop, resumed with what they had counted."""

import inspect
import math
from typing import Any

import keras
import numpy as np

from pipelines.base.formatting import better
from pipelines.base.stored import Record
from pipelines.config.train_settings import Train
from pipelines.training.loop import Hook, Loop

BATCH_METHODS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


class KerasCallbacks(Hook):
    """Calls keras.callbacks.Callback objects as `fit` does: train, epoch and batch methods (not those of evaluate and predict).

    A callback is resumed by its own `get_state` (JSON values) and `set_state`; one without them by its public attributes that hold
    plain values or lists of arrays, changed since training began and named by no constructor argument (what EarlyStopping counts).
    Batch methods are called after every step, which holds K at 1. `model.optimizer.learning_rate` is a factor on the schedule
    (1.0 at first), so that ReduceLROnPlateau works; `model.stop_training` is honoured after a batch and after an epoch.
    """

    name = "callbacks"

    class Kept(Record):
        callbacks: list[Any]

    def __init__(self, callbacks: list[keras.callbacks.Callback], model: keras.Model, train: Train, steps_per_epoch: int):
        self.callbacks, self.model = callbacks, model
        self.batches = any(_overrides(callback, name) for callback in callbacks for name in BATCH_METHODS)
        for callback in callbacks:
            callback.set_params({"epochs": train.epochs, "steps": steps_per_epoch, "verbose": 0})
            callback.set_model(model)
            if getattr(callback, "mode", "") == "auto" and hasattr(callback, "monitor_op"):  # Keras asks a compiled model's metrics
                callback.mode = better(callback.monitor.removeprefix("val_")) or "auto"
        self._fresh: list[dict[str, Any]] = [{} for _ in callbacks]  # attributes as on_train_begin left them
        self._saved: list[Any] = [None for _ in callbacks]
        self._saved_arrays: dict[str, np.ndarray] = {}
        self._epoch_open = -1

    def state(self) -> dict[str, Any]:
        return {"callbacks": [callback.get_state() if hasattr(callback, "get_state") else self._changed(place)
                              for place, callback in enumerate(self.callbacks)]}

    def restore(self, state: dict[str, Any]) -> None:
        self._saved = state["callbacks"]

    def arrays(self) -> dict[str, np.ndarray]:
        return {f"{place}/{name}/{number:04d}": value for place, callback in enumerate(self.callbacks) if not hasattr(callback, "get_state")
                for name, values in _public(callback).items() if _is_arrays(values) for number, value in enumerate(values)}

    def restore_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        self._saved_arrays = arrays

    def next_stop(self, loop: Loop) -> int | None:
        if loop.epoch != self._epoch_open:
            self._epoch_open = loop.epoch
            self._each("on_epoch_begin", loop.epoch, {})
        if self.batches:
            self._each("on_train_batch_begin", loop.step % loop.plan.steps_per_epoch, {})
            return loop.step + 1
        return None

    def on_start(self, loop: Loop) -> None:
        self.model.stop_training = False
        self._each("on_train_begin", {})
        self._fresh = [_plain(callback) for callback in self.callbacks]
        for place, (callback, saved) in enumerate(zip(self.callbacks, self._saved)):
            if hasattr(callback, "set_state"):
                if saved is not None:
                    callback.set_state(saved)
                continue
            for name, value in (saved if isinstance(saved, dict) else {}).items():
                if _settable(callback, name):
                    setattr(callback, name, value)
            for name in dict.fromkeys(key.split("/")[1] for key in self._saved_arrays if key.startswith(f"{place}/")):
                keys = sorted(key for key in self._saved_arrays if key.startswith(f"{place}/{name}/"))
                if _settable(callback, name):
                    setattr(callback, name, [self._saved_arrays[key] for key in keys])

    def on_steps(self, loop: Loop) -> None:
        if self.batches:
            self._each("on_train_batch_end", (loop.step - 1) % loop.plan.steps_per_epoch, loop.train_metrics())
            self._heed(loop)

    def on_epoch(self, loop: Loop) -> None:
        with loop.meter.part("callbacks"):
            logs = {name.removeprefix("train/").replace("validation/", "val_"): value for name, value in loop.epoch_metrics.items()}
            self._each("on_epoch_end", max(0, loop.epoch - 1), logs)
        self._heed(loop)

    def on_end(self, loop: Loop) -> None:
        self._each("on_train_end", {})

    def _heed(self, loop: Loop) -> None:
        if self.model.stop_training:
            loop.stopping = loop.stopping or "a callback set model.stop_training"

    def _changed(self, place: int) -> dict[str, Any]:
        return {name: value for name, value in _plain(self.callbacks[place]).items()
                if name not in self._fresh[place] or self._fresh[place][name] != value}

    def _each(self, method: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, method)(*arguments)


def _overrides(callback: keras.callbacks.Callback, name: str) -> bool:
    """Whether a callback has a method of its own; LambdaCallback sets them on the object."""
    return name in vars(callback) or getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name)


def _public(callback: keras.callbacks.Callback) -> dict[str, Any]:
    settings = {*inspect.signature(type(callback).__init__).parameters, "params", "model"}
    return {name: value for name, value in vars(callback).items() if not name.startswith("_") and name not in settings}


def _settable(callback: keras.callbacks.Callback, name: str) -> bool:
    """Whether a checkpoint may set an attribute: not a method, nor what the person gave."""
    settings = {*inspect.signature(type(callback).__init__).parameters, "params", "model"}
    return name.isidentifier() and not name.startswith("_") and name not in settings and (
        not callable(getattr(type(callback), name, None)))


def _plain(callback: keras.callbacks.Callback) -> dict[str, Any]:
    """Public attributes with JSON values."""
    values = {name: value.item() if isinstance(value, np.generic) else value for name, value in _public(callback).items()}
    return {name: value for name, value in values.items()
            if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))}


def _is_arrays(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(one, np.ndarray) for one in value)
