"""Vectorize attention along queries: key elements are broadcast from memory, and softmax needs no reduction of lanes.

    Sᵀ = K · Qᵀ;  m = max over its rows;  E = exp(Sᵀ − m);  y = Eᵀ · V / Σ

A vector has the scores of several queries for one key. So maxima and sums are elementwise ops on vectors, while the
products are in registers. Only the queries of a task are copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod

from dlc.arrays import ALIGNMENT_BYTES
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import MulOp
from dlc.dialects.dl.base import DlOp, element_type_of, ints, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Contraction, Elementwise
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.program import KernelOp
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceSumOp
from dlc.ir import AffineExpr, BlockArgument, Operation, SSAValue
from dlc.passes.dl.rewriting import erase_unused, splat
from dlc.passes.fusion.dispatch_arguments import DispatchArguments, transposed
from dlc.passes.fusion.pack_arguments import has_set_conflicts, pack_argument
from dlc.target import Target

# Keys per register tile.
_KEYS_PER_TILE = 8
# At most 1 / `_EMPTY_LANE_DIVISOR` of the lanes may be empty.
_EMPTY_LANE_DIVISOR = 32
# Strided keys and values of a head are copied if they need at least 1 / `_L2_DIVISOR` of the L2 cache.
_L2_DIVISOR = 2


def _matrix_axes(first: Contraction) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the axes of both operands in matmul order, […, query, inner] and […, inner, key]; None for other contractions."""
    ranks = [rank_of(v) for v in first.operands]
    if isinstance(first, MatmulOp) and min(ranks) > 1:
        return tuple(range(ranks[0])), tuple(range(ranks[1]))
    if not isinstance(first, DotGeneralOp) or first.dot is not None:
        return None
    rank, (left, right, result) = rank_of(first.result), first.structure().maps
    if left.num_dims != rank + 1 or set(ranks) != {rank}:
        return None
    axes = [{e: a for a, e in enumerate(m.results)} for m in (left, right)]
    *batch, query, key = result.results
    inner = AffineExpr.dimension(rank)
    expected_orders = (*batch, query, inner), (*batch, inner, key)
    queries, keys = (
        tuple(axis_of[e] for e in order if e in axis_of) for axis_of, order in zip(axes, expected_orders, strict=True)
    )
    return (queries, keys) if len(queries) == len(keys) == rank else None


class QueryVectorization:
    """Vectorize an attention kernel along queries, if it is profitable, and rewrite the arguments of its dispatch.

    `first` is the contraction that computes scores, `second` the one with the values.
    """

    def __init__(self, target: Target, arguments: DispatchArguments, first: Contraction, second: Contraction) -> None:
        self.target = target
        self.arguments = arguments
        self.first = first
        self.second = second
        self.element = element_type_of(first.results[0])
        self.vectors = target.vectors_per_tile_row

    def apply_if_profitable(self) -> bool:
        """Vectorize along queries if it is profitable; return whether it was."""
        first, axes, (queries, keys) = self.first, _matrix_axes(self.first), self.first.operands
        if axes is None or not isinstance(keys, BlockArgument) or not keys.has_one_use() or 0 in shape_of(keys):
            return False
        if any(element_type_of(v) != self.element for v in (queries, keys)):
            return False
        (*query_batch, query, inner_axis), (*key_batch, key_inner, key) = axes
        source, order = self.arguments.strip_transpose(keys)
        row_order = *key_batch, key, key_inner
        rows = tuple(order[a] for a in row_order)
        copied_keys = self._needs_copy(source, rows)
        if (
            not self._queries_fill_lanes()
            or not self._can_stream_keys(source, rows, copied_keys)
            or not _can_transpose_scores(first)
        ):
            return False
        factor = 1.0
        if isinstance(queries, BlockArgument) and queries.has_one_use():
            unscaled, factor = self.arguments.strip_scale(queries)
            queries = self.arguments.replace(queries, unscaled, lambda x: x) if factor != 1 else queries
        if copied_keys:
            source = self.arguments.insert_kernel("move", source, lambda b, x: transposed(b, x, rows))
            rows, order = tuple(range(len(rows))), tuple(row_order.index(a) for a in range(len(rows)))
        b, new_argument = Build(first), list[SSAValue]()

        def read(inner: SSAValue) -> SSAValue:
            new_argument.append(inner)
            return transposed(b, inner, order)

        self.arguments.replace(keys, source, read)
        self._prepare_values(copied_keys)
        queries = transposed(b, queries, (*query_batch, inner_axis, query))
        _transpose_scores(self.arguments.kernel, first, queries, transposed(b, new_argument[0], rows), factor)
        return True

    def _queries_fill_lanes(self) -> bool:
        """Return whether queries occupy nearly all lanes."""
        size = numpy_dtype(self.element).itemsize
        lanes, queries = self.target.lanes(size), int(shape_of(self.first.results[0])[-2])
        padded_queries = -(-queries // lanes) * lanes
        return size >= 4 and queries >= lanes and _EMPTY_LANE_DIVISOR * (padded_queries - queries) <= padded_queries

    def _can_stream_keys(self, keys: SSAValue, rows: Sequence[int], copied_keys: bool) -> bool:
        """Return whether the elements of a key are contiguous, and the keys of a register tile have no cache set conflicts.

        The hardware prefetches the lines of strided rows in pairs, so a tile must read at least two lines of values per key.
        """
        costs, size, sizes = self.target.costs, numpy_dtype(self.element).itemsize, [int(s) for s in shape_of(keys)]
        row, pitch = sizes[rows[-1]] * size, prod(sizes[rows[-2] + 1 :]) * size
        if rows[-1] != len(sizes) - 1 or (pitch > row and self.vectors * self.target.vector_bytes < 2 * ALIGNMENT_BYTES):
            return False
        sets = costs.way_bytes // max(gcd(costs.way_bytes, row if copied_keys else pitch), min(row, costs.way_bytes))
        return sets * costs.cache_ways >= 2 * _KEYS_PER_TILE

    def _needs_copy(self, keys: SSAValue, rows: Sequence[int]) -> bool:
        """Return whether to copy a head's keys and values to contiguous memory.

        They are copied if they are strided and fill a large part of the L2 cache.
        """
        sizes = [int(s) for s in shape_of(keys)]
        count, width = sizes[rows[-2]], sizes[rows[-1]]
        return prod(sizes[rows[-2] + 1 :]) > width and _L2_DIVISOR * 2 * count * width >= self.target.costs.block_elements

    def _prepare_values(self, copied_keys: bool) -> None:
        """Pack the values in panels if they have cache set conflicts; else copy them if the keys are copied."""
        second, values, axes = self.second, self.second.operands[1], _matrix_axes(self.second)
        if axes is None or not isinstance(values, BlockArgument) or not values.has_one_use() or 0 in shape_of(values):
            return
        source, order = self.arguments.strip_transpose(values)
        value_axes = axes[1]
        rows = tuple(order[a] for a in value_axes)
        sizes = [int(s) for s in shape_of(source)]
        count, width, pitch = sizes[rows[-2]], sizes[rows[-1]], prod(sizes[rows[-2] + 1 :])
        if rows[-1] != len(sizes) - 1 or (
            pitch == width and has_set_conflicts(self.target, self.element, count, width, self.vectors)
        ):
            max_elements = self.vectors * self.target.lanes(numpy_dtype(self.element).itemsize)
            pack_argument(self.arguments, values, value_axes[-1], max_elements, second)
        elif copied_keys and pitch > width:
            source = self.arguments.insert_kernel("move", source, lambda b, x: transposed(b, x, rows))
            inverse = tuple(value_axes.index(a) for a in range(len(value_axes)))
            self.arguments.replace(values, source, lambda x: transposed(Build(second), x, inverse))
        else:
            self.arguments.replace(values, source, lambda x: transposed(Build(second), x, order))


def _can_transpose_scores(first: Contraction) -> bool:
    """Return whether all ops on scores can be transposed, and read no other matrix of queries by keys from memory."""
    transposed_values: set[SSAValue] = {first.results[0]}
    attention_outputs, op = set[SSAValue](), first.next_op
    while op is not None:
        score_operands = [v for v in op.operands if v in transposed_values]
        if any(v in attention_outputs for v in op.operands) or (isinstance(op, Contraction) and score_operands):
            attention_outputs.update(op.results)
        elif score_operands and isinstance(op, ReduceMaxOp | ReduceSumOp):
            if ints(op.axes) != (rank_of(op.operands[0]) - 1,) or not op.keeps_axes:
                return False
            transposed_values.add(op.results[0])
        elif score_operands:
            other_operands = [v for v in op.operands if v not in transposed_values]
            if not isinstance(op, Elementwise) or any(_varies_by_query_and_key(v) for v in other_operands):
                return False
            transposed_values.add(op.results[0])
        op = op.next_op
    return True


def _varies_by_query_and_key(value: SSAValue) -> bool:
    """Return whether a value in memory has an element for each query and key, unlike a computed positional mask."""
    return all(size != 1 for size in shape_of(value)[-2:]) and rank_of(value) > 1 and _is_loaded(value)


def _is_loaded(value: SSAValue) -> bool:
    producer = value.owner
    return not isinstance(producer, Operation) or any(map(_is_loaded, producer.operands))


def _transpose_scores(kernel: KernelOp, first: Contraction, queries: SSAValue, keys: SSAValue, factor: float) -> None:
    """Rewrite a kernel to compute transposed scores, from keys and from queries times a factor.

    Queries, […, inner, query], are copied so that lanes are contiguous; keys are […, key, inner].
    """
    b = Build(first)
    scores, inner_factor = _scaled_scores(first)
    if (factor := factor * inner_factor) == 1:
        scaled_queries = b(CastOp, queries, to=element_type_of(queries))
    else:
        scaled_queries = b(MulOp, queries, b.scalar(factor, like=queries))
    transposed_values: dict[SSAValue, SSAValue] = {scores: b(MatmulOp, keys, scaled_queries)}
    restored: dict[SSAValue, SSAValue] = {}
    attention_outputs = set[SSAValue]()
    for op in list(kernel.body.block.ops):
        score_operands = [k for k, v in enumerate(op.operands) if v in transposed_values]
        if not score_operands or not isinstance(op, DlOp):
            attention_outputs.update(op.results if any(v in attention_outputs for v in op.operands) else ())
            continue
        b = Build(op)
        if isinstance(op, Contraction) or any(v in attention_outputs for v in op.operands):
            for k in score_operands:
                value = op.operands[k]
                if value not in restored:
                    restored[value] = _transpose(b, transposed_values[value])
                op.operands[k] = restored[value]
            attention_outputs.update(op.results)
        else:
            transposed_values[op.results[0]] = b.insert(_transposed_op(b, op, transposed_values)).results[0]
    erase_unused([v.owner for v in reversed(transposed_values) if isinstance(v.owner, DlOp)])


def _scaled_scores(first: Contraction) -> tuple[SSAValue, float]:
    """Return the scaled scores and the factor; the caller scales the queries instead."""
    (products,) = first.results
    use = next(iter(products.uses))
    op = use.operation
    factor = splat(op.operands[1 - use.index]) if isinstance(op, MulOp) and products.has_one_use() else None
    return (products, 1.0) if factor is None else (op.results[0], float(factor))


def _transposed_op(b: Build, op: DlOp, transposed_values: Mapping[SSAValue, SSAValue]) -> DlOp:
    """Return an op on transposed scores, or on values derived from them."""
    (result,) = op.results
    if isinstance(op, ReduceMaxOp | ReduceSumOp):
        return type(op).make(transposed_values[op.operands[0]], axes=(rank_of(result) - 2,), keepdims=True)
    operands = [transposed_values[v] if v in transposed_values else _transpose(b, v) for v in op.operands]
    *outer, queries, keys = shape_of(result)
    result_type = tensor_type((*outer, keys, queries), element_type_of(result))
    return type(op).create(operands=operands, result_types=[result_type], properties=op.properties)


def _transpose(b: Build, value: SSAValue) -> SSAValue:
    """Swap the last two axes of a value; scalars are unchanged."""
    rank = rank_of(value)
    if all(size == 1 for size in shape_of(value)[-2:]):
        return value
    if rank == 1:
        return b(ReshapeOp, value, shape=(*shape_of(value), 1))
    return b(TransposeOp, value, permutation=(*range(rank - 2), rank - 1, rank - 2))
