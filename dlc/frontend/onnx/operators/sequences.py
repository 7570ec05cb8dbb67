"""Sequences and optionals, which exist during import only.

    s = SplitToSequence(x)      (%x0, %x1) in Python: no `dl` op creates a sequence
    y = SequenceAt(s, 1)        %x1

The length of a sequence and the positions that are read must be constant. An optional with a value is represented by
that value.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.values import EmptyOptional, SequenceValue, StringTensor
from dlc.frontend.problems import NodeProblem
from dlc.shapes.dims import Dim, Size
from dlc.value_types import MAX_LIST_LENGTH

table = ConverterTable()


def _sequence(node: OnnxNode, k: int = 0) -> tuple[ImportedValue, ...]:
    value = node[k]
    if not isinstance(value, SequenceValue):
        raise ModelError(f"{node.description}: input {k} is not a sequence")
    return value.elements


def _position(node: OnnxNode, k: int, count: int) -> int:
    """Return constant input k as a position among `count`, counted from the front."""
    position = int(node.constant_scalar(k, "position"))
    if not -count <= position < count:
        raise ModelError(f"{node.description}: position {position} is outside a sequence of {count}")
    return position % count


@table("SequenceConstruct")
def sequence_construct(node: OnnxNode) -> ImportedValue:
    return SequenceValue(node[k] for k in range(len(node.inputs)))


@table("SequenceEmpty")
def sequence_empty(node: OnnxNode) -> ImportedValue:
    node.ignore_attributes("dtype")
    return SequenceValue(())


@table("SequenceAt")
def sequence_at(node: OnnxNode) -> ImportedValue:
    elements = _sequence(node)
    return elements[_position(node, 1, len(elements))]


@table("SequenceInsert")
def sequence_insert(node: OnnxNode) -> ImportedValue:
    elements = list(_sequence(node))
    count = len(elements)
    # The default is after the last element; -1 is before the last.
    position = count if node.get(2) is None or node.constant_scalar(2, "position") == count else _position(node, 2, count)
    elements.insert(position, node[1])
    return SequenceValue(elements)


@table("SequenceErase")
def sequence_erase(node: OnnxNode) -> ImportedValue:
    elements = list(_sequence(node))
    count = len(elements)
    del elements[_position(node, 1, count) if node.get(1) is not None else count - 1]
    return SequenceValue(elements)


@table("SequenceLength")
def sequence_length(node: OnnxNode) -> ImportedValue:
    return node.emit.constant(len(_sequence(node)), "int64")


@table("ConcatFromSequence")
def concat_from_sequence(node: OnnxNode) -> ImportedValue:
    emit, stacked = node.emit, node.flag("new_axis")
    elements = list(_sequence(node))
    if not elements:
        raise ModelError(f"{node.description}: its sequence is empty")
    first = elements[0]
    axis = node.axis(node.integer("axis"), first.rank + stacked)
    if stacked:
        elements = [emit.reshape(e, (*e.shape[:axis], 1, *e.shape[axis:])) for e in elements]
    return _like_strings(first, emit(dl.ConcatOp, *elements, axis=axis) if len(elements) > 1 else elements[0])


@table("SplitToSequence")
def split_to_sequence(node: OnnxNode) -> ImportedValue:
    emit, x = node.emit, node[0]
    axis = node.axis(node.integer("axis", 0), x.rank)
    keepdims = node.flag("keepdims", True)
    start, chunks = 0, list[ImportedValue]()
    for size in _chunk_sizes(node, x.shape[axis]):
        chunks.append(emit.slice(x, axis, start, start + size))
        start += size
    if start != x.shape[axis]:
        raise ModelError(f"{node.description}: its chunks have {start} elements in total, axis {axis} has {x.shape[axis]}")
    if node.get(1) is None and not keepdims:
        chunks = [emit.reshape(p, (*p.shape[:axis], *p.shape[axis + 1 :])) for p in chunks]
    return SequenceValue(_like_strings(x, chunk) for chunk in chunks)


def _like_strings(value: ImportedValue, element: ImportedValue) -> ImportedValue:
    """Return `element` as a string tensor if `value` is one."""
    return StringTensor.of(element) if value.is_string else element


def _chunk_sizes(node: OnnxNode, size: Size) -> Sequence[int]:
    """Return the sizes of the outputs of a split: as specified, or equal with a smaller last one."""
    split_sizes = node.get(1)
    if isinstance(size, Dim):
        raise NodeProblem("value", f"the number of chunks depends on the symbolic size {size}; give the model's input shapes")
    if split_sizes is not None and split_sizes.rank == 1:
        return node.constant_integers(1, "parts")
    chunk_size = int(node.constant_scalar(1, "parts")) if split_sizes is not None else 1
    if chunk_size < 1:
        raise ModelError(f"{node.description}: the size of its chunks must be positive, got {chunk_size}")
    if -(-size // chunk_size) > MAX_LIST_LENGTH:
        raise NodeProblem(
            "value", f"a sequence of {-(-size // chunk_size)} elements is not supported, up to {MAX_LIST_LENGTH} are"
        )
    return [min(chunk_size, size - k) for k in range(0, size, chunk_size)]


@table("SequenceMap")
def sequence_map(node: OnnxNode) -> Sequence[ImportedValue]:
    """Inline the body for each element; inputs that are not sequences are the same for all."""
    body, count = node.graph("body"), len(_sequence(node))
    inputs = [node[k] for k in range(len(node.inputs))]
    if any(isinstance(v, SequenceValue) and len(v.elements) != count for v in inputs):
        raise ModelError(f"{node.description}: its sequences have different lengths")
    steps = [
        node.import_subgraph(body, [v.elements[k] if isinstance(v, SequenceValue) else v for v in inputs], node.emit)
        for k in range(count)
    ]
    return [SequenceValue(step[k] for step in steps) for k in range(len(body.output))]


@table("Optional")
def optional(node: OnnxNode) -> ImportedValue:
    node.ignore_attributes("type")
    return node.get(0) or EmptyOptional()


@table("OptionalGetElement")
def optional_get_element(node: OnnxNode) -> ImportedValue:
    if isinstance(node[0], EmptyOptional):
        raise ModelError(f"{node.description}: its optional has no value")
    return node[0]


@table("OptionalHasElement")
def optional_has_element(node: OnnxNode) -> ImportedValue:
    value = node.get(0)
    return node.emit.constant(value is not None and not isinstance(value, EmptyOptional))
