"""Named pipes, devices and links to devices in the place of files: nothing waits for them, and each is named.

What waits at a pipe waits for ever: pytest ends the process then (faulthandler_timeout in pyproject.toml).
"""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

import quartet
from nlp.data.requests import read_texts
from nlp.settings import TextData
from pipelines.base.errors import ConfigError, DataError
from pipelines.base.files import write_json
from pipelines.base.inside import all_below, refuse_links
from pipelines.commands.main import app
from pipelines.config.draft import new
from pipelines.config.load import from_dict, load
from pipelines.data.arrays import read_npz
from pipelines.data.folders import read_folders
from pipelines.data.tables import read_table
from pipelines.data.walk import PassedOver, files_below
from pipelines.encoders.presets import find
from pipelines.runs.listing import size_of
from speech.data import audio
from speech.data.augment import read_noise
from speech.data.manifests import find_recordings
from speech.settings import CommandData
from tests.hostile.files import endless, fifo
from tests.speech.synthetic_recordings import class_folders
from tests.vision.synthetic_images import folder
from vision.data.files import find_images

SPECIAL = {"a named pipe": fifo, "a device": endless}
special = pytest.mark.parametrize("kind", SPECIAL)


def images(root: Path) -> Path:
    return folder(root, {"cat": 6, "dog": 6})


def sounds(root: Path) -> Path:
    return class_folders(root, {"yes": 6, "no": 6})


@special
def test_folders_of_classes(kind, tmp_path):
    path = SPECIAL[kind](images(tmp_path / "data") / "cat" / "x.png")
    found = read_folders(tmp_path / "data", key="image", suffixes={".png"}, kind="image")
    assert len(found.splits["all"]) == 12 and f"{path} is {kind}, which is not read" in found.notes
    with pytest.raises(DataError, match=f"cat/x.png is {kind}"):
        new("vision", tmp_path / "data")
    notes: list[str] = []
    assert len(list(find_images([str(tmp_path / "data")], notes.append))) == 12 and kind in notes[0]
    loose = SPECIAL[kind](tmp_path / "data" / "y.png")
    assert f"{loose} is {kind}, which is not read" in read_folders(tmp_path / "data", key="image", suffixes={".png"}, kind="image").notes


@special
def test_recordings(kind, tmp_path):
    path = SPECIAL[kind](sounds(tmp_path / "data") / "yes" / "x.wav")
    for read in (audio.header, lambda path: audio.read(path, 8000)):
        with pytest.raises(DataError, match=f"is {kind}; only regular"):
            read(path)
    for walk in (lambda: new("speech", tmp_path / "data"), lambda: read_noise(str(tmp_path / "data"), 8000),
                 lambda: list(find_recordings([str(tmp_path / "data")], CommandData(source="folder", path=str(tmp_path))))):
        with pytest.raises(DataError, match=f"x.wav is {kind}"):
            walk()


@special
@pytest.mark.parametrize("domain, name", [("vision", "t.csv"), ("speech", "t.csv"), ("nlp", "t.csv"), ("recsys", "t.jsonl"),
                                          ("vision", "t.npz"), ("nlp", "t.parquet")])
def test_new_of_a_table(kind, domain, name, tmp_path):
    with pytest.raises(DataError, match=f"{name} is {kind}"):
        new(domain, SPECIAL[kind](tmp_path / name))


@special
def test_tables_arrays_and_texts(kind, tmp_path):
    table, arrays = SPECIAL[kind](tmp_path / "t.csv"), SPECIAL[kind](tmp_path / "t.npz")
    with pytest.raises(DataError, match=f"t.csv is {kind}"):
        read_table(table)
    with pytest.raises(DataError, match=f"t.npz is {kind}"):
        read_npz(arrays, {"image": "image"}, {}, settings={"image": "data.image_key"})
    (name, error, *_), = read_texts([str(table)], TextData(source="table", path="x"))
    assert name == str(table) and f"is {kind}" in str(error)


@special
def test_experiments_and_the_paths_in_them(kind, tmp_path):
    path = SPECIAL[kind](tmp_path / "e.yaml")
    with pytest.raises(ConfigError, match=f"e.yaml: is {kind}"):
        load(str(path))
    table = SPECIAL[kind](tmp_path / "t.csv")
    with pytest.raises(ConfigError, match=rf"data.path: .*t.csv'? is {kind}"):
        from_dict({"task": "vision.classification", "data": {"source": "table", "path": str(table)}, "model": {"name": "cnn"}})


def test_links_to_files_are_files(tmp_path):
    (tmp_path / "own").mkdir()
    root = images(tmp_path / "data")
    os.replace(root / "cat" / "000.png", tmp_path / "own" / "000.png")
    (root / "cat" / "000.png").symlink_to(tmp_path / "own" / "000.png")
    found = read_folders(root, key="image", suffixes={".png"}, kind="image")
    assert len(found.splits["all"]) == 12 and not found.notes


def test_a_class_folder_whose_name_is_not_utf8_is_refused_before_any_work(tmp_path):
    for domain, root in (("vision", images(tmp_path / "images")), ("speech", sounds(tmp_path / "sounds"))):
        made = next(path for path in root.iterdir())
        os.rename(os.fsencode(made), os.fsencode(root) + b"/caf\xe9")
        with pytest.raises(DataError, match=r"the name of the folder caf\\xe9 is not UTF-8; rename it"):
            new(domain, root)
        with pytest.raises(DataError, match=r"caf\\xe9 is not UTF-8"):
            read_folders(root, key="image", suffixes={".png", ".wav"}, kind="file")


def test_a_report_is_written_whatever_the_names_of_files(tmp_path):
    write_json(tmp_path / "r.json", {"worst": os.fsdecode(b"caf\xe9.png")})
    assert (tmp_path / "r.json").read_text() == '{\n  "worst": "caf\\udce9.png"\n}\n'


def onto_itself(path: Path) -> Path:
    path.symlink_to(path.name)
    return path


def test_links_onto_themselves_are_files_that_cannot_be_read(tmp_path):
    root = images(tmp_path / "data")
    onto_itself(root / "cat" / "x.png")
    onto_itself(root / "loop")
    found = read_folders(root, key="image", suffixes={".png"}, kind="image")
    assert len(found.splits["all"]) == 13 and "1 files ignored that are no images" in found.notes[0]
    assert len(list(find_images([str(root)], list[str]().append))) == 13
    onto_itself(root / "y.png")
    with pytest.raises(DataError, match="image files lie directly in"):
        read_folders(root, key="image", suffixes={".png"}, kind="image")
    with pytest.raises(DataError, match="is a link that leads nowhere"):
        new("vision", root / "loop")


@pytest.fixture
def deep(tmp_path):
    """Folders in folders, deeper than Python's stack, and so than what pytest would remove."""
    root = place = tmp_path / "data"
    place.mkdir()
    for _ in range(1200):
        place = place / "a"
        place.mkdir()
    (place / "x.png").touch()
    yield root
    (place / "x.png").unlink()
    while place != root:
        place.rmdir()
        place = place.parent


def test_folders_in_folders_in_folders(deep):
    assert len(list(files_below(deep, PassedOver()))) == 1
    assert len(list(all_below(deep))) == 1201 and size_of(deep) == 0
    with pytest.raises(ConfigError, match="101 folders deep"):
        refuse_links(deep)
    (deep / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"describes no preset|needs the extra"):
        find(str(deep))


@pytest.mark.parametrize("name, link, domain", [
    ("a/x.txt", "x.txt", "nlp"), ("a/x.txt", "nowhere", "nlp"), ("t.csv", "t.csv", "recsys"), ("t.csv", "nowhere", "recsys")])
def test_what_the_system_refuses_is_one_line_wherever_it_is_opened(name, link, domain, tmp_path):
    for place in ("a/1.txt", "b/1.txt"):
        (tmp_path / "data" / place).parent.mkdir(parents=True)
        (tmp_path / "data" / place).write_text("some text")
    path = tmp_path / "data" / name
    path.symlink_to(link)
    done = CliRunner().invoke(app, ["new", domain, "--data", str(tmp_path / "data"), "-o", str(tmp_path / "e.yaml")])
    assert done.exit_code == 1 and done.output.startswith(f"{path}: cannot be read: "), done.output
    with pytest.raises(DataError, match=rf"{path.name}: cannot be read"):
        quartet.new(tmp_path / "data", domain)
    with pytest.raises(DataError, match="File name too long"):
        quartet.check("vision/digits", {"data.source": "folder", "data.path": "x" * 5000})
