"""Attention with queries along the lanes: keys are broadcast as they lie, and what becomes of a row's scores goes up and down.

    Sᵀ = K · Qᵀ;  m = max over its rows;  E = exp(Sᵀ − m);  y = Eᵀ · V / Σ

A vector holds the scores of as many queries for one key. So maxima and sums are those of vectors, taken where the products are
in registers, and the only copy is one of a task's queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod

from dlc.arrays import ALIGNMENT
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
from dlc.passes.fusion.arguments import Arguments, transposed
from dlc.passes.fusion.pack_arguments import crowd, pack
from dlc.target import Target

# Rows of keys that a register tile reads at a time.
_KEYS = 8
# The part of the lanes that may be empty.
_EMPTY = 32
# The part of the second-level cache that keys and values of a head may fill where they are apart.
_NEAR = 2


def _axes_of_matrices(first: Contraction) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The axes of both operands in the order of a product of matrices, […, query, number] and […, number, key].

    None where there is more to it.
    """
    ranks = [rank_of(v) for v in first.operands]
    if isinstance(first, MatmulOp) and min(ranks) > 1:
        return tuple(range(ranks[0])), tuple(range(ranks[1]))
    if not isinstance(first, DotGeneralOp) or first.dot is not None:
        return None
    number, (left, right, result) = rank_of(first.result), first.structure().maps
    if left.num_dims != number + 1 or set(ranks) != {number}:
        return None
    axes = [{e: a for a, e in enumerate(m.results)} for m in (left, right)]
    *batch, query, key = result.results
    inner = AffineExpr.dimension(number)
    wanted = (*batch, query, inner), (*batch, inner, key)
    queries, keys = (tuple(found[e] for e in order if e in found) for found, order in zip(axes, wanted, strict=True))
    return (queries, keys) if len(queries) == len(keys) == number else None


class QueriesAlongLanes:
    """A kernel of two contractions whose queries may go along the lanes, and what its dispatch gives it."""

    def __init__(self, target: Target, arguments: Arguments, first: Contraction, second: Contraction) -> None:
        self.target = target
        self.arguments = arguments
        self.first = first
        self.second = second
        self.element = element_type_of(first.results[0])
        self.vectors = target.long_rows

    def turn(self) -> bool:
        """Puts them there, if that pays; whether it did."""
        first, axes, (queries, keys) = self.first, _axes_of_matrices(self.first), self.first.operands
        if axes is None or not isinstance(keys, BlockArgument) or not keys.has_one_use() or 0 in shape_of(keys):
            return False
        if any(element_type_of(v) != self.element for v in (queries, keys)):
            return False
        (*of_queries, query, number), (*of_keys, summed, key) = axes
        source, order = self.arguments.untransposed(keys)
        as_rows = *of_keys, key, summed
        rows = tuple(order[a] for a in as_rows)
        moved = self._is_moved(source, rows)
        if not self._fills_lanes() or not self._reads_rows(source, rows, moved) or not _turns(first):
            return False
        factor = 1.0
        if isinstance(queries, BlockArgument) and queries.has_one_use():
            unscaled, factor = self.arguments.unscaled(queries)
            queries = self.arguments.replace(queries, unscaled, lambda x: x) if factor != 1 else queries
        if moved:
            source = self.arguments.made("move", source, lambda b, x: transposed(b, x, rows))
            rows, order = tuple(range(len(rows))), tuple(as_rows.index(a) for a in range(len(rows)))
        b, given = Build(first), list[SSAValue]()

        def read(inner: SSAValue) -> SSAValue:
            given.append(inner)
            return transposed(b, inner, order)

        self.arguments.replace(keys, source, read)
        self._prepare_values(moved)
        queries = transposed(b, queries, (*of_queries, number, query))
        _turn(self.arguments.kernel, first, queries, transposed(b, given[0], rows), factor)
        return True

    def _fills_lanes(self) -> bool:
        """Whether next to no lanes are without a query."""
        size = numpy_dtype(self.element).itemsize
        lanes, queries = self.target.lanes(size), int(shape_of(self.first.results[0])[-2])
        filled = -(-queries // lanes) * lanes
        return size >= 4 and queries >= lanes and _EMPTY * (filled - queries) <= filled

    def _reads_rows(self, keys: SSAValue, rows: Sequence[int], moved: bool) -> bool:
        """Whether a key's numbers lie together, and the keys of a register tile in sets enough of the nearest cache.

        Of rows that lie apart lines come in pairs, as a cache asks for them, if a register tile reads two or more of values.
        """
        machine, size, sizes = self.target.machine, numpy_dtype(self.element).itemsize, [int(s) for s in shape_of(keys)]
        row, pitch = sizes[rows[-1]] * size, prod(sizes[rows[-2] + 1 :]) * size
        if rows[-1] != len(sizes) - 1 or (pitch > row and self.vectors * self.target.vector_bytes < 2 * ALIGNMENT):
            return False
        places = machine.way_bytes // max(gcd(machine.way_bytes, row if moved else pitch), min(row, machine.way_bytes))
        return places * machine.cache_ways >= 2 * _KEYS

    def _is_moved(self, keys: SSAValue, rows: Sequence[int]) -> bool:
        """Whether keys and values go to where those of a head are together: they fill much of a cache, and lie apart."""
        sizes = [int(s) for s in shape_of(keys)]
        count, width = sizes[rows[-2]], sizes[rows[-1]]
        return prod(sizes[rows[-2] + 1 :]) > width and _NEAR * 2 * count * width >= self.target.machine.block_elements

    def _prepare_values(self, moved: bool) -> None:
        """Values in panels, where theirs crowd the nearest cache as they lie; else where those of a head are together."""
        second, values, axes = self.second, self.second.operands[1], _axes_of_matrices(self.second)
        if axes is None or not isinstance(values, BlockArgument) or not values.has_one_use() or 0 in shape_of(values):
            return
        source, order = self.arguments.untransposed(values)
        to = axes[1]
        rows = tuple(order[a] for a in to)
        sizes = [int(s) for s in shape_of(source)]
        count, width, pitch = sizes[rows[-2]], sizes[rows[-1]], prod(sizes[rows[-2] + 1 :])
        if rows[-1] != len(sizes) - 1 or (pitch == width and crowd(self.target, self.element, count, width, self.vectors)):
            most = self.vectors * self.target.lanes(numpy_dtype(self.element).itemsize)
            pack(self.arguments, values, to[-1], most, second)
        elif moved and pitch > width:
            source = self.arguments.made("move", source, lambda b, x: transposed(b, x, rows))
            back = tuple(to.index(a) for a in range(len(to)))
            self.arguments.replace(values, source, lambda x: transposed(Build(second), x, back))
        else:
            self.arguments.replace(values, source, lambda x: transposed(Build(second), x, order))


def _turns(first: Contraction) -> bool:
    """Whether all that becomes of scores can be turned, and reads nothing that each query has a row of its own in."""
    turned: set[SSAValue] = {first.results[0]}
    rest, op = set[SSAValue](), first.next_op
    while op is not None:
        mine = [v for v in op.operands if v in turned]
        if any(v in rest for v in op.operands) or (isinstance(op, Contraction) and mine):
            rest.update(op.results)
        elif mine and isinstance(op, ReduceMaxOp | ReduceSumOp):
            if ints(op.axes) != (rank_of(op.operands[0]) - 1,) or not op.keeps_axes:
                return False
            turned.add(op.results[0])
        elif mine:
            others = [v for v in op.operands if v not in turned]
            if not isinstance(op, Elementwise) or any(_has_rows(v) for v in others):
                return False
            turned.add(op.results[0])
        op = op.next_op
    return True


def _has_rows(value: SSAValue) -> bool:
    """Whether a value has a number for each query and key in memory; what places decide is in none."""
    return all(size != 1 for size in shape_of(value)[-2:]) and rank_of(value) > 1 and _is_read(value)


def _is_read(value: SSAValue) -> bool:
    made = value.owner
    return not isinstance(made, Operation) or any(map(_is_read, made.operands))


def _turn(kernel: KernelOp, first: Contraction, queries: SSAValue, keys: SSAValue, factor: float) -> None:
    """Turns the scores of a kernel, which `first` has made of queries times a factor, and of keys.

    Queries, […, number, query], have a copy of their own, in which lanes are neighbours; keys are […, key, number].
    """
    b = Build(first)
    scaled, inside = _scaled(first)
    if (factor := factor * inside) == 1:
        copied = b(CastOp, queries, to=element_type_of(queries))
    else:
        copied = b(MulOp, queries, b.scalar(factor, like=queries))
    found: dict[SSAValue, SSAValue] = {scaled: b(MatmulOp, keys, copied)}
    back: dict[SSAValue, SSAValue] = {}
    rest = set[SSAValue]()
    for op in list(kernel.body.block.ops):
        mine = [k for k, v in enumerate(op.operands) if v in found]
        if not mine or not isinstance(op, DlOp):
            rest.update(op.results if any(v in rest for v in op.operands) else ())
            continue
        b = Build(op)
        if isinstance(op, Contraction) or any(v in rest for v in op.operands):
            for k in mine:
                value = op.operands[k]
                if value not in back:
                    back[value] = _turned(b, found[value])
                op.operands[k] = back[value]
            rest.update(op.results)
        else:
            found[op.results[0]] = b.insert(_copy(b, op, found)).results[0]
    erase_unused([v.owner for v in reversed(found) if isinstance(v.owner, DlOp)])


def _scaled(first: Contraction) -> tuple[SSAValue, float]:
    """Scores, and the number that products are multiplied by to be those: queries may be as well."""
    (products,) = first.results
    use = next(iter(products.uses))
    op = use.operation
    factor = splat(op.operands[1 - use.index]) if isinstance(op, MulOp) and products.has_one_use() else None
    return (products, 1.0) if factor is None else (op.results[0], float(factor))


def _copy(b: Build, op: DlOp, found: Mapping[SSAValue, SSAValue]) -> DlOp:
    """An op on turned scores, or what is made of them."""
    (result,) = op.results
    if isinstance(op, ReduceMaxOp | ReduceSumOp):
        return type(op).make(found[op.operands[0]], axes=(rank_of(result) - 2,), keepdims=True)
    operands = [found[v] if v in found else _turned(b, v) for v in op.operands]
    *outer, queries, keys = shape_of(result)
    made = tensor_type((*outer, keys, queries), element_type_of(result))
    return type(op).create(operands=operands, result_types=[made], properties=op.properties)


def _turned(b: Build, value: SSAValue) -> SSAValue:
    """A value with its last two axes exchanged; a number is what it is."""
    rank = rank_of(value)
    if all(size == 1 for size in shape_of(value)[-2:]):
        return value
    if rank == 1:
        return b(ReshapeOp, value, shape=(*shape_of(value), 1))
    return b(TransposeOp, value, permutation=(*range(rank - 2), rank - 1, rank - 2))
