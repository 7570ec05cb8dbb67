"""`collapse-iterators`: merge iterators over contiguous memory, and make accesses plain views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import cast

from dlc.dialects.sizes import sizes_of
from dlc.ir import (
    AffineMap,
    Block,
    Context,
    Operation,
    SSAValue,
    erase_op,
    func,
    linalg,
    memref,
)
from dlc.passes.base import KernelPass, TargetPass
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.passes.tiling.affine_access import AffineAccess, AffineTerm, view_order
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.loop_nests import LoopNest, NestOp
from dlc.passes.tiling.structured_ops import is_read, iterator_extents
from dlc.passes.types import generic_properties, memref_of
from dlc.shapes.dims import row_major
from dlc.target import Target


@dataclass(frozen=True)
class CollapseIteratorsPass(TargetPass, KernelPass):
    """Merge iterators and make every operand a view with one dimension per iterator that it uses.

        linalg.generic (h, w, o, kh, kw, c): (h + kh, w + kw, c), (kh, kw, c, o) → (h, w, o)  ins(%x : memref<58x58x64xf32>, …)
      →
        %win = memref.reinterpret_cast %x … sizes [56, 56, 3, 192], strides [3712, 64, 3712, 1]
        linalg.generic (h, w, o, kh, k): (h, w, kh, k), (kh, k, o) → (h, w, o)  ins(%win, …)

    Dimensions i, j merge if stride(i) = extent(j) · stride(j) for every operand of every op of the nest. So a 1×1
    convolution becomes a matrix product and an elementwise op becomes one-dimensional, without special cases. Iterators
    of extent 1 are removed.

        linalg.generic (w, g, o, k, c): (w + k, g, c), (k, c, g, o) → (w, g, o)  ins(%x : memref<58x32x4xf32>, …)
      →
        linalg.generic (w, p, k, c): (w, k, p floordiv 4, c), (k, c, p) → (w, p)

    The groups of a grouped convolution also merge with the output channels of each, if these are fewer than a vector
    has lanes. An operand without output channels then repeats its elements along them; its elements of several groups
    must be contiguous. Afterwards every map is a selection of iterators, except for such operands and for packed ones,
    which still have (o floordiv t, …, o mod t).
    """

    name = "collapse-iterators"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        _drop_empty(kernel)
        constants = ConstantPool(kernel)
        for nest in form_loop_nests(kernel):
            merged_nest = _merge(_merge_channel_groups(nest, self.target))
            views = _local_views(merged_nest, constants)
            for nest_op in merged_nest.ops:
                _rewrite(nest_op, merged_nest, constants, views)
        _drop_unused_views(kernel)


def _drop_empty(kernel: func.FuncOp) -> None:
    """Erase ops with an empty iteration space."""
    for op in list(kernel.body.block.ops):
        if isinstance(op, linalg.GenericOp | linalg.FillOp) and 0 in iterator_extents(op):
            erase_op(op)


def _merge(nest: LoopNest) -> LoopNest:
    while (pair := next(filter(lambda p: _can_merge(nest, *p), permutations(sorted(nest.extents), 2)), None)) is not None:
        nest = _merge_pair(nest, *pair)
    return nest


def _can_merge(nest: LoopNest, outer: int, inner: int) -> bool:
    """Return whether in every op the pair (outer, inner) counts like one iterator, as two digits of its index."""
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
    channel_groups = next((pair for pair in pairs if -1 not in pair and _are_channel_groups(nest, target, *pair)), None)
    return nest if channel_groups is None else _merge_pair(nest, *channel_groups)


def _are_channel_groups(nest: LoopNest, target: Target, group: int, output: int) -> bool:
    """Return whether two dimensions are the groups of a convolution and the output channels of each.

    In every op the two must count like one iterator, except for operands of contractions without output channels: a
    vector then reads these operands in several groups.
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
            dims=tuple(-1 if d == outer else d for d in op.dims),
            reductions=op.reductions - {outer},
            accesses=tuple(map(access_of, op.accesses)),
        )
        for op in nest.ops
    ]
    extents = {d: e * nest.extents[outer] if d == inner else e for d, e in nest.extents.items() if d != outer}
    return LoopNest(nest_ops, extents)


def _local_views(nest: LoopNest, constants: ConstantPool) -> dict[SSAValue, SSAValue]:
    """Replace each local buffer by one whose axes are dimensions of the nest; return the new buffers."""
    result: dict[SSAValue, SSAValue] = {}
    for nest_op in nest.ops:
        root = nest_op.output.root
        if isinstance(root.owner, memref.AllocaOp) and root not in result:
            shape = tuple(nest.extents[t.iterator] for t in view_order(nest_op.output.terms))
            builder = OpBuilder(constants, cast(Block, root.owner.parent), root.owner.location, anchor=root.owner)
            result[root] = builder.alloca(memref_of(root).element_type, shape, root.name_hint)
    return result


def _rewrite(nest_op: NestOp, nest: LoopNest, constants: ConstantPool, local_buffers: dict[SSAValue, SSAValue]) -> None:
    """Replace the structured op of a nest op by one with merged iterators on views."""
    op = nest_op.op
    builder = OpBuilder(constants, cast(Block, op.parent), op.location, anchor=op)
    dims = [d for d in nest_op.dims if d >= 0]
    # Drop operands that only define iterator extents: now every iterator indexes a view by itself, which defines its extent.
    unread_operands = [k for k in range(len(op.operands) - 1) if isinstance(op, linalg.GenericOp) and not is_read(op, k)]
    operands: list[SSAValue] = []
    maps: list[AffineMap] = []
    for k, (operand, a) in enumerate(zip(op.operands, nest_op.accesses, strict=True)):
        if k not in unread_operands:
            terms = [] if a is None else view_order(a.terms)
            operands.append(operand if a is None else local_buffers.get(a.root) or _view(builder, a, terms, nest))
            maps.append(AffineMap(len(dims), 0, tuple(t.index_expression(dims.index(t.iterator)) for t in terms)))
    replacement: Operation
    if isinstance(op, linalg.FillOp):
        body = op.detach_region(op.regions[0])
        replacement = linalg.FillOp.create(operands=operands, properties=op.properties, regions=[body])
    else:
        _renumber_indices(op, nest_op.dims, constants)
        for k in reversed(unread_operands):
            op.body.block.erase_arg(op.body.block.args[k])
        replacement = linalg.GenericOp.create(
            operands=operands,
            properties=op.properties | generic_properties(maps, [d in nest_op.reductions for d in dims]),
            attributes=op.attributes,
            regions=[op.detach_region(op.body)],
        )
    builder.insert(replacement)
    erase_op(op)


def _view(builder: OpBuilder, a: AffineAccess, terms: Sequence[AffineTerm], nest: LoopNest) -> SSAValue:
    """Return a view of the buffer with one dimension per term."""
    shape = tuple(term.num_values(nest.extents[term.iterator]) for term in terms)
    strides = tuple(term.stride for term in terms)
    if a.offset == 0 and sizes_of(a.root) == shape and row_major(shape) == strides:
        return a.root
    return builder.reinterpret(a.root, a.offset, shape, strides)


def _renumber_indices(op: linalg.GenericOp, dims: Sequence[int], constants: ConstantPool) -> None:
    """Renumber the linalg.index ops of a body; the index of a removed iterator becomes 0."""
    remaining = [d for d in dims if d >= 0]
    for inner in list(op.body.block.ops):
        if not isinstance(inner, linalg.IndexOp):
            continue
        d = dims[inner.dim.value.data]
        if d < 0:
            inner.result.replace_all_uses_with(constants.index(0))
            erase_op(inner)
        else:
            inner.properties["dim"] = linalg.IndexOp(remaining.index(d)).dim


def _drop_unused_views(kernel: func.FuncOp) -> None:
    for op in reversed(list(kernel.body.block.ops)):
        if isinstance(op, memref.SubviewOp | memref.ReinterpretCastOp | memref.AllocaOp) and not op.results[0].first_use:
            erase_op(op)
