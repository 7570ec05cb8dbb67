"""`dlc serve` of a language model: OpenAI's API, limits and clients that disconnect."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import dlc
from dlc.language_models.language_model import LanguageModel
from dlc.language_models.step_runner import StepRunner, TextPart
from dlc.machine.cpus import cpu_affinity
from tests.language_models.models import TEXTS, write_llama

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from dlc.serve import text_queue  # noqa: E402
from dlc.serve.application import ModelQueues, ServerLimits, application  # noqa: E402
from dlc.serve.metrics import Metrics  # noqa: E402
from dlc.serve.repository import Repository  # noqa: E402
from dlc.serve.text_queue import TextQueue  # noqa: E402
from tests.serve.test_server import Client  # noqa: E402
from tests.serve.text_load import run_clients  # noqa: E402

GREEDY = {"prompt": "ab cd", "temperature": 0}


class Server:
    """A server of one language model in a thread."""

    def __init__(self, model: LanguageModel, max_pending: int = 2) -> None:
        self.texts = TextQueue(model, max_pending)
        repository = Repository([], None, dlc.load, lambda name, result: None)
        app = application(
            repository, Metrics(), None, ServerLimits(max_request_bytes=1 << 16), ModelQueues({"small": self.texts})
        )
        config = uvicorn.Config(app, port=0, log_level="error")
        self.server, socket = uvicorn.Server(config), config.bind_socket()
        socket.listen()
        self.port = socket.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [socket]})
        self.thread.start()

    def post(self, path: str, **fields: Any) -> tuple[int, Any]:
        return Client(self.port, None).json("POST", path, fields)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    path = write_llama(tmp_path_factory.mktemp("models") / "small.gguf", is_quantized=False, num_layers=1)
    return LanguageModel.load(path, max_texts=2, num_threads=1, cpus=cpu_affinity())


def test_texts_advance_on_the_processors_of_the_model(model: LanguageModel) -> None:
    class Batch:
        def advance(self) -> list[frozenset[int]]:
            return [cpu_affinity()]

    cpu = min(cpu_affinity())
    assert model.model.cpus == cpu_affinity()
    assert text_queue._advance(Batch(), frozenset([cpu])) == [{cpu}]


@pytest.fixture(scope="module")
def server(model: LanguageModel) -> Iterator[Server]:
    started = Server(model)
    yield started
    started.stop()


@pytest.fixture
def slow_server(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    use_slow_steps(monkeypatch, model)
    started = Server(model)
    yield started
    started.stop()


def events(content: bytes) -> list[Any]:
    *lines, done = [line.removeprefix("data: ") for line in content.decode().split("\n\n") if line]
    assert done == "[DONE]"
    return [json.loads(line) for line in lines]


def test_completions(server: Server, model: LanguageModel) -> None:
    expected = dlc.generate(model, "ab cd", max_tokens=8)
    status, answer = server.post("/v1/completions", **GREEDY, model="small", max_tokens=8)
    assert status == 200
    assert answer["choices"][0]["text"] == expected.text
    assert answer["choices"][0]["finish_reason"] == {"end": "stop", "length": "length"}[expected.finish_reason]
    assert answer["usage"]["completion_tokens"] == len(expected.tokens)
    ids = server.post("/v1/completions", prompt=expected.prompt_tokens, temperature=0, max_tokens=8)[1]
    assert ids["choices"][0]["text"] == expected.text
    _, content, headers = Client(server.port, None).request(
        "POST", "/v1/completions", {**GREEDY, "max_tokens": 8, "stream": True, "stream_options": {"include_usage": True}}
    )
    *chunks, usage = events(content)
    assert headers["content-type"].startswith("text/event-stream")
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == expected.text
    assert usage["usage"] == answer["usage"]
    stop = expected.text[2:4]
    stopped = server.post("/v1/completions", **GREEDY, max_tokens=8, stop=[stop])[1]["choices"][0]
    assert (stopped["text"], stopped["finish_reason"]) == (expected.text[: expected.text.index(stop)], "stop")


def test_chat_completions(server: Server, model: LanguageModel) -> None:
    messages = [{"role": "user", "content": "ab"}]
    expected = dlc.generate(model, messages, max_tokens=6).text
    fields = {"messages": messages, "temperature": 0, "max_tokens": 6}
    answer = server.post("/v1/chat/completions", **fields)[1]
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": expected}
    content = Client(server.port, None).request("POST", "/v1/chat/completions", {**fields, "stream": True})[1]
    deltas = [chunk["choices"][0]["delta"] for chunk in events(content)]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta["content"] for delta in deltas) == expected


def use_slow_steps(monkeypatch: pytest.MonkeyPatch, model: LanguageModel) -> None:
    """Let each step take 5 ms and return the token of "b", in a context without limit."""

    def run(runner: StepRunner, parts: Sequence[TextPart]) -> tuple[list[int], Any]:
        time.sleep(0.005)
        return [TEXTS.index("b")] * len(parts), None

    monkeypatch.setattr(StepRunner, "run", run)
    monkeypatch.setattr(model, "context", 1 << 20)


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_texts_advance_together(slow_server: Server) -> None:
    """A short request ends while a long one runs that started earlier."""
    server = slow_server
    long = Client(server.port, None)
    body = json.dumps({"prompt": "ab", "max_tokens": 10_000, "stream": True})
    long.connection.request("POST", "/v1/completions", body)
    wait_until(lambda: server.texts.num_running == 1)
    assert server.post("/v1/completions", prompt="ab", max_tokens=3)[1]["choices"][0]["text"] == "bbb"
    assert server.texts.num_running == 1
    long.connection.close()
    wait_until(lambda: not server.texts.num_running)


def test_limits_and_disconnected_clients(slow_server: Server) -> None:
    server = slow_server
    clients = [Client(server.port, None) for _ in range(4)]
    for client, is_stream in zip(clients, (True, False, True, False), strict=True):
        body = json.dumps({"prompt": "ab", "max_tokens": 100_000, "stream": is_stream})
        client.connection.request("POST", "/v1/completions", body)
    wait_until(lambda: server.texts.num_pending == 2)
    assert server.post("/v1/completions", **GREEDY)[0] == 429
    metrics = Client(server.port, None).request("GET", "/metrics")[1].decode()
    assert 'dlc_pending_calls{model="small"} 2' in metrics
    for client in clients:
        client.connection.close()
    wait_until(lambda: not (server.texts.num_pending or server.texts.num_running))
    assert server.post("/v1/completions", **GREEDY, max_tokens=1)[0] == 200


def test_many_clients(model: LanguageModel) -> None:
    """Clients that disconnect and malformed requests harm no others; all texts end (tests/serve/text_load.py)."""
    server = Server(model, max_pending=16)
    report = run_clients(server.port, 8, time.monotonic() + 1.5, (259, len(TEXTS)))
    wait_until(lambda: not (server.texts.num_pending or server.texts.num_running))
    server.stop()
    assert not report.errors and len(report.texts) >= 4
    assert all(len(texts) == 1 for texts in report.texts.values())


@pytest.mark.parametrize(
    ("path", "fields", "status", "message"),
    [
        ("completions", {"prompt": "ab", "model": "large"}, 404, "no model is named 'large'; the models are small"),
        ("completions", {"prompt": "ab", "n": 2}, 400, "n = 2 is not supported"),
        ("completions", {"prompt": "ab", "n": True}, 400, "n = True is not supported"),
        ("completions", {"prompt": "ab", "logprobs": 0}, 400, "logprobs = 0 is not supported"),
        ("completions", {"prompt": "ab", "frequency": 1}, 400, "frequency = 1 is not supported"),
        ("completions", {"prompt": {}}, 400, "prompt = {}; expected a text, or a list of token ids"),
        ("completions", {"prompt": [10**9]}, 400, "expected one or more ids below"),
        ("completions", {"prompt": [5] * 9000}, 400, "the prompt has 9000 tokens"),
        ("completions", {"prompt": "ab", "temperature": "hot"}, 400, "temperature = 'hot'"),
        ("completions", {"prompt": "ab", "temperature": True}, 400, "temperature = True; expected a number"),
        ("completions", {"prompt": "ab", "seed": 1.5}, 400, "seed = 1.5; expected an integer"),
        ("completions", {"prompt": "ab", "top_k": True}, 400, "top_k = True; expected an integer"),
        ("completions", {"prompt": "ab", "max_tokens": 0}, 400, "max_tokens = 0"),
        ("completions", {"prompt": "ab", "max_tokens": 2.5}, 400, "max_tokens = 2.5; expected an integer"),
        (
            "completions",
            {"prompt": "ab", "max_completion_tokens": True},
            400,
            "max_completion_tokens = True; expected an integer",
        ),
        ("completions", {"prompt": "ab", "stream": 1}, 400, "stream = 1; expected a boolean"),
        ("completions", {"prompt": "ab", "stream_options": [1]}, 400, "stream_options = [1]; expected an object"),
        ("completions", {"prompt": "ab", "stream_options": {"include_usage": "no"}}, 400, "include_usage = 'no'"),
        ("completions", {"prompt": "ab", "stream": "false"}, 400, "stream = 'false'; expected a boolean"),
        ("chat/completions", {"messages": [{"role": "user"}]}, 400, "expected a role, and a content of text"),
        ("chat/completions", {"messages": []}, 400, "messages = []; expected a list of messages"),
        ("completions", {"prompt": "a" * (1 << 17)}, 413, "larger than"),
    ],
)
def test_wrong_requests(server: Server, path: str, fields: dict[str, Any], status: int, message: str) -> None:
    got, answer = server.post(f"/v1/{path}", **fields)
    assert got == status
    assert message in answer["error"]["message"]


@pytest.mark.parametrize(("body", "message"), [([1], "expected a JSON object, got a list"), ("ab", "got a str")])
def test_bodies_that_are_not_objects(server: Server, body: object, message: str) -> None:
    status, answer = Client(server.port, None).json("POST", "/v1/completions", body)
    assert status == 400 and message in answer["error"]["message"]


def test_models(server: Server) -> None:
    assert [m["id"] for m in Client(server.port, None).json("GET", "/v1/models")[1]["data"]] == ["small"]
