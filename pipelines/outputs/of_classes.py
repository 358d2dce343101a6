"""What outputs share whose facts name classes."""

from pipelines.task.contract import Output


class OfClasses(Output):
    """Facts: `classes`, their names by number."""

    @property
    def classes(self) -> list[str]:
        """Names of what is told apart, by number."""
        classes: list[str] = self.facts["classes"]
        return classes
