"""Operators that make text, or numbers of it; those that only move or compare it are the ones for numbers (`borders.py`)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import PropertyValue
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table
from dlc.frontend.onnx.values import Text
from dlc.frontend.problems import NodeProblem
from dlc.ir import Attribute

table = Table()


def _text(node: Node, k: int) -> Text:
    """Input k, which has to be text."""
    value = node[k]
    if not isinstance(value, Text):
        raise ModelError(f"{node.place}: input {k} ('{node.proto.input[k]}') is no text")
    return value


def _known(node: Node, texts: str | Sequence[str]) -> Text:
    return Text.known_as(node.emit, np.array(texts, object))


def _made(node: Node, op: type[dl.OnText], *operands: Value, **properties: PropertyValue | None) -> tuple[Value, ...]:
    """What the host makes when the program runs, of known text as well."""
    return node.emit.unfolded(op, *operands, **properties)


@table("StringConcat", since=20)
def string_concat(node: Node) -> Value:
    return Text.of(_made(node, dl.TextConcatOp, _text(node, 0), _text(node, 1))[0])


@table("StringSplit", since=20)
def string_split(node: Node) -> tuple[Value, ...]:
    delimiter = _known(node, node.text("delimiter", ""))
    most = node.integer("maxsplit") if node.has("maxsplit") else None
    size = (node.emit.new_size("split"),)
    parts, counts = _made(node, dl.TextSplitOp, _text(node, 0), delimiter, size=size, most=most)
    return Text.of(parts), counts


@table("StringNormalizer", since=10)
def string_normalizer(node: Node) -> Value:
    node.ignore("locale")  # Python's letters have their cases everywhere
    action = node.choice("case_change_action", "NONE", ("LOWER", "UPPER", "NONE"))
    stopwords, match_case = node.texts("stopwords", ()), node.flag("is_case_sensitive")
    size = (node.emit.new_size("words"),)
    cases = {"lower": action == "LOWER", "upper": action == "UPPER"}
    words = _made(node, dl.TextNormalizeOp, _text(node, 0), _known(node, stopwords), size=size, match_case=match_case, **cases)
    return Text.of(words[0])


@table("RegexFullMatch", since=20)
def regex_full_match(node: Node) -> Value:
    pattern = node.text("pattern")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise NodeProblem("attribute", f"pattern = {pattern!r}, which Python's `re` does not read: {error}") from error
    return _made(node, dl.TextMatchOp, _text(node, 0), _known(node, pattern))[0]


def unique(node: Node) -> tuple[Value, ...]:
    """`Unique` of text."""
    if node.has("axis") and node[0].rank != 1:
        raise NodeProblem("attribute", "'axis' is not supported of text of several axes")
    node.ignore("axis")
    size, keep_order = (node.emit.new_size("unique"),), not node.flag("sorted", True)
    y, *places = _made(node, dl.TextUniqueOp, node[0], size=size, keep_order=keep_order)
    return Text.of(y), *places


def converted(node: Node, x: Value, to: Attribute | None) -> Value:
    """`x` cast to or from text, which is no element type: to text if `to` is None."""
    if to is None:
        return x if isinstance(x, Text) else Text.of(_made(node, dl.NumberToTextOp, x)[0])
    return _made(node, dl.TextToNumberOp, x, to=to)[0]
