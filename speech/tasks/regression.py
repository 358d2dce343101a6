"""speech.regression: one or several numbers per recording."""

from pipelines.data.source import Tensors
from pipelines.outputs.numbers import Numbers
from speech.data.facts import SoundNumberFacts
from speech.settings import SoundRegression
from speech.tasks.classification import WindowTask


class Regression(WindowTask):
    """speech.regression. Facts: those of `Windows` and `Numbers`."""

    output_class = Numbers
    facts_schema = SoundNumberFacts
    output: Numbers
    experiment: SoundRegression

    def facts_error(self) -> str | None:
        return self.input.features_error()

    def written(self, answers: Tensors) -> list[str]:
        return [self.output.name_of(row) for row in self.output.scales.numbers(answers["value"]).numpy()]
