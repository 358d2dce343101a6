"""The readers of boxes by the name of their form."""

from pathlib import Path

from pipelines.base.errors import DataError
from vision.data.boxes import coco, cvat, labelme, table, voc, yolo
from vision.data.boxes.pictures import Annotated
from vision.settings import BoxData

OUTLINED = {"coco": coco.read, "yolo": yolo.read, "labelme": labelme.read}


def read(data: BoxData, root: Path, *, outlines: bool = False) -> Annotated:
    """What lies at data.path, with the outlines of things or without. Raises DataError with file, line and remedy."""
    if not root.exists():
        raise DataError(f"{root} does not exist (data.path)")
    if data.source == "table":
        return table.read(root, data)
    if data.source in ("voc", "labelme") and not root.is_dir():
        raise DataError(f"{root}: source: {data.source} takes the folder of the annotations and pictures")
    if data.source in OUTLINED:
        return OUTLINED[data.source](root, outlines)
    return {"voc": voc.read, "cvat": cvat.read}[data.source](root)
