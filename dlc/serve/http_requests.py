"""Read request bodies, record requests, detect disconnected clients, and return errors with a status code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Generator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from dlc.errors import DlcError, QueueFullError
from dlc.serve.metrics import Metrics

# A request whose body takes longer to arrive gets status 408.
_MAX_BODY_SECONDS = 120


class HttpError(Exception):
    """An error response with a status code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def error_response(request: Request, status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an error in the format of the request's protocol: an object for OpenAI's (/v1), a text for KServe's."""
    error: Any = {"message": message, "type": "invalid_request_error" if status < 500 else "server_error"}
    return JSONResponse({"error": error if request.url.path.startswith("/v1/") else message}, status, headers)


async def routing_error(request: Request, error: Exception) -> JSONResponse:
    """Return the error of a path without an endpoint (status 404), or of a wrong method (405)."""
    assert isinstance(error, HTTPException)
    return error_response(request, error.status_code, f"{request.method} {request.url.path}: {error.detail}", error.headers)


@contextmanager
def recorded(metrics: Metrics, model: str, start: float) -> Generator[None]:
    """Record the status code of a request for a model, and its duration since `start`, in seconds of `perf_counter`.

    Errors of dlc become HttpError: status 429 for a full queue, else 400.
    """
    status = 500
    try:
        yield
        status = 200
    except HttpError as error:
        status = error.status
        raise
    except asyncio.CancelledError:
        status = 499
        raise
    except DlcError as error:
        status = 429 if isinstance(error, QueueFullError) else 400
        raise HttpError(status, str(error)) from error
    finally:
        metrics.record(model, status, perf_counter() - start)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body.

    Raises HttpError with status 413 if it exceeds `max_bytes`, with status 499 if the client disconnects before its end, and
    with status 408 if it does not arrive in time.
    """
    parts, declared, size = list[bytes](), request.headers.get("Content-Length", ""), 0
    too_large = HttpError(413, f"the request is larger than {max_bytes} bytes, the limit of --max-request-mb")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise too_large
    try:
        async with asyncio.timeout(_MAX_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > max_bytes:
                    raise too_large
                parts.append(part)
    except ClientDisconnect:
        raise HttpError(499, "the client disconnected") from None
    except TimeoutError:
        raise HttpError(408, f"the request did not arrive within {_MAX_BODY_SECONDS} seconds") from None
    return b"".join(parts)


async def read_json_body(request: Request, max_bytes: int) -> dict[str, Any]:
    """Return the object in the body. Raises HttpError with status 400 if it holds none, and what `read_body` raises."""
    try:
        fields = json.loads(await read_body(request, max_bytes))
    except (ValueError, RecursionError) as error:
        raise HttpError(400, f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise HttpError(400, f"the body: expected a JSON object, got a {type(fields).__name__}")
    return cast("dict[str, Any]", fields)


async def until_disconnected(request: Request, result: Awaitable[Any]) -> Any:
    """Await a result. If the client disconnects first, cancel it and raise HttpError with status 499."""
    pending = asyncio.ensure_future(result)
    disconnected = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait([pending, disconnected], return_when=asyncio.FIRST_COMPLETED)
        if not pending.done():
            raise HttpError(499, "the client disconnected")
        return pending.result()
    finally:
        disconnected.cancel()
        pending.cancel()
