"""XML files of annotations, read without what could grow without bound. Imports no TensorFlow."""

from pathlib import Path
from xml.parsers import expat

from pipelines.base.errors import DataError
from pipelines.base.inside import check_regular

DEEPEST = 20


class Reader:
    """Walks the elements of a file; what of them counts is taken by `begin` and `end`.

    Attributes:
        path: the names of the elements that are open.
        text: the characters since the last begin or end of an element.
    """

    def __init__(self, file: Path):
        self.file, self.path, self.text = file, list[str](), list[str]()
        self.parser = expat.ParserCreate()
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._begin, self._end
        self.parser.CharacterDataHandler = self.text.append

    def read(self, largest: int) -> None:
        """Raises DataError: no such XML, of more than so many bytes, or with a document type, whose entities could grow without bound."""
        check_regular(self.file)
        if self.file.stat().st_size > largest:
            raise DataError(f"{self.file}: {self.file.stat().st_size:,} bytes are more than such annotations have")
        try:
            with self.file.open("rb") as opened:
                self.parser.ParseFile(opened)
        except expat.ExpatError as error:
            raise DataError(f"{self.file}: line {error.lineno}: no XML: {expat.errors.messages[error.code]}") from error

    def begin(self, attributes: dict[str, str]) -> None:
        """An element, the last of `path`, begins."""

    def end(self) -> None:
        """It ends."""

    @property
    def line(self) -> int:
        return self.parser.CurrentLineNumber

    def _refuse(self, *_: object) -> None:
        raise DataError(f"{self.file}: line {self.line}: a document type (<!DOCTYPE ...>) is not read, since its entities can grow without "
                        "bound; remove it")

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.path) >= DEEPEST:
            raise DataError(f"{self.file}: line {self.line}: elements lie deeper within one another than {DEEPEST}")
        self.path.append(name)
        self.text.clear()
        self.begin(attributes)

    def _end(self, _: str) -> None:
        self.end()
        self.path.pop()
        self.text.clear()
