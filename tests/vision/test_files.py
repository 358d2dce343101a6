"""Training, `quartet new` and `predict` take the same files of a folder for images."""

import io

from PIL import Image

from tests.vision.synthetic_images import encoded, folder
from vision.data.files import find_images
from vision.data.inspection import look
from vision.data.splits import load_images
from vision.settings import ImageClassification


def test_what_counts_is_the_same_everywhere(tmp_path):
    folder(tmp_path, {"cat": 3, "dog": 3})
    content = (tmp_path / "cat" / "000.png").read_bytes()
    scan = encoded(Image.open(io.BytesIO(content)), "TIFF")
    more = {"cat/deep/er/photo.JPE": content, "cat/no ending": content, "cat/photo.dat": content, "dog/scan.TIF": scan,
            "dog/new.heic": b"?"}
    others = {"cat/notes.txt": b"a cat", "dog/labels.xml": b"<xml/>", "dog/more.TXT": b"", "cat/.hidden.png": content,
              "dog/.thumbs/1.png": content, "__MACOSX/1.png": content}
    for name, data in {**more, **others}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "dog" / "linked").symlink_to(tmp_path / "cat" / "deep", target_is_directory=True)

    notes: list[str] = []
    found = [str(path) for path in find_images([str(tmp_path)], notes.append)]
    assert found == sorted(found) and len(found) == 3 + 3 + len(more) + 1
    assert notes == [f"{tmp_path}: ignored files that are not images: 2 .txt, 1 .xml"]
    assert look(tmp_path).counts == {"cat": 6, "dog": 6}
    data = {"source": "folder", "path": str(tmp_path), "on_bad_example": "skip", "image_size": 24, "test": None, "validation": 0.0,
            "cache_folder": str(tmp_path.parent / "cache")}
    splits = load_images(ImageClassification.model_validate({"task": "vision.classification", "data": data, "model": {"name": "cnn"}}))
    trained = [splits.train.name(number) for number in range(len(splits.train))]
    assert sorted([*trained, *(line.split(": ")[0] for line in splits.skipped)]) == found
    assert [line.split(": ")[0].rpartition("/")[2] for line in splits.skipped] == ["new.heic", "scan.TIF"]


def test_named_files_and_globs_come_whatever_their_ending(tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    missing = tmp_path / "missing"
    for asked in ([str(tmp_path / "notes.txt"), str(missing)], [str(tmp_path / "*.txt"), str(missing)]):
        assert list(find_images(asked)) == [tmp_path / "notes.txt", missing]
