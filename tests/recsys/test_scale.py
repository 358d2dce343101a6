"""The scale of ratings does not matter: stars, -10 to 10, or percent."""

import numpy as np
import pytest

from pipelines.config.load import from_dict
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from recsys.tasks.ranking import RankingTask
from tests.recsys.small_tables import table

pytestmark = pytest.mark.slow


def test_ratings_of_another_scale_are_predicted_alike(tmp_path):
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    rows = [(user, item, int(rng.integers(1, 6))) for user in range(40) for item in rng.permutation(30)[:15]]
    predicted = []
    for name, times, plus in (("stars", 1.0, 0.0), ("points", 8.0, -30.0)):
        text = "user,item,rating\n" + "".join(f"{user},{item},{times * stars + plus}\n" for user, item, stars in rows)
        experiment = from_dict({
            "task": "recsys.ranking",
            "data": {"source": "table", "path": str(table(tmp_path, text, f"{name}.csv")), "rating_key": "rating"},
            "model": {"name": "dcn", "width": 4, "hidden": [8], "history": 10},
            "train": {"epochs": 2, "batch_size": 32, "devices": "cpu", "precision": "float32", "learning_rate": {"peak": 0.01}},
            "evaluate": {"bootstrap": 100, "baseline": False}, "monitor": {"tensorboard": False},
        }, [], check_paths=False)
        folder = RunFolder(tmp_path / name)
        train(experiment, folder, Call(f"recsys/{name}", RankingTask, quiet=True))
        said = pq.read_table(folder.report / "predictions.parquet")
        predicted.append((np.array(said["prediction"].to_pylist()) - plus) / times)
    assert np.std(predicted[0]) > 0.05
    np.testing.assert_allclose(predicted[1], predicted[0], atol=1e-3)
