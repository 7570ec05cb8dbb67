"""Merge the iterators of a loop nest over contiguous memory, and the groups of a convolution with few output channels.

    linalg.generic (h, w, o, kh, kw, c): (h + kh, w + kw, c), (kh, kw, c, o) → (h, w, o)
  →
    (h, w, o, kh, k), k over (kw, c)

Dimensions i, j merge if stride(i) = extent(j) · stride(j) for every operand of every op of the nest. So a 1×1 convolution
becomes a matrix product, and an elementwise op becomes one-dimensional.

    linalg.generic (w, g, o, k, c): (w + k, g, c), (k, c, g, o) → (w, g, o)
  →
    (w, p, k, c): (w, k, p floordiv 4, c), (k, c, p) → (w, p)

The groups of a grouped convolution also merge with the output channels of each, if these are fewer than a vector has lanes.
An operand without output channels then repeats its elements along them; its elements of several groups must be contiguous.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.loop_nests import LoopNest
from dlc.target import Target


def merge_iterators(nest: LoopNest, target: Target) -> LoopNest:
    """Return the nest with merged iterators."""
    nest = _merge_channel_groups(nest, target)
    while (pair := next(filter(lambda p: _can_merge(nest, *p), permutations(sorted(nest.extents), 2)), None)) is not None:
        nest = _merge_pair(nest, *pair)
    return nest


def _can_merge(nest: LoopNest, outer: int, inner: int) -> bool:
    """Return whether every op uses (outer, inner) as one linear index, outer · extent(inner) + inner."""
    for nest_op in nest.ops:
        has_dims = [d in nest_op.dims for d in (outer, inner)]
        if not any(has_dims):
            continue
        if (
            not all(has_dims)
            or nest_op.indexed_dims & {outer, inner}
            or (outer in nest_op.reductions) != (inner in nest_op.reductions)
        ):
            return False
        if any(not t.is_plain for t in nest_op.terms if t.iterator in (outer, inner)):
            return False
        if any(a is not None and a.stride(outer) != nest.extents[inner] * a.stride(inner) for a in nest_op.accesses):
            return False
    return True


def _merge_channel_groups(nest: LoopNest, target: Target) -> LoopNest:
    """Merge the groups of a convolution with the output channels of each, if these are fewer than a vector has lanes."""
    pairs = ((g, o) for op in nest.ops if op.is_contraction and target.groups is None for g, o in permutations(op.dims, 2))
    channel_groups = next((pair for pair in pairs if _are_channel_groups(nest, target, *pair)), None)
    return nest if channel_groups is None else _merge_pair(nest, *channel_groups)


def _are_channel_groups(nest: LoopNest, target: Target, group: int, output: int) -> bool:
    """Return whether two dimensions are the groups of a convolution and the output channels of each.

    Every op must use the two as one linear index, except for operands of contractions without output channels: a vector then
    reads these operands in several groups.
    """
    extent, costs, has_repeated_operand = nest.extents[output], target.costs, False
    for nest_op in nest.ops:
        if not {group, output}.issubset(nest_op.dims) or {group, output} & (nest_op.indexed_dims | nest_op.reductions):
            return False
        size = max(4, nest_op.element_bytes())
        fits_vector = isinstance(extent, int) and target.lanes(size) % extent == 0
        if not fits_vector or extent * size >= min(target.vector_bytes, costs.min_vector_bytes) or nest_op.has_indirect_loads:
            return False
        for a in nest_op.accesses:
            if a is None or a.stride(group) == extent * a.stride(output):
                continue
            inner_reductions = [nest.extents[d] for d in nest_op.reductions if a.stride(d) == 1] or [1]
            is_shared_by_group = (
                nest_op.is_contraction and a is not nest_op.output and not a.uses(output) and a.root not in nest.local_buffers()
            )
            if (
                not is_shared_by_group
                or a.stride(group) != inner_reductions[0]
                or not isinstance(inner_reductions[0], int)
                or inner_reductions[0] > extent
            ):
                return False
            has_repeated_operand = True
    return has_repeated_operand


def _merge_pair(nest: LoopNest, outer: int, inner: int) -> LoopNest:
    """Return the nest with `outer` merged into `inner`; operands that have only `outer` repeat elements along `inner`."""

    def access_of(a: AffineAccess | None) -> AffineAccess | None:
        if a is None or not a.uses(outer):
            return a
        if a.uses(inner):
            return a._replace(terms=tuple(t for t in a.terms if t.iterator != outer))
        repeated = {"iterator": inner, "divisor": int(nest.extents[inner])}
        return a._replace(terms=tuple(t._replace(**repeated) if t.iterator == outer else t for t in a.terms))

    nest_ops = [
        replace(
            op,
            iterators=tuple(None if d == outer else d for d in op.iterators),
            reductions=op.reductions - {outer},
            accesses=tuple(map(access_of, op.accesses)),
        )
        for op in nest.ops
    ]
    extents = {d: e * nest.extents[outer] if d == inner else e for d, e in nest.extents.items() if d != outer}
    return replace(nest, ops=nest_ops, extents=extents)
