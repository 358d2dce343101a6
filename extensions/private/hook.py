"""A private training: what each epoch has spent, and the end where no more may be."""

from extensions.private.accounting import Accountant
from pipelines.training.loop import Hook, Loop


class PrivacySpent(Hook):
    """Puts `train/epsilon` beside an epoch's metrics; ends the training after the last epoch that may be paid for."""

    def __init__(self, accountant: Accountant):
        self.accountant = accountant

    def on_epoch(self, loop: Loop) -> None:
        spent = self.accountant.epsilon(loop.step)
        loop.epoch_metrics["train/epsilon"] = spent
        if self.accountant.steps <= loop.step < loop.steps and not loop.stopping:
            loop.stopping = f"epsilon {spent:.3g} is spent, and another epoch would spend more than train.privacy.epsilon allows"
