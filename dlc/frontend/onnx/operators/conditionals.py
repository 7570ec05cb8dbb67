"""Conditionals: `If`, with a condition that is constant, or computed at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import GraphProto

from dlc.dialects import dl
from dlc.dialects.dl.base import Tensor, element_type_of, rank_of, shape_of, tensor_type
from dlc.dialects.dl.data_dependent.selection import SelectionOp
from dlc.errors import ModelError
from dlc.frontend.emitter import Emitter, ImportedValue, discard_block
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.values import NonTensorValue
from dlc.frontend.problems import AlreadyReported, NodeProblem, Problem, join_messages
from dlc.ir import Block, i64
from dlc.shapes.dims import Dim, Size, substitute

table = ConverterTable()


@dataclass(frozen=True)
class _Branch:
    """A branch as a block.

    Attributes:
        body: The block.
        types: The types of its results; None if the branch always fails.
        max_sizes: Upper bounds of the sizes of its results; None where there is none.
    """

    body: Block
    types: Sequence[Tensor] | None = None
    max_sizes: Sequence[Sequence[Size | None]] = ()


@table("If")
def if_(node: OnnxNode) -> Sequence[ImportedValue]:
    """Inline the branch that is taken if the condition is constant; else convert both branches into a conditional.

    A branch that contradicts the shapes of its inputs is a run-time error when it is taken. Results whose sizes differ between
    the branches are padded to a common shape, and sliced to their actual size after the conditional.
    """
    condition = node[0]
    graphs = [node.graph("then_branch"), node.graph("else_branch")]
    counts = [len(g.output) for g in graphs]
    if counts[0] != counts[1] or counts[0] < len(node.proto.output):
        raise ModelError(f"{node.description}: its branches have {counts[0]} and {counts[1]} results")
    if condition.constant_value is not None:
        return node.import_subgraph(graphs[0 if bool(node.constant_scalar(0, "condition")) else 1], (), node.emit)
    branches = [_branch(node, graph) for graph in graphs]
    typed = [branch for branch in branches if branch.types is not None]
    if not typed:
        raise NodeProblem("shape", "both of its branches contradict the shapes of the inputs")
    types = list(typed[0].types or ())
    if typed[0].types == typed[-1].types:
        return node.emit.if_(condition, branches[0].body, branches[1].body, types)
    padded_types = [tensor_type(_common_shape(node, k, *typed), t.element_type) for k, t in enumerate(types)]
    for branch in branches:
        discard_block(branch.body)
    return _if_with_padding(node, condition, [_branch(node, graph, padded_types) for graph in graphs], typed, padded_types)


def _branch(node: OnnxNode, graph: GraphProto, padded_types: Sequence[Tensor] = ()) -> _Branch:
    """Convert a branch; with `padded_types` its results are padded to these and followed by their sizes."""
    problems: list[Problem] = []
    types: list[Tensor] = []
    max_sizes: list[list[Size | None]] = []

    def run(inner: Emitter, arguments: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
        results, branch_problems = node.try_import_subgraph(graph, arguments, inner)
        problems.extend(branch_problems)
        if any(isinstance(v, NonTensorValue) for v in results):
            message = "a result is a sequence or an optional: its condition must be known at import"
            raise NodeProblem("value", message, [node[0]])
        types.extend(v.type for v in results)
        max_sizes.extend([_max_size(inner, size) for size in v.shape] for v in results)
        return results if problems or not padded_types else _pad_results(inner, results, padded_types)

    body = node.emit.body((), run)
    if not problems:
        return _Branch(body, types, max_sizes)
    if any(p.kind != "shape" for p in problems):
        node.report(problems)
        raise AlreadyReported
    discard_block(body)
    return _Branch(Block([dl.FailOp(join_messages(problems))]))


def _max_size(inner: Emitter, size: Size) -> Size | None:
    """Return an upper bound of a size, in terms of sizes defined outside of the branch; None if there is none."""
    block = inner.build.insertion_point
    assert isinstance(block, Block)
    selections = (op for op in block.walk() if isinstance(op, SelectionOp))
    max_sizes = {str(op.count): op.max_size for op in selections if isinstance(op.count, Dim)}
    while bounded := Dim.lift(size).symbols() & max_sizes.keys():
        maxima = {symbol: maximum for symbol in bounded if (maximum := max_sizes[symbol]) is not None}
        if len(maxima) < len(bounded):
            return None
        size = substitute(size, maxima)
    return size


def _common_shape(node: OnnxNode, result: int, then: _Branch, otherwise: _Branch) -> list[Size]:
    """Return a shape that fits a result of either branch. Raises NodeProblem if there is none."""
    x, y = (branch.types[result] for branch in (then, otherwise) if branch.types is not None)
    pairs = zip(then.max_sizes[result], otherwise.max_sizes[result], strict=rank_of(x) == rank_of(y))
    max_sizes = [_upper_bound(a, b) for a, b in pairs]
    if rank_of(x) != rank_of(y) or element_type_of(x) != element_type_of(y) or any(max_size is None for max_size in max_sizes):
        raise NodeProblem(
            "value",
            f"result {result} is {x} in one branch and {y} in the other. With a run-time condition, results must have "
            "equal rank and element type and bounded sizes",
            [node[0]],
        )
    triples = zip(shape_of(x), shape_of(y), max_sizes, strict=True)
    return [a if a == b else max_size for a, b, max_size in triples if max_size is not None]


def _upper_bound(a: Size | None, b: Size | None) -> Size | None:
    """Return an upper bound of two sizes."""
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if a == b else a + b


def _pad_results(inner: Emitter, results: Sequence[ImportedValue], padded_types: Sequence[Tensor]) -> list[ImportedValue]:
    """Pad results with zeros to the common types, and append their actual sizes."""
    outputs: list[ImportedValue] = []
    for value, padded_type in zip(results, padded_types, strict=True):
        for axis, (size, padded_size) in enumerate(zip(value.shape, shape_of(padded_type), strict=True)):
            if size != padded_size:
                padding_shape = [*value.shape[:axis], padded_size - size, *value.shape[axis + 1 :]]
                value = inner(dl.ConcatOp, value, inner.full(0, padding_shape, value), axis=axis)
        outputs.append(value)
    return [*outputs, *(inner.sizes(size) for value in results for size in value.shape)]


def _if_with_padding(
    node: OnnxNode,
    condition: ImportedValue,
    branches: Sequence[_Branch],
    typed: Sequence[_Branch],
    padded_types: Sequence[Tensor],
) -> list[ImportedValue]:
    """Emit a conditional of branches with padded results, and slice the results to their actual sizes."""
    emit, sizes = node.emit, [tensor_type((), i64)] * sum(map(rank_of, padded_types))
    values = emit.if_(condition, branches[0].body, branches[1].body, [*padded_types, *sizes])
    results, actual_sizes = values[: len(padded_types)], iter(values[len(padded_types) :])
    for k, padded_type in enumerate(padded_types):
        shapes = [shape_of(branch.types[k]) for branch in typed if branch.types is not None]
        for axis, padded_size in enumerate(shape_of(padded_type)):
            actual_size = next(actual_sizes)
            if shapes[0][axis] != shapes[-1][axis]:
                results[k] = emit.slice(results[k], axis, 0, emit.scalar_as_size(actual_size, padded_size))
    return results
