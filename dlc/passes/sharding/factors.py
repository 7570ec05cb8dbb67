"""Factors of ops: the iterators of an op's iteration space, and the axes of operands and results that they index.

    dl.matmul (m, k) · (k, n) → (m, n)     operands (0, 2), (2, 1), result (0, 1), reduced {2: sum}

An axis without a factor must be replicated. If a reduced factor is sharded, the result is a partial value,
which a collective combines. Rules belong to interfaces and base classes, so that a new op usually needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dlc.dialects import dl
from dlc.dialects.dl.arithmetic.activation import Activation
from dlc.dialects.dl.base import DlOp, element_type_of, ints, normalized_axes, number, rank_of, shape_of, sizes
from dlc.dialects.dl.dtypes import is_float, is_integer
from dlc.dialects.dl.interfaces import (
    Contraction,
    DataDependent,
    Elementwise,
    LibraryKernel,
    Reduction,
    RowComposite,
    RowwiseKernel,
    Window,
)
from dlc.dialects.dl.library_kernels.cumulative import CumulativeOp
from dlc.dialects.dl.library_kernels.searchsorted import SortedSearch
from dlc.dialects.dl.low_precision.quantization import QuantizationOp
from dlc.dialects.dl.reductions.arg_extrema import ArgReduction
from dlc.ir import AffineDimExpr, AffineExpr, SSAValue
from dlc.passes.dl.rewriting import splat
from dlc.shapes.dims import Size
from dlc.shapes.reshapes import reshape_groups

# The factor of each axis of a value; None for an axis that must be replicated.
Axes: TypeAlias = "tuple[int | None, ...]"


@dataclass(frozen=True)
class Factors:
    """The factors of an op.

    Attributes:
        operands: The factors of the axes of each operand.
        results: The factors of the axes of each result.
        reduced: Factors that results do not have, with the combinator of partial results: sum, max or min.
        keeps_axes: Whether the op keeps axes, so that shardings propagate through it first.
        rows: The factor of an axis that indices refer to. A rank that has a part of these rows reads all indices.
    """

    operands: tuple[Axes, ...]
    results: tuple[Axes, ...]
    reduced: Mapping[int, str] = field(default_factory=dict[int, str])
    keeps_axes: bool = True
    rows: int | None = None


Rule: TypeAlias = Callable[[Any], Factors | None]


def replicated_factors(op: DlOp) -> Factors:
    """Return the factors of an op whose operands and results must be replicated."""
    return Factors(tuple(map(_no_factors, op.operands)), tuple(map(_no_factors, op.results)))


def factors_of(op: DlOp) -> Factors:
    """Return the factors of an op."""
    rule = factor_rule(type(op))
    factors = (rule(op) if rule is not None else None) or replicated_factors(op)
    for value, axes in zip((*op.operands, *op.results), (*factors.operands, *factors.results), strict=True):
        assert len(axes) == rank_of(value), f"{op.name}: factors {axes} of {value.type}"
    return factors


def factor_rule(op: type[DlOp]) -> Rule | None:
    """Return the rule of the nearest base class that has one; None if that class is replicated."""
    base = next((base for base in op.__mro__ if base in FACTOR_RULES or base in REPLICATED), None)
    return FACTOR_RULES.get(base) if base is not None else None


def _no_factors(value: SSAValue) -> Axes:
    return (None,) * rank_of(value)


def _aligned(operand: Sequence[Size], result: Sequence[Size]) -> Axes:
    """Return the factors of an operand that is broadcast: trailing axes aligned; broadcast axes have none."""
    lead = len(result) - len(operand)
    return tuple(lead + a if size == result[lead + a] else None for a, size in enumerate(operand))


def _elementwise(op: DlOp) -> Factors:
    shape = shape_of(op.results[0])
    return Factors(tuple(_aligned(shape_of(v), shape) for v in op.operands), (tuple(range(len(shape))),))


def _contraction(op: Contraction) -> Factors:
    """Use the iterators of the structure that directly index an axis of each value.

    Excluded are those of windows, of channels that a view splits into groups, and of matrices that are stored in the op.
    """
    structure = op.structure()
    accesses = [
        (shape_of(value), view, m.results)
        for value, view, m in zip(
            (*op.operands, op.results[0]),
            (*structure.views[: len(op.operands)], structure.views[-1]),
            (*structure.maps[: len(op.operands)], structure.maps[-1]),
            strict=True,
        )
    ]
    excluded: set[int] = set()
    if op.constant_matrix is not None:
        excluded |= _dimensions(structure.maps[1].results)
    for m in structure.maps:
        excluded |= _dimensions(e for e in m.results if not isinstance(e, AffineDimExpr))
    for shape, view, results in accesses:
        if tuple(view) != shape:
            excluded |= _dimensions(results[_common_prefix(shape, view) :])

    def axes(shape: Sequence[Size], view: Sequence[Size], results: Sequence[AffineExpr]) -> Axes:
        factors = [int(e.position) if isinstance(e, AffineDimExpr) else None for e in results]
        factors = [f if f not in excluded else None for f in factors]
        return tuple(factors) if tuple(view) == shape else _padded(factors[: _common_prefix(shape, view)], len(shape))

    by_value = [axes(*access) for access in accesses]
    reduced = {i: "sum" for i, is_reduced in enumerate(structure.reductions) if is_reduced and i not in excluded}
    return Factors(tuple(by_value[:-1]), (by_value[-1],), reduced, keeps_axes=False)


def _dimensions(expressions: Iterable[AffineExpr]) -> set[int]:
    """Return the iterators that expressions use."""
    return {i for e in expressions for i in e.used_dims()}


def _common_prefix(shape: Sequence[Size], view: Sequence[Size]) -> int:
    """Return the number of leading axes of equal size."""
    return next((k for k, (m, n) in enumerate(zip(shape, view, strict=False)) if m != n), min(len(shape), len(view)))


def _padded(factors: Sequence[int | None], rank: int) -> Axes:
    return (*factors, *(None,) * (rank - len(factors)))


_COMBINATORS: Mapping[type[DlOp], str] = {
    dl.ReduceSumOp: "sum",
    dl.ReduceMaxOp: "max",
    dl.ReduceMinOp: "min",
    dl.ReduceAnyOp: "max",
    dl.ReduceAllOp: "min",
}


def _reduction(op: Reduction) -> Factors:
    axes, combine, rank = op.reduction_axes, _COMBINATORS.get(type(op)), rank_of(op.operands[0])
    operand = tuple(a if a not in axes or combine else None for a in range(rank))
    result = tuple(None if a in axes else a for a in range(rank) if op.keeps_reduced_axes or a not in axes)
    return Factors((operand,), (result,), dict.fromkeys(axes, combine) if combine else {}, keeps_axes=False)


def _window(op: Window) -> Factors:
    """Shard the images and the channels."""
    return _outermost_and_innermost(op)


def _outermost_and_innermost(op: DlOp) -> Factors:
    def axes(value: SSAValue) -> Axes:
        rank = rank_of(value)
        return (0, *(None,) * (rank - 2), 1)

    return Factors(tuple(map(axes, op.operands)), tuple(map(axes, op.results)))


def _except(op: DlOp, excluded: Collection[int]) -> Factors:
    """Return a factor for each axis except some, for operands and results of the same shape; scalar operands have none."""
    rank = rank_of(op.operands[0])
    axes = tuple(None if a in excluded else a for a in range(rank))
    return Factors(tuple(axes if rank_of(v) == rank else _no_factors(v) for v in op.operands), (axes,) * len(op.results))


def _along_axes(op: DlOp) -> Factors:
    """Shard all axes but those in the properties `axis` and `axes`."""
    rank, properties = rank_of(op.operands[0]), op.properties
    axes = (*([number(properties["axis"])] if "axis" in properties else ()), *ints(properties.get("axes")))
    return _except(op, normalized_axes(op.name, axes, rank))


def _row_composite(op: RowComposite) -> Factors:
    rank = rank_of(op.operands[0])
    axes = tuple(None if a in op.row_axes else a for a in range(rank))
    return Factors((axes, *map(_no_factors, op.operands[1:])), (axes,))


def _batch_norm(op: dl.BatchNormOp) -> Factors:
    axes = tuple(range(rank_of(op.x)))
    return Factors((axes, *((op.channel_axis,) for _ in op.operands[1:])), (axes,))


def _arg_reduction(op: ArgReduction) -> Factors:
    rank, axis = rank_of(op.x), op.reduction_axis
    operand = tuple(None if a == axis else a for a in range(rank))
    keeps_axis = rank_of(op.result) == rank
    return Factors((operand,), (tuple(a for k, a in enumerate(operand) if keeps_axis or k != axis),))


def _quantization(op: QuantizationOp) -> Factors | None:
    if op.block_count is not None:
        return None
    axes = tuple(None if a == op.channel_axis else a for a in range(rank_of(op.x)))
    return Factors((axes, *map(_no_factors, op.operands[1:])), (axes,))


def _transpose(op: dl.TransposeOp) -> Factors:
    return Factors((tuple(range(len(op.axes))),), (tuple(op.axes),))


def _broadcast_to(op: dl.BroadcastToOp) -> Factors:
    return _elementwise(op)


def _reshape(op: dl.ReshapeOp) -> Factors:
    """Pair the outermost axes of each group: row-major order keeps shards of them together."""
    source, result = shape_of(op.x), shape_of(op.result)
    before: list[int | None] = [None] * len(source)
    after: list[int | None] = [None] * len(result)
    for k, (a, b) in enumerate(reshape_groups(source, result)):
        if a and b:
            before[next((i for i in a if source[i] != 1), a[0])] = k
            after[next((j for j in b if result[j] != 1), b[0])] = k
    return Factors((tuple(before),), (tuple(after),))


def _slice(op: dl.SliceOp) -> Factors:
    bounds = zip(sizes(op.starts), sizes(op.limits), ints(op.strides), shape_of(op.x), strict=True)
    return _except(op, [a for a, (start, limit, stride, size) in enumerate(bounds) if (start, limit, stride) != (0, size, 1)])


def _sliding_windows(op: dl.SlidingWindowsOp) -> Factors:
    windows = op.windows_by_axis
    axes = tuple(None if a in windows else a for a in range(rank_of(op.x)))
    return Factors((axes,), ((*(None for _ in windows), *axes),))


def _pad(op: dl.PadOp) -> Factors:
    return _except(op, [a for a, padding in enumerate(op.padding) if any(padding)])


def _dilate(op: dl.DilateOp) -> Factors:
    return _except(op, [a for a, interior in enumerate(ints(op.interior)) if interior])


def _add_dependency(op: dl.AddDependencyOp) -> Factors:
    axes = tuple(range(rank_of(op.x)))
    return Factors((axes, _no_factors(op.y)), (axes,))


# Factors of the axes of indices follow those of the indexed operand.
_FIRST_INDEX_FACTOR = 100


def _gather(op: dl.GatherOp) -> Factors:
    """Shard the rows as well: each rank reads its own, and the results are partial sums (`split_rows.py`)."""
    axis, rank = op.indexed_axis, rank_of(op.x)
    before, after = range(axis), range(axis + 1, rank)
    indices = range(_FIRST_INDEX_FACTOR, _FIRST_INDEX_FACTOR + rank_of(op.indices))
    operands, results = ((*before, axis, *after), tuple(indices)), ((*before, *indices, *after),)
    if not (is_float(element_type_of(op.x)) or is_integer(element_type_of(op.x))):
        return Factors(((*before, None, *after), tuple(indices)), results, keeps_axes=False)
    return Factors(operands, results, {axis: "sum"}, keeps_axes=False, rows=axis)


def _gather_nd(op: dl.GatherNdOp) -> Factors:
    batch, depth, rank = op.batch, op.num_indexed_axes, rank_of(op.x)
    rows = range(_FIRST_INDEX_FACTOR, _FIRST_INDEX_FACTOR + rank_of(op.indices) - 1 - batch)
    after = range(batch + depth, rank)
    indices = (*range(batch), *rows)
    return Factors(((*range(batch), *(None,) * depth, *after), (*indices, None)), ((*indices, *after),), keeps_axes=False)


def _gather_elements(op: dl.GatherElementsOp) -> Factors:
    axis, pairs = op.indexed_axis, list(zip(shape_of(op.x), shape_of(op.indices), strict=True))
    operand = tuple(a if a != axis and m == n else None for a, (m, n) in enumerate(pairs))
    indices = tuple(a if a == axis or m == n else None for a, (m, n) in enumerate(pairs))
    return Factors((operand, indices), (indices,), keeps_axes=False)


def _scatter_rows(op: dl.ScatterRowsOp) -> Factors:
    """Shard the rows and the axes after them; the updates if they are added to zeros: the results are then partial sums."""
    after, rank = tuple(range(1, rank_of(op.x))), rank_of(op.indices)
    is_sum = op.mode.data == "add" and is_zero(op.x)
    summed = range(_FIRST_INDEX_FACTOR, _FIRST_INDEX_FACTOR + rank) if is_sum else ()
    updates: Axes = tuple(summed) or (None,) * rank
    operands = ((0, *after), updates, (*updates, *after))
    return Factors(operands, ((0, *after),), dict.fromkeys(summed, "sum"), keeps_axes=False, rows=0)


def is_zero(value: SSAValue) -> bool:
    """Return whether all elements of a value are the constant 0."""
    while isinstance(value.owner, dl.BroadcastToOp | dl.ReshapeOp):
        value = value.owner.x
    return splat(value) == 0


def _rows(op: RowwiseKernel) -> Factors:
    """Shard the rows of the first operand; other operands are tables for all rows."""

    def axes(value: SSAValue) -> Axes:
        return (0, *(None,) * (rank_of(value) - 1))

    return Factors((axes(op.operands[0]), *map(_no_factors, op.operands[1:])), tuple(map(axes, op.results)))


def _batch_axes_of(count: Callable[[Any], int]) -> Rule:
    """Return a rule that shards the first `count(op)` axes, which all operands and results share."""

    def rule(op: DlOp) -> Factors:
        def axes(value: SSAValue) -> Axes:
            return (*range(count(op)), *(None,) * (rank_of(value) - count(op)))

        return Factors(tuple(map(axes, op.operands)), tuple(map(axes, op.results)))

    return rule


FACTOR_RULES: Mapping[type, Rule] = {
    Elementwise: _elementwise,
    **dict.fromkeys((Activation, dl.GcdOp), _elementwise),
    Contraction: _contraction,
    Reduction: _reduction,
    Window: _window,
    dl.MaxPoolGradientOp: _outermost_and_innermost,
    RowComposite: _row_composite,
    dl.BatchNormOp: _batch_norm,
    ArgReduction: _arg_reduction,
    QuantizationOp: _quantization,
    **dict.fromkeys((CumulativeOp, dl.SortOp, dl.ArgsortOp, dl.ReverseOp, dl.ConcatOp, dl.LrnOp), _along_axes),
    dl.TransposeOp: _transpose,
    dl.BroadcastToOp: _broadcast_to,
    dl.ReshapeOp: _reshape,
    dl.SliceOp: _slice,
    dl.SlidingWindowsOp: _sliding_windows,
    dl.PadOp: _pad,
    dl.DilateOp: _dilate,
    dl.AddDependencyOp: _add_dependency,
    dl.GatherOp: _gather,
    dl.GatherNdOp: _gather_nd,
    dl.GatherElementsOp: _gather_elements,
    dl.ScatterRowsOp: _scatter_rows,
    dl.RandomBitsOp: _batch_axes_of(lambda op: rank_of(op.first)),
    SortedSearch: _batch_axes_of(lambda op: rank_of(op.x) - 1),
    dl.ViewAsOp: lambda op: _except(op, [rank_of(op.x) - 1]),
    dl.DftOp: _batch_axes_of(lambda op: rank_of(op.x) - 2),
    LibraryKernel: _batch_axes_of(lambda op: op.num_batch_axes),
    RowwiseKernel: _rows,
}
_CREATED_LATER = "the compiler only creates it after partitioning"
_PACKED_WEIGHTS = "its weights are packed in blocks"
# Ops whose operands and results are replicated, with the reason.
REPLICATED: Mapping[type, str] = {
    **dict.fromkeys((dl.ConstantOp, dl.WeightOp, dl.SizeOp, dl.IotaOp), "it has no operands: each rank computes all elements"),
    **dict.fromkeys((dl.PackOp, dl.UnpackOp, dl.ModeProductOp), _CREATED_LATER),
    **dict.fromkeys((dl.MatmulWeightOnlyOp, dl.MatmulWeightOnlyDotOp), _PACKED_WEIGHTS),
    dl.LoopsOp: "its loops may read any element",
    dl.SuppressOverlapsOp: "rows depend on each other",
    DataDependent: "each rank computes all elements, since sizes depend on data",
}
