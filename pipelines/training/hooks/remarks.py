"""What a person is warned of during a training, once each, and kept for the report."""

from collections.abc import Callable
from typing import Any

from pipelines.base.stored import Record, Text
from pipelines.training.loop import Hook, Loop


class WarnOfWaiting(Hook):
    """Warns once when the device waits for input for more than the share allowed, and the remedy."""

    ENOUGH = 30.0  # s of steps measured after which the share is judged within an epoch

    def __init__(self, limit: float, say: Callable[[str], None], remedy: str):
        self.limit, self.say, self.remedy, self.given = limit, say, remedy, False

    def on_steps(self, loop: Loop) -> None:
        if loop.meter.seconds["input"] + loop.meter.seconds["step"] >= self.ENOUGH:
            self.on_epoch(loop)

    def on_epoch(self, loop: Loop) -> None:
        share = loop.meter.input_wait_fraction
        if share > self.limit and not self.given:
            self.given = True
            self.say(f"{share:.0%} of the time goes into waiting for input. {self.remedy}")


class Remarks(Hook):
    """Gives each of the task's remarks on an epoch once."""

    def __init__(self, remark: Callable[[dict[str, float]], str | None], say: Callable[[str], None]):
        self.remark, self.say = remark, say
        self.given: set[str] = set()

    def on_epoch(self, loop: Loop) -> None:
        text = self.remark(loop.epoch_metrics)
        if text and text not in self.given:
            self.given.add(text)
            self.say(f"Epoch {loop.epoch}: {text}")


class Warnings(Hook):
    """The warnings of a training, which its report begins with: those given before an interruption, too."""

    name = "warnings"

    class Kept(Record):
        texts: list[Text]

    def __init__(self) -> None:
        self.texts: list[str] = []

    def state(self) -> dict[str, Any]:
        return {"texts": self.texts}

    def restore(self, state: dict[str, Any]) -> None:
        self.texts = [*state["texts"], *(text for text in self.texts if text not in state["texts"])]
