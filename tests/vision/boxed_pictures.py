"""Made pictures with boxes: bright and dark rectangles on grey, and their annotations in every form that is read."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

NAMES = ("bright", "dark")


@dataclass
class Made:
    """A picture: its file's name, height and width, boxes [n, 4] left, top, right and bottom, and their classes."""

    name: str
    size: tuple[int, int]
    boxes: list[tuple[int, int, int, int]]
    labels: list[str]


def made(count: int = 12, size: tuple[int, int] = (64, 96), most: int = 3, seed: int = 0) -> list[Made]:
    draw, pictures = np.random.default_rng(seed), []
    for number in range(count):
        boxes: list[tuple[int, int, int, int]] = []
        for _ in range(draw.integers(1, most + 1)):
            width, height = draw.integers(16, 33, 2)
            left, top = draw.integers(1, size[1] - width - 1), draw.integers(1, size[0] - height - 1)
            box = (int(left), int(top), int(left + width), int(top + height))
            if all(box[2] <= other[0] or box[0] >= other[2] or box[3] <= other[1] or box[1] >= other[3] for other in boxes):
                boxes.append(box)
        pictures.append(Made(f"{number:03d}.png", size, boxes, [NAMES[draw.integers(2)] for _ in boxes]))
    return pictures


def draw(picture: Made, file: Path) -> None:
    image = np.random.default_rng(len(picture.name)).integers(110, 146, (*picture.size, 3)).astype(np.uint8)
    for (left, top, right, bottom), label in zip(picture.boxes, picture.labels):
        image[top:bottom, left:right] = 230 if label == "bright" else 25
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(file)


def voc(pictures: list[Made], folder: Path, **splits: slice) -> Path:
    for one in pictures:
        draw(one, folder / "JPEGImages" / one.name)
        objects = "".join(f"<object>\n<name>{label}</name><bndbox><xmin>{box[0] + 1}</xmin><ymin>{box[1] + 1}</ymin><xmax>{box[2]}</xmax>"
                          f"<ymax>{box[3]}</ymax></bndbox></object>\n" for box, label in zip(one.boxes, one.labels))
        file = folder / "Annotations" / f"{Path(one.name).stem}.xml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"<annotation><filename>{one.name}</filename>\n{objects}</annotation>")
    for name, part in splits.items():
        lists = folder / "ImageSets" / "Main"
        lists.mkdir(parents=True, exist_ok=True)
        (lists / f"{name}.txt").write_text("\n".join(Path(one.name).stem for one in pictures[part]))
    return folder


def coco(pictures: list[Made], folder: Path) -> Path:
    annotations = []
    for number, one in enumerate(pictures):
        draw(one, folder / "images" / one.name)
        annotations += [{"image_id": number, "category_id": 10 + NAMES.index(label), "iscrowd": 0,
                         "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]]} for box, label in zip(one.boxes, one.labels)]
    content = {"annotations": [{**one, "id": number} for number, one in enumerate(annotations, 1)],
               "images": [{"id": number, "file_name": one.name} for number, one in enumerate(pictures)],
               "categories": [{"id": 10 + number, "name": name} for number, name in enumerate(NAMES)]}
    (folder / "instances_all.json").write_text(json.dumps(content))
    return folder


def yolo(pictures: list[Made], folder: Path) -> Path:
    for one in pictures:
        draw(one, folder / "images" / one.name)
        height, width = one.size
        lines = [f"{NAMES.index(label)} {(left + right) / 2 / width} {(top + bottom) / 2 / height} {(right - left) / width} "
                 f"{(bottom - top) / height}" for (left, top, right, bottom), label in zip(one.boxes, one.labels)]
        file = folder / "labels" / f"{Path(one.name).stem}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines))
    (folder / "data.yaml").write_text(f"names: [{', '.join(NAMES)}]\n")
    return folder


def labelme(pictures: list[Made], folder: Path) -> Path:
    for one in pictures:
        draw(one, folder / "images" / one.name)
        shapes = [{"label": label, "points": [[right, bottom], [left, top]], "shape_type": "rectangle"}
                  for (left, top, right, bottom), label in zip(one.boxes, one.labels)]
        file = folder / "labels" / f"{Path(one.name).stem}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"version": "5", "flags": {}, "shapes": shapes, "imagePath": f"..\\images\\{one.name}"}))
    return folder


def cvat(pictures: list[Made], folder: Path, subsets: list[str] | None = None) -> Path:
    lines = ["<annotations><version>1.1</version><meta></meta>"]
    for number, one in enumerate(pictures):
        draw(one, folder / "images" / one.name)
        lines.append(f'<image id="{number}" name="{one.name}"' + (f' subset="{subsets[number]}"' if subsets else "") + ">")
        lines += [f'<box label="{label}" xtl="{box[0]}" ytl="{box[1]}" xbr="{box[2]}" ybr="{box[3]}" occluded="0"></box>'
                  for box, label in zip(one.boxes, one.labels)]
        lines.append("</image>")
    (folder / "annotations.xml").write_text("\n".join([*lines, "</annotations>"]))
    return folder


def table(pictures: list[Made], folder: Path, header: str = "file,x0,y0,x1,y1,label") -> Path:
    rows = [header] if header else []
    for one in pictures:
        draw(one, folder / one.name)
        rows += [f"{one.name},{','.join(map(str, box))},{label}" for box, label in zip(one.boxes, one.labels)]
    (folder / "boxes.csv").write_text("\n".join(rows) + "\n")
    return folder / "boxes.csv"


def numbered(picture: Made) -> np.ndarray:
    """The number of the rectangle at each pixel, 0 where there is none."""
    numbers = np.zeros(picture.size, np.uint16)
    for number, (left, top, right, bottom) in enumerate(picture.boxes, 1):
        numbers[top:bottom, left:right] = number
    return numbers


def masks(pictures: list[Made], folder: Path) -> Path:
    """Pictures beside masks of 16 bits, whose values number the rectangles."""
    for one in pictures:
        draw(one, folder / "images" / one.name)
        file = folder / "masks" / one.name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(numbered(one)).save(file)
    return folder


def outlines(pictures: list[Made], folder: Path, source: str) -> Path:
    """The rectangles as polygons, in COCO's also as runs."""
    {"coco": coco, "yolo": yolo, "labelme": labelme}[source](pictures, folder)
    corners = [[(left, top), (right, top), (right, bottom), (left, bottom)] for one in pictures for left, top, right, bottom in one.boxes]
    if source == "coco":
        file = folder / "instances_all.json"
        content = json.loads(file.read_text())
        for one, polygon in zip(content["annotations"], corners):
            one["segmentation"] = [[value for point in polygon for value in point]]
            del one["bbox"]
        file.write_text(json.dumps(content))
    for one in pictures if source == "yolo" else ():
        height, width = one.size
        lines = [f"{NAMES.index(label)} {left / width} {top / height} {right / width} {top / height} {right / width} {bottom / height} "
                 f"{left / width} {bottom / height}" for (left, top, right, bottom), label in zip(one.boxes, one.labels)]
        (folder / "labels" / f"{Path(one.name).stem}.txt").write_text("\n".join(lines))
    return folder
