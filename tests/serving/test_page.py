"""The page at /: a person tries each kind of model in headless Chromium, and it loads nothing from elsewhere."""

import base64
import json
import os
import re

import numpy as np
import pytest

from pipelines.base.errors import DataError
from pipelines.serving.output import Prediction
from pipelines.serving.predict import rows_of
from pipelines.task.form import Field
from tests.serving import browser
from tests.serving.toy_server import Doubling, Spelling, answer, needs_extra, request, running, spec

pytestmark = needs_extra
needs_browser = pytest.mark.skipif(not browser.installed() and not os.environ.get("QUARTET_REQUIRE_BROWSER"),
                                   reason="needs Chromium: what a person sees is not tested here")
PICTURE = base64.b64decode(b"iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg==")
UGLY = "<img src=x onerror=alert(1)> & 'quotes'"


class Measuring(Spelling):
    """Says of a file how long it is, with classes."""

    inputs, outputs = {"image": spec([None], "string")}, {"label": spec([None], "string"), "shares": spec([None, 2], "float32")}
    columns, details, classes = {"label": 1, "shares": 2}, (), ["small", UGLY]
    kind = "image"

    @property
    def form(self):
        return [Field(self.kind)]

    def take(self, sent):
        if not isinstance(sent, bytes):
            raise DataError("send a file")
        return {"image": sent}

    def together(self, read):
        return [Prediction(name, {"label": self.classes[len(row["image"]) > 100], "shares": np.array([0.25, 0.75], np.float32)})
                if row["image"] else Prediction(name, error="the file is empty") for name, row in read]


class Hearing(Measuring):
    """Says what a recording is."""

    kind = "sound"
    columns = {"label": 1, "shares": 2, "seconds": 1}

    def together(self, read):
        import io

        import soundfile

        found = [soundfile.info(io.BytesIO(row["image"])) for _, row in read]
        return [Prediction(name, {"label": f"{one.channels} channel", "shares": np.array([0.5, 0.5], np.float32), "seconds": one.duration})
                for (name, _), one in zip(read, found)]


class Comparing(Measuring):
    """Says which of two recordings is longer."""

    columns, outputs, classes = {"longer": 1}, {"longer": spec([None], "string")}, None
    form = [Field("sound", "sound", "one"), Field("sound", "other", "another")]

    def take(self, sent):
        sizes = {name: len(one) for name, one in sent.items()}
        return {"image": max(sizes, key=sizes.get).encode()}

    def together(self, read):
        return [Prediction(name, {"longer": row["image"].decode()}) for name, row in read]


class Seeing(Measuring):
    """Answers a picture with a mask over it, two boxes in it of which one counts, another picture and a sound."""

    columns = {"mask": 1, "boxes": 3, "drawn": 1, "heard": 1}
    outputs = {"mask": spec([None], "string"), "boxes": spec([None, 2, 4], "float32"), "drawn": spec([None], "string"),
               "heard": spec([None], "string")}
    classes, ranked, kinds = None, ("boxes",), {"mask": "mask", "boxes": "boxes", "drawn": "picture", "heard": "sound"}

    def together(self, read):
        answers = {"mask": np.array([PICTURE], object), "boxes": np.float32([[[10, 20, 30, 40], [0, 0, 0, 0]]]), "count": np.array([1]),
                   "drawn": np.array([PICTURE], object), "heard": np.array([b"RIFF"], object)}
        (row,) = rows_of(answers, self.ranked, (), self.kinds)
        return [Prediction(name, row) for name, _ in read]


class Listing(Spelling):
    """Lists items for a user."""

    inputs, outputs = {"user": spec([None], "string")}, {"items": spec([None, None], "string"), "scores": spec([None, None], "float32")}
    columns, classes, details, ranked = {"items": 2, "scores": 2}, None, (), ("items", "scores")
    form = [Field("word", "user", "an id", needed=False), Field("words", "history", "ids", needed=False), Field("flag", "seen"),
            Field("number", "k", needed=False)]

    def take(self, sent):
        return {"user": json.dumps(sent)}

    def together(self, read):
        return [Prediction(name, {"items": np.array([row["user"], "tea"], object), "scores": np.array([0.9, 0.00012], np.float32)})
                for name, row in read]


@pytest.fixture(scope="module")
def there():
    with running(Spelling()) as server:
        for name, model in (("double", Doubling()), ("measure", Measuring()), ("hear", Hearing()), ("list", Listing()), ("see", Seeing()),
                            ("compare", Comparing())):
            server.models.add(name, 1, model)
        yield server


def test_browsers_get_the_page_and_programs_the_description(there):
    status, headers, content = there.ask(path="/", method="GET", headers="Accept: text/html,*/*;q=0.8\r\n")
    assert status == 200 and headers["content-type"].startswith("text/html") and headers["vary"] == "Accept"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    found = re.findall(rb'(?:src|href)="([^"]*)"', content)
    assert {b"page.js", b"page.css"} <= set(found) and not any(b"//" in one for one in found)
    for path, kind in (("/page.js", "text/javascript"), ("/page.css", "text/css")):
        status, headers, content = there.ask(path=path, method="GET")
        assert status == 200 and headers["content-type"].startswith(kind) and headers["x-content-type-options"] == "nosniff"
        assert not re.search(rb"https?://|innerHTML|eval\(", content)
    with there.connect() as client:
        client.sendall(request(path="/", method="GET"))
        models = answer(client)[2]["models"]
    assert [one["form"][0]["kind"] for one in models] == ["text", "numbers", "image", "sound", "word", "image", "sound"]


@pytest.fixture(scope="module")
def page(there):
    with browser.browser() as one:
        one.open(f"http://127.0.0.1:{there.port}/")
        yield one


def choose(page, name):
    page.run(f"(() => {{ const one = document.querySelector('#model'); one.value = '{name}'; one.dispatchEvent(new Event('change')); }})()")
    page.wait(f"document.querySelector('#title').textContent === '{name}' && !document.querySelector('.answer')")


def enter(page, *values):
    for place, value in enumerate(values):
        if value is not None:
            page.run(f"document.querySelector('#field-{place}').value = {json.dumps(value)}")
    page.run("document.querySelector('#ask').click()")


def shown(page, count=1):
    page.wait(f"document.querySelectorAll('.answer').length === {count}")
    return page.run("document.querySelector('.answer .got').innerText")


@needs_browser
@pytest.mark.slow(seconds=10)
class TestInABrowser:
    def test_texts_and_numbers(self, page):
        choose(page, "toy")
        enter(page, "abcd", "1")
        text = shown(page)
        assert "short" in text and text.count("50.0%") == 2 and re.search(r"a\s+97", text)
        choose(page, "double")
        enter(page, "1, 2 3")
        assert "doubled" in shown(page) and "6" in shown(page)
        enter(page, "1, two")
        page.wait("document.querySelector('#state.bad').textContent === 'two is no number'")

    def test_errors_are_said(self, page):
        choose(page, "double")
        enter(page, "1, 2")
        assert "is not three numbers" in shown(page)
        enter(page, "")
        page.wait("/needed/.test(document.querySelector('#state.bad')?.textContent)")

    def test_images_are_chosen_and_dropped_and_names_are_only_text(self, page, tmp_path):
        choose(page, "measure")
        small, large, empty = (tmp_path / name for name in ("small.png", f"{'x' * 20}<b>.png", "empty.png"))
        small.write_bytes(bytes(10))
        large.write_bytes(bytes(1000))
        empty.write_bytes(b"")
        page.choose(small, large)
        assert UGLY in shown(page, 2) and "75.0%" in shown(page, 2) and not page.run("document.querySelectorAll('.answer b').length")
        page.run("""(() => { const data = new DataTransfer(); data.items.add(new File(['x'], 'dropped.png'));
            document.querySelector('.drop').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true})); })()""")
        assert "small" in shown(page, 3)
        page.choose(empty)
        assert "empty" in shown(page, 4)

    def test_masks_and_boxes_lie_over_the_picture_and_pictures_and_sounds_are_shown(self, page, tmp_path):
        choose(page, "see")
        (tmp_path / "whole.png").write_bytes(PICTURE)
        page.choose(tmp_path / "whole.png")
        page.wait("document.querySelectorAll('.laid > .box').length === 1")  # of two boxes one counts
        assert page.run("document.querySelector('.box').style.left") == "500%"  # 10 of 2 pixels
        assert page.run("document.querySelector('.laid > .layer').naturalWidth") == 2
        assert page.run("document.querySelectorAll('.got > img').length + document.querySelectorAll('.got > audio').length") == 2

    def test_two_files_are_asked_about_together(self, page, tmp_path):
        choose(page, "compare")
        for name, size in (("short.wav", 10), ("long.wav", 900), ("longest.wav", 3000)):
            (tmp_path / name).write_bytes(bytes(size))
        page.choose(tmp_path / "short.wav", into="#file-sound")
        assert not page.run("document.querySelectorAll('.answer').length")
        page.choose(tmp_path / "long.wav", into="#file-other")
        assert "other" in shown(page)
        page.choose(tmp_path / "longest.wav", into="#file-sound")  # the other stays
        assert "sound" in shown(page, 2)
        assert page.run("document.querySelector('.answer .sent').innerText").split() == ["longest.wav", "long.wav"]

    def test_a_sound_is_recorded(self, page):
        choose(page, "hear")
        page.run("document.querySelector('#record').click()")
        page.wait("document.querySelector('#record').ariaPressed === 'true'")
        page.run("new Promise(done => setTimeout(done, 600))")
        page.run("document.querySelector('#record').click()")
        text = shown(page)
        assert "1 channel" in text and 0.2 < float(re.search(r"seconds\s+([\d.]+)", text)[1]) < 10

    def test_a_user_is_chosen(self, page):
        choose(page, "list")
        enter(page, "42", "a, b", None, "3")
        text = shown(page)
        assert '{"user": "42", "history": ["a", "b"], "seen": false, "k": 3}' in text and "1.20e-4" in text
        lines = """[...document.querySelectorAll('td.figure')].map(one => { const all = document.createRange();
            all.selectNodeContents(one); return all.getClientRects().length; })"""
        assert page.run(lines) == [1, 1]

    def test_nothing_came_from_elsewhere_and_nothing_was_complained_of(self, page, there):
        own = f"http://127.0.0.1:{there.port}/"
        assert all(one.startswith((own, "blob:", "about:", "data:")) for one in page.asked()) and own + "page.js" in page.asked()
        complaints = [one for one in page.problems() if "400" not in json.dumps(one)]
        assert not complaints
