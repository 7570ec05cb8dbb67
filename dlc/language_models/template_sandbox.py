"""A Jinja sandbox for untrusted templates, which limits the size of every value.

Operations whose results may be larger than all operands together are rejected before they run; the results of all others are
checked. So no value is large, and neither is its text, although a list may contain another one several times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import wraps
from math import prod
from typing import Any, cast

from jinja2 import TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_OUTPUT_CHARACTERS = 1 << 24
# A width of four digits, a width among the values (`*`), or a nested field.
_LONG_NUMBER = re.compile(r"\d{4}|\*|\{[^{}]*\{")
# String methods and filters whose results may be larger than all operands together.
_METHODS = {"center", "expandtabs", "join", "ljust", "replace", "rjust", "translate", "zfill"}
_EXPANDING_FILTERS = {"batch", "center", "indent", "join", "replace", "slice", "tojson", "truncate", "wordwrap"}
_FORMATS = {"format", "format_map"}
# Products of larger integers take time that no limit interrupts.
_MAX_FACTOR = 1 << 63
# The filter that checks the values of literals and assignments.
_LIMIT = "limit size"


class _LimitLiterals(NodeTransformer):
    """Inserts filters, which limit sizes, where the sandbox calls no function: in literals, `~` and assignments."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes), "join", node)

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered(node, _LIMIT, node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered(node, _LIMIT, node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered(node, _LIMIT, node) if node.ctx == "load" else node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:
        self.generic_visit(node)
        node.node = _filtered(cast("nodes.Expr", node.node), _LIMIT, node)
        return node


def _filtered(value: nodes.Expr, name: str, source: nodes.Node) -> nodes.Expr:
    """Return the node of a filter applied to a value."""
    return nodes.Filter(value, name, [], [], None, None, lineno=source.lineno, environment=source.environment)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """A sandbox that limits the size of values: characters of texts, and elements of lists and dictionaries in all levels."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], autoescape=False)
        self.globals.pop("lipsum")
        self.filters |= {"format": _format_values, "tojson": _to_json, _LIMIT: lambda value: value}
        self.filters = {name: _limited(name, function) for name, function in self.filters.items()}

    def _generate(self, source: nodes.Template, *arguments: Any, **named: Any) -> str:
        return super()._generate(_LimitLiterals().visit(source), *arguments, **named)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the text of a block or macro."""
        return "".join(_limited_items(parts))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            return _limit(left + right)
        if operator == "%" and isinstance(left, str):
            return _format_values(left, *(cast("tuple[Any, ...]", right) if isinstance(right, tuple) else (right,)))
        if operator == "**" or not all(isinstance(v, int | float) and abs(v) <= _MAX_FACTOR for v in (left, right)):
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
        return _limit(super().call(context, function, *arguments, **named))


def _limited(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that limits the size of its result."""

    # `wraps` also copies the attribute that marks filters with the environment as an argument.
    @wraps(function)
    def limited(*arguments: Any, **named: Any) -> Any:
        if name in _EXPANDING_FILTERS:
            _require_small(name, (*arguments, *named.values()))
        return _limit(function(*arguments, **named))

    return limited


def _to_json(value: Any, indent: int | None = None) -> str:
    # Jinja's own filter escapes HTML.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _format_values(text: Any, *values: Any) -> str:
    _require_short_numbers(str(text))
    return _limit(str(text) % values)


def _limit(value: Any) -> Any:
    """Return a value. Raises TemplateError if it is too large; for a generator, when its items are."""
    if isinstance(value, Generator):
        return _limited_items(cast("Generator[Any]", value))
    _size(value)
    return value


def _limited_items(items: Iterable[Any]) -> Generator[Any]:
    total = 0
    for item in items:
        total += _size(item)
        _require_within_limit(total)
        yield item


def _require_within_limit(characters: int) -> None:
    if characters > MAX_OUTPUT_CHARACTERS:
        raise TemplateError(f"a value of more than {MAX_OUTPUT_CHARACTERS} characters is not allowed")


def _size(value: Any) -> int:
    """Return the approximate number of characters of a value's text. Raises TemplateError if they are too many."""
    total, pending = 0, [value]
    while pending:
        match value := pending.pop():
            case str() as text:
                total += len(text)
            case int() as number:
                total += 1 + number.bit_length() // 3
            case list() | tuple():
                items = cast("list[Any]", value)
                pending += items
                total += len(items)
            case Mapping():
                entries = cast("Mapping[Any, Any]", value)
                pending += [*entries, *entries.values()]
            case Namespace() as namespace:
                pending.append(object.__getattribute__(namespace, "_Namespace__attrs"))
            case _:
                total += 1
        _require_within_limit(total)
    return total


def _require_small(name: str, operands: Iterable[Any]) -> None:
    """Raise TemplateError if the product of the operand sizes, an upper bound of the result size, is too large."""
    sizes = (abs(v) if isinstance(v, int) else _size(v) for v in operands)
    if prod(max(size, 1) for size in sizes) > MAX_OUTPUT_CHARACTERS:
        raise TemplateError(f"{name} of large operands is not allowed")


def _require_short_numbers(text: str) -> None:
    """Raise TemplateError for a format with a large or variable width."""
    if _LONG_NUMBER.search(text):
        raise TemplateError("a format with a large or variable width is not allowed")
