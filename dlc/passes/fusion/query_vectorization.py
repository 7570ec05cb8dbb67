"""Vectorize attention along queries: key elements are broadcast from memory, and softmax needs no reduction of lanes.

    Sᵀ = K · Qᵀ;  m = max over its rows;  E = exp(Sᵀ − m);  y = Eᵀ · V / Σ

A vector holds the scores of several queries for one key, so the maxima and sums of the softmax are elementwise ops on vectors.
Only the queries of a task are transposed in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod

from dlc.arrays import ALIGNMENT_BYTES
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import MulOp
from dlc.dialects.dl.base import DlOp, element_type_of, ints, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
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
# The maximum fraction of lanes without a query.
_MAX_IDLE_LANES = 1 / 32
# Strided keys and values of a head are copied if they need at least this fraction of the L2 cache.
_MIN_L2_SHARE = 1 / 2


def _matrix_axes(scores_op: Contraction) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the axes of both operands in matmul order, […, query, inner] and […, inner, key]; else None."""
    ranks = [rank_of(v) for v in scores_op.operands]
    if isinstance(scores_op, MatmulOp) and min(ranks) > 1:
        return tuple(range(ranks[0])), tuple(range(ranks[1]))
    if not isinstance(scores_op, DotGeneralOp) or scores_op.dot is not None:
        return None
    rank, (left, right, result) = rank_of(scores_op.result), scores_op.structure().maps
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

    `scores_op` is the contraction that computes scores, `output_op` the one with the values.
    """

    def __init__(self, target: Target, arguments: DispatchArguments, scores_op: Contraction, output_op: Contraction) -> None:
        self.target = target
        self.arguments = arguments
        self.scores_op = scores_op
        self.output_op = output_op
        self.element = element_type_of(scores_op.results[0])
        self.vectors = target.vectors_per_tile_row

    def apply_if_profitable(self) -> bool:
        """Vectorize along queries if it is profitable; return whether it was."""
        scores_op, axes, (queries, keys) = self.scores_op, _matrix_axes(self.scores_op), self.scores_op.operands
        if axes is None or not isinstance(keys, BlockArgument) or not keys.has_one_use() or 0 in shape_of(keys):
            return False
        if any(element_type_of(v) != self.element for v in (queries, keys)):
            return False
        (*query_batch, query, inner_axis), (*key_batch, key_inner, key) = axes
        source, permutation = self.arguments.strip_transpose(keys)
        key_axes = *key_batch, key, key_inner
        source_axes = tuple(permutation[a] for a in key_axes)
        copy_keys = self._needs_copy(source, source_axes)
        if (
            not self._queries_fill_lanes()
            or not self._can_stream_keys(source, source_axes, copy_keys)
            or not _can_transpose_scores(scores_op)
        ):
            return False
        factor = 1.0
        if isinstance(queries, BlockArgument) and queries.has_one_use():
            unscaled, factor = self.arguments.strip_scale(queries)
            queries = self.arguments.replace(queries, unscaled, lambda x: x) if factor != 1 else queries
        if copy_keys:
            source = self.arguments.insert_kernel("move", source, lambda build, x: transposed(build, x, source_axes))
            source_axes, permutation = tuple(range(len(source_axes))), tuple(key_axes.index(a) for a in range(len(source_axes)))
        build_op, new_argument = DlBuilder(scores_op), list[SSAValue]()

        def use_keys(argument: SSAValue) -> SSAValue:
            new_argument.append(argument)
            return transposed(build_op, argument, permutation)

        self.arguments.replace(keys, source, use_keys)
        self._prepare_values(copy_keys)
        queries = transposed(build_op, queries, (*query_batch, inner_axis, query))
        _transpose_scores(self.arguments.kernel, scores_op, queries, transposed(build_op, new_argument[0], source_axes), factor)
        return True

    def _queries_fill_lanes(self) -> bool:
        """Return whether queries occupy nearly all lanes."""
        size = numpy_dtype(self.element).itemsize
        lanes, queries = self.target.lanes(size), int(shape_of(self.scores_op.results[0])[-2])
        padded_queries = -(-queries // lanes) * lanes
        return size >= 4 and queries >= lanes and padded_queries - queries <= _MAX_IDLE_LANES * padded_queries

    def _can_stream_keys(self, keys: SSAValue, source_axes: Sequence[int], copy_keys: bool) -> bool:
        """Return whether the elements of a key are contiguous, and the keys of a register tile have no cache set conflicts.

        If keys are strided, a tile must read at least two cache lines of values per key: lines are prefetched in pairs.
        """
        costs, size, sizes = self.target.costs, numpy_dtype(self.element).itemsize, [int(s) for s in shape_of(keys)]
        row, pitch = sizes[source_axes[-1]] * size, prod(sizes[source_axes[-2] + 1 :]) * size
        if source_axes[-1] != len(sizes) - 1 or (pitch > row and self.vectors * self.target.vector_bytes < 2 * ALIGNMENT_BYTES):
            return False
        sets = costs.way_bytes // max(gcd(costs.way_bytes, row if copy_keys else pitch), min(row, costs.way_bytes))
        return sets * costs.cache_ways >= 2 * _KEYS_PER_TILE

    def _needs_copy(self, keys: SSAValue, source_axes: Sequence[int]) -> bool:
        """Return whether to copy a head's keys and values to contiguous memory.

        They are copied if they are strided and fill a large part of the L2 cache.
        """
        sizes = [int(s) for s in shape_of(keys)]
        count, width = sizes[source_axes[-2]], sizes[source_axes[-1]]
        return (
            prod(sizes[source_axes[-2] + 1 :]) > width and 2 * count * width >= _MIN_L2_SHARE * self.target.costs.block_elements
        )

    def _prepare_values(self, copy_keys: bool) -> None:
        """Pack the values in panels if they have cache set conflicts; else copy them if the keys are copied."""
        output_op, values, axes = self.output_op, self.output_op.operands[1], _matrix_axes(self.output_op)
        if axes is None or not isinstance(values, BlockArgument) or not values.has_one_use() or 0 in shape_of(values):
            return
        source, permutation = self.arguments.strip_transpose(values)
        value_axes = axes[1]
        source_axes = tuple(permutation[a] for a in value_axes)
        sizes = [int(s) for s in shape_of(source)]
        count, width, pitch = sizes[source_axes[-2]], sizes[source_axes[-1]], prod(sizes[source_axes[-2] + 1 :])
        if source_axes[-1] != len(sizes) - 1 or (
            pitch == width and has_set_conflicts(self.target, self.element, count, width, self.vectors)
        ):
            max_elements = self.vectors * self.target.lanes(numpy_dtype(self.element).itemsize)
            pack_argument(self.arguments, values, value_axes[-1], max_elements, output_op)
        elif copy_keys and pitch > width:
            source = self.arguments.insert_kernel("move", source, lambda build, x: transposed(build, x, source_axes))
            inverse = tuple(value_axes.index(a) for a in range(len(value_axes)))
            self.arguments.replace(values, source, lambda x: transposed(DlBuilder(output_op), x, inverse))
        else:
            self.arguments.replace(values, source, lambda x: transposed(DlBuilder(output_op), x, permutation))


def _can_transpose_scores(scores_op: Contraction) -> bool:
    """Return whether all ops on scores can be transposed, and read no other matrix of queries by keys from memory."""
    transposed_values: set[SSAValue] = {scores_op.results[0]}
    attention_outputs, op = set[SSAValue](), scores_op.next_op
    while op is not None:
        score_operands = [v for v in op.operands if v in transposed_values]
        if any(v in attention_outputs for v in op.operands) or (isinstance(op, Contraction) and score_operands):
            attention_outputs.update(op.results)
        elif score_operands and isinstance(op, ReduceMaxOp | ReduceSumOp):
            if ints(op.axes) != (rank_of(op.operands[0]) - 1,) or not op.keeps_reduced_axes:
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


def _transpose_scores(kernel: KernelOp, scores_op: Contraction, queries: SSAValue, keys: SSAValue, factor: float) -> None:
    """Rewrite a kernel to compute transposed scores, from keys and from queries times a factor.

    Queries, […, inner, query], are copied so that lanes are contiguous; keys are […, key, inner].
    """
    build = DlBuilder(scores_op)
    scores, inner_factor = _scaled_scores(scores_op)
    if (factor := factor * inner_factor) == 1:
        scaled_queries = build(CastOp, queries, to=element_type_of(queries))
    else:
        scaled_queries = build(MulOp, queries, build.scalar(factor, like=queries))
    transposed_values: dict[SSAValue, SSAValue] = {scores: build(MatmulOp, keys, scaled_queries)}
    restored: dict[SSAValue, SSAValue] = {}
    attention_outputs = set[SSAValue]()
    for op in list(kernel.body.block.ops):
        score_operands = [k for k, v in enumerate(op.operands) if v in transposed_values]
        if not score_operands or not isinstance(op, DlOp):
            attention_outputs.update(op.results if any(v in attention_outputs for v in op.operands) else ())
            continue
        build = DlBuilder(op)
        if isinstance(op, Contraction) or any(v in attention_outputs for v in op.operands):
            for k in score_operands:
                value = op.operands[k]
                if value not in restored:
                    restored[value] = _transpose(build, transposed_values[value])
                op.operands[k] = restored[value]
            attention_outputs.update(op.results)
        else:
            transposed_values[op.results[0]] = build.insert(_transposed_op(build, op, transposed_values)).results[0]
    erase_unused([v.owner for v in reversed(transposed_values) if isinstance(v.owner, DlOp)])


def _scaled_scores(scores_op: Contraction) -> tuple[SSAValue, float]:
    """Return the scaled scores and the factor; the caller scales the queries instead."""
    (products,) = scores_op.results
    use = next(iter(products.uses))
    op = use.operation
    factor = splat(op.operands[1 - use.index]) if isinstance(op, MulOp) and products.has_one_use() else None
    return (products, 1.0) if factor is None else (op.results[0], float(factor))


def _transposed_op(build: DlBuilder, op: DlOp, transposed_values: Mapping[SSAValue, SSAValue]) -> DlOp:
    """Return an op on transposed scores, or on values derived from them."""
    (result,) = op.results
    if isinstance(op, ReduceMaxOp | ReduceSumOp):
        return type(op).make(transposed_values[op.operands[0]], axes=(rank_of(result) - 2,), keepdims=True)
    operands = [transposed_values[v] if v in transposed_values else _transpose(build, v) for v in op.operands]
    *outer, queries, keys = shape_of(result)
    result_type = tensor_type((*outer, keys, queries), element_type_of(result))
    return type(op).create(operands=operands, result_types=[result_type], properties=op.properties)


def _transpose(build: DlBuilder, value: SSAValue) -> SSAValue:
    """Swap the last two axes of a value; scalars are unchanged."""
    rank = rank_of(value)
    if all(size == 1 for size in shape_of(value)[-2:]):
        return value
    if rank == 1:
        return build(ReshapeOp, value, shape=(*shape_of(value), 1))
    return build(TransposeOp, value, permutation=(*range(rank - 2), rank - 1, rank - 2))
