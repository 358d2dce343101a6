"""The settings of data whose examples may have several labels, which domains share. Imports no TensorFlow."""

from typing import Any, ClassVar, Literal

from pipelines.config.schema import Section, setting


class LabelData(Section):
    """How many labels an example has."""

    of_one_label: ClassVar[tuple[str, ...]] = ()  # sources whose examples have one label each

    labels: Literal["one", "many"] = setting("one", "labels of an example: one, or many (none, one or several)")
    label_separator: str = setting(";", "labels: many in one column of texts: their separator", min_length=1)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        source = getattr(self, "source", None)
        if self.labels == "many" and source in self.of_one_label:
            found.append(("labels", f"many: with source: {source} an example has one label; name examples and labels in a table"))
        return found


def problems_of_labels(experiment: Any) -> list[tuple[str, str]]:
    """What does not go together with several labels an example, as (setting, why and what to do)."""
    if experiment.data.labels == "one":
        return []
    found = []
    if experiment.loss.label_smoothing:
        found.append(("loss.label_smoothing", "it is for labels: one; leave it out"))
    for name in ("blend", "names"):
        if getattr(experiment.model, name, None) is not None:
            found.append((f"model.{name}", "its answers are one class each; leave it out with labels: many"))
    return found
