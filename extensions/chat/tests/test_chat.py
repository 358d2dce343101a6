"""Talking with a language model: in the terminal, and by OpenAI's client with a server."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import Literal

import pytest

from extensions.chat.openai import OpenAI
from pipelines.base.errors import ConfigError
from quartet.testing import check_protocol
from tests.encoders import tiny
from tests.nlp.test_automata import needs_forms
from tests.serving import toy_server
from tests.serving.toy_server import needs_extra
from tests.waiting import until

pytestmark = [needs_extra, pytest.mark.slow(seconds=60)]
ASKED = [{"role": "user", "content": "say a b"}]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    return tiny.chatting(tmp_path_factory.mktemp("preset") / "chat")


@pytest.fixture(scope="module")
def run(preset):
    """A preset whose answers are drawn; ends are rare."""
    from pipelines.serving.load import reading_as
    from pipelines.serving.presets import of_preset

    return reading_as(of_preset(str(preset), "talk", what="language model"), ["writing.temperature=1", "writing.most=40"])


@contextmanager
def serving(run):
    from pipelines.serving.predict import Predictor

    protocol = OpenAI()
    with toy_server.running(Predictor(run), protocols=[protocol], say=lambda line: None) as server:
        server.streams = lambda: next(iter(protocol._streams.values()))
        yield server


@pytest.fixture(scope="module")
def server(run):
    with serving(run) as there:
        yield there


@pytest.fixture(scope="module")
def client(server):
    from openai import OpenAI as Client

    return Client(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


def answer_of(run, messages):
    sent = run.task.input.requests.take({"messages": messages})["text"].decode()
    return run.task.output.answered(run.model, [run.task.input.cut(sent[1:])])[0]


def test_the_contract():
    check_protocol(OpenAI)


def test_openais_client_gets_what_the_model_answers_whole_and_in_pieces(run, client):
    expected = answer_of(run, ASKED)
    assert [one.id for one in client.models.list()] == ["toy"]
    done = client.chat.completions.create(model="toy", messages=ASKED)
    choice = done.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", expected) and choice.finish_reason in ("stop", "length")
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens and done.usage.completion_tokens <= 40
    pieces = list(client.chat.completions.create(model="toy", messages=ASKED, stream=True, stream_options={"include_usage": True}))
    assert "".join(one.choices[0].delta.content or "" for one in pieces if one.choices) == expected
    assert len(pieces) > len(expected) // 3 and pieces[-2].choices[0].finish_reason == choice.finish_reason
    assert pieces[-1].usage.completion_tokens == done.usage.completion_tokens
    short = client.chat.completions.create(model="toy", messages=ASKED, max_tokens=3, temperature=0, stop=["zz"])
    assert short.usage.completion_tokens <= 3
    lengths = [client.chat.completions.create(model="toy", messages=ASKED, max_tokens=60, temperature=2, seed=seed,
                                              extra_body={"min_tokens": least}).usage.completion_tokens
               for least in (0, 50) for seed in range(8)]
    assert min(lengths[:8]) < 50 <= min(lengths[8:])
    other = client.chat.completions.create(model="toy", messages=ASKED, seed=5)
    assert other.choices[0].message.content != expected


def test_running_texts_are_written_on(run, client):
    text = run.task.input.template.write(ASKED, ask=True)
    done = client.completions.create(model="toy", prompt=[text, text, "a"], max_tokens=40)
    assert [one.text for one in done.choices[:2]] == [answer_of(run, ASKED)] * 2 and len(done.choices) == 3
    assert "".join(one.choices[0].text for one in client.completions.create(model="toy", prompt=text, max_tokens=40, stream=True)) == (
        answer_of(run, ASKED))


def test_many_clients_at_once_get_their_own_answers(run, client):
    asked = [[{"role": "user", "content": f"say {letter}"}] for letter in tiny.LETTERS]
    found: dict[int, str] = {}

    def ask(number):
        pieces = client.chat.completions.create(model="toy", messages=asked[number], stream=True)
        found[number] = "".join(one.choices[0].delta.content or "" for one in pieces)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(asked))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(120)
    assert found == {number: answer_of(run, messages) for number, messages in enumerate(asked)}


@pytest.fixture(scope="module")
def writes_json(tmp_path_factory):
    """A server of a preset with the characters of JSON."""
    from pipelines.serving.load import reading_as
    from pipelines.serving.presets import of_preset

    folder = tiny.chatting(tmp_path_factory.mktemp("preset") / "chat", more='{}[]":,-0123456789')
    with serving(reading_as(of_preset(str(folder), "talk", what="language model"), ["writing.temperature=1", "writing.most=80"])) as there:
        yield there


@needs_forms
def test_answers_have_the_form_that_a_request_asks_for(writes_json):
    from openai import OpenAI as Client
    from pydantic import BaseModel

    class Order(BaseModel):
        item: Literal["taxi", "room"]
        count: int
        notes: list[str]

    client = Client(base_url=f"http://127.0.0.1:{writes_json.port}/v1", api_key="none", max_retries=0)
    parsed = [client.chat.completions.parse(model="toy", messages=ASKED, response_format=Order, seed=seed).choices[0] for seed in range(3)]
    assert all(isinstance(one.message.parsed, Order) and one.finish_reason == "stop" for one in parsed)
    assert len({one.message.content for one in parsed}) > 1

    def ask(**more):
        return client.chat.completions.create(model="toy", messages=ASKED, **more).choices[0].message.content

    assert isinstance(json.loads(ask(response_format={"type": "json_object"})), dict)
    assert ask(extra_body={"structured_outputs": {"choice": ["yes", "no"]}}) in ("yes", "no")
    assert re.fullmatch(r"[a-c]{4}\d", ask(extra_body={"structured_outputs": {"regex": r"[a-c]{4}\d"}}))
    streamed = client.chat.completions.create(model="toy", messages=ASKED, stream=True, extra_body={"structured_outputs": {
        "json": {"enum": ["a", {"b": 3}]}}})
    assert json.loads("".join(one.choices[0].delta.content or "" for one in streamed)) in ("a", {"b": 3})
    done = client.completions.create(model="toy", prompt=["a", "b"], max_tokens=5, extra_body={"structured_outputs": {"regex": "[0-9]+"}})
    assert all(one.text.isdigit() and len(one.text) <= 5 for one in done.choices)
    unlike = {"messages": ASKED, "response_format": {"type": "json_object"}, "max_tokens": 1}
    status, _, content = writes_json.ask(json.dumps(unlike).encode(), path="/v1/chat/completions")
    assert status == 400 and "the shortest text of this form has 2 tokens" in content["error"]
    endless = json.dumps({"messages": ASKED, "structured_outputs": {"regex": "(a|b)*a(a|b){24}"}}).encode()
    asked = [threading.Thread(target=writes_json.ask, args=(endless,), kwargs={"path": "/v1/chat/completions"}) for _ in range(2)]
    for one in asked:
        one.start()
    assert ask(extra_body={"structured_outputs": {"choice": ["c"]}}) == "c"  # the others end, and do no harm
    for one in asked:
        one.join()


def form(**more):
    return {"messages": ASKED, "structured_outputs": more}


@needs_forms
@pytest.mark.parametrize("sent, words", [
    (form(choice=[]), "structured_outputs.choice: is a list of texts"), (form(grammar="a"), "is an object with one of"),
    (form(regex="a", choice=["b"]), "is an object with one of"), (form(regex=3), "is a regular expression"),
    (form(regex="("), "no form that can"),
    (form(json="{}"), "structured_outputs.json: is an object"),
    (form(json={"type": "string", "minLength": "x"}), "minLength: 'x' is no whole number"),
    (form(regex="a" * 200_000), "100,000 at most"), ({**form(choice=["a"]), "stop": ["b"]}, "stop: a form says itself"),
    ({**form(choice=["a"]), "min_tokens": 3}, "min_tokens: a form"),
    ({**form(choice=["a"]), "response_format": {"type": "json_object"}}, "give one"),
    ({"messages": ASKED, "response_format": {"type": "json_schema"}}, "response_format: its type is"),
    ({"messages": ASKED, "response_format": 3}, "response_format: its type is"),
    ({"messages": ASKED, "response_format": {"type": "xml"}}, "response_format: its type is"),
    ({"messages": ASKED, "response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}, "not without a type"),
    (form(choice=["{"]), "no text of this form")])
def test_what_is_no_form_is_refused(server, sent, words):
    status, _, content = server.ask(json.dumps(sent).encode(), path="/v1/chat/completions")
    assert status == 400 and words in content["error"], content


@pytest.mark.parametrize("path, sent, words", [
    ("chat/completions", {"messages": []}, "no list of messages"), ("chat/completions", {}, "messages: is a list"),
    ("chat/completions", {"messages": [{"role": "cat", "content": ""}]}, "no role"), ("chat/completions", [], "an object"),
    ("chat/completions", {"messages": [{"role": "assistant", "content": "a"}]}, "nothing to answer"),
    ("chat/completions", {"messages": ASKED, "n": 2}, "n: is not offered"),
    ("chat/completions", {"messages": ASKED, "tools": [{}]}, "tools: is not offered"),
    ("chat/completions", {"messages": ASKED, "max_tokens": 0}, "max_tokens: 0 is no whole number"),
    ("chat/completions", {"messages": ASKED, "min_tokens": -1}, "min_tokens: -1 is no whole number"),
    ("chat/completions", {"messages": ASKED, "max_tokens": 5000}, "more than the 2,048 that are seen"),
    ("chat/completions", {"messages": ASKED, "temperature": "hot"}, "temperature: 'hot'"),
    ("chat/completions", {"messages": ASKED, "stop": [""]}, "stop: is a text"), ("chat/completions", {"model": "cat"}, "no model cat"),
    ("chat/completions", {"messages": [{"role": "user", "content": "a" * 900_000}]}, "more than the 2,048 tokens"),
    ("completions", {"prompt": ""}, "no token"), ("completions", {"prompt": 3}, "prompt: is a text"),
    ("completions", {"prompt": []}, "prompt: is a text"),
    ("embeddings", {"input": "a"}, "no pretrained encoder"), ("embeddings", {"input": 3}, "input: is a text")])
def test_what_cannot_be_answered_is_refused_by_name(server, path, sent, words):
    status, _, content = server.ask(json.dumps(sent).encode(), path=f"/v1/{path}")
    assert status in (400, 404) and words in content["error"]


def test_who_leaves_in_mid_stream_ends_its_work(server):
    body = json.dumps({"messages": ASKED, "stream": True, "max_tokens": 1900, "stop": ["never"], "top_p": 1.0}).encode()
    streams, end = server.streams(), server.streams().writer.end
    object.__setattr__(streams.writer, "end", -1)  # no text ends by itself
    try:
        with server.connect() as client:
            client.sendall(toy_server.request(body, path="/v1/chat/completions"))
            assert b"data: " in client.recv(4096) + client.recv(4096)
            assert streams.busy == 1
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        began = time.monotonic()
        until(lambda: streams.busy == 0)
        assert time.monotonic() - began < 5
    finally:
        object.__setattr__(streams.writer, "end", end)


def test_vectors_are_those_of_embed(tmp_path):
    import numpy as np
    from openai import OpenAI as Client

    from pipelines.serving.embed import of_preset, vectors
    from pipelines.serving.predict import Predictor

    run = of_preset(str(tiny.bert(tmp_path / "preset")))
    with serving(run) as server:
        client = Client(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        found = client.embeddings.create(model="toy", input=["the taxi", "a room"])
        expected = [one.values["vector"] for one in Predictor(run, answer=vectors).predict(["the taxi", "a room"])]
        np.testing.assert_allclose([one.embedding for one in found.data], expected, atol=1e-5)
        plain = client.embeddings.create(model="toy", input="the taxi", encoding_format="float").data[0].embedding
        np.testing.assert_allclose(plain, expected[0], atol=1e-5)
        assert server.ask(b'{"messages": []}', path="/v1/chat/completions")[0] == 400


def test_a_terminal_talks(preset, run):
    said = "say a b\n\n/new\nsay a b\nmore\n"
    settings = ("--set", "writing.temperature=1", "--set", "writing.most=40")
    done = subprocess.run([sys.executable, "-m", "quartet", "chat", str(preset), *settings], input=said, capture_output=True, text=True,
                          timeout=300, check=True)
    first = answer_of(run, ASKED)
    more = answer_of(run, [*ASKED, {"role": "assistant", "content": first}, {"role": "user", "content": "more"}])
    assert done.stdout == f"{first}\n{first}\n{more}\n"


def test_what_does_not_talk_is_named(tmp_path):
    from pathlib import Path

    from extensions.chat.commands import chat

    with pytest.raises(ConfigError, match="there is no preset"):
        chat("nobody", runs=Path("runs"))
    with pytest.raises(ConfigError, match=r"no language model|written by"):
        chat(str(tiny.bert(tmp_path / "bert")), runs=Path("runs"))
