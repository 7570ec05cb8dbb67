"""Transposes of what reads and writes at places that are data, or that repeat: rows are added where gathering read them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dlc.dialects import dl
from dlc.dialects.dl.base import flag, ints, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dims import Size, product
from dlc.ir import i64
from dlc.passes.autodiff.shapes import static_shape
from dlc.passes.autodiff.term import Term, where
from dlc.passes.dl.rewriting import inverse


def first_in_windows(op: dl.MaxPoolOp | dl.MaxPoolGradientOp, x: Term, y: Term, values: Term) -> Term:
    """For each window of `x`, whose maximum is in `y`, the element of `values` where the maximum is first.

    That is the first element of all where the window has NaN, as for `dl.max_pool_gradient`.
    """
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
    missed = where(y.equals(y), taps, numbers.like(0))
    first = where(seen(x).equals(y), numbers, missed).op(dl.ReduceMinOp, axes=(0,), keepdims=True)
    return where(numbers.equals(first), seen(values), 0).op(dl.ReduceSumOp, axes=(0,))


def max_pool_gradient(op: dl.MaxPoolGradientOp, ct: Term, index: int) -> Term:
    return first_in_windows(op, Term(ct.b, op.x), Term(ct.b, op.y), ct)


def gather(op: dl.GatherOp, ct: Term, index: int) -> Term:
    axis, shape, depth = op.indexed_axis, shape_of(op.x), rank_of(op.indices)
    lead = [*range(axis, axis + depth), *range(axis), *range(axis + depth, len(ct.shape))]
    rows = ct.transpose(*lead)
    back = [axis, *(a for a in range(len(shape)) if a != axis)]
    empty = Term(ct.b, ct.b.scalar(0, like=op.x)).broadcast(*(shape[a] for a in back))
    return _added(empty, Term(ct.b, op.indices), rows).transpose(*inverse(back))


def gather_nd(op: dl.GatherNdOp, ct: Term, index: int) -> Term:
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


def gather_elements(op: dl.GatherElementsOp, ct: Term, index: int) -> Term:
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


def scatter_rows(op: dl.ScatterRowsOp, ct: Term, index: int) -> Term:
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
    rows, numbers = shape_of(op.x)[0], _numbered(indices.b, indices.shape, len(indices.shape))
    # Each row holds the number of the last update that it took; with add every one arrives that has a place.
    if op.mode.data == "add":
        inside = indices.op(dl.CastOp, to=i64)
        found = ~(inside > _number(indices.b, rows - 1)) & ~(inside < _number(indices.b, -rows))
    else:
        last = numbers.like(-1).broadcast(rows).op(dl.ScatterRowsOp, indices, numbers, mode="none", clamped=op.clamped)
        found = last.op(dl.GatherOp, indices, axis=0).equals(numbers)
    return found.reshape(*indices.shape, *(1 for _ in shape_of(op.x)[1:]))


def repeating_pad(op: dl.PadOp, ct: Term) -> Term:
    """Each element gathers what became of it: along one axis after the other, rows added at the places they came from."""
    shape = static_shape(op, op.x)
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
