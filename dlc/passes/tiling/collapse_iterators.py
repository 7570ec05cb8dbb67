"""`collapse-iterators`: iterators that walk memory as one become one; accesses become plain views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import cast

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.sizes import sizes_of
from dlc.dims import Size, row_major
from dlc.ir import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    ArrayAttr,
    Block,
    Context,
    Operation,
    SSAValue,
    func,
    linalg,
    memref,
)
from dlc.passes.base import KernelPass, TargetPass
from dlc.passes.structured import Constants, Place
from dlc.passes.tiling.access import Access, Term, view_order
from dlc.passes.tiling.form_nests import nests_of
from dlc.passes.tiling.nests import OpenNest, Stage
from dlc.passes.tiling.structured_ops import is_read, iterator_extents
from dlc.passes.types import iterator_types, map_attribute, memref_of, segments
from dlc.target import Target


@dataclass(frozen=True)
class CollapseIteratorsPass(TargetPass, KernelPass):
    """Merges iterators and makes every operand a view with one dimension per iterator that it uses.

        linalg.generic (h, w, o, kh, kw, c): (h + kh, w + kw, c), (kh, kw, c, o) → (h, w, o)  ins(%x : memref<58x58x64xf32>, …)
      →
        %win = memref.reinterpret_cast %x … sizes [56, 56, 3, 192], strides [3712, 64, 3712, 1]
        linalg.generic (h, w, o, kh, k): (h, w, kh, k), (kh, k, o) → (h, w, o)  ins(%win, …)

    Dimensions i, j merge when, for every operand of every op of the nest, stride(i) = extent(j) · stride(j): then a 1×1
    convolution is a matrix product and an elementwise op is flat, without special cases. Iterators of extent 1 go.

        linalg.generic (w, g, o, k, c): (w + k, g, c), (k, c, g, o) → (w, g, o)  ins(%x : memref<58x32x4xf32>, …)
      →
        linalg.generic (w, p, k, c): (w, k, p floordiv 4, c), (k, c, p) → (w, p)

    So do the groups of a convolution and the outputs of each where these are too few for a vector: an operand that has no
    outputs repeats its elements along them then. What several groups, which fill a vector, read of it must be one, too.
    Afterwards every map is a selection of iterators, but for such operands, and for packed ones, which keep
    (o floordiv t, …, o mod t).
    """

    name = "collapse-iterators"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        _drop_empty(kernel)
        constants = Constants(kernel)
        for nest in nests_of(kernel):
            merged = _merge(_with_groups(nest, self.target))
            views = _local_views(merged, constants)
            for stage in merged.stages:
                _rewrite(stage, merged, constants, views)
        _drop_unused_views(kernel)


def _drop_empty(kernel: func.FuncOp) -> None:
    """Ops that iterate over nothing do nothing."""
    for op in list(kernel.body.block.ops):
        if isinstance(op, linalg.GenericOp | linalg.FillOp) and 0 in iterator_extents(op):
            op.detach()
            op.erase()


def _merge(nest: OpenNest) -> OpenNest:
    while (pair := next(filter(lambda p: _can_merge(nest, *p), permutations(sorted(nest.extents), 2)), None)) is not None:
        nest = _merged(nest, *pair)
    return nest


def _can_merge(nest: OpenNest, outer: int, inner: int) -> bool:
    """Whether every op sees `outer` and `inner` as the two digits of one iterator."""
    for stage in nest.stages:
        has = [d in stage.dims for d in (outer, inner)]
        if not any(has):
            continue
        if not all(has) or stage.asked & {outer, inner} or (outer in stage.reductions) != (inner in stage.reductions):
            return False
        for a in stage.accesses:
            if a is None:
                continue
            if any(not t.is_plain for t in a.terms if t.iterator in (outer, inner)):
                return False
            if a.stride(outer) != nest.extents[inner] * a.stride(inner):
                return False
    return True


def _with_groups(nest: OpenNest, target: Target) -> OpenNest:
    """The nest with groups and the outputs of each as one dimension, where these are too few for a vector."""
    pairs = ((g, o) for s in nest.stages if s.is_contraction and target.groups is None for g, o in permutations(s.dims, 2))
    found = next((pair for pair in pairs if -1 not in pair and _are_groups(nest, target, *pair)), None)
    return nest if found is None else _merged(nest, *found)


def _are_groups(nest: OpenNest, target: Target, group: int, output: int) -> bool:
    """Whether every op sees the two as digits of one iterator, but for contractions with an operand without outputs, of which
    several groups are a vector."""
    extent, machine, repeats = nest.extents[output], target.machine, False
    for stage in nest.stages:
        if not {group, output}.issubset(stage.dims) or {group, output} & (stage.asked | stage.reductions):
            return False
        size = max(4, numpy_dtype(memref_of(stage.op.operands[-1]).element_type).itemsize)
        fits = isinstance(extent, int) and target.lanes(size) % extent == 0
        if not fits or extent * size >= min(target.vector_bytes, machine.short_bytes) or stage.reads_at_computed_places:
            return False
        for a in stage.accesses:
            if a is None or a.stride(group) == extent * a.stride(output):
                continue
            between = [nest.extents[d] for d in stage.reductions if a.stride(d) == 1] or [1]
            of_group = stage.is_contraction and a is not stage.output and not a.uses(output) and a.root not in nest.locals()
            if not of_group or a.stride(group) != between[0] or not isinstance(between[0], int) or between[0] > extent:
                return False
            repeats = True
    return repeats


def _merged(nest: OpenNest, outer: int, inner: int) -> OpenNest:
    """The nest with `outer` and `inner` as one dimension, called as `inner`; what has `outer` alone repeats along it."""

    def access_of(a: Access | None) -> Access | None:
        if a is None or not a.uses(outer):
            return a
        if a.uses(inner):
            return a._replace(terms=tuple(t for t in a.terms if t.iterator != outer))
        alone = {"iterator": inner, "divisor": int(nest.extents[inner])}
        return a._replace(terms=tuple(t._replace(**alone) if t.iterator == outer else t for t in a.terms))

    stages = [
        replace(
            s,
            dims=tuple(-1 if d == outer else d for d in s.dims),
            reductions=s.reductions - {outer},
            accesses=tuple(map(access_of, s.accesses)),
        )
        for s in nest.stages
    ]
    extents = {d: e * nest.extents[outer] if d == inner else e for d, e in nest.extents.items() if d != outer}
    return OpenNest(stages, extents)


def _local_views(nest: OpenNest, constants: Constants) -> dict[SSAValue, SSAValue]:
    """A local buffer per local root, shaped by the dimensions of the nest."""
    result: dict[SSAValue, SSAValue] = {}
    for stage in nest.stages:
        root = stage.output.root
        if isinstance(root.owner, memref.AllocaOp) and root not in result:
            shape = tuple(nest.extents[t.iterator] for t in view_order(stage.output.terms))
            place = Place(constants, cast(Block, root.owner.parent), root.owner.location, anchor=root.owner)
            result[root] = place.alloca(memref_of(root).element_type, shape, root.name_hint)
    return result


def _rewrite(stage: Stage, nest: OpenNest, constants: Constants, locals_: dict[SSAValue, SSAValue]) -> None:
    op = stage.op
    place = Place(constants, cast(Block, op.parent), op.location, anchor=op)
    dims = [d for d in stage.dims if d >= 0]
    operands: list[SSAValue] = []
    maps: list[AffineMap] = []
    # An operand that is there for its sizes alone has done its work: every iterator indexes a view by itself now.
    unread = [k for k in range(len(op.operands) - 1) if isinstance(op, linalg.GenericOp) and not is_read(op, k)]
    for k, (operand, a) in enumerate(zip(op.operands, stage.accesses, strict=True)):
        if k in unread:
            continue
        if a is None:
            operands.append(operand)
            maps.append(AffineMap(len(dims), 0, ()))
            continue
        terms = view_order(a.terms)
        operands.append(locals_.get(a.root) or _view(place, a, terms, nest))
        maps.append(AffineMap(len(dims), 0, tuple(_index(t, dims.index(t.iterator)) for t in terms)))
    replacement: Operation
    if isinstance(op, linalg.FillOp):
        body = op.detach_region(op.regions[0])
        replacement = linalg.FillOp.create(operands=operands, properties=op.properties, regions=[body])
    else:
        _renumber_indices(op, stage.dims, constants)
        for k in reversed(unread):
            op.body.block.erase_arg(op.body.block.args[k])
        replacement = linalg.GenericOp.create(
            operands=operands,
            properties=op.properties
            | {
                "indexing_maps": ArrayAttr([map_attribute(m) for m in maps]),
                "iterator_types": iterator_types(tuple(d in stage.reductions for d in dims)),
                **segments(len(operands) - 1, 1),
            },
            attributes=op.attributes,
            regions=[op.detach_region(op.body)],
        )
    place.insert(replacement)
    op.detach()
    op.erase()


def _view(place: Place, a: Access, terms: Sequence[Term], nest: OpenNest) -> SSAValue:
    """The buffer with one dimension per term."""
    shape = tuple(_term_extent(term, nest) for term in terms)
    strides = tuple(term.stride for term in terms)
    if a.offset == 0 and sizes_of(a.root) == shape and row_major(shape) == strides:
        return a.root
    return place.reinterpret(a.root, a.offset, shape, strides)


def _term_extent(t: Term, nest: OpenNest) -> Size:
    steps = -(-nest.extents[t.iterator] // t.divisor)
    return min(steps, t.modulus) if t.modulus else steps


def _index(t: Term, position: int) -> AffineExpr:
    expr: AffineExpr = AffineDimExpr(position)
    if t.divisor > 1:
        expr = AffineBinaryOpExpr(AffineBinaryOpKind.FloorDiv, expr, AffineConstantExpr(t.divisor))
    if t.modulus:
        expr = AffineBinaryOpExpr(AffineBinaryOpKind.Mod, expr, AffineConstantExpr(t.modulus))
    return expr


def _renumber_indices(op: linalg.GenericOp, dims: Sequence[int], constants: Constants) -> None:
    """linalg.index of an iterator that is gone is 0; the others get their new positions."""
    remaining = [d for d in dims if d >= 0]
    for inner in list(op.body.block.ops):
        if not isinstance(inner, linalg.IndexOp):
            continue
        d = dims[inner.dim.value.data]
        if d < 0:
            inner.result.replace_all_uses_with(constants.index(0))
            inner.detach()
            inner.erase()
        else:
            inner.properties["dim"] = linalg.IndexOp(remaining.index(d)).dim


def _drop_unused_views(kernel: func.FuncOp) -> None:
    for op in reversed(list(kernel.body.block.ops)):
        if isinstance(op, memref.SubviewOp | memref.ReinterpretCastOp | memref.AllocaOp) and not op.results[0].first_use:
            op.detach()
            op.erase()
