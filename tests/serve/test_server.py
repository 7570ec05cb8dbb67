"""`dlc serve` over a socket: the KServe v2 protocol, limits, hot reload and shutdown."""

from __future__ import annotations

import http.client
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from tests.project.documented import network

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from dlc.serve import http_requests  # noqa: E402
from dlc.serve.application import ModelQueues, ServerLimits, application  # noqa: E402
from dlc.serve.metrics import Metrics  # noqa: E402
from dlc.serve.repository import Repository  # noqa: E402

X = np.random.default_rng(0).standard_normal((2, 32), np.float32)
JSON_SIZE = "Inference-Header-Content-Length"


class Client:
    def __init__(self, port: int, token: str | None = "secret") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, path, data, {**self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}})
        response = self.connection.getresponse()
        return response.status, response.read(), dict(response.getheaders())

    def json(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        status, content, _ = self.request(method, path, body, **headers)
        return status, json.loads(content)


class Server:
    """A server in a thread, for the models of a folder."""

    def __init__(self, folder: Path, limits: ServerLimits, max_batch: int = 1) -> None:
        def load(path: Path) -> Any:
            model = dlc.load(path, num_threads=1, streams=2)
            return dlc.batched(model, max_batch=max_batch, max_delay_ms=1) if max_batch > 1 else model

        metrics = Metrics()
        self.repository = Repository([], folder, load, lambda name, result: metrics.reloads.__setitem__((name, result), 1))
        self.repository.open()
        config = uvicorn.Config(
            application(self.repository, metrics, "secret", limits, ModelQueues()), port=0, log_level="error"
        )
        self.server, socket = uvicorn.Server(config), config.bind_socket()
        socket.listen()
        self.port = socket.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [socket]})
        self.thread.start()

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    model = dlc.compile_model(network(["logits"], "N"), input_shapes={"x": ("N:1..64", 32)}, cache=False)
    model.save(folder / "net.dlc")
    slow = dlc.jit(lambda x: dlc.lax.fori_loop(0, 20_000_000, lambda i, y: y * 0.5 + 1, x)).lower(np.ones(4, np.float32))
    slow.compile().save(folder / "slow.dlc")
    return folder


@pytest.fixture(scope="module", params=[1, 8])
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    own = tmp_path_factory.mktemp("served")
    os.link(folder / "net.dlc", own / "net.dlc")
    started = Server(own, ServerLimits(max_request_bytes=1 << 20), request.param)
    yield started
    started.stop()


def infer_body(x: Any = X, **fields: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": list(x.shape), "data": x.tolist()}], **fields}


def input_body(datatype: str, data: list[Any]) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": datatype, "shape": [len(data)], "data": data}]}


def test_metadata_and_health(server: Server) -> None:
    client = Client(server.port)
    assert client.json("GET", "/v2")[1]["extensions"] == ["binary_tensor_data"]
    assert client.json("GET", "/v2/models/net") == client.json("GET", "/v2/models/net/versions/1")
    description = client.json("GET", "/v2/models/net")[1]
    assert description["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 32]}]
    assert client.json("GET", "/v2/models/net/ready") == (200, {"name": "net", "ready": True})
    assert client.json("POST", "/v2/repository/index")[1] == [{"name": "net", "version": "1", "state": "READY"}]
    assert Client(server.port, None).json("GET", "/v2/health/ready") == (200, {"ready": True})


def test_json_and_binary_tensors(server: Server, folder: Path) -> None:
    expected, client = dlc.load(folder / "net.dlc")(X)["logits"], Client(server.port)
    status, answer = client.json("POST", "/v2/models/net/infer", infer_body(id="7"))
    assert status == 200 and answer["id"] == "7" and answer["model_version"] == "1"
    np.testing.assert_array_equal(np.float32(answer["outputs"][0]["data"]).reshape(2, 3), expected)
    head = json.dumps({
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 32], "parameters": {"binary_data_size": X.nbytes}}],
        "outputs": [{"name": "logits", "parameters": {"binary_data": True}}],
    }).encode()  # fmt: skip
    status, content, headers = client.request(
        "POST", "/v2/models/net/infer", head + X.tobytes(), Inference_Header_Content_Length=str(len(head))
    )
    size = int({k.lower(): v for k, v in headers.items()}[JSON_SIZE.lower()])
    output = json.loads(content[:size])["outputs"][0]
    assert (status, output["shape"], output["parameters"]) == (200, [2, 3], {"binary_data_size": 24})
    np.testing.assert_array_equal(np.frombuffer(content[size:], np.float32).reshape(2, 3), expected)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v2/models/other/infer", infer_body(), 404, "no model is named 'other'; the models are net"),
        ("/v2/models/net/versions/9/infer", infer_body(), 404, "has the version 1, not '9'"),
        ("/v2/models/net/infer", b"{", 400, "the request is not JSON"),
        ("/v2/models/net/infer", [], 400, "the request: expected an object, got a list"),
        ("/v2/models/net/infer", {}, 400, "inputs: expected a list, got nothing"),
        ("/v2/models/net/infer", {"inputs": []}, 400, "input 'x' is missing"),
        ("/v2/models/net/infer", infer_body(X[:, :3]), 400, "expected input x: float32[N, 32]"),
        ("/v2/models/net/infer", infer_body(outputs=[{"name": "z"}]), 400, "no output is named 'z'"),
        ("/v2/models/net/infer", infer_body(parameters={"timeout": "x"}), 400, "timeout: expected an integer"),
        ("/v2/models/net/infer", {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 32], "data": [1]}]}, 400, "expected [2, 32]"),
        ("/v2/models/net/infer", {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-2], "data": [1]}]}, 400, "sizes >= 0"),
        ("/v2/models/net/infer", {"inputs": [{"name": "x", "datatype": "TEXT", "shape": [1], "data": [1]}]}, 400, "expected one of BOOL"),
        ("/v2/models/net/infer", {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": ["a"]}]}, 400, "input 'x': data"),
        ("/v2/models/net/infer", {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}]}, 400, "4 bytes of binary data, 0 in the request"),
        ("/v2/models/net/infer", infer_body(parameters={"timeout": -1}), 400, "timeout: expected microseconds >= 0"),
        *(("/v2/models/net/infer", input_body("FP32", [value]), 400, f"an element has the type {kind}") for value, kind in ((None, "NoneType"), (True, "bool"), ("1", "str"), ({}, "dict"))),
        ("/v2/models/net/infer", input_body("FP32", [1e39]), 400, "overflow"),
        ("/v2/models/net/infer", input_body("INT8", [300]), 400, "out of bounds for int8"),
        ("/v2/models/net/infer", input_body("INT8", [1.5]), 400, "an element has the type float"),
        ("/v2/models/net/infer", input_body("BOOL", [2]), 400, "an element has the type int"),
        ("/v2/models/net/infer", b"[" * 100_000, 400, "the request is not JSON"),
        ("/v2/models/..%2f..%2fetc%2fpasswd/infer", infer_body(), 404, "Not Found"),
        ("/v2/models/net", infer_body(), 405, "Method Not Allowed"),
        ("/v2/models/net/infer", b" " * (2 << 20), 413, "larger than 1048576 bytes"),
    ],
)  # fmt: skip
def test_wrong_requests(server: Server, path: str, body: Any, status: int, message: str) -> None:
    found, answer = Client(server.port).json("POST", path, body)
    assert (found, message in answer["error"]) == (status, True), answer


def test_wrong_sizes_of_the_json_part(server: Server) -> None:
    for size in ("-1", "99999999", "x", "1" * 5000):
        status, _ = Client(server.port).json("POST", "/v2/models/net/infer", infer_body(), Inference_Header_Content_Length=size)
        assert status == 400


def test_clients_without_the_token_are_refused(server: Server) -> None:
    for token in (None, "wrong", "secret "[:5]):
        status, answer = Client(server.port, token).json("GET", "/v2/models/net")
        assert status == 401 and "missing or wrong token" in answer["error"]
    forms = {
        "bearer secret": 200,
        "BEARER  secret": 200,
        "Basic secret": 401,
        "secret": 401,
        "Bearer": 401,
        "Bearer sécret": 401,
    }
    for header, expected in forms.items():
        assert Client(server.port, None).json("GET", "/v2/models/net", Authorization=header)[0] == expected, header


def test_a_distant_timeout_leaves_others_alone(server: Server) -> None:
    client = Client(server.port)
    for timeout in (1 << 61, 10_000_000):
        assert client.json("POST", "/v2/models/net/infer", infer_body(parameters={"timeout": timeout}))[0] == 200


def test_slow_requests_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_requests, "_MAX_BODY_SECONDS", 0.05)
    client = Client(server.port)
    client.connection.putrequest("POST", "/v2/models/net/infer")
    for name, value in {**client.headers, "Content-Length": "1000"}.items():
        client.connection.putheader(name, value)
    client.connection.endheaders(b"{")
    response = client.connection.getresponse()
    assert response.status == 408 and b"did not arrive within 0.05 seconds" in response.read()


def test_booleans_of_other_bytes(tmp_path: Path) -> None:
    dlc.jit(lambda x: x).lower(np.zeros(4, np.bool_)).compile().save(tmp_path / "copy.dlc")
    server = Server(tmp_path, ServerLimits())
    tensor = {"name": "x", "datatype": "BOOL", "shape": [4], "parameters": {"binary_data_size": 4}}
    head = json.dumps({"inputs": [tensor]}).encode()
    body = head + bytes([0, 1, 2, 255])
    answer = Client(server.port).json("POST", "/v2/models/copy/infer", body, Inference_Header_Content_Length=str(len(head)))
    server.stop()
    assert answer[1]["outputs"][0]["data"] == [False, True, True, True]


def test_files_of_one_name_are_reported(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.link(folder / "net.dlc", tmp_path / "net.dlc")
    loads = list[tuple[str, str]]()
    repository = Repository([], tmp_path, dlc.load, lambda *load: loads.append(load))
    repository.open()
    (tmp_path / "net.onnx").write_bytes(b"")
    for _ in range(2):
        repository.refresh()
    assert [r.getMessage() for r in caplog.records if "two models are named 'net'" in r.getMessage()] != []
    assert loads == [("net", "success"), ("net", "error")] and repository.models["net"].version == "1"
    (tmp_path / "net.dlc").unlink()
    (tmp_path / "net.onnx").unlink()
    repository.refresh()
    assert not repository.models


def test_a_file_of_the_folder_on_the_command_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    os.link(folder / "net.dlc", tmp_path / "net.dlc")
    monkeypatch.chdir(tmp_path)
    repository = Repository([Path("net.dlc")], tmp_path, dlc.load, lambda *_: None)
    repository.open()
    assert [*repository.models] == ["net"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_metrics(server: Server) -> None:
    client = Client(server.port)
    client.json("POST", "/v2/models/net/infer", infer_body())
    client.json("POST", "/v2/models/net/infer", b"{")
    text = client.request("GET", "/metrics")[1].decode()
    counts = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if not line.startswith("#")}
    assert counts['dlc_requests_total{model="net",status="200"}'] >= 1
    assert counts['dlc_requests_total{model="net",status="400"}'] >= 1
    assert counts['dlc_request_seconds_bucket{model="net",le="+Inf"}'] == counts['dlc_request_seconds_count{model="net"}']
    assert counts['dlc_pending_calls{model="net"}'] == 0 and counts['dlc_model_loads_total{model="net",result="success"}'] == 1


def test_concurrent_clients_get_their_own_results(server: Server, folder: Path) -> None:
    model, errors = dlc.load(folder / "net.dlc"), list[BaseException]()

    def use(number: int) -> None:
        try:
            client, random = Client(server.port), np.random.default_rng(number)
            for _ in range(20):
                x = random.standard_normal((int(random.integers(1, 4)), 32), np.float32)
                answer = client.json("POST", "/v2/models/net/infer", infer_body(x))[1]
                np.testing.assert_array_equal(np.float32(answer["outputs"][0]["data"]).reshape(-1, 3), model(x)["logits"])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors


def test_limits_and_disconnected_clients(folder: Path, tmp_path: Path) -> None:
    os.link(folder / "slow.dlc", tmp_path / "slow.dlc")
    server = Server(tmp_path, ServerLimits(max_pending=2, deadline=0.2))
    name = server.repository.models["slow"].description["inputs"][0]["name"]
    body = {"inputs": [{"name": name, "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}]}
    calls = server.repository.models["slow"].calls
    gone = [Client(server.port) for _ in range(4)]
    for client in gone:
        client.connection.request("POST", "/v2/models/slow/infer", json.dumps(body), client.headers)
    until = time.monotonic() + 60
    while calls.num_pending < 2:
        assert time.monotonic() < until
        time.sleep(0.001)
    assert Client(server.port).json("POST", "/v2/models/slow/infer", body)[0] == 429
    for client in gone:
        client.connection.close()
    while calls.num_pending:
        assert time.monotonic() < until
        time.sleep(0.001)
    server.stop()
    assert calls.requests.pending == 0


def test_a_client_that_disconnects_while_it_sends_is_no_error(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(server.port)
    client.connection.putrequest("POST", "/v2/models/net/infer")
    for name, value in {**client.headers, "Content-Length": "100000"}.items():
        client.connection.putheader(name, value)
    client.connection.endheaders(b"{")
    client.connection.close()
    until = time.monotonic() + 60
    while 'status="499"' not in Client(server.port).request("GET", "/metrics")[1].decode():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not caplog.records


def test_replaced_files_are_reloaded(folder: Path, tmp_path: Path) -> None:
    os.link(folder / "net.dlc", tmp_path / "m.dlc")
    server, loaded = Server(tmp_path, ServerLimits()), list[str]()
    client = Client(server.port)
    try:
        (tmp_path / "damaged").write_bytes(b"dlcmodel")
        (tmp_path / "damaged").rename(tmp_path / "m.dlc")
        server.repository.refresh()
        assert client.json("POST", "/v2/models/m/infer", infer_body())[0] == 200
        dlc.jit(lambda x: x + 1).lower(X).compile().save(tmp_path / "new")
        (tmp_path / "new").rename(tmp_path / "m.dlc")
        until = time.monotonic() + 60
        while not loaded:
            loaded += [m["version"] for m in client.json("POST", "/v2/repository/index")[1] if m["version"] == "2"]
            assert time.monotonic() < until
            time.sleep(0.05)
        answer = client.json("POST", "/v2/models/m/infer", infer_body())[1]
        assert answer["model_version"] == "2" and answer["outputs"][0]["data"][0] == float(X[0, 0] + 1)
        (tmp_path / "m.dlc").unlink()
        server.repository.refresh()
        assert client.json("GET", "/v2/models/m")[0] == 404
    finally:
        server.stop()


def test_a_token_that_no_client_can_send(folder: Path) -> None:
    command = [sys.executable, "-m", "dlc", "serve", str(folder / "net.dlc"), "--token", "a b"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "expected letters, digits and the characters -._~+/=" in done.stderr.replace("\n", " ")


def test_the_command_serves_and_ends(folder: Path, tmp_path: Path) -> None:
    os.link(folder / "net.dlc", tmp_path / "renamed.dlc")
    command = [sys.executable, "-m", "dlc", "serve", str(tmp_path / "renamed.dlc"), "--port", "0", "--max-batch", "4"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = [line for _ in range(3) if (line := process.stderr.readline().strip())]
    token = next(line.removeprefix("token: ") for line in lines if line.startswith("token: "))
    address = next(line.rpartition(":")[2] for line in lines if line.startswith("serving renamed at http://127.0.0.1:"))
    client = Client(int(address), token)
    assert client.json("POST", "/v2/models/renamed/infer", infer_body())[0] == 200
    # Errors state the served name and not that of the compiled function.
    status, answer = client.json("POST", "/v2/models/renamed/infer", infer_body(X[:, :3]))
    assert status == 400 and answer["error"].startswith("renamed: expected input x")
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM) and "Traceback" not in rest
