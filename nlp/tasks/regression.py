"""nlp.regression: one or several numbers per text."""

import keras

from nlp import tokens
from nlp.data.facts import TextNumberFacts
from nlp.metrics import baseline
from nlp.settings import Linear, TextRegression
from nlp.tasks.classification import SCORED, TextTask
from pipelines.data.number_columns import TARGET
from pipelines.data.source import Source
from pipelines.fitting.folds import fitting_part
from pipelines.outputs.numbers import Numbers
from pipelines.task.contract import Features
from pipelines.task.results import Baseline


class TextNumbers(Numbers):
    """Numbers with ridge regression on tf-idf beside them."""

    experiment: TextRegression

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return None if isinstance(self.experiment.model, Linear) else baseline.fit_numbers(train, self)


class Regression(TextTask):
    """nlp.regression. Facts: `targets`, `intervals`, and those of tokens (see nlp.data.number_splits)."""

    output_class = TextNumbers
    facts_schema = TextNumberFacts
    output: TextNumbers
    experiment: TextRegression

    def fit_at_once(self, model: keras.Model, train: Source, features: Features) -> str | None:
        if not isinstance(self.experiment.model, Linear):
            return None
        from nlp.models import linear, ridge

        some, tokenizer = fitting_part(train, SCORED), self.input.tokenizer
        parts = ((ids, self.output.fitted_to({TARGET: numbers})) for ids, numbers in tokens.cut_labelled(some, tokenizer, TARGET))
        fitted = ridge.fit(parts, tokenizer, groups=some.groups, seed=self.experiment.train.seed)
        linear.put(model, fitted)
        return f"Ridge regression on tf-idf features: {fitted.how}."
