"""The readers of boxes by the name of their form."""

from pathlib import Path

from pipelines.base.errors import DataError
from vision.data.boxes import coco, cvat, labelme, table, voc, yolo
from vision.data.boxes.pictures import Annotated
from vision.settings import BoxData


def read(data: BoxData, root: Path) -> Annotated:
    """What lies at data.path. Raises DataError with file, line and remedy."""
    if not root.exists():
        raise DataError(f"{root} does not exist (data.path)")
    if data.source == "table":
        return table.read(root, data)
    if data.source in ("voc", "labelme") and not root.is_dir():
        raise DataError(f"{root}: source: {data.source} takes the folder of the annotations and pictures")
    return {"voc": voc.read, "coco": coco.read, "yolo": yolo.read, "labelme": labelme.read, "cvat": cvat.read}[data.source](root)
