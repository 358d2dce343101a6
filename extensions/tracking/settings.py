"""The settings of a tracked run, within `monitor`. Imports no TensorFlow."""

from typing import Literal

from pipelines.config.section import Section, setting


class Track(Section):
    """A tracker of experiments to which a run is sent."""

    track: Literal["mlflow", "wandb"] | None = setting(
        None, "send settings, metrics and the report to MLflow or Weights & Biases, by a process beside the training (extras `mlflow`, "
        "`wandb`); where and as whom say their own environment variables: MLFLOW_TRACKING_URI, WANDB_API_KEY, ...")
    track_server: str | None = setting(
        None, "the tracker's address, such as https://mlflow.example.org or sqlite:///runs/mlflow.db; default: as its environment says")
    track_files: bool = setting(True, "the report goes there, too, with the examples that it shows, and settings and environment")
    track_seconds: float = setting(30.0, "how long the end of a run waits for the tracker at most", unit="s", gt=0.0, le=3600.0)

    def problems(self) -> list[tuple[str, str]]:
        found, server = super().problems(), self.track_server or ""
        if "@" in server.partition("://")[2].partition("/")[0]:
            found.append(("track_server", "holds a name or a password, which every copy of the run would show; give them by "
                          "MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD or WANDB_API_KEY"))
        return found
