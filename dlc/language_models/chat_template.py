"""Render conversations with the Jinja template of a checkpoint, in a sandbox and within a time limit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic
from types import FrameType
from typing import Any, NoReturn

from jinja2 import TemplateError

from dlc.errors import ModelError
from dlc.language_models.template_sandbox import MAX_OUTPUT_CHARACTERS, TemplateSandbox

_LIMIT_SECONDS = 0.8
_MAX_TEMPLATE_CHARACTERS = 1 << 20


def render_chat(template: str, messages: Sequence[Mapping[str, str]], special_texts: Mapping[str, str]) -> str:
    """Return the text of a conversation that the model continues as the assistant.

    A message has a `role` and a `content`. Raises ModelError for a template that is malformed, rejects the messages, accesses
    anything but its arguments, or takes longer than 0.8 seconds.
    """
    if len(template) > _MAX_TEMPLATE_CHARACTERS:
        raise ModelError(f"the chat template has {len(template)} characters; expected at most {_MAX_TEMPLATE_CHARACTERS}")

    def reject(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = TemplateSandbox()
    functions = {"raise_exception": reject, "strftime_now": _format_now}
    parts: list[str] = []
    size = 0
    try:
        with _time_limit():
            variables = {"messages": list(messages), "add_generation_prompt": True, "tools": None, **functions, **special_texts}
            for part in environment.from_string(template).generate(variables):
                parts.append(part)
                size += len(part)
                if size > MAX_OUTPUT_CHARACTERS:
                    raise ModelError(f"the chat template writes more than {MAX_OUTPUT_CHARACTERS} characters")
    except ModelError:
        raise
    except Exception as error:  # A template may raise anything.
        raise ModelError(f"the chat template fails: {type(error).__name__}: {error}") from error
    return "".join(parts)


def _format_now(format: str) -> str:
    return datetime.now(UTC).strftime(format)


@contextmanager
def _time_limit() -> Generator[None]:
    """Raise ModelError in code that exceeds the time limit: templates have unbounded loops."""
    end, previous = monotonic() + _LIMIT_SECONDS, sys.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if monotonic() > end:
            raise ModelError(f"the chat template takes longer than {_LIMIT_SECONDS} seconds")
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(previous)
