"""The embeddings endpoint of OpenAI's API, /v1/embeddings.

https://platform.openai.com/docs/api-reference/embeddings
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dlc.errors import ArgumentError, QueueFullError
from dlc.language_models.embedding_model import EmbeddingModel
from dlc.machine.cpus import running_on
from dlc.serve.http_requests import HttpError, read_json_body, recorded, until_disconnected
from dlc.serve.metrics import Metrics

_MAX_TEXTS_PER_REQUEST = 2048
_FIELDS = ("model", "input", "encoding_format", "user")


class EmbeddingQueue:
    """The pending requests of an encoder: those that arrive while it runs form the next batch."""

    def __init__(self, model: EmbeddingModel, max_pending: int) -> None:
        self.model = model
        self._max_pending = max_pending
        self._waiting: list[tuple[list[list[int]], asyncio.Future[NDArray[np.float32]]]] = []
        self._is_needed = asyncio.Event()
        self.num_running = 0

    @property
    def num_pending(self) -> int:
        return len(self._waiting)

    async def embed(self, texts: list[list[int]]) -> NDArray[np.float32]:
        """Return the vectors of texts. Raises QueueFullError if too many requests wait."""
        if len(self._waiting) >= self._max_pending:
            raise QueueFullError(f"{self.model.name}: {self._max_pending} requests are waiting; try again later")
        result: asyncio.Future[NDArray[np.float32]] = asyncio.get_running_loop().create_future()
        self._waiting.append((texts, result))
        self._is_needed.set()
        return await result

    async def run(self) -> None:
        """Encode the texts of requests until this task is cancelled."""
        while True:
            if not self._waiting:
                self._is_needed.clear()
                await self._is_needed.wait()
            # Skip requests whose client disconnected.
            batch = [(texts, result) for texts, result in self._waiting if not result.done()]
            self._waiting, self.num_running = [], len(batch)
            try:
                vectors = await run_in_threadpool(_embed, self.model, [ids for texts, _ in batch for ids in texts])
                start = 0
                for texts, result in batch:
                    if not result.done():
                        result.set_result(vectors[start : start + len(texts)])
                    start += len(texts)
            except Exception as error:
                for _, result in batch:
                    if not result.done():
                        result.set_exception(error)
            finally:
                self.num_running = 0


def _embed(model: EmbeddingModel, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
    with running_on(model.model.cpus):
        return model.embed_ids(texts)


class Embeddings:
    """The endpoint; `queues` maps the names of encoders to their queues."""

    def __init__(self, queues: Mapping[str, EmbeddingQueue], metrics: Metrics, max_request_bytes: int) -> None:
        self._queues, self._metrics, self._max_request_bytes = queues, metrics, max_request_bytes

    async def embeddings(self, request: Request) -> Response:
        start = perf_counter()
        fields = await read_json_body(request, self._max_request_bytes)
        name = fields.get("model")
        if name is None and len(self._queues) == 1:
            name = next(iter(self._queues))
        if not isinstance(name, str) or name not in self._queues:
            listed = ", ".join(sorted(self._queues)) or "none"
            raise HttpError(404, f"no encoder is named {name!r}; the encoders are {listed}")
        queue = self._queues[name]
        with recorded(self._metrics, name, start):
            texts = await run_in_threadpool(_parse, queue.model, fields)
            vectors = await until_disconnected(request, queue.embed(texts))
            encode = _base64 if fields.get("encoding_format") == "base64" else np.ndarray[Any, Any].tolist
            data = [{"object": "embedding", "index": i, "embedding": encode(vector)} for i, vector in enumerate(vectors)]
            tokens = sum(map(len, texts))
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            return JSONResponse({"object": "list", "data": data, "model": name, "usage": usage})


def _parse(model: EmbeddingModel, fields: Mapping[str, Any]) -> list[list[int]]:
    """Return the token ids of each text. Raises ArgumentError for an unknown or invalid field."""
    for name, value in fields.items():
        if name not in _FIELDS and value is not None:
            raise ArgumentError(f"{name} = {value!r:.60} is not supported")
    if fields.get("encoding_format") not in (None, "float", "base64"):
        raise ArgumentError(f"encoding_format = {fields['encoding_format']!r:.60}; expected float or base64")
    given: Any = fields.get("input")
    if isinstance(given, str) or (isinstance(given, list) and given and _is_token(cast("list[object]", given)[0])):
        given = [given]
    texts = cast("list[object]", given) if isinstance(given, list) else []
    if not 1 <= len(texts) <= _MAX_TEXTS_PER_REQUEST or not all(isinstance(t, str) or _are_tokens(t) for t in texts):
        raise ArgumentError(f"input = {given!r:.60}; expected 1 to {_MAX_TEXTS_PER_REQUEST} texts, or lists of token ids")
    return [model.token_ids(cast("str | list[int]", text)) for text in texts]


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_tokens(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_token, cast("list[object]", value)))


def _base64(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
