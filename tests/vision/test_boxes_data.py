"""Boxes as people have them are read as what they mean, and what is wrong with them is named."""

import json
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from pipelines.base.errors import DataError
from tests.vision import boxed_pictures
from tests.vision.boxed_pictures import NAMES, made
from vision.data.boxes import coco, json_items, voc, yolo
from vision.data.boxes.open import open_boxes
from vision.data.boxes.pictures import Picture, sound
from vision.settings import BoxData


def opened(source, path, **settings):
    return open_boxes(BoxData(source=source, path=str(path), **settings))


def held(opened, split="all"):
    """name -> [(class, box)] of each picture of a split."""
    source = opened.load(split)
    found = {}
    for number in range(len(source)):
        classes = source.fields["classes"][number]
        boxes = source.fields["boxes"][number][classes >= 0]
        found[source.name(number).rpartition("/")[2]] = sorted(
            (opened.classes[label], *np.round(box, 2).tolist()) for label, box in zip(classes[classes >= 0], boxes))
    return found


def expected(pictures):
    return {one.name: sorted((label, *map(float, box)) for box, label in zip(one.boxes, one.labels)) for one in pictures}


@pytest.mark.parametrize("form", ["voc", "coco", "yolo", "labelme", "cvat", "table"])
def test_every_form_gives_the_same_boxes(form, tmp_path):
    pictures = made()
    found = opened(form, getattr(boxed_pictures, form)(pictures, tmp_path))
    assert sorted(found.classes) == sorted(NAMES)
    assert held(found) == expected(pictures)


def test_voc_has_the_splits_of_its_lists(tmp_path):
    pictures = made()
    parts = {"train": slice(0, 6), "val": slice(6, 8), "trainval": slice(0, 8), "test": slice(8, 12)}
    found = opened("voc", boxed_pictures.voc(pictures, tmp_path, **parts))
    assert found.names == ["test", "train", "val"]
    assert held(found, "val") == expected(pictures[6:8])


def test_voc_counts_pixels_from_0_where_one_is_0(tmp_path):
    boxed_pictures.voc(made(2), tmp_path)
    file = tmp_path / "Annotations" / "000.xml"
    file.write_text("<annotation><object><name>dark</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"
                    "</annotation>")
    found = opened("voc", tmp_path)
    assert held(found)["000.png"] == [("dark", 0.0, 0.0, 10.0, 10.0)] and any("from 0" in note for note in found.notes)


def test_difficult_objects_of_voc_are_left_out_and_counted(tmp_path):
    boxed_pictures.voc(made(2), tmp_path)
    file = tmp_path / "Annotations" / "000.xml"
    file.write_text(file.read_text().replace("<object>", "<object><difficult>1</difficult>", 1))
    found = opened("voc", tmp_path)
    assert len(held(found)["000.png"]) == len(made(2)[0].boxes) - 1 and any("1 objects" in note for note in found.notes)


def test_cvat_has_its_subsets_and_shapes_of_all_kinds(tmp_path):
    pictures = made(6)
    found = opened("cvat", boxed_pictures.cvat(pictures, tmp_path, ["Train"] * 4 + ["Validation", "Test"]))
    assert found.names == ["Test", "Train", "Validation"] and held(found, "Train") == expected(pictures[:4])
    shapes = ('<box label="a" xtl="20" ytl="20" xbr="40" ybr="30" rotation="90.0"/><polygon label="b" points="1,2;9,4.5;3,8"/>'
              '<ellipse label="c" cx="50" cy="30" rx="10" ry="5"/><mask label="d" rle="1" left="60" top="20" width="8" height="4"/>'
              '<points label="e" points="1,2"/>')
    file = tmp_path / "annotations.xml"
    file.write_text(f'<annotations><image id="0" name="000.png">{shapes}</image></annotations>')
    found = opened("cvat", tmp_path)
    assert held(found)["000.png"] == [("a", 25, 15, 35, 35), ("b", 1, 2, 9, 8), ("c", 40, 25, 60, 35), ("d", 60, 20, 68, 24)]
    assert any("points (1)" in note for note in found.notes)


@pytest.mark.parametrize(("content", "what"), [
    ('<!DOCTYPE a [<!ENTITY x "y">]><annotations/>', "document type"), ("<annotations><track id='0'/></annotations>", "CVAT for images"),
    ("<annotations><meta></meta></annotations>", "holds no XML"), ("<other/>", "no export of CVAT"),
    ("<annotations><image/></annotations>", "line 1: the image has no name"),
    ("<annotations>\n<image name='000.png'>\n<box label='a' xtl='1'/></image></annotations>", "line 3: the box has no 'ytl'"),
    ("<annotations><image name='000.png'><polygon label='a' points='1,2;x,3'/></image></annotations>", "a number of it is none")])
def test_what_is_no_export_of_cvat(content, what, tmp_path):
    boxed_pictures.cvat(made(1), tmp_path)
    (tmp_path / "annotations.xml").write_text(content)
    with pytest.raises(DataError, match=what):
        opened("cvat", tmp_path / "annotations.xml")


def test_shapes_of_labelme(tmp_path):
    boxed_pictures.labelme(made(2), tmp_path)
    file = tmp_path / "labels" / "000.json"
    about = json.loads(file.read_text())
    about["shapes"] = [{"label": "a", "points": [[1, 2], [9, 4.5], [3, 8]], "shape_type": "polygon"},
                       {"label": "b", "points": [[50, 30], [53, 34]], "shape_type": "circle"},
                       {"label": "c", "points": [[1, 2], [3, 4]], "shape_type": "line"}]
    file.write_text(json.dumps(about))
    found = opened("labelme", tmp_path)
    assert held(found)["000.png"] == [("a", 1, 2, 9, 8), ("b", 45, 25, 55, 35)] and any("line (1)" in note for note in found.notes)


@pytest.mark.parametrize(("content", "what"), [
    ('{"imagePath": "", "shapes": [', "no JSON of LabelMe"), ('{"shapes": 3, "imagePath": ""}', "no list `shapes`"),
    ('{"imagePath": "000.png", "shapes": [3]}', "shape 1"),
    ('{"imagePath": "000.png", "shapes": [{"points": [[1, 2], [3, 4]]}]}', "shape 1: its points"),
    ('{"imagePath": "000.png", "shapes": [{"points": [[1, 2], [3, "x"], [1, 1]], "label": "a"}]}', "shape 1"),
    ('{"imagePath": "000.png", "shapes": [{"points": [[1, 2], [3, 4]], "shape_type": "rectangle"}]}', "shape 1: has no 'label'")])
def test_what_is_no_json_of_labelme(content, what, tmp_path):
    boxed_pictures.labelme(made(2), tmp_path)
    (tmp_path / "labels" / "000.json").write_text(content)
    with pytest.raises(DataError, match=what):
        opened("labelme", tmp_path)


@pytest.mark.parametrize(("content", "what"), [
    ('<!DOCTYPE a [<!ENTITY x "y">]><annotation/>', "document type"), ("<annotation><object></annotation>", "line 1: no XML"),
    ("<annotation>\n<object><name>a</name></object></annotation>", "line 2: the object has no xmin"),
    ("<annotation><object><name>a</name><bndbox><xmin>a</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></object></annotation>",
     "no number"), ("<a>" * 30, "deeper")])
def test_xml_that_is_no_annotation(content, what, tmp_path):
    (tmp_path / "a.xml").write_text(content)
    with pytest.raises(DataError, match=what):
        voc.parse(tmp_path / "a.xml")


@pytest.mark.parametrize(("box", "what"), [
    ([10, 10, 10, 20], "empty"), ([20, 10, 10, 20], "flipped"), ([np.nan, 0, 1, 1], "NaN"), ([90, 0, 120, 20], "outside"),
    ([200, 200, 220, 220], "outside")])
def test_a_bad_box_stops_or_is_left_out_and_counted(box, what, tmp_path):
    path = boxed_pictures.table(made(), tmp_path)
    path.write_text(path.read_text() + f"001.png,{','.join(map(str, box))},dark\n")
    line = len(path.read_text().splitlines())
    with pytest.raises(DataError, match=rf"boxes.csv: line {line} \(dark at .*{what}"):
        opened("table", path)
    found = opened("table", path, on_bad_example="skip")
    assert held(found) == expected(made()) and len(found.skipped) == 1 and any("left out: 1 of" in note for note in found.notes)


def test_a_box_that_ends_a_little_beyond_the_border_is_cut_there():
    boxes, kept, reasons = sound(Picture("a.png", [[90, 50, 98, 70], [0, 0, 96, 64]], ["a", "a"], ["line 1", "line 2"], "a.csv"), (64, 96))
    assert boxes.tolist() == [[90, 50, 96, 64], [0, 0, 96, 64]] and kept.all() and not reasons


@pytest.mark.parametrize("header", [
    "path,x1,y1,x2,y2,class", "image_id,xmin,ymin,xmax,ymax,LabelName", "", "filename,Left,Top,Right,Bottom,name"])
def test_columns_by_their_usual_names(header, tmp_path):
    pictures = made()
    assert held(opened("table", boxed_pictures.table(pictures, tmp_path, header))) == expected(pictures)


def test_other_orders_of_columns_sizes_shares_and_empty_rows(tmp_path):
    pictures = made(3)
    boxed_pictures.table(pictures, tmp_path)
    pictures[2].boxes, pictures[2].labels = [], []
    forms = {
        "label,split,width,height,x,y,file": lambda one, b, s: f"{one},train,{b[2] - b[0]},{b[3] - b[1]},{b[0]},{b[1]}",
        "class,set,xcenter,ycenter,w,h,file": lambda one, b, s: ",".join(
            [one, "train", *(str(v) for v in ((b[0] + b[2]) / 192, (b[1] + b[3]) / 128, (b[2] - b[0]) / 96, (b[3] - b[1]) / 64))]),
        "class,split,bbox,file": lambda one, b, s: f'{one},train,"[{b[0]}, {b[1]}, {b[2] - b[0]}, {b[3] - b[1]}]"'}
    for header, row in forms.items():
        rows = [f"{row(label, box, one.size)},{one.name}" for one in pictures for box, label in zip(one.boxes, one.labels)]
        rows.append(",train" + "," * (header.count(",") - 1) + pictures[2].name)
        (tmp_path / "boxes.csv").write_text("\n".join([header, *rows]))
        assert held(opened("table", tmp_path / "boxes.csv"), "train") == expected(pictures), header


def test_a_table_without_the_columns_says_what_is_missing(tmp_path):
    (tmp_path / "a.csv").write_text("file,x0,y0,label\na.png,1,2,b\n")
    with pytest.raises(DataError, match="no column is called like the box"):
        opened("table", tmp_path / "a.csv")


def test_pictures_turned_by_exif_have_their_boxes_upright(tmp_path):
    (tmp_path / "a.csv").write_text("file,x0,y0,x1,y1,label\na.jpg,5,70,20,90,b\n")
    turned = Image.fromarray(np.zeros((64, 96, 3), np.uint8))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "a.jpg", exif=exif)
    assert held(opened("table", tmp_path / "a.csv")) == {"a.jpg": [("b", 5.0, 70.0, 20.0, 90.0)]}  # 96 px high, 64 wide


def test_coco_with_crowds_polygons_and_annotations_that_are_wrong(tmp_path):
    pictures = made(2)
    boxed_pictures.coco(pictures, tmp_path)
    file = tmp_path / "instances_all.json"
    content = json.loads(file.read_text())
    content["annotations"] += [
        {"id": 90, "image_id": 0, "category_id": 10, "iscrowd": 1, "bbox": [0, 0, 9, 9], "segmentation": {"counts": [1], "size": [1, 1]}},
        {"id": 91, "image_id": 0, "category_id": 10, "segmentation": [[1, 2, 11, 2, 11, 32], [3, 3, 4, 35, 5, 5]]},
        {"id": 92, "image_id": 1, "category_id": 77, "bbox": [1, 1, 9, 9]}, {"id": 93, "image_id": 1, "category_id": 10}]
    file.write_text(json.dumps(content, indent=1))
    with pytest.raises(DataError, match="id 93: has no bbox"):
        opened("coco", tmp_path)
    found = opened("coco", tmp_path, on_bad_example="skip", most_skipped=0.9)
    pictures[0].boxes.append((1, 2, 11, 35))
    pictures[0].labels.append("bright")
    assert held(found) == expected(pictures)
    assert any("1 annotations of crowds" in note for note in found.notes)
    assert any("annotation 92: there is no category 77" in reason for reason in found.skipped)


def test_numbers_of_coco_that_are_too_large_and_ids_that_are_texts(tmp_path):
    pictures = made(2)
    boxed_pictures.coco(pictures, tmp_path)
    file = tmp_path / "instances_all.json"
    content = json.loads(file.read_text())
    content["annotations"] = [{**content["annotations"][0], "category_id": 10**30, "bbox": [1, 1, 5, 5]},
                              *({**one, "id": f"box-{number}"} for number, one in enumerate(content["annotations"]))]
    content["annotations"][-1]["id"] = 10**30
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"there is no category {10**30}"):
        opened("coco", tmp_path)
    assert held(opened("coco", tmp_path, on_bad_example="skip", most_skipped=0.9)) == expected(pictures)


def test_coco_splits_by_the_names_of_files(tmp_path):
    for name, count in (("train2017", 3), ("val2017", 2)):
        boxed_pictures.coco(made(count), tmp_path / "rest")
        (tmp_path / "annotations").mkdir(exist_ok=True)
        (tmp_path / "rest" / "instances_all.json").rename(tmp_path / "annotations" / f"instances_{name}.json")
        (tmp_path / "rest" / "images").rename(tmp_path / name)
    found = opened("coco", tmp_path)
    assert sorted(found.names) == ["train", "val"] and held(found, "val") == expected(made(2))
    assert all("val2017" in path for path in found.load("val").paths)


@pytest.mark.parametrize("content", ["", "[1, 2]", '{"images": [{"id": 1}', '{"images": [{"id": 1},,]}', '{"a": ' + "[" * 5000])
def test_json_that_is_no_object_of_lists(content, tmp_path):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match="no JSON object at character"):
        list(json_items.items(tmp_path / "a.json"))


def test_large_json_is_read_in_pieces(tmp_path):
    file = tmp_path / "a.json"
    with file.open("w") as out:
        out.write('{"info": {"a": [1, {"b": null}]}, "annotations": [')
        out.write(",\n".join(json.dumps({"id": number, "bbox": [0.5] * 40}) for number in range(60_000)))
        out.write('], "numbers": [1, 22, 333]}')
    tracemalloc.start()
    count = sum(1 for name, _ in json_items.items(file) if name == "annotations")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 60_000 and peak < file.stat().st_size
    assert [value for name, value in json_items.items(file) if name == "numbers"] == [1, 22, 333]


def test_yolo_polygons_and_lines_that_are_wrong(tmp_path):
    assert yolo.parse("1 0.1 0.2 0.3 0.2 0.3 0.6", list(NAMES)) == ("dark", pytest.approx((0.1, 0.2, 0.3, 0.6)))
    for line, what in (("2 .5 .5 .1 .1", "no class number"), ("0 .5 .5 .1", "3 numbers"), ("0 a .5 .1 .1", "no number"),
                       ("x 1 1 1 1", "class")):
        with pytest.raises(ValueError, match=what):
            yolo.parse(line, list(NAMES))
    pictures = made()
    boxed_pictures.yolo(pictures, tmp_path)
    (tmp_path / "labels" / "003.txt").unlink()  # a picture without boxes
    pictures[3].boxes, pictures[3].labels = [], []
    assert held(opened("yolo", tmp_path)) == expected(pictures)


def test_the_readers_say_where_there_is_nothing(tmp_path):
    for form in ("voc", "coco", "yolo"):
        with pytest.raises(DataError, match=str(tmp_path)):
            opened(form, tmp_path)
    assert coco.annotations_below(tmp_path) == []
