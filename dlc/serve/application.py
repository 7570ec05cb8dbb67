"""The ASGI application: routes of the KServe v2 protocol and of OpenAI's API, health, metrics, authorization and limits."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dlc.errors import DeadlineError, DlcError, DTypeError, ShapeError
from dlc.serve.completions import Completions
from dlc.serve.embeddings import EmbeddingQueue, Embeddings
from dlc.serve.http_requests import HttpError, error_response, read_body, recorded, routing_error, until_disconnected
from dlc.serve.metrics import Metrics
from dlc.serve.repository import Repository, ServedModel
from dlc.serve.tensors import BadRequestError, InferenceRequest, encode_response, parse_request
from dlc.serve.text_queue import TextQueue

_log = logging.getLogger("dlc.serve")
# Larger bodies are parsed in a thread, so that they do not block other requests.
_MAX_INLINE_BYTES = 1 << 18
_RELOAD_SECONDS = 1.0
_JSON_SIZE_HEADER = "Inference-Header-Content-Length"
_SIZE_PATTERN = "[0-9]{1,18}"
_MAX_QUOTED_LENGTH = 40


@dataclass(frozen=True)
class ServerLimits:
    """The limits of the server.

    Attributes:
        max_pending: The maximum number of calls of a model that have not started; further requests get status 429.
        max_request_bytes: The maximum size of a request; larger ones get status 413.
        deadline: Seconds until which a call must have started; None: no limit. A request may set a shorter time.
    """

    max_pending: int = 1024
    max_request_bytes: int = 64 << 20
    deadline: float | None = None


@dataclass(frozen=True)
class ModelQueues:
    """The queues of models with endpoints of OpenAI's API, by name: language models, and encoders."""

    texts: Mapping[str, TextQueue] = field(default_factory=dict[str, TextQueue])
    encoders: Mapping[str, EmbeddingQueue] = field(default_factory=dict[str, EmbeddingQueue])

    @property
    def all(self) -> Mapping[str, TextQueue | EmbeddingQueue]:
        return {**self.texts, **self.encoders}


def application(
    repository: Repository, metrics: Metrics, token: str | None, limits: ServerLimits, queues: ModelQueues
) -> Starlette:
    """Return the application; its lifespan reloads replaced models, and runs the queues.

    Without a token, every request is authorized.
    """
    server = _Server(repository, metrics, token, limits, queues)
    completions = Completions(queues.texts, metrics, limits.max_request_bytes)
    embeddings = Embeddings(queues.encoders, metrics, limits.max_request_bytes)
    authorized = server.authorized

    def model_routes(suffix: str, endpoint: Callable[[Request], Awaitable[Response]], method: str) -> list[Route]:
        paths = (f"/v2/models/{{model}}{suffix}", f"/v2/models/{{model}}/versions/{{version}}{suffix}")
        return [Route(path, authorized(endpoint), methods=[method]) for path in paths]

    routes = [
        # Health is public: load balancers have no token.
        Route("/v2/health/live", server.ready),
        Route("/v2/health/ready", server.ready),
        Route("/v2", authorized(server.metadata)),
        Route("/metrics", authorized(server.metrics_text)),
        Route("/v2/repository/index", authorized(server.index), methods=["POST"]),
        Route("/v1/models", authorized(server.openai_models)),
        Route("/v1/completions", authorized(completions.completions), methods=["POST"]),
        Route("/v1/chat/completions", authorized(completions.chat_completions), methods=["POST"]),
        Route("/v1/embeddings", authorized(embeddings.embeddings), methods=["POST"]),
        *model_routes("/infer", server.infer, "POST"),
        *model_routes("/ready", server.model_ready, "GET"),
        *model_routes("", server.model_metadata, "GET"),
    ]
    return Starlette(routes=routes, lifespan=server.lifespan, exception_handlers={HTTPException: routing_error})


class _Server:
    def __init__(
        self,
        repository: Repository,
        metrics: Metrics,
        token: str | None,
        limits: ServerLimits,
        queues: ModelQueues,
    ) -> None:
        self.repository, self.metrics, self.token, self.limits, self.queues = repository, metrics, token, limits, queues

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        tasks = [asyncio.create_task(self._reload()), *(asyncio.create_task(queue.run()) for queue in self.queues.all.values())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    async def _reload(self) -> None:
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            try:
                await run_in_threadpool(self.repository.refresh)
            except Exception:
                _log.exception("the models could not be reloaded")

    def authorized(self, endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that checks the token and reports errors."""

        async def checked(request: Request) -> Response:
            # The scheme is case-insensitive (RFC 9110), the token is not.
            scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
            is_known = self.token is None or hmac.compare_digest(sent.strip().encode(), self.token.encode())
            if not is_known or (self.token is not None and scheme.lower() != "bearer"):
                message = "missing or wrong token; send the header Authorization: Bearer TOKEN"
                return error_response(request, 401, message, {"WWW-Authenticate": "Bearer"})
            try:
                return await endpoint(request)
            except HttpError as error:
                return error_response(request, error.status, str(error))

        return checked

    async def ready(self, request: Request) -> Response:
        return JSONResponse({"ready": True})

    async def metadata(self, request: Request) -> Response:
        return JSONResponse({"name": "dlc", "version": version("dlc"), "extensions": ["binary_tensor_data"]})

    async def metrics_text(self, request: Request) -> Response:
        models = self.repository.models
        pending = {name: model.calls.num_pending for name, model in models.items()}
        running = {name: model.calls.requests.running for name, model in models.items()}
        pending |= {name: queue.num_pending for name, queue in self.queues.all.items()}
        running |= {name: queue.num_running for name, queue in self.queues.all.items()}
        return PlainTextResponse(self.metrics.text(pending, running), media_type="text/plain; version=0.0.4")

    async def openai_models(self, request: Request) -> Response:
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "dlc"} for name in sorted(self.queues.all)]
        return JSONResponse({"object": "list", "data": models})

    async def index(self, request: Request) -> Response:
        models = self.repository.models.values()
        return JSONResponse([{"name": m.name, "version": m.version, "state": "READY"} for m in models])

    async def model_ready(self, request: Request) -> Response:
        return JSONResponse({"name": self._model(request).name, "ready": True})

    async def model_metadata(self, request: Request) -> Response:
        return JSONResponse(self._model(request).description)

    def _model(self, request: Request) -> ServedModel:
        name, requested = request.path_params["model"], request.path_params.get("version")
        model = self.repository.models.get(name)
        if model is None:
            raise HttpError(404, f"no model is named {name!r}; the models are {', '.join(sorted(self.repository.models))}")
        if requested is not None and requested != model.version:
            raise HttpError(404, f"model {name!r} has the version {model.version}, not {requested!r}")
        return model

    async def infer(self, request: Request) -> Response:
        start, model = perf_counter(), self._model(request)
        with recorded(self.metrics, model.name, start):
            try:
                return await self._infer(request, model)
            except HttpError:
                raise
            except Exception as error:
                _log.exception("%s: a request failed", model.name)
                raise HttpError(500, f"{model.name}: internal error: {type(error).__name__}") from error

    async def _infer(self, request: Request, model: ServedModel) -> Response:
        body, header = await read_body(request, self.limits.max_request_bytes), request.headers.get(_JSON_SIZE_HEADER)
        if header is not None and not re.fullmatch(_SIZE_PATTERN, header):
            raise HttpError(400, f"{_JSON_SIZE_HEADER}: expected a number, got {header[:_MAX_QUOTED_LENGTH]!r}")
        json_bytes = None if header is None else int(header)
        try:
            parsed = await _inline_or_in_thread(len(body), parse_request, body, json_bytes)
            results = await self._results(request, model, parsed)
            size = sum(array.nbytes for array in results.values())
            content, size = await _inline_or_in_thread(size, encode_response, model.name, model.version, parsed, results)
        except (BadRequestError, ShapeError, DTypeError) as error:
            raise HttpError(400, str(error)) from error
        except DeadlineError as error:
            raise HttpError(504, str(error)) from error
        except DlcError as error:
            # A `dl.fail` of the model, or missing inputs.
            raise HttpError(400, str(error)) from error
        if size is None:
            return Response(content, media_type="application/json")
        return Response(content, headers={_JSON_SIZE_HEADER: str(size)}, media_type="application/octet-stream")

    async def _results(self, request: Request, model: ServedModel, parsed: InferenceRequest) -> Mapping[str, NDArray[Any]]:
        """Return the outputs; cancel the call if the client disconnects."""
        # The event loop must not block on a full queue.
        max_pending = min(self.limits.max_pending, model.calls.max_pending)
        if model.calls.num_pending >= max_pending:
            raise HttpError(429, f"{model.name}: {max_pending} requests are waiting; try again later")
        timeouts = [seconds for seconds in (parsed.timeout, self.limits.deadline) if seconds is not None]
        future = model.calls.submit(parsed.inputs, priority=parsed.priority, deadline=min(timeouts, default=None))
        outputs = await until_disconnected(request, future)
        return {name: np.asarray(array) for name, array in outputs.items()}


async def _inline_or_in_thread(size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments) if size <= _MAX_INLINE_BYTES else await run_in_threadpool(function, *arguments)
