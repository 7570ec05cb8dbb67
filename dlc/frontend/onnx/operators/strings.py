"""Converters of string operators. Data movement and comparison of strings use the converters of numeric operators."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import PropertyValue
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.values import StringTensor
from dlc.frontend.problems import NodeProblem
from dlc.ir import Attribute

table = ConverterTable()


def _string_input(node: OnnxNode, index: int) -> StringTensor:
    """Return the input at `index`, which must be a string tensor."""
    value = node[index]
    if not isinstance(value, StringTensor):
        raise ModelError(f"{node.description}: input {index} ('{node.proto.input[index]}') is not a string tensor")
    return value


def _constant(node: OnnxNode, strings: str | Sequence[str]) -> StringTensor:
    """Return a string tensor that holds these strings."""
    return StringTensor.from_strings(node.emit, np.array(strings, object))


def _emit_host_op(
    node: OnnxNode, op: type[dl.StringOp], *operands: ImportedValue, **properties: PropertyValue | None
) -> tuple[ImportedValue, ...]:
    """Emit an op that Python executes at run time; it is not constant-folded."""
    return node.emit.unfolded(op, *operands, **properties)


@table("StringConcat", since=20)
def string_concat(node: OnnxNode) -> ImportedValue:
    return StringTensor.of(_emit_host_op(node, dl.StringConcatOp, _string_input(node, 0), _string_input(node, 1))[0])


@table("StringSplit", since=20)
def string_split(node: OnnxNode) -> tuple[ImportedValue, ...]:
    delimiter = _constant(node, node.string("delimiter", ""))
    max_splits = node.integer("maxsplit") if node.has_attribute("maxsplit") else None
    size = (node.emit.new_size("split"),)
    parts, counts = _emit_host_op(node, dl.StringSplitOp, _string_input(node, 0), delimiter, size=size, max_splits=max_splits)
    return StringTensor.of(parts), counts


@table("StringNormalizer", since=10)
def string_normalizer(node: OnnxNode) -> ImportedValue:
    node.ignore_attributes("locale")  # Python's case conversion does not depend on the locale
    action = node.choice("case_change_action", "NONE", ("LOWER", "UPPER", "NONE"))
    stopwords, match_case = node.strings("stopwords", ()), node.flag("is_case_sensitive")
    size = (node.emit.new_size("words"),)
    cases = {"lower": action == "LOWER", "upper": action == "UPPER"}
    words = _emit_host_op(
        node,
        dl.StringNormalizeOp,
        _string_input(node, 0),
        _constant(node, stopwords),
        size=size,
        match_case=match_case,
        **cases,
    )
    return StringTensor.of(words[0])


@table("RegexFullMatch", since=20)
def regex_full_match(node: OnnxNode) -> ImportedValue:
    pattern = node.string("pattern")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise NodeProblem("attribute", f"pattern = {pattern!r}, which Python's `re` does not accept: {error}") from error
    return _emit_host_op(node, dl.RegexFullMatchOp, _string_input(node, 0), _constant(node, pattern))[0]


def unique(node: OnnxNode) -> tuple[ImportedValue, ...]:
    """Convert `Unique` of strings."""
    if node.has_attribute("axis") and node[0].rank != 1:
        raise NodeProblem("attribute", "'axis' is not supported for string tensors of rank > 1")
    node.ignore_attributes("axis")
    size, keep_order = (node.emit.new_size("unique"),), not node.flag("sorted", True)
    y, *indices = _emit_host_op(node, dl.StringUniqueOp, node[0], size=size, keep_order=keep_order)
    return StringTensor.of(y), *indices


def cast_string(node: OnnxNode, x: ImportedValue, to: Attribute | None) -> ImportedValue:
    """Cast `x` to or from strings; to strings if `to` is None."""
    if to is None:
        return x if isinstance(x, StringTensor) else StringTensor.of(_emit_host_op(node, dl.NumberToStringOp, x)[0])
    return _emit_host_op(node, dl.StringToNumberOp, x, to=to)[0]
