"""Sequences and optionals: they exist during import only.

    s = SplitToSequence(x)      (%x0, %x1) in Python: no op of `dl` makes a sequence
    y = SequenceAt(s, 1)        %x1

How many elements a sequence has, and at which of them one looks, must be known at import. An optional with a value is that
value.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dims import Dim, Size
from dlc.errors import ModelError
from dlc.forms import MOST_PARTS
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table
from dlc.frontend.onnx.values import Absent, SequenceValue, Text
from dlc.frontend.problems import NodeProblem

table = Table()


def _sequence(node: Node, k: int = 0) -> tuple[Value, ...]:
    value = node[k]
    if not isinstance(value, SequenceValue):
        raise ModelError(f"{node.place}: input {k} is no sequence")
    return value.elements


def _place(node: Node, k: int, count: int) -> int:
    """The known input k as a place among `count`, counted from the front."""
    place = int(node.number(k, "position"))
    if not -count <= place < count:
        raise ModelError(f"{node.place}: place {place} among {count}")
    return place % count


@table("SequenceConstruct")
def sequence_construct(node: Node) -> Value:
    return SequenceValue(node[k] for k in range(len(node.inputs)))


@table("SequenceEmpty")
def sequence_empty(node: Node) -> Value:
    node.ignore("dtype")
    return SequenceValue(())


@table("SequenceAt")
def sequence_at(node: Node) -> Value:
    elements = _sequence(node)
    return elements[_place(node, 1, len(elements))]


@table("SequenceInsert")
def sequence_insert(node: Node) -> Value:
    elements = list(_sequence(node))
    count = len(elements)
    # Behind the last is a place too, and the usual one; -1 is before the last.
    place = count if node.get(2) is None or node.number(2, "position") == count else _place(node, 2, count)
    elements.insert(place, node[1])
    return SequenceValue(elements)


@table("SequenceErase")
def sequence_erase(node: Node) -> Value:
    elements = list(_sequence(node))
    count = len(elements)
    del elements[_place(node, 1, count) if node.get(1) is not None else count - 1]
    return SequenceValue(elements)


@table("SequenceLength")
def sequence_length(node: Node) -> Value:
    return node.emit.constant(len(_sequence(node)), "int64")


@table("ConcatFromSequence")
def concat_from_sequence(node: Node) -> Value:
    emit, stacked = node.emit, node.flag("new_axis")
    elements = list(_sequence(node))
    if not elements:
        raise ModelError(f"{node.place}: its sequence is empty")
    first = elements[0]
    axis = node.axis(node.integer("axis"), first.rank + stacked)
    if stacked:
        elements = [emit.reshape(e, (*e.shape[:axis], 1, *e.shape[axis:])) for e in elements]
    return _of(first, emit(dl.ConcatOp, *elements, axis=axis) if len(elements) > 1 else elements[0])


@table("SplitToSequence")
def split_to_sequence(node: Node) -> Value:
    emit, x = node.emit, node[0]
    axis = node.axis(node.integer("axis", 0), x.rank)
    keepdims = node.flag("keepdims", True)
    start, parts = 0, list[Value]()
    for size in _parts(node, x.shape[axis]):
        parts.append(emit.slice(x, axis, start, start + size))
        start += size
    if start != x.shape[axis]:
        raise ModelError(f"{node.place}: its parts have {start} elements together, axis {axis} has {x.shape[axis]}")
    if node.get(1) is None and not keepdims:
        parts = [emit.reshape(p, (*p.shape[:axis], *p.shape[axis + 1 :])) for p in parts]
    return SequenceValue(_of(x, part) for part in parts)


def _of(value: Value, moved: Value) -> Value:
    """What elements of a value became, which is text if they are."""
    return Text.of(moved) if value.is_text else moved


def _parts(node: Node, size: Size) -> Sequence[int]:
    """The sizes of the parts: those given, or as many of one size as there are, the last with what is left."""
    part = node.get(1)
    if isinstance(size, Dim):
        raise NodeProblem("value", f"which parts there are hangs on the size {size}; give the model's input shapes")
    if part is not None and part.rank == 1:
        return node.integers_of(1, "parts")
    each = int(node.number(1, "parts")) if part is not None else 1
    if each < 1:
        raise ModelError(f"{node.place}: parts of {each} elements")
    if -(-size // each) > MOST_PARTS:
        raise NodeProblem("value", f"a sequence of {-(-size // each)} parts is not supported, up to {MOST_PARTS} are")
    return [min(each, size - k) for k in range(0, size, each)]


@table("SequenceMap")
def sequence_map(node: Node) -> Sequence[Value]:
    """The body for each element; inputs that are no sequences are the same for all."""
    body, count = node.graph("body"), len(_sequence(node))
    given = [node[k] for k in range(len(node.inputs))]
    if any(isinstance(v, SequenceValue) and len(v.elements) != count for v in given):
        raise ModelError(f"{node.place}: its sequences have different lengths")
    steps = [
        node.inline(body, [v.elements[k] if isinstance(v, SequenceValue) else v for v in given], node.emit)
        for k in range(count)
    ]
    return [SequenceValue(step[k] for step in steps) for k in range(len(body.output))]


@table("Optional")
def optional(node: Node) -> Value:
    node.ignore("type")
    return node.get(0) or Absent()


@table("OptionalGetElement")
def optional_get_element(node: Node) -> Value:
    if isinstance(node[0], Absent):
        raise ModelError(f"{node.place}: its optional has no value")
    return node[0]


@table("OptionalHasElement")
def optional_has_element(node: Node) -> Value:
    value = node.get(0)
    return node.emit.constant(value is not None and not isinstance(value, Absent))
