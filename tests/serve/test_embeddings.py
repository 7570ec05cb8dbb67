"""`dlc serve` of an encoder: /v1/embeddings."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import dlc
from dlc.language_models.embedding_model import EmbeddingModel
from tests.language_models.models import TOKENS, write_encoder

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from dlc.serve.application import ModelQueues, ServerLimits, application  # noqa: E402
from dlc.serve.embeddings import EmbeddingQueue  # noqa: E402
from dlc.serve.metrics import Metrics  # noqa: E402
from dlc.serve.repository import Repository  # noqa: E402
from tests.serve.test_server import Client  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingModel:
    return EmbeddingModel.load(write_encoder(tmp_path_factory.mktemp("encoder")), target="reference")


@pytest.fixture(scope="module")
def port(model: EmbeddingModel) -> Iterator[int]:
    queues = ModelQueues(encoders={"encoder": EmbeddingQueue(model, 4)})
    repository = Repository([], None, dlc.load, lambda name, result: None)
    config = uvicorn.Config(application(repository, Metrics(), None, ServerLimits(), queues), port=0, log_level="error")
    server, socket = uvicorn.Server(config), config.bind_socket()
    socket.listen()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    yield socket.getsockname()[1]
    server.should_exit = True
    thread.join(60)


def test_embeddings_of_token_ids(model: EmbeddingModel, port: int) -> None:
    client = Client(port, None)
    expected = model.embed([TOKENS, TOKENS[:2]])
    status, answer = client.json("POST", "/v1/embeddings", {"model": "encoder", "input": [TOKENS, TOKENS[:2]]})
    assert status == 200 and answer["usage"] == {"prompt_tokens": 12, "total_tokens": 12}
    np.testing.assert_array_equal(np.float32([d["embedding"] for d in answer["data"]]), expected)
    status, answer = client.json("POST", "/v1/embeddings", {"input": TOKENS, "encoding_format": "base64"})
    assert status == 200
    # NumPy's matrix products of one text and of two round differently on some processors.
    embedding = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(embedding, expected[0], rtol=1e-5, atol=1e-6)
    assert client.json("GET", "/v1/models")[1]["data"][0]["id"] == "encoder"


@pytest.mark.parametrize(
    "fields, status, message",
    [
        ({"model": "other", "input": "a"}, 404, "other"),
        ({"input": []}, 400, "input = []"),
        ({"input": [[5], [True]]}, 400, "input"),
        ({"input": [[5] * 99]}, 400, "99 tokens"),
        ({"input": [TOKENS], "dimensions": 4}, 400, "dimensions = 4"),
        ({"input": [TOKENS], "encoding_format": "hex"}, 400, "hex"),
    ],
    ids=str,
)
def test_invalid_requests(port: int, fields: dict[str, object], status: int, message: str) -> None:
    got, answer = Client(port, None).json("POST", "/v1/embeddings", fields)
    assert got == status and message in answer["error"]["message"]
