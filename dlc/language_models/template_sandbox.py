"""A Jinja sandbox for untrusted templates, which rejects operations with huge results before they run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import wraps
from math import prod
from typing import Any, cast

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_OUTPUT_CHARACTERS = 1 << 24
# A width of four digits, a width among the values (`*`), or a nested field.
_LONG_NUMBER = re.compile(r"\d{4}|\*|\{[^{}]*\{")
# String methods and filters whose results may be larger than all operands together.
_METHODS = {"center", "expandtabs", "join", "ljust", "replace", "rjust", "translate", "zfill"}
_FILTERS = ("batch", "center", "indent", "join", "replace", "slice", "truncate", "wordwrap")
_FORMATS = {"format", "format_map"}


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """A sandbox that limits the size of the strings and lists that one operation creates."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], autoescape=False)
        self.globals.pop("lipsum")
        self.filters["format"] = _format_values
        for name in _FILTERS:
            self.filters[name] = _limited(name, self.filters[name])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            return _format_values(left, *(cast("tuple[Any, ...]", right) if isinstance(right, tuple) else (right,)))
        if operator == "**" or not all(isinstance(v, int | float) for v in (left, right)):
            raise TemplateError(f"{operator} is not allowed for these operands")
        return left * right if operator == "*" else left % right

    def call(self, context: Any, function: Any, /, *arguments: Any, **named: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        # The sandbox wraps `str.format`.
        method = getattr(function, "__wrapped__", function)
        text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(text, str) and name in _FORMATS:
            _require_short_numbers(text)
        elif isinstance(text, str) and name in _METHODS:
            _require_small(name, (text, *arguments, *named.values()))
        return super().call(context, function, *arguments, **named)


def _limited(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that limits the size of its result."""

    # `wraps` also copies the attribute that marks filters with the environment as an argument.
    @wraps(function)
    def limited(*arguments: Any, **named: Any) -> Any:
        _require_small(name, (*arguments, *named.values()))
        return function(*arguments, **named)

    return limited


def _format_values(text: Any, *values: Any) -> str:
    _require_short_numbers(str(text))
    return str(text) % values


def _require_small(name: str, operands: Iterable[Any]) -> None:
    """Raise TemplateError if the product of the operand sizes, an upper bound of the result size, is too large."""
    if prod(max(_size(operand), 1) for operand in operands) > MAX_OUTPUT_CHARACTERS:
        raise TemplateError(f"{name} of large operands is not allowed")


def _size(value: Any) -> int:
    match value:
        case bool():
            return 1
        case int():
            return abs(value)
        case str():
            return len(value)
        case list() | tuple():
            return sum(len(v) if isinstance(v, str) else 1 for v in cast("list[Any]", value))
        case dict():
            return sum(len(v) if isinstance(v, str) else 1 for v in cast("dict[Any, Any]", value).values())
        case _:
            return 1


def _require_short_numbers(text: str) -> None:
    """Raise TemplateError for a format with a large or variable width."""
    if _LONG_NUMBER.search(text):
        raise TemplateError("a format with a large or variable width is not allowed")
