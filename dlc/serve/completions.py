"""The endpoints of OpenAI's API that generate text: /v1/completions and /v1/chat/completions.

https://platform.openai.com/docs/api-reference
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter, time
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from dlc.errors import ArgumentError
from dlc.language_models.generated_text import Generation
from dlc.language_models.generation import prompt_ids
from dlc.language_models.sampling import Sampling
from dlc.language_models.setting_limits import require_integer
from dlc.serve.http_requests import HttpError, read_json_body, recorded, until_disconnected
from dlc.serve.metrics import Metrics
from dlc.serve.text_queue import TextQueue

_DEFAULT_MAX_TOKENS = 256
# Parameters that are accepted with these values only; others are errors.
_FIXED_PARAMETERS = {"n": 1, "best_of": 1, "echo": False, "logprobs": False, "frequency_penalty": 0, "presence_penalty": 0}
_SAMPLING_PARAMETERS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
_OTHER_PARAMETERS = (
    "model",
    "prompt",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "stream",
    "stream_options",
    "user",
)


@dataclass(frozen=True)
class _TextRequest:
    """The fields of a request, parsed.

    Attributes:
        stop: Stop texts: the text ends before the first one that occurs.
        is_chat: Whether it is a request of /v1/chat/completions.
    """

    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    stop: list[str]
    is_chat: bool
    is_stream: bool
    includes_usage: bool


class Completions:
    """The endpoints; `texts` has the queue of each model, by name."""

    def __init__(self, texts: Mapping[str, TextQueue], metrics: Metrics, max_request_bytes: int) -> None:
        self._texts, self._metrics, self._max_request_bytes = texts, metrics, max_request_bytes

    async def completions(self, request: Request) -> Response:
        return await self._complete(request, is_chat=False)

    async def chat_completions(self, request: Request) -> Response:
        return await self._complete(request, is_chat=True)

    async def _complete(self, request: Request, is_chat: bool) -> Response:
        start = perf_counter()
        fields = await read_json_body(request, self._max_request_bytes)
        name, texts = self._queue(fields.get("model"))
        with recorded(self._metrics, name, start):
            parsed = await run_in_threadpool(_parse, texts, fields, is_chat)
            pieces = _until_stop(texts.generate(parsed.prompt, parsed.max_tokens, parsed.sampling), parsed.stop)
            reply = _Reply(name, parsed)
            if parsed.is_stream:
                # Errors before the first piece have a status code of their own.
                first = await until_disconnected(request, anext(pieces))
                return StreamingResponse(reply.chunks(first, pieces), media_type="text/event-stream")
            return JSONResponse(await until_disconnected(request, reply.whole(pieces)))

    def _queue(self, name: object) -> tuple[str, TextQueue]:
        if name is None and len(self._texts) == 1:
            return next(iter(self._texts.items()))
        if not isinstance(name, str) or name not in self._texts:
            raise HttpError(404, f"no model is named {name!r}; the models are {', '.join(sorted(self._texts))}")
        return name, self._texts[name]


def _parse(texts: TextQueue, fields: Mapping[str, Any], is_chat: bool) -> _TextRequest:
    """Parse the fields of a request. Raises ArgumentError for an unknown or invalid one."""
    for name, value in fields.items():
        if name not in (*_FIXED_PARAMETERS, *_SAMPLING_PARAMETERS, *_OTHER_PARAMETERS) or (
            name in _FIXED_PARAMETERS and not _is_fixed_value(name, value)
        ):
            raise ArgumentError(f"{name} = {value!r:.60} is not supported")
    stop: Any = fields.get("stop") or []
    stops = cast("list[Any]", [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else [None])
    if not all(isinstance(s, str) and s for s in stops):
        raise ArgumentError(f"stop = {stop!r:.60}; expected a nonempty string or a list of them")
    stream = _boolean("stream", fields.get("stream"))
    limits = {name: fields[name] for name in ("max_completion_tokens", "max_tokens") if fields.get(name) is not None}
    for name, limit in limits.items():
        require_integer(name, limit, 1)
    max_tokens = next(iter(limits.values()), _DEFAULT_MAX_TOKENS)
    prompt = prompt_ids(texts.model, _messages(fields.get("messages")) if is_chat else _prompt(fields.get("prompt")))
    if len(prompt) >= texts.model.context:
        raise ArgumentError(f"the prompt has {len(prompt)} tokens; expected fewer than {texts.model.context} (--context)")
    # The defaults of the API: sampling with a new seed.
    settings = {"temperature": 1.0, "seed": secrets.randbelow(1 << 31)}
    settings |= {name: fields[name] for name in _SAMPLING_PARAMETERS if fields.get(name) is not None}
    options: Any = {} if fields.get("stream_options") is None else fields["stream_options"]
    if not isinstance(options, dict):
        raise ArgumentError(f"stream_options = {options!r:.60}; expected an object")
    includes_usage = _boolean("include_usage", cast("dict[str, Any]", options).get("include_usage"))
    sampling = Sampling(**cast("dict[str, Any]", settings))
    return _TextRequest(prompt, max_tokens, sampling, stops, is_chat, stream, includes_usage)


def _is_fixed_value(name: str, value: object) -> bool:
    """Return whether a value is None or the only one that a parameter supports; a boolean is not a number."""
    fixed = _FIXED_PARAMETERS[name]
    return value is None or (value == fixed and isinstance(value, bool) == isinstance(fixed, bool))


def _boolean(name: str, value: object) -> bool:
    """Return a boolean field; one that is null or missing is False."""
    if not isinstance(value, bool | None):
        raise ArgumentError(f"{name} = {value!r:.60}; expected a boolean")
    return bool(value)


def _prompt(prompt: object) -> str | list[int]:
    """Return a prompt as a text or token ids; a list of one prompt is accepted."""
    parts = cast("list[object]", prompt) if isinstance(prompt, list) else None
    if parts is not None and len(parts) == 1 and isinstance(parts[0], str | list):
        return _prompt(cast(object, parts[0]))
    if isinstance(prompt, str):
        return prompt
    if parts and all(isinstance(token, int) and not isinstance(token, bool) for token in parts):
        return cast("list[int]", parts)
    raise ArgumentError(f"prompt = {prompt!r:.60}; expected a text, or a list of token ids")


def _messages(messages: object) -> list[dict[str, str]]:
    """Return messages whose contents are texts."""
    result = [_message(message) for message in cast("list[object]", messages)] if isinstance(messages, list) else []
    if not result:
        raise ArgumentError(f"messages = {messages!r:.60}; expected a list of messages")
    return result


def _message(message: object) -> dict[str, str]:
    fields = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
    role, content = fields.get("role"), fields.get("content")
    if isinstance(content, list):
        # A text in parts.
        parts = [cast("dict[str, Any]", p) if isinstance(p, dict) else {} for p in cast("list[object]", content)]
        content = "".join(str(p.get("text", "")) for p in parts) if all(p.get("type") == "text" for p in parts) else None
    if not isinstance(role, str) or not isinstance(content, str):
        raise ArgumentError(f"message {message!r:.60}; expected a role, and a content of text")
    return {"role": role, "content": content}


@dataclass(frozen=True)
class _Piece:
    """A piece of a text; the last one has the reason for the end, and the result unless a stop text ended it."""

    text: str
    reason: str | None = None
    result: Generation | None = None


async def _until_stop(events: AsyncGenerator[str | Generation], stop: list[str]) -> AsyncGenerator[_Piece]:
    """Yield the pieces of a text up to the first stop text, of which no part is yielded."""
    text, held_back = "", max(map(len, stop), default=1) - 1
    sent = 0
    async with aclosing(events):
        async for event in events:
            text += "" if isinstance(event, Generation) else event
            found = min((i for s in stop if (i := text.find(s, max(0, sent - len(s)))) >= 0), default=None)
            if found is not None:
                yield _Piece(text[sent:found], "stop")
                return
            end = len(text) if isinstance(event, Generation) else max(sent, len(text) - held_back)
            piece, sent = text[sent:end], end
            if isinstance(event, Generation):
                yield _Piece(piece, "stop" if event.finish_reason == "end" else "length", event)
            elif piece:
                yield _Piece(piece)


class _Reply:
    """The response to a request, whole or in chunks."""

    def __init__(self, model: str, request: _TextRequest) -> None:
        self._request = request
        kind = "chat.completion" if request.is_chat else "text_completion"
        identifier = f"{'chatcmpl' if request.is_chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._head = {"id": identifier, "object": kind, "created": int(time()), "model": model}

    async def whole(self, pieces: AsyncGenerator[_Piece]) -> dict[str, Any]:
        """Return the response for all pieces."""
        async with aclosing(pieces):
            received = [piece async for piece in pieces]
        text = "".join(piece.text for piece in received)
        body = {"message": {"role": "assistant", "content": text}} if self._request.is_chat else {"text": text}
        return {**self._head, "choices": [_choice(body, received[-1])], "usage": self._usage(received[-1], len(received))}

    async def chunks(self, first: _Piece, rest: AsyncGenerator[_Piece]) -> AsyncGenerator[str]:
        """Yield server-sent events."""
        is_chat, piece, num_pieces = self._request.is_chat, first, 1
        head = {**self._head, "object": "chat.completion.chunk"} if is_chat else self._head

        def chunk(piece: _Piece, role: dict[str, str]) -> str:
            body = {"delta": {**role, "content": piece.text}} if is_chat else {"text": piece.text}
            return _event({**head, "choices": [_choice(body, piece)]})

        async with aclosing(rest):
            yield chunk(first, {"role": "assistant"})
            async for piece in rest:
                num_pieces += 1
                yield chunk(piece, {})
        if self._request.includes_usage:
            yield _event({**head, "choices": [], "usage": self._usage(piece, num_pieces)})
        yield "data: [DONE]\n\n"

    def _usage(self, last: _Piece, num_pieces: int) -> dict[str, int]:
        """Return the numbers of tokens; a text that a stop text ended counts one token per piece."""
        generated = num_pieces if last.result is None else len(last.result.tokens)
        prompt = len(self._request.prompt)
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def _choice(body: Mapping[str, Any], piece: _Piece) -> dict[str, Any]:
    return {"index": 0, **body, "finish_reason": piece.reason, "logprobs": None}


def _event(content: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"
