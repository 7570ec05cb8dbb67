"""Transposes of linear ops: the cotangent of an operand from that of the result.

An op here is linear in each float operand that moves while the others stay. Where it is linear in several together (concat,
pad, scatter_rows), each is transposed by itself: the rest is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from itertools import product as all_of
from math import prod
from typing import Any, TypeAlias

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, flag, ints, number, rank_of, shape_of, sizes
from dlc.dialects.dl.build import Build
from dlc.dialects.places import place
from dlc.dims import Size, UndecidableError, is_static, product
from dlc.ir import AffineConstantExpr, AffineDimExpr, AffineMap, SSAValue, i64
from dlc.passes.autodiff.term import Term, where
from dlc.passes.dl.rewriting import inverse

# The cotangent of the operand with this index, from the op and the cotangent of its result.
Transpose: TypeAlias = Callable[[Any, Term, int], Term]


def unbroadcast(ct: Term, shape: Sequence[Size]) -> Term:
    """The sum over what broadcasting to the shape of `ct` repeated."""
    lead = len(ct.shape) - len(shape)
    repeated = [a for a, s in enumerate(ct.shape) if a < lead or (shape[a - lead] == 1 != s)]
    return ct.sum(*repeated).reshape(*shape)


def zeros(b: Build, like: SSAValue) -> Term:
    """Zeros of a value's type."""
    return Term(b, b.scalar(0, like=like)).broadcast(*shape_of(like))


def _static(op: DlOp, value: SSAValue) -> tuple[int, ...]:
    return tuple(_known(op, shape_of(value)))


def _known(op: DlOp, wanted: Sequence[Size]) -> list[int]:
    """Sizes that do not hang on what is open: differences of it, for one."""
    if not is_static(wanted):
        shown = ", ".join(map(str, wanted))
        problem = f"its transpose needs the sizes ({shown}) to be known; bind them (pass bind-dims)"
        raise UndecidableError(f"{place(op.location)}{op.name}: {problem}")
    return [int(size) for size in wanted]


# ── movement ──


def _cast(op: dl.CastOp, ct: Term, index: int) -> Term:
    return ct.op(dl.CastOp, to=element_type_of(op.x))


def _reshape(op: dl.ReshapeOp, ct: Term, index: int) -> Term:
    return ct.reshape(*shape_of(op.x))


def _transpose(op: dl.TransposeOp, ct: Term, index: int) -> Term:
    return ct.transpose(*inverse(op.axes))


def _broadcast_to(op: dl.BroadcastToOp, ct: Term, index: int) -> Term:
    return unbroadcast(ct, shape_of(op.x))


def _reverse(op: dl.ReverseOp, ct: Term, index: int) -> Term:
    return ct.op(dl.ReverseOp, axes=op.reversed_axes)


def _pad(x: Term, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Term:
    """`x` with zeros between its elements and around them; negative numbers take elements away."""
    if any(interior):
        x = x.op(dl.DilateOp, 0, interior=interior)
    return x.op(dl.PadOp, 0, low=low, high=high) if any((*low, *high)) else x


def _slice(op: dl.SliceOp, ct: Term, index: int) -> Term:
    starts, strides, kept = sizes(op.starts), ints(op.strides), shape_of(op.result)
    if 0 in kept:
        return zeros(ct.b, op.x)
    ends = [s + (n - 1) * k + 1 for s, n, k in zip(starts, kept, strides, strict=True)]
    high = [n - e for n, e in zip(shape_of(op.x), ends, strict=True)]
    return _pad(ct, _known(op, starts), _known(op, high), [k - 1 for k in strides])


def _windows(op: dl.WindowsOp, ct: Term, index: int) -> Term:
    """The windows laid over one another where they were taken."""
    shape, slides, count = shape_of(op.x), op.slides, len(ints(op.axes))
    places = shape_of(op.result)[count:]
    total: Term | None = None
    for tap in all_of(*(range(window) for window, _ in slides.values())):
        starts = dict(zip(slides, tap, strict=True))
        one = ct.op(
            dl.SliceOp,
            starts=(*tap, *(0 for _ in shape)),
            limits=(*(t + 1 for t in tap), *places),
            strides=(1,) * len(ct.shape),
        )
        strides = [slides[a][1] if a in slides else 1 for a in range(len(shape))]
        low = [starts.get(a, 0) for a in range(len(shape))]
        high = [n - first - ((m - 1) * s + 1) for n, first, m, s in zip(shape, low, places, strides, strict=True)]
        laid = _pad(one.reshape(*places), low, _known(op, high), [s - 1 for s in strides])
        total = laid if total is None else total + laid
    return total if total is not None else zeros(ct.b, op.x)


def _concat(op: dl.ConcatOp, ct: Term, index: int) -> Term:
    axis = op.joined_axis
    start: Size = sum((shape_of(v)[axis] for v in op.operands[:index]), 0)
    starts: list[Size] = [0] * len(ct.shape)
    limits = list(ct.shape)
    starts[axis], limits[axis] = start, start + shape_of(op.operands[index])[axis]
    return ct.op(dl.SliceOp, starts=starts, limits=limits, strides=(1,) * len(starts))


def _transposed_pad(op: dl.PadOp, ct: Term, index: int) -> Term:
    if op.mode != "constant":
        return _repeating_pad(op, ct) if index == 0 else ct.like(0)
    kept = _pad(ct, [-n for n in ints(op.low)], [-n for n in ints(op.high)], [0] * rank_of(op.x))
    return kept if index == 0 else _total(ct) - _total(kept)


def _dilate(op: dl.DilateOp, ct: Term, index: int) -> Term:
    kept = ct.op(dl.SliceOp, starts=(0,) * len(ct.shape), limits=ct.shape, strides=[k + 1 for k in ints(op.interior)])
    return kept if index == 0 else _total(ct) - _total(kept)


def _total(x: Term) -> Term:
    """The sum of all elements."""
    return x.op(dl.ReduceSumOp, axes=tuple(range(len(x.shape))))


def _repeating_pad(op: dl.PadOp, ct: Term) -> Term:
    """Each element gathers what became of it: along one axis after the other, rows added at the places they came from."""
    shape = _static(op, op.x)
    for axis, size in reversed(list(enumerate(shape))):
        low, high = op.padding[axis]
        if low == 0 == high:
            continue
        numbers = dl.repeating_places(op.mode, size, size + low + high, low)
        places = ct.b.constant(numbers, i64)
        lead = [axis, *(a for a in range(len(shape)) if a != axis)]
        rows = ct.transpose(*lead)
        empty = Term(ct.b, ct.b.scalar(0, like=ct.value)).broadcast(size, *rows.shape[1:])
        ct = _added(empty, Term(ct.b, places), rows).transpose(*inverse(lead))
    return ct


# ── sums ──


def _reduce_sum(op: dl.ReduceSumOp, ct: Term, index: int) -> Term:
    kept = [1 if a in op.reduction_axes else s for a, s in enumerate(shape_of(op.x))]
    return ct.reshape(*kept).broadcast(*shape_of(op.x))


def _cumsum(op: dl.CumsumOp, ct: Term, index: int) -> Term:
    return ct.op(dl.CumsumOp, axis=op.running_axis, exclusive=flag(op.exclusive), reverse=not flag(op.reverse))


def _sum_pool(op: dl.SumPoolOp, ct: Term, index: int) -> Term:
    """Each element is in the windows that begin up to their reach before it: a sum over windows of the spread cotangent."""
    kernel, strides, dilations = ints(op.kernel), ints(op.strides), ints(op.dilations)
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    begins = [(m - 1) * s + 1 for m, s in zip(shape_of(op.result)[1:-1], strides, strict=True)]
    high = _known(op, [p - q for p, q in zip(shape_of(op.x)[1:-1], begins, strict=True)])
    spread = _pad(ct, (0, *reach, 0), (0, *high, 0), (0, *(s - 1 for s in strides), 0))
    return spread.op(dl.SumPoolOp, kernel=kernel, strides=(1,) * len(kernel), dilations=dilations)


# ── contractions ──


def _contraction(op: dl.MatmulOp | dl.DotGeneralOp, ct: Term, index: int) -> Term:
    """Iterators of the operand stay, the others are summed: a contraction of the cotangent and the other operand."""
    own, other = op.structure().maps[index], op.structure().maps[1 - index]
    result, operand, fixed = op.structure().maps[2], op.operands[index], op.operands[1 - index]
    ct = _as(ct, operand)
    # The order of operands that gives the result's axes in order where it can: ȳ·bᵀ and aᵀ·ȳ.
    pair = [(ct, result), (Term(ct.b, fixed), other)]
    (lhs, left), (rhs, right) = pair if index == 0 else reversed(pair)
    left, right, wanted = _iterators(left), _iterators(right), _iterators(own)
    # Axes that are repeated lie at 0: they have size 1.
    lhs, rhs = _without_fixed(lhs, left), _without_fixed(rhs, right)
    left, right = [i for i in left if i is not None], [i for i in right if i is not None]
    # What one has and neither the other nor the result is summed before.
    lhs, left = _summed(lhs, left, [i for i in left if i in right or i in wanted])
    rhs, right = _summed(rhs, right, [i for i in right if i in left or i in wanted])
    both = [i for i in left if i in right]
    batch, contracted = [i for i in both if i in wanted], [i for i in both if i not in wanted]
    made = lhs.op(
        dl.DotGeneralOp,
        rhs,
        lhs_batch=[left.index(i) for i in batch],
        rhs_batch=[right.index(i) for i in batch],
        lhs_contract=[left.index(i) for i in contracted],
        rhs_contract=[right.index(i) for i in contracted],
    )
    order = [*batch, *(i for i in left if i not in both), *(i for i in right if i not in both)]
    return made.transpose(*(order.index(i) for i in wanted if i is not None)).reshape(*shape_of(operand))


def _as(ct: Term, operand: SSAValue) -> Term:
    """A cotangent with an operand's element type: a result may be wider."""
    element = element_type_of(operand)
    return ct if element_type_of(ct.value) == element else ct.op(dl.CastOp, to=element)


def _iterators(indexing: AffineMap) -> list[int | None]:
    """The iterator of each axis; None for an axis that stays at 0."""
    found: list[int | None] = []
    for expression in indexing.results:
        assert isinstance(expression, AffineDimExpr | AffineConstantExpr)
        found.append(expression.position if isinstance(expression, AffineDimExpr) else None)
    return found


def _without_fixed(x: Term, iterators: Sequence[int | None]) -> Term:
    return x.reshape(*(s for s, i in zip(x.shape, iterators, strict=True) if i is not None))


def _summed(x: Term, iterators: list[int], kept: list[int]) -> tuple[Term, list[int]]:
    gone = [a for a, i in enumerate(iterators) if i not in kept]
    return (x.op(dl.ReduceSumOp, axes=gone), kept) if gone else (x, kept)


def _conv(op: dl.ConvOp, ct: Term, index: int) -> Term:
    """By x a transposed convolution with w, by w a contraction over windows of x."""
    ct = _as(ct, op.operands[index])
    return _conv_input(op, ct) if index == 0 else _conv_weight(op, ct)


def _conv_input(op: dl.ConvOp, ct: Term) -> Term:
    """The transpose of a convolution, with the channels of the weight exchanged; 0 where no window reached."""
    rank = rank_of(op.w)
    w = Term(ct.b, op.w).transpose(*range(rank - 2), rank - 1, rank - 2)
    x = ct.op(dl.ConvTransposeOp, w, strides=ints(op.strides), dilations=ints(op.dilations), groups=number(op.groups))
    high = _known(op, [n - m for n, m in zip(shape_of(op.x), x.shape, strict=True)])
    return _pad(x, [0] * rank, high, [0] * rank)


def _conv_weight(op: dl.ConvOp, ct: Term) -> Term:
    """Σ over images and places of the element that a tap saw, times the cotangent: a contraction over windows."""
    strides, dilations, groups = ints(op.strides), ints(op.dilations), number(op.groups)
    *kernel, depth, outputs = _static(op, op.w)
    spatial = len(kernel)
    axes = tuple(range(1, spatial + 1))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    seen = Term(ct.b, op.x).op(dl.WindowsOp, axes=axes, sizes=reach, strides=strides)
    if any(d > 1 for d in dilations):
        taps = (*dilations, *(1 for _ in range(spatial + 2)))
        seen = seen.op(dl.SliceOp, starts=(0,) * len(taps), limits=seen.shape, strides=taps)
    if depth == 1 and outputs == groups:
        summed = (seen * ct).sum(*range(spatial, 2 * spatial + 1))
        return summed.reshape(*shape_of(op.w))
    summed_axes = list(range(spatial, 2 * spatial + 1)), list(range(spatial + 1))
    if groups == 1:
        return seen.op(
            dl.DotGeneralOp, ct, lhs_batch=(), rhs_batch=(), lhs_contract=summed_axes[0], rhs_contract=summed_axes[1]
        )
    seen = seen.reshape(*seen.shape[:-1], groups, depth)
    ct = ct.reshape(*ct.shape[:-1], groups, outputs // groups)
    made = seen.op(
        dl.DotGeneralOp,
        ct,
        lhs_batch=(2 * spatial + 1,),
        rhs_batch=(spatial + 1,),
        lhs_contract=summed_axes[0],
        rhs_contract=summed_axes[1],
    )
    # [G, *K, C/G, O/G] → [*K, C/G, O]
    return made.transpose(*range(1, spatial + 2), 0, spatial + 2).reshape(*shape_of(op.w))


# ── places that are data ──


def first_in_windows(op: dl.MaxPoolOp | dl.MaxPoolGradientOp, x: Term, y: Term, values: Term) -> Term:
    """For each window of `x`, whose maximum is in `y`, the element of `values` where the maximum is first."""
    kernel = ints(op.kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, ints(op.dilations), strict=True)]
    taps = prod(kernel)

    def seen(value: Term) -> Term:
        """The windows, what is in one along the first axis."""
        windows = value.op(dl.WindowsOp, axes=tuple(range(1, len(kernel) + 1)), sizes=reach, strides=ints(op.strides))
        steps = (*ints(op.dilations), *(1 for _ in value.shape))
        if any(step > 1 for step in steps):
            windows = windows.op(dl.SliceOp, starts=(0,) * len(steps), limits=windows.shape, strides=steps)
        return windows.reshape(taps, *y.shape)

    numbers = Term(x.b, x.b(dl.IotaOp, size=(taps,), to=i64, start=0, step=1)).reshape(taps, *(1 for _ in y.shape))
    first = where(seen(x).equals(y), numbers, taps).op(dl.ReduceMinOp, axes=(0,), keepdims=True)
    return where(numbers.equals(first), seen(values), 0).op(dl.ReduceSumOp, axes=(0,))


def _max_pool_gradient(op: dl.MaxPoolGradientOp, ct: Term, index: int) -> Term:
    return first_in_windows(op, Term(ct.b, op.x), Term(ct.b, op.y), ct)


def _gather(op: dl.GatherOp, ct: Term, index: int) -> Term:
    axis, shape, depth = op.indexed_axis, shape_of(op.x), rank_of(op.indices)
    lead = [*range(axis, axis + depth), *range(axis), *range(axis + depth, len(ct.shape))]
    rows = ct.transpose(*lead)
    back = [axis, *(a for a in range(len(shape)) if a != axis)]
    empty = Term(ct.b, ct.b.scalar(0, like=op.x)).broadcast(*(shape[a] for a in back))
    return _added(empty, Term(ct.b, op.indices), rows).transpose(*inverse(back))


def _gather_nd(op: dl.GatherNdOp, ct: Term, index: int) -> Term:
    """Batch and indexed axes as one, whose places are numbers in it."""
    shape, places, batch, depth = shape_of(op.x), shape_of(op.indices), op.batch, op.indexed
    indices = Term(ct.b, op.indices).op(dl.CastOp, to=i64)
    flat = _numbered(ct.b, places[:batch], len(places) - 1) if batch else indices.like(0)
    for k in range(depth):
        starts, limits = [0] * len(places), list(places)
        starts[-1], limits[-1] = k, k + 1
        one = indices.op(dl.SliceOp, starts=starts, limits=limits, strides=(1,) * len(places)).reshape(*places[:-1])
        flat = flat * _number(ct.b, shape[batch + k]) + _inside(one, shape[batch + k])
    flat = flat.broadcast(*places[:-1])
    rows, rest = product(shape[: batch + depth]), shape[batch + depth :]
    empty = Term(ct.b, ct.b.scalar(0, like=op.x)).broadcast(rows, *rest)
    return _added(empty, flat, ct).reshape(*shape)


def _gather_elements(op: dl.GatherElementsOp, ct: Term, index: int) -> Term:
    """Every element is a row of one element, in an array of one axis."""
    shape, places, axis = shape_of(op.x), shape_of(op.indices), op.indexed_axis
    taken = _inside(Term(ct.b, op.indices).op(dl.CastOp, to=i64), shape[axis])
    flat = taken.like(0)
    for a, size in enumerate(shape):
        own = taken if a == axis else _numbered(ct.b, places[a : a + 1], len(places) - a)
        flat = flat * _number(ct.b, size) + own
    empty = Term(ct.b, ct.b.scalar(0, like=op.x)).broadcast(product(shape))
    return _added(empty, flat.broadcast(*places), ct).reshape(*shape)


def _number(b: Build, size: Size) -> Term | int:
    """A size in a formula of i64."""
    return size if isinstance(size, int) else Term(b, b(dl.SizeOp, size=(size,), to=i64))


def _inside(places: Term, size: Size) -> Term:
    """Places as gathering reads them: negative ones from the end, then moved inside."""
    counted = where(places < 0, places + _number(places.b, size), places)
    return counted.op(dl.MinimumOp, _number(places.b, size - 1)).op(dl.MaximumOp, 0)


def _numbered(b: Build, shape: Sequence[Size], rank: int) -> Term:
    """The number of each element of an array of this shape, with axes of size 1 behind up to a rank."""
    count = product(shape)
    numbers = Term(b, b(dl.IotaOp, size=(count,), to=i64, start=0, step=1))
    return numbers.reshape(*shape, *(1 for _ in range(rank - len(shape))))


def _added(x: Term, places: Term, rows: Term) -> Term:
    """`x` with rows added where gathering reads them."""
    return x.op(dl.ScatterRowsOp, places, rows, mode="add", clamped=True)


def _scatter_rows(op: dl.ScatterRowsOp, ct: Term, index: int) -> Term:
    """Of `x` what was not replaced; of the updates what has a place, and was not replaced by a later one."""
    b, replaces, indices = ct.b, op.mode.data == "none", Term(ct.b, op.indices)
    nothing = Term(b, b.scalar(0, like=ct.value)).broadcast(*shape_of(op.updates))
    if index == 0:
        return ct.op(dl.ScatterRowsOp, indices, nothing, mode="none", clamped=op.clamped) if replaces else ct
    if shape_of(op.x)[0] == 0:
        return nothing
    if replaces or not flag(op.clamped):
        return where(_arrives(op, indices), ct.op(dl.GatherOp, indices, axis=0), 0)
    return ct.op(dl.GatherOp, indices, axis=0)


def _arrives(op: dl.ScatterRowsOp, indices: Term) -> Term:
    """Which updates are in the result, with an axis for each of theirs."""
    rows, count = _static(op, op.x)[0], prod(_static(op, op.indices))
    numbers = _numbered(indices.b, (count,), 1).reshape(*indices.shape)
    # Each row holds the number of the last update that it took; with add every one arrives that has a place.
    if op.mode.data == "add":
        inside = indices.op(dl.CastOp, to=i64)
        found = ~(inside > rows - 1) & ~(inside < -rows)
    else:
        last = numbers.like(-1).broadcast(rows).op(dl.ScatterRowsOp, indices, numbers, mode="none", clamped=op.clamped)
        found = last.op(dl.GatherOp, indices, axis=0).equals(numbers)
    return found.reshape(*indices.shape, *(1 for _ in shape_of(op.x)[1:]))


def _triangular_solve(op: dl.TriangularSolveOp, ct: Term, index: int) -> Term:
    """T⁻ᵀ·ct, where T is constant."""
    other_triangle = {"lower": not flag(op.lower), "unit": op.unit}
    return Term(ct.b, op.a).matrix_transpose().op(dl.TriangularSolveOp, ct, **other_triangle)


TRANSPOSES: dict[type[DlOp], Transpose] = {
    dl.AfterOp: lambda op, ct, index: ct,
    dl.CastOp: _cast,
    dl.ReshapeOp: _reshape,
    dl.TransposeOp: _transpose,
    dl.BroadcastToOp: _broadcast_to,
    dl.ReverseOp: _reverse,
    dl.SliceOp: _slice,
    dl.WindowsOp: _windows,
    dl.ConcatOp: _concat,
    dl.PadOp: _transposed_pad,
    dl.DilateOp: _dilate,
    dl.ReduceSumOp: _reduce_sum,
    dl.CumsumOp: _cumsum,
    dl.SumPoolOp: _sum_pool,
    dl.MatmulOp: _contraction,
    dl.DotGeneralOp: _contraction,
    dl.ConvOp: _conv,
    dl.GatherOp: _gather,
    dl.GatherNdOp: _gather_nd,
    dl.GatherElementsOp: _gather_elements,
    dl.ScatterRowsOp: _scatter_rows,
    dl.MaxPoolGradientOp: _max_pool_gradient,
    dl.TriangularSolveOp: _triangular_solve,
}
# Linear in their float operands together, not in each while the others stay.
JOINTLY_LINEAR: tuple[type[DlOp], ...] = (dl.ConcatOp, dl.PadOp, dl.DilateOp, dl.ScatterRowsOp)
# Operands of floats that only decide which elements are meant, or when: a small step does not change that.
DECIDING: dict[type[DlOp], tuple[int, ...]] = {dl.MaxPoolGradientOp: (0, 1), dl.AfterOp: (1,)}


def transpose_of(op: DlOp, moving: Container[SSAValue]) -> Transpose | None:
    """How an op is transposed, None for one that is not linear in its operands that move."""
    if isinstance(op, dl.ScatterRowsOp) and op.mode.data not in ("none", "add"):
        return None
    if isinstance(op, dl.TriangularSolveOp) and op.a in moving:
        return None
    return TRANSPOSES.get(type(op))
