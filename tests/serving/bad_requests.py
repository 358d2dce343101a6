"""Requests that nobody should send, by hand and by mutation: (name, bytes on the wire, statuses that say what is wrong).

A status of 0 stands for a connection closed without an answer, 200 for an answer in which each input has its error.
"""

import base64
import json
import random

from tests.serving.toy_server import numbers, request

DEEP = 100_000
BIG = b"9" * 5_000
IMAGE = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
HUGE_PNG = IMAGE[:16] + b"\x7f\xff\xff\xff\x7f\xff\xff\xff" + IMAGE[24:]


TENSOR = b'{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", %s}]}'


def post(body, kind="application/json", **more):
    return request(body, kind=kind, **more)


def inputs(value):
    return post(b'{"inputs": [' + value + b"]}")


def by_hand():
    """Requests as bytes, with the statuses that are right for them."""
    form = "multipart/form-data; boundary=limit"
    part = b'--limit\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n1\r\n'
    return [
        ("deep JSON", post(b"[" * DEEP + b"]" * DEEP), {400}),
        ("deep inputs", inputs(b"[" * DEEP + b"]" * DEEP), {400}),
        ("deep objects", inputs(b'{"a":' * DEEP + b"1" + b"}" * DEEP), {400}),
        ("as deep as JSON may be", inputs(b"[" * 900 + b"]" * 900), {200}),
        ("an integer of 5,000 digits", inputs(BIG), {400}),
        ("an id of 2 ** 63", inputs(b'{"user": 9223372036854775808}'), {200}),
        ("an id of 2 ** 64", inputs(b'{"user": 18446744073709551616}'), {200}),
        ("an id below int64", inputs(b"-9223372036854775809"), {200}),
        ("an id of 4,000 digits as a text", inputs(b'{"user": "' + BIG[:4000] + b'"}'), {200}),
        ("a number beyond float64", inputs(b"1e400"), {400}),
        ("numbers beyond float32", inputs(b"[1e39, 1, 1]"), {200}),
        ("not a number", inputs(b"NaN"), {400}),
        ("a lone surrogate", inputs(rb'"\ud800"'), {400}),
        ("a lone surrogate in UTF-8", inputs(b'"\xed\xa0\x80"'), {400}),
        ("no UTF-8", inputs(b'"\xff"'), {400}),
        ("UTF-16", post('{"inputs": [1]}'.encode("utf-16")), {400}),
        ("a byte order mark", post(b"\xef\xbb\xbf" + numbers([1, 2, 3])), {200, 400}),
        ("a NUL in a text", inputs(rb'"\u0000"'), {200}),
        ("half of an object", post(b'{"inputs": [1'), {400}),
        ("two objects", post(b"{}{}"), {400}),
        ("no object", post(b"[]"), {400}),
        ("null", post(b"null"), {400}),
        ("nothing", post(b""), {400}),
        ("no inputs", post(b'{"inputs": []}'), {400}),
        ("inputs twice", post(b'{"inputs": [1], "inputs": "a"}'), {400}),
        ("bad base64", inputs(b'{"b64": "?"}'), {200}),
        ("base64 of a number", inputs(b'{"b64": 1}'), {200}),
        ("base64 beyond ASCII", inputs('{"b64": "é"}'.encode()), {200}),
        ("too many inputs", post(b'{"inputs": [' + b"0," * 5_000 + b"0]}"), {413}),
        ("too many values", inputs(b"[" + b"0," * 1_100_000 + b"0]"), {413}),
        ("too many bytes", post(b" " * (8 << 20)), {413}),
        ("a picture of 2 ** 62 pixels", post(HUGE_PNG, "image/png"), {200}),
        ("half a picture", post(IMAGE[:40], "image/png"), {200}),
        ("zeros", post(bytes(100_000), "image/jpeg"), {200}),
        ("a form without parts", post(b"nothing", form), {400}),
        ("a form without an end", post(part, form), {200, 400}),
        ("a form without a boundary", post(part + b"--limit--", "multipart/form-data"), {400}),
        ("a form of 5,000 files", post(part * 5_000 + b"--limit--\r\n", form), {400}),
        ("a form whose charset is none", post(part + b"--limit--\r\n", form + "; charset=nothing"), {200, 400}),
        ("a part without a name", post(b"--limit\r\nContent-Disposition: form-data\r\n\r\n1\r\n--limit--\r\n", form), {400}),
        ("a part's head without an end", post(b"--limit\r\n" + b"A: b\r\n" * 50_000, form), {400}),
        ("a question that is no number", post(numbers([1, 2, 3]), path="/predict?top=x"), {400}),
        ("a question of 5,000 digits", post(numbers([1, 2, 3]), path="/predict?top=" + "9" * 5000), {400}),
        ("a question beyond ASCII", post(numbers([1, 2, 3]), path="/predict?top=%D9%A3&%ff=%00"), {400}),
        ("a path that is not there", request(method="GET", path="/../../etc/passwd"), {404}),
        ("a path with a NUL", request(method="GET", path="/%00"), {404}),
        ("a method that is not there", request(method="DELETE"), {405}),
        ("no method at all", b"NOTHING / HTTP/1.1\r\n\r\n", {0, 400}),
        ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {0, 400}),
        ("HTTP/9.9", b"GET / HTTP/9.9\r\nHost: toy\r\n\r\n", {0, 400}),
        ("a bad content-length", b"POST /predict HTTP/1.1\r\nHost: toy\r\nContent-Length: -1\r\n\r\n", {400}),
        ("two content-lengths", b"POST /predict HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", {400}),
        ("a length and chunks", b"POST /predict HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
        ("a bad chunk", b"POST /predict HTTP/1.1\r\nHost: toy\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", {0, 400}),
        ("a huge chunk", b"POST /predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n", {0, 400}),
        ("a length of 2 ** 70", b"POST /predict HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1180591620717411303424\r\n\r\n",
         {400, 413}),
        ("a header with a NUL", b"GET / HTTP/1.1\r\nA: \x00b\r\n\r\n", {400}),
        ("a head of 100 KB", b"GET / HTTP/1.1\r\nA: " + b"a" * 100_000 + b"\r\n\r\n", {200, 431}),
        ("a request id of control characters", request(method="GET", path="/", headers="X-Request-ID: a\tb\r\n"), {200}),
        ("an upgrade", b"GET / HTTP/1.1\r\nHost: toy\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", {200, 400}),
    ]


def mutated(count, seed=0):
    """(what it was, bytes): a request with some bytes changed, left out, doubled or put in from another one. Some are still right."""
    draw = random.Random(seed)
    seeds = [(name, wire) for name, wire, _ in by_hand() if len(wire) < 4_000] + [
        ("numbers", post(numbers([1, 2, 3], [4, 5, 6]))), ("an object", post(json.dumps({"inputs": [{"x": [1, 2, 3]}]}).encode())),
        ("rows", post(b'{"instances": [[1, 2, 3]]}', path="/v1/models/toy:predict")),
        ("columns", post(b'{"inputs": {"x": [[1, 2, 3]]}}', path="/v1/models/toy:predict")),
        ("a tensor", post(TENSOR % b'"data": [1, 2, 3]', path="/v2/models/toy/infer")),
        ("a binary tensor", post(TENSOR % b'"parameters": {"binary_data_size": 12}' + bytes(12), path="/v2/models/toy/infer",
                                 headers="Inference-Header-Content-Length: 104\r\n"))]
    for _ in range(count):
        name, wire = draw.choice(seeds)
        data = bytearray(wire)
        for _ in range(draw.randint(1, 6)):
            place, kind = draw.randrange(len(data) + 1), draw.randrange(5)
            if kind == 0:
                data[place:place + 1] = bytes([draw.randrange(256)])
            elif kind == 1:
                del data[place:place + draw.randint(1, 30)]
            elif kind == 2:
                data[place:place] = data[place:place + draw.randint(1, 200)] * draw.randint(1, 20)
            elif kind == 3:
                other = draw.choice(seeds)[1]
                data[place:place] = other[draw.randrange(len(other)):][:draw.randint(1, 100)]
            else:
                data[place:place] = draw.choice([b"\r\n", b"\0", b"[", b"{", b'"', b"\\ud800", b"9" * 400, b"e999", b"%", b"\xff"])
        yield name, bytes(data)
