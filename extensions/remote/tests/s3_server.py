"""A server of objects as S3 is one, in this process: what clients of S3 need to read, list, write (also in parts, also under a condition),
copy and remove. Signatures are not looked at. `Server.fault` may end or refuse a request, as networks and stores do. Google's XML
interface is S3's, but for conditions, which are on the number of an object's generation: it answers that, too.
"""

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape


class Server(ThreadingHTTPServer):
    """Buckets are made by naming them: `objects["bucket"]`.

    Attributes:
        objects: bucket -> key -> content.
        bare: listings leave out the quotes of tags, as Azure's do.
        writes: keys in the order in which they were written (+) and removed (-).
        after: called with the key of an object once it is written.
        fault: called with (method, key) before a request is answered; True: the connection is cut, nothing is kept.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, dict[str, bytes]] = {"box": {}}
        self.bare = False
        self.generations: dict[str, int] = {}  # of each key
        self.writes: list[str] = []
        self.parts: dict[str, dict[int, bytes]] = {}
        self.fault: Callable[[str, str], bool] = lambda method, key: False
        self.after: Callable[[str], None] = lambda key: None
        self.lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a client finds it."""
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_address[1]}", "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}

    @property
    def google(self) -> dict[str, str]:
        """The variable by which a client of Google's store finds it."""
        return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{self.server_address[1]}"}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is no news."""


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def tag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self._do(self._get)

    def do_HEAD(self) -> None:
        self._do(self._get)

    def do_PUT(self) -> None:
        self._do(self._put)

    def do_POST(self) -> None:
        self._do(self._post)

    def do_DELETE(self) -> None:
        self._do(self._delete)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _do(self, answer: Callable[[dict[str, bytes], str, dict[str, str], bytes], None]) -> None:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.fault(self.command, key):
            self.close_connection = True
            self.connection.close()
            return
        with self.server.lock:
            objects = self.server.objects.get(bucket)
            if objects is None:
                return self._refuse(404, "NoSuchBucket")
            answer(objects, key, query, body)

    def _get(self, objects: dict[str, bytes], key: str, query: dict[str, str], body: bytes) -> None:
        if not key:
            return self._list(objects, query)
        if key not in objects:
            return self._refuse(404, "NoSuchKey")
        content, status = objects[key], 200
        headers = {"ETag": tag(content), "Last-Modified": formatdate(usegmt=True), "x-goog-generation": str(self._generation(key))}
        if (asked := self.headers.get("Range", "")).startswith("bytes="):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or len(content)), len(content) - 1)
            headers["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
            content, status = content[begin:end + 1], 206
        self._answer(status, content, headers)

    def _list(self, objects: dict[str, bytes], query: dict[str, str]) -> None:
        keys = sorted(key for key in objects if key.startswith(query.get("prefix", "")) and key > query.get("continuation-token", ""))
        some = keys[:int(query.get("max-keys") or 1000)]
        more = f"<NextContinuationToken>{escape(some[-1])}</NextContinuationToken>" if len(some) < len(keys) else ""
        tags = {key: tag(objects[key]).strip('"' if self.server.bare else "") for key in some}
        rows = "".join(f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                       f"<ETag>{escape(tags[key])}</ETag><Size>{len(objects[key])}</Size></Contents>" for key in some)
        self._answer(200, f"<ListBucketResult><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}{rows}</ListBucketResult>".encode())

    def _put(self, objects: dict[str, bytes], key: str, query: dict[str, str], body: bytes) -> None:
        if "partNumber" in query:
            self.server.parts[query["uploadId"]][int(query["partNumber"])] = body
            return self._answer(200, b"", {"ETag": tag(body)})
        wanted, there = self.headers.get("If-Match"), objects.get(key)
        generation = self.headers.get("x-goog-if-generation-match")
        if generation is not None and int(generation) != (0 if there is None else self._generation(key)):
            return self._refuse(412, "PreconditionFailed")
        if (self.headers.get("If-None-Match") == "*" and there is not None) or (wanted and (there is None or tag(there) != wanted)):
            return self._refuse(412, "PreconditionFailed")
        source = self.headers.get("x-amz-copy-source") or self.headers.get("x-goog-copy-source")
        content = objects[unquote(source).lstrip("/").partition("/")[2]] if source else body
        self._keep(objects, key, content)
        self._answer(200, f"<CopyObjectResult><ETag>{escape(tag(content))}</ETag></CopyObjectResult>".encode() if source else b"",
                     {"ETag": tag(content), "x-goog-generation": str(self._generation(key))})

    def _post(self, objects: dict[str, bytes], key: str, query: dict[str, str], body: bytes) -> None:
        if "delete" in query:
            keys = [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
            for key in keys:
                if objects.pop(key, None) is not None:
                    self.server.writes.append(f"-{key}")
            gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            return self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())
        if "uploads" in query:
            number = str(len(self.server.parts))
            self.server.parts[number] = {}
            begun = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
            return self._answer(200, begun.encode())
        content = b"".join(part for _, part in sorted(self.server.parts.pop(query["uploadId"]).items()))
        self._keep(objects, key, content)
        text = f"<CompleteMultipartUploadResult><ETag>{escape(tag(content))}</ETag></CompleteMultipartUploadResult>"
        self._answer(200, text.encode(), {"ETag": tag(content), "x-goog-generation": str(self._generation(key))})

    def _delete(self, objects: dict[str, bytes], key: str, query: dict[str, str], body: bytes) -> None:
        if objects.pop(key, None) is not None:
            self.server.writes.append(f"-{key}")
        self._answer(204, b"")

    def _keep(self, objects: dict[str, bytes], key: str, content: bytes) -> None:
        objects[key] = content
        self.server.generations[key] = self._generation(key) + 1
        self.server.writes.append(f"+{key}")
        self.server.after(key)

    def _generation(self, key: str) -> int:
        return self.server.generations.get(key, 1)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
