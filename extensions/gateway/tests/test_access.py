"""Who may ask a server: tokens, certificates, a rate by client, origins of browsers, and the record of who has asked."""

import base64
import hashlib
import importlib.util
import json
import os
import ssl
import time
import urllib.error
import urllib.request

import pytest

from extensions.gateway.guards import check
from extensions.gateway.options import ServeOptions
from extensions.gateway.tests.certificates import made, needs_trust
from extensions.gateway.tests.gateway_server import running
from pipelines.base.errors import ConfigError
from pipelines.serving.options import Options
from pipelines.serving.server import loopback
from tests.serving.toy_server import needs_extra, numbers

pytestmark = needs_extra
ROW = numbers([1, 2, 3])


def line(name, token):
    return f"{name} sha256:{hashlib.sha256(token.encode()).hexdigest()}\n"


def bearer(token):
    return f"Authorization: Bearer {token}\r\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("# ours\n\n" + line("alice", "a-token") + line("bob", "b-token"))
    return path


def test_only_tokens_of_the_file_are_answered(file):
    with running(tokens=file) as there:
        assert there.ask(ROW, headers=bearer("a-token"))[0] == 200
        assert there.ask(ROW, headers="Authorization: bearer b-token\r\n")[0] == 200
        assert there.ask(ROW, headers=f"Authorization: Basic {base64.b64encode(b'anybody:a-token').decode()}\r\n")[0] == 200  # a browser
        for headers in ("", bearer("c-token"), bearer(""), bearer("a-token "[:-2]), "Authorization: Basic a-token\r\n",
                        bearer("a-token") + bearer("a-token"), bearer(hashlib.sha256(b"a-token").hexdigest())):
            status, given, content = there.ask(ROW, headers=headers)
            assert status == 401 and given["www-authenticate"].startswith("Bearer") and "token" in content["error"], headers
        for path in ("/", "/metrics", "/openapi.json", "/v2", "/v1/models/toy", "/nothing"):
            assert there.ask(path=path, method="GET")[0] == 401, path
        for path in ("/health", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"):
            assert there.ask(path=path, method="GET")[0] == 200, path
        assert there.ask(path="/health/live", method="POST")[0] == 401
        assert there.model.sizes == [1, 1, 1]


def test_tokens_are_exchanged_without_a_restart(file):
    """Also in place, with the same size; a file that is gone or damaged admits nobody."""
    with running(tokens=file) as there:
        def asked():
            return [there.ask(ROW, headers=bearer(token))[0] for token in ("a-token", "b-token", "c-token")]

        assert asked() == [200, 200, 401]
        whole = file.read_text()
        file.write_text(whole.replace(line("bob", "b-token"), line("bob", "c-token")))
        os.utime(file, ns=(time.time_ns(), time.time_ns()))
        assert asked() == [200, 401, 200]
        file.write_text(whole + "alice sha256:1234\n")
        assert asked() == [401, 401, 401]
        file.unlink()
        assert asked() == [401, 401, 401]
        file.write_text(whole)
        assert asked() == [200, 200, 401]


@pytest.mark.parametrize(("content", "said"), [
    ("", "has no token"), ("alice a-token\n", "line 1"), (line("a", "x") + line("a", "y"), "twice"), (None, "No such file"),
])
def test_a_file_without_tokens_is_refused_at_once(tmp_path, content, said):
    from extensions.gateway.tokens import Tokens

    path = tmp_path / "tokens"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=said):
        Tokens(path)


def test_a_file_that_everybody_may_write_to_is_refused(file):
    from extensions.gateway.tokens import Tokens

    file.chmod(0o646)
    with pytest.raises(ConfigError, match="chmod"):
        Tokens(file)


def test_the_rate_counts_by_client(file):
    with running(tokens=file, rate=0.01) as there:
        assert there.ask(ROW, headers=bearer("a-token"))[0] == 200
        status, given, _ = there.ask(ROW, headers=bearer("a-token"))
        assert status == 429 and 1 <= int(given["retry-after"]) <= 100
        assert there.ask(ROW, headers=bearer("b-token"))[0] == 200  # another client
        assert there.ask(ROW, headers=bearer("wrong"))[0] == 401
        assert there.ask(ROW, headers=bearer("wrong2"))[0] == 429  # guessing counts, too
        assert there.ask(path="/health/live", method="GET")[0] == 200


def test_a_rate_refills_and_forgets_clients():
    from extensions.gateway import access
    from pipelines.serving.http.bodies import Refused

    clock = [0.0]
    rate = access.Rate(2.0, now=lambda: clock[0])

    def admitted(client, count):
        done = 0
        for _ in range(count):
            try:
                rate.take(client)
                done += 1
            except Refused as error:
                assert error.status == 429 and error.retry >= 1
        return done

    assert admitted("a", 10) == 4  # two seconds' worth at once
    clock[0] = 1.0
    assert admitted("a", 10) == 2
    for number in range(access.CLIENTS + 10):
        rate.take(str(number))
    assert len(rate._clients) == access.CLIENTS
    assert access.network("2001:db8::1") == access.network("2001:db8::ffff") != access.network("2001:db8:0:1::1")


def test_browsers_of_other_origins(file):
    ask = "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n"
    with running(tokens=file) as there:
        _, headers, _ = there.ask(ROW, headers=bearer("a-token") + "Origin: https://a.example\r\n")
        assert not any(name.startswith("access-control") for name in headers)
        assert there.ask(method="OPTIONS", headers=ask)[0] in (401, 405)
    with running(tokens=file, cors=["https://a.example"]) as there:
        status, headers, _ = there.ask(method="OPTIONS", headers=ask)
        assert status == 200 and headers["access-control-allow-origin"] == "https://a.example"
        _, headers, _ = there.ask(ROW, headers=bearer("a-token") + "Origin: https://a.example\r\n")
        assert headers["access-control-allow-origin"] == "https://a.example"
        _, headers, _ = there.ask(ROW, headers=bearer("a-token") + "Origin: https://b.example\r\n")
        assert "access-control-allow-origin" not in headers
        status, headers, _ = there.ask(ROW, headers="Origin: https://a.example\r\n")
        assert status == 401 and headers["access-control-allow-origin"] == "https://a.example"


def test_the_audit_names_who_and_what_and_no_payload(file, tmp_path):
    target = tmp_path / "audit.jsonl"
    with running(tokens=file, audit=target) as there:
        assert there.ask(numbers([123456, 2, 3]), path="/predict?secret=1", headers=bearer("a-token"))[0] == 200
        assert there.ask(ROW, headers=bearer("wrong"))[0] == 401
    first, second = [json.loads(text) for text in target.read_text().splitlines()]
    assert first["who"] == "alice" and first["model"] == "toy" and first["version"] == "1" and first["status"] == 200
    assert first["path"] == "/predict" and first["inputs"] == 1 and first["client"] == "127.0.0.1" and first["time"].startswith("20")
    assert second["who"] == "" and second["status"] == 401
    text = target.read_text()
    assert "123456" not in text and "secret" not in text and "token" not in text and "wrong" not in text


def tls(folder, client_ca=None):
    """The options for the certificates there."""
    return {"tls_cert": folder / "server.pem", "tls_key": folder / "server.key", "client_ca": client_ca and folder / client_ca}


@needs_trust
def test_tls_and_certificates_of_clients(tmp_path, file):
    there = made(tmp_path)

    def ask(port, client=None, scheme="https"):
        context = ssl.create_default_context(cafile=there / "ca.pem")
        if client:
            context.load_cert_chain(there / f"{client}.pem", there / f"{client}.key")
        asked = urllib.request.Request(f"{scheme}://127.0.0.1:{port}/predict", ROW, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=20, context=context if scheme == "https" else None) as given:
            return json.loads(given.read())["answers"]

    with running(**tls(there)) as server:
        assert ask(server.port)[0]["doubled"] == [2, 4, 6]
        with pytest.raises((urllib.error.URLError, OSError)):
            ask(server.port, scheme="http")
    with running(rate=100, audit=tmp_path / "audit.jsonl", **tls(there, "ca.pem")) as server:
        assert ask(server.port, "client")[0]["doubled"] == [2, 4, 6]
        for client in (None, "other"):
            with pytest.raises((urllib.error.URLError, OSError)):
                ask(server.port, client)
    said = [json.loads(text) for text in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [one["who"] for one in said] == ["robot"]


@needs_trust
@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("tritonclient") and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                    reason="needs the extra `grpc`: what it tests is not tested here")
def test_grpc_takes_the_same_tokens_and_certificates(tmp_path, file):
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    there = made(tmp_path)
    credentials = grpc.ssl_channel_credentials(*((there / name).read_bytes() for name in ("ca.pem", "client.key", "client.pem")))

    def live(channel, token=None):
        metadata = [("authorization", f"Bearer {token}")] if token else []
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        return stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="toy"), metadata=metadata, timeout=20).name

    with running(tokens=file, rate=0.01, grpc=0, **tls(there, "ca.pem")) as server:
        with grpc.secure_channel(f"127.0.0.1:{server.rpc_port}", credentials) as channel:
            assert live(channel, "a-token") == "toy"
            for token, code in (("a-token", "RESOURCE_EXHAUSTED"), ("wrong", "UNAUTHENTICATED")):
                with pytest.raises(grpc.RpcError) as error:
                    live(channel, token)
                assert error.value.code().name == code
        for channel in (grpc.insecure_channel(f"127.0.0.1:{server.rpc_port}"),
                        grpc.secure_channel(f"127.0.0.1:{server.rpc_port}", grpc.ssl_channel_credentials((there / "ca.pem").read_bytes()))):
            with channel, pytest.raises(grpc.RpcError) as error:
                live(channel, "b-token")
            assert error.value.code().name == "UNAVAILABLE"


@needs_trust
@pytest.mark.parametrize(("options", "host", "said"), [
    ({}, "0.0.0.0", "--tokens FILE"), ({}, "::", "--open"), ({}, "no.such.host.invalid", "--open"),
    ({"tls_cert": "server.pem"}, "127.0.0.1", "give both"), ({"client_ca": "ca.pem"}, "127.0.0.1", "--tls-cert"),
    ({"tls_cert": "server.pem", "tls_key": "other.key"}, "127.0.0.1", "cannot be used"),
    ({"tls_cert": "no.pem", "tls_key": "no.key"}, "127.0.0.1", "cannot be used"),
    ({"tls_cert": "server.pem", "tls_key": "server.key", "client_ca": "ca.key"}, "127.0.0.1", "--client-ca"),
    ({"cors": ("a.example",)}, "127.0.0.1", "no origin"),
])
def test_a_server_that_would_stand_open_or_cannot_encrypt_is_refused(tmp_path, options, host, said):
    made(tmp_path)
    places = {name: tmp_path / value if isinstance(value, str) else value for name, value in options.items()}
    with pytest.raises(ConfigError, match=said):
        check(ServeOptions(**places), Options(host))


def test_what_may_stand_open(tmp_path):
    assert loopback("127.0.0.1") and loopback("::1") and loopback("localhost") and not loopback("0.0.0.0")
    check(ServeOptions(), Options("127.0.0.1"))
    check(ServeOptions(), Options("0.0.0.0", open=True))
    check(ServeOptions(tokens=tmp_path / "tokens"), Options("0.0.0.0"))
