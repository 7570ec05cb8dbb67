"""Recipes for the ops of the dialect: matching operands and properties. An op is drawn by the first family it belongs to."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.arithmetic.activation import Activation
from dlc.dialects.dl.arithmetic.pointwise import Binary, Unary
from dlc.dialects.dl.base import DlOp, PropertyValue
from dlc.dialects.dl.distributed.sharding import spec_attribute
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.dl.interfaces import DataDependent, LibraryKernel
from dlc.dialects.dl.library_kernels.cumulative import CumulativeOp
from dlc.dialects.dl.library_kernels.searchsorted import stable_order
from dlc.dialects.dl.movement.padding import PAD_MODES
from dlc.dialects.dl.reductions.arg_extrema import ArgReduction
from dlc.dialects.dl.reductions.composite import CompositeReduction, FloatReduction
from dlc.dialects.dl.reductions.normalization import SoftmaxLike
from dlc.dialects.dl.reductions.reduction import AxisReduction
from dlc.dialects.dl.reductions.window import Pool
from dlc.testing.sample import BOOL, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, is_float
from tests.fuzz.contractions import (
    conv,
    dot_general,
    matmul,
    matmul_weight_only,
    matmul_weight_only_dot,
    max_pool_gradient,
    mode_product,
    pack_nibbles,
    pool,
    winograd_input,
    winograd_output,
)
from tests.fuzz.random_program import ProgramValue, RandomProgram
from tests.fuzz.random_values import ANY, FLOATS, INTEGERS, NUMERIC, SMALL_SIZES, STORAGE_ONLY

Recipe = Callable[[RandomProgram, type[DlOp]], ProgramValue]
# The dtypes of data movement ops, which include storage-only types.
MOVABLE_DTYPES = (*ANY, *ANY, *STORAGE_ONLY)
_KINDS = {"float": FLOATS, "integer": INTEGERS, "bool": (BOOL,), "storage-only": STORAGE_ONLY}


def _dtypes(op: type[DlOp]) -> tuple[np.dtype, ...]:
    return tuple(d for kind in op.KINDS for d in _KINDS[kind])


def _unary(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    return p.add(op, p.any(_dtypes(op)))


def _binary(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(_dtypes(op))
    pair = [x, p.partner(x)]
    if op in (dl.ShiftLeftOp, dl.ShiftRightOp) and not p.special:
        pair[1] = p.source(p.rng.integers(0, 8 * x.dtype.itemsize, x.shape).astype(x.dtype))
    else:
        p.random.shuffle(pair)
    properties = {"fmod": p.flag()} if op is dl.ModOp else {}
    return p.add(op, *pair, **properties)


def _gcd(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any((U8, U16, U32, U64))
    return p.add(op, x, p.partner(x))


def _select(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any()
    condition = p.like(BOOL, lambda s: s in (x.shape, ()), x.shape)
    return p.add(op, condition, *p.random.sample([x, p.partner(x)], 2))


def _cast(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    if p.random.random() < 0.6:
        return p.add(op, p.any(), to=element_type(p.random.choice(ANY)))
    saturate = {"saturate": True} if p.flag() else {}
    return p.add(
        op, p.any((*ANY, *STORAGE_ONLY), exact=True), to=element_type(p.random.choice((*ANY, *STORAGE_ONLY))), **saturate
    )


def _bitcast(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(NUMERIC)
    return p.add(op, x, to=element_type(p.random.choice([d for d in NUMERIC if d.itemsize == x.dtype.itemsize])))


def _activation(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    names = {name for name, prop in op.get_irdl_definition().properties.items() if name != "approximate"}
    properties: dict[str, PropertyValue] = {n: p.random.choice([0.01, 0.2, 0.5, 1.0, 1.6]) for n in sorted(names)}
    if op is dl.GeluOp:
        properties = {"approximate": p.random.choice(["none", "tanh"])}
    return p.add(op, p.any(FLOATS), **properties)


def _prelu(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(NUMERIC)
    return p.add(op, x, p.fresh(x.dtype, [s if p.flag() else 1 for s in x.shape][p.random.choice([0, 1]) :]))


def _reduction(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    dtypes = NUMERIC if issubclass(op, CompositeReduction) else _dtypes(op)
    x = p.any(FLOATS if issubclass(op, FloatReduction) else dtypes)
    return p.add(op, x, axes=p.axes(x), keepdims=p.flag())


def _arg_extremum(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(ANY, lambda s: len(s) > 0, exact=True)
    return p.add(op, x, axis=p.axis(x), keepdims=p.flag(), select_last=p.flag())


def _cumulative(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(NUMERIC, lambda s: len(s) > 0)
    return p.add(op, x, axis=p.axis(x), exclusive=p.flag(), reverse=p.flag())


def _argsort(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(ANY, lambda s: len(s) > 0, exact=True)
    axis = p.axis(x)
    count = p.random.choice([None, (p.random.randint(0, x.shape[axis]),)])
    return p.add(op, x, axis=axis, descending=p.flag(), count=count)


def _sort(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(ANY, lambda s: len(s) > 0, exact=True)
    return p.add(op, x, axis=p.axis(x), descending=p.flag())


def _sort_integers(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    dtype, size = np.dtype(p.random.choice(["i1", "i2", "i4", "i8"])), p.random.choice([1, 2, 5, 8, 19, 33])
    if op is dl.NetworkSortOp:
        dtype = np.dtype(p.random.choice([dtype, "f4", "f8"]))
        columns = p.fresh(dtype, (p.random.choice([1, 3, 17]), size, p.random.choice([1, 5, 16])))
        return p.add(op, columns, descending=p.flag())
    if op is dl.BitonicSortOp:
        dtype, size = np.dtype(p.random.choice(["i4", "i8", "f4", "f8"])), p.random.choice([1, 5, 33, 64, 200])
        return p.add(op, p.fresh(dtype, (p.random.choice(SMALL_SIZES), size)), descending=p.flag())
    if op is dl.PartitionOp:
        dtype, size = np.dtype(p.random.choice(["i4", "i8", "f4", "f8"])), p.random.choice([8, 9, 33, 9000])
        return p.add(op, p.fresh(dtype, (p.random.choice(SMALL_SIZES), size)), kth=p.random.randrange(size))
    if op is dl.SmallestKOp:
        return p.add(op, p.fresh(dtype, (p.random.choice(SMALL_SIZES), size)), size=(p.random.randint(0, size),))
    num_bits = 8 * dtype.itemsize
    ends = [p.random.randint(0, num_bits - 1)]
    while len(ends) < 2 or (ends[-1] < num_bits and p.flag()):
        ends.append(p.random.randint(ends[-1] + 1, min(ends[-1] + 9, num_bits)))
    return p.add(op, p.fresh(dtype, (p.random.choice(SMALL_SIZES), size)), ends=ends, signed=p.flag())


def _true_indices(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    rows, n = p.random.choice([0, 1, 3]), p.random.choice([0, 1, 5, 40])
    return p.add(op, p.fresh(BOOL, (rows, n)), size=(p.random.choice([0, 1, n // 2, n]),))


def _suppress(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    """Corners are small integers, so that sums of areas are exact."""
    rows = (*p.shape(p.random.choice([0, 1]), 4), p.random.choice([1, 5, 40]))
    corners = np.sort(p.rng.integers(0, 6, (*rows, 2, 2)), -2).reshape(*rows, 4).astype(F32)
    max_boxes, iou = p.rng.integers(0, 9, rows[:-1]), p.rng.choice(np.array([0.0, 0.25, 0.5], F32), rows[:-1])
    return p.add(op, p.source(corners), p.fresh(BOOL, rows), p.source(np.asarray(max_boxes)), p.source(np.asarray(iou)))


def _scan_middle_axis(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    """Accumulate along the middle of three axes; the last axis often has size 1."""
    dtypes = [d for d in NUMERIC if d.itemsize > 2 or d.kind in "iu"]
    x = p.fresh(p.dtype(dtypes), (p.random.choice([1, 3]), p.random.choice([1, 5, 40]), p.random.choice([1, 1, 3, 18])))
    if op is dl.ArgExtremumOp:
        segments = p.random.choice([None, *range(1, x.shape[1] + 1)])
        return p.add(op, x, smallest=p.flag(), last=p.flag(), segments=segments)
    return p.add(op, x, kind=p.random.choice(["add", "mul"]), exclusive=p.flag(), reverse=p.flag())


def _tree_ensemble(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    """Draw arbitrary tables: any index is valid, and the number of levels bounds the traversal."""
    dtype, (n, f, m, t, c) = p.dtype([F32, F64]), (p.random.choice(SMALL_SIZES) for _ in range(5))
    x, weights = p.fresh(dtype, (n, max(f, 1))), p.fresh(dtype, (max(m, 1), c))
    integer = I32 if dtype == F32 else I64
    nodes = p.rng.integers(-2, max(m, 1) + 2, (max(m, 1), 4)).astype(integer)
    nodes[:, 1] = p.rng.standard_normal(max(m, 1)).astype(dtype).view(integer)
    roots, levels = (p.rng.integers(0, max(m, 1) + 1, count).astype(I32) for count in (t, -(-t // 8)))
    return p.add(
        op, x, p.source(nodes), p.source(roots), p.source(levels), weights, kind=p.random.choice(["add", "min", "max"])
    )


def _searchsorted(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    """Draw a sorted row and values to search for."""
    rows, dtype = p.shape(p.random.choice([0, 1, 2]), 16), p.dtype(NUMERIC)
    x = p.random_array(dtype, (*rows, p.random.choice([0, 1, 5, 16, 33, 300])))
    x = np.take_along_axis(x, stable_order(x, -1, False), -1)
    return p.add(op, p.source(x), p.fresh(dtype, (*rows, p.random.choice(SMALL_SIZES))), right=p.flag())


def _softmax(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(FLOATS, lambda s: len(s) > 0)
    return p.add(op, x, axis=p.axis(x))


def _trailing_norm(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(FLOATS, lambda s: len(s) > 0)
    axis = p.random.randrange(len(x.shape))
    parameters = [p.fresh(x.dtype, x.shape[axis + p.random.choice([0, 0, 1]) :]) for _ in range(2)]
    count = 1 if op is dl.RmsNormOp else p.random.choice([1, 2, 2])
    return p.add(op, x, *parameters[:count], axis=axis, epsilon=p.random.choice([1e-5, 0.1]))


def _batch_norm(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(FLOATS, lambda s: len(s) > 0)
    axis = p.random.randrange(len(x.shape))
    scale, bias, mean = (p.fresh(x.dtype, (x.shape[axis],)) for _ in range(3))
    variance = p.source((np.abs(p.rng.standard_normal(x.shape[axis])) + 0.1).astype(x.dtype))
    return p.add(op, x, scale, bias, mean, variance, axis=axis, epsilon=1e-3)


def _lrn(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(FLOATS, lambda s: len(s) > 0)
    alpha, beta = p.random.choice([1e-2, 0.5]), p.random.choice([0.5, 0.75])
    return p.add(op, x, axis=p.axis(x), size=p.random.randint(1, 6), alpha=alpha, beta=beta, bias=1.0)


# Movement


def _transpose(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(MOVABLE_DTYPES)
    return p.add(op, x, permutation=tuple(p.random.sample(range(len(x.shape)), len(x.shape))))


def _broadcast_to(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(MOVABLE_DTYPES)
    sizes = tuple(p.random.choice((*SMALL_SIZES, 0, 17)) if s == 1 else s for s in x.shape)
    return p.add(op, x, shape=(*p.random.choice([(), (2,), (1, 3)]), *sizes))


def _reshape(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(MOVABLE_DTYPES)
    size, shape = math.prod(x.shape), list[int]()
    if size == 0:
        return p.add(op, x, shape=(*x.shape, 1) if p.flag() else (0, p.random.choice(SMALL_SIZES)))
    while size > 1 and len(shape) < 4:
        factor = p.random.choice([f for f in range(1, size + 1) if size % f == 0])
        shape.append(factor)
        size //= factor
    if size > 1 or p.random.random() < 0.2:
        shape.insert(p.random.randint(0, len(shape)), size)
    return p.add(op, x, shape=tuple(shape))


def _slice(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(MOVABLE_DTYPES)
    starts = [p.random.randint(0, s // 2) for s in x.shape]
    limits = [p.random.randint(a, s) if p.flag() else s for a, s in zip(starts, x.shape, strict=True)]
    return p.add(op, x, starts=starts, limits=limits, strides=tuple(p.random.choice([1, 1, 1, 2, 3]) for _ in x.shape))


def _windows_of(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(MOVABLE_DTYPES, lambda s: 0 < len(s) < 4 and min(s) > 0)
    axes = sorted(p.random.sample(range(len(x.shape)), p.random.randint(1, len(x.shape))))
    sizes = tuple(p.random.randint(1, min(4, x.shape[a])) for a in axes)
    return p.add(op, x, axes=tuple(axes), sizes=sizes, strides=tuple(p.random.choice([1, 1, 2, 3]) for _ in axes))


def _reverse(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(MOVABLE_DTYPES)
    return p.add(op, x, axes=p.axes(x))


def _pad(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(MOVABLE_DTYPES)
    low, high = (tuple(p.random.choice([0, 0, 1, 2, 5, -1]) for _ in x.shape) for _ in range(2))
    return p.add(op, x, p.fresh(x.dtype, ()), low=low, high=high, pad_mode=p.random.choice([None, None, *PAD_MODES]))


def _concat(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(MOVABLE_DTYPES, lambda s: len(s) > 0)
    axis = p.axis(x)

    def other_sizes(s: tuple[int, ...]) -> list[int]:
        return [n for a, n in enumerate(s) if a != axis % len(x.shape)]

    def fitting() -> ProgramValue:
        shape = [p.random.choice((0, 1, 3, 16)) if a == axis % len(x.shape) else n for a, n in enumerate(x.shape)]
        return p.like(x.dtype, lambda s: len(s) == len(x.shape) and other_sizes(s) == other_sizes(x.shape), shape)

    return p.add(op, *(p.random.choice([x, fitting()]) for _ in range(p.random.choice([1, 2, 2, 3, 5]))), axis=axis)


def _pack(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(NUMERIC, lambda s: len(s) > 0)
    return p.add(op, x, axis=p.axis(x), tile=p.random.choice([1, 3, 8, 16, 32]))


def _view_as(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    # Integers only: bits of floats may be those of a NaN, whose payload is not kept.
    to = p.random.choice((U8, I16, I32, U64))
    dtypes = [d for d in (BOOL, *INTEGERS) if d.itemsize != to.itemsize]
    return p.add(op, p.any(dtypes, lambda s: len(s) > 0 and s[-1] % 8 == 0, exact=True), to=element_type(to))


def _unpack(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(NUMERIC, lambda s: 1 < len(s) < 6 and s[-1] > 0)
    size = max(0, x.shape[0] * x.shape[-1] - p.random.randrange(x.shape[-1])) if x.shape[0] else 0
    return p.add(op, x, axis=p.random.randrange(len(x.shape) - 1), tile=x.shape[-1], size=size)


# Runtime indices


def _random_indices(p: RandomProgram, shape: tuple[int, ...], size: int) -> ProgramValue:
    """Draw indices, most of them within an axis of `size`."""
    dtype = p.random.choice(INTEGERS)
    reach = size + 2 if p.special else max(size, 1)
    low = 0 if dtype.kind == "u" else max(-reach, np.iinfo(dtype).min)
    return p.source(p.rng.integers(low, min(max(reach, 1), np.iinfo(dtype).max), shape).astype(dtype))


def _is_checked(p: RandomProgram, indices: ProgramValue, size: int) -> bool | None:
    """Choose whether to check that indices are within bounds, if they are."""
    return bool(dl.out_of_bounds_indices(indices.bounded.array, size).size == 0 and p.random.random() < 0.5) or None


def _gather(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(ANY, lambda s: len(s) > 0)
    axis = p.axis(x)
    indices = _random_indices(p, p.shape(p.random.choice([0, 1, 1, 2]), 64), x.shape[axis])
    return p.add(op, x, indices, axis=axis, checked=_is_checked(p, indices, x.shape[axis]))


def _gather_nd(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(ANY, lambda s: len(s) > 0)
    batch = p.random.choice([0, 0, 1]) if len(x.shape) > 1 else 0
    depth = p.random.randint(0, len(x.shape) - batch)
    shape = (*x.shape[:batch], *p.shape(p.random.choice([0, 1, 2]), 32), depth)
    indices = _random_indices(p, shape, max(x.shape))
    checked = _is_checked(p, indices, min(x.shape[batch : batch + depth], default=0))
    return p.add(op, x, indices, batch_dims=batch, checked=checked)


def _gather_elements(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(ANY, lambda s: len(s) > 0)
    axis = p.axis(x)
    shape = [p.random.randint(min(1, s), s) for s in x.shape]
    shape[axis] = p.random.choice([1, 2, 5])
    indices = _random_indices(p, tuple(shape), x.shape[axis])
    return p.add(op, x, indices, axis=axis, checked=_is_checked(p, indices, x.shape[axis]))


def _scatter_mode(p: RandomProgram, x: ProgramValue) -> str:
    return "none" if x.dtype == BOOL else p.random.choice(["none", "none", "add", "mul", "max", "min"])


def _scatter_elements(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(ANY, lambda s: len(s) > 0 and math.prod(s) < 600)
    axis = p.axis(x)
    shape = [p.random.randint(min(1, s), s) for s in x.shape]
    shape[axis] = p.random.choice([0, 1, 2, 5])
    indices = _random_indices(p, tuple(shape), x.shape[axis])
    checked = _is_checked(p, indices, x.shape[axis])
    return p.add(op, x, indices, p.fresh(x.dtype, shape), axis=axis, mode=_scatter_mode(p, x), checked=checked)


def _scatter_nd(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(ANY, lambda s: len(s) > 0 and math.prod(s) < 600)
    depth = p.random.randint(0, len(x.shape))
    outer = p.shape(p.random.choice([0, 1, 1, 2]), 16)
    indices = _random_indices(p, (*outer, depth), max(x.shape[:depth], default=1))
    updates = p.fresh(x.dtype, (*outer, *x.shape[depth:]))
    checked = _is_checked(p, indices, min(x.shape[:depth], default=0))
    return p.add(op, x, indices, updates, mode=_scatter_mode(p, x), checked=checked)


def _scatter_rows(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(ANY, lambda s: len(s) > 0 and s[0] > 0 and math.prod(s) < 600)
    onto_itself = p.random.random() < 0.2
    indices = _random_indices(p, x.shape[:1] if onto_itself else p.shape(p.random.choice([0, 1, 1, 2]), 16), x.shape[0])
    updates = x if onto_itself else p.fresh(x.dtype, (*indices.shape, *x.shape[1:]))
    checked = _is_checked(p, indices, x.shape[0])
    return p.add(op, x, indices, updates, mode=_scatter_mode(p, x), clamped=p.flag(), checked=checked)


# Ops of gradients


def _shard(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(MOVABLE_DTYPES)
    return p.add(op, x, spec=spec_attribute([None for _ in x.shape]))


def _add_dependency(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    return p.add(op, p.any(MOVABLE_DTYPES), p.any(MOVABLE_DTYPES))


def _dilate(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(MOVABLE_DTYPES, lambda s: math.prod(s) < 600)
    return p.add(op, x, p.fresh(x.dtype, ()), interior=tuple(p.random.choice([0, 0, 1, 2]) for _ in x.shape))


# Quantization and creation


def _quantization_parameters(
    p: RandomProgram, x: ProgramValue, scale: np.dtype, zero: np.dtype
) -> tuple[ProgramValue, ProgramValue, int]:
    """Draw scale and zero point: per axis, per block, or per tensor."""
    axis = p.random.randrange(len(x.shape)) if x.shape else 0
    shape = p.random.choice([(), (1,), (x.shape[axis],)]) if x.shape else ()
    if len(x.shape) > 1 and x.shape[axis] > 0 and p.flag():
        count = p.random.choice([n for n in range(1, x.shape[axis] + 1) if x.shape[axis] % n == 0])
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    scales = p.rng.choice([0.25, 0.5, 1.0, 0.1, 3.0], shape)
    zeros = p.rng.integers(0 if zero.kind == "u" else -3, 4, shape)
    return p.source(np.asarray(scales).astype(scale)), p.source(np.asarray(zeros).astype(zero)), axis


def _quantize(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(FLOATS)
    scale, zero, axis = _quantization_parameters(p, x, x.dtype, p.random.choice([I8, U8, I16, U16]))
    return p.add(op, x, scale, zero, axis=axis)


def _dequantize(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any((I8, U8, I16, U16, I32))
    scale, zero, axis = _quantization_parameters(p, x, p.random.choice(FLOATS), x.dtype)
    return p.add(op, x, scale, zero, axis=axis)


def _dynamic_quantize(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    return p.add(op, p.any((F32,)))


def _iota(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    dtype = p.random.choice(NUMERIC)
    start, step = (
        p.random.choice([(0, 1), (7, -3), (1, 2)]) if not is_float(dtype) else p.random.choice([(0.0, 0.5), (-1.5, 0.1)])
    )
    return p.add(op, size=(p.shape(1)[0],), to=element_type(dtype), start=start, step=step)


def _size(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    return p.add(op, size=(p.shape(1)[0],), to=element_type(p.random.choice(NUMERIC)))


def _random_bits(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    batch = p.shape(p.random.choice((0, 0, 1, 2)), max_elements=6)
    to = element_type(p.random.choice((U8, U16, U32, U64)))
    return p.add(op, p.fresh(U32, (*batch, 2)), p.fresh(U64, batch), shape=p.shape(max_elements=64), to=to)


def _factorization(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    """Draw well-conditioned matrices, so that rounding does not change signs or order of their factors.

    Eigenvalues are separated, and pivots are clear.
    """
    dtype, n, leading = p.random.choice((F32, F64)), p.random.choice((1, 2, 3, 5, 8, 17)), p.random.choice(((), (2,)))
    # Like the ops that programs to differentiate exclude, factorizations of complex matrices have no derivative.
    is_complex = dl.HouseholderOp not in p.excluded_ops and p.flag()

    def normal(*shape: int) -> np.ndarray:
        x = p.rng.standard_normal(shape)
        return x + 1j * p.rng.standard_normal(shape) if is_complex else x

    x = normal(*leading, n, n)
    q, eigenvalues = np.linalg.qr(x)[0], np.arange(1.0, n + 1)
    properties: dict[str, PropertyValue] = {"complex": True} if is_complex else {}
    operands = [x]
    if op is dl.TriangularSolveOp:
        operands = [x + 3 * n * np.eye(n), normal(*leading, n, p.random.choice((1, 4, 19)))]
        properties |= {name: True for name in ("lower", "unit") if p.flag()} if n < 4 else {"lower": p.flag()}
    elif op is dl.OrthogonalOp:
        vectors = np.triu(x, 1) + np.eye(n)
        operands = [vectors, 2 / (np.abs(vectors) ** 2).sum(-1).astype(x.dtype)]
        properties["count"] = (n,)
    elif op in (dl.EighOp, dl.EigOp):
        operands = [q * eigenvalues @ np.conj(q.mT)]
        properties["vectors"] = True
    elif op is not dl.HouseholderOp:
        # Eigenvalues of a symmetric matrix are singular values too; one with a large diagonal needs no exchanges.
        operands = [q * eigenvalues @ np.conj(q.mT) if op is not dl.LuOp else x + 3 * n * np.eye(n)]
    if is_complex:
        operands = [np.stack([a.real, a.imag], len(leading)) for a in operands]
    return p.add(op, *(p.source(a.astype(dtype)) for a in operands), **properties)


def _dft(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    n, back, half = p.random.choice((1, 2, 7, 12, 67, 72)), p.flag(), p.flag()
    parts = (2 if back else 1) if half else p.random.choice((1, 2))
    x = p.fresh(p.dtype(FLOATS), (*p.shape(p.random.choice([0, 1]), 4), parts, n // 2 + 1 if half and back else n))
    return p.add(op, x, length=n, inverse=back, onesided=half)


def _creation(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    return p.fresh(p.dtype(), p.shape(max_elements=16))


RECIPES: dict[type[DlOp], Recipe] = {
    dl.ShardOp: _shard,
    Unary: _unary,
    Binary: _binary,
    dl.GcdOp: _gcd,
    dl.SelectOp: _select,
    dl.CastOp: _cast,
    dl.BitcastOp: _bitcast,
    Activation: _activation,
    dl.PreluOp: _prelu,
    AxisReduction: _reduction,
    CompositeReduction: _reduction,
    ArgReduction: _arg_extremum,
    CumulativeOp: _cumulative,
    dl.ArgsortOp: _argsort,
    dl.SortOp: _sort,
    dl.AccumulateOp: _scan_middle_axis,
    dl.ArgExtremumOp: _scan_middle_axis,
    dl.TrueIndicesOp: _true_indices,
    dl.SuppressOverlapsOp: _suppress,
    dl.NetworkSortOp: _sort_integers,
    dl.BitonicSortOp: _sort_integers,
    dl.RadixSortOp: _sort_integers,
    dl.SmallestKOp: _sort_integers,
    dl.PartitionOp: _sort_integers,
    dl.SearchsortedOp: _searchsorted,
    dl.BinarySearchOp: _searchsorted,
    dl.TreeEnsembleOp: _tree_ensemble,
    SoftmaxLike: _softmax,
    dl.LayerNormOp: _trailing_norm,
    dl.RmsNormOp: _trailing_norm,
    dl.BatchNormOp: _batch_norm,
    dl.LrnOp: _lrn,
    dl.MatmulOp: matmul,
    dl.MatmulWeightOnlyOp: matmul_weight_only,
    dl.MatmulWeightOnlyDotOp: matmul_weight_only_dot,
    dl.PackNibblesOp: pack_nibbles,
    dl.DotGeneralOp: dot_general,
    dl.ConvOp: conv,
    dl.ConvTransposeOp: conv,
    dl.ModeProductOp: mode_product,
    dl.WinogradInputOp: winograd_input,
    dl.WinogradOutputOp: winograd_output,
    Pool: pool,
    dl.TransposeOp: _transpose,
    dl.BroadcastToOp: _broadcast_to,
    dl.ReshapeOp: _reshape,
    dl.SliceOp: _slice,
    dl.SlidingWindowsOp: _windows_of,
    dl.ReverseOp: _reverse,
    dl.PadOp: _pad,
    dl.ConcatOp: _concat,
    dl.PackOp: _pack,
    dl.UnpackOp: _unpack,
    dl.ViewAsOp: _view_as,
    dl.GatherOp: _gather,
    dl.GatherNdOp: _gather_nd,
    dl.GatherElementsOp: _gather_elements,
    dl.ScatterElementsOp: _scatter_elements,
    dl.ScatterNdOp: _scatter_nd,
    dl.ScatterRowsOp: _scatter_rows,
    dl.AddDependencyOp: _add_dependency,
    dl.DilateOp: _dilate,
    dl.MaxPoolGradientOp: max_pool_gradient,
    dl.QuantizeOp: _quantize,
    dl.DequantizeOp: _dequantize,
    dl.DynamicQuantizeLinearOp: _dynamic_quantize,
    dl.IotaOp: _iota,
    dl.SizeOp: _size,
    dl.RandomBitsOp: _random_bits,
    LibraryKernel: _factorization,
    dl.DftOp: _dft,
    dl.ConstantOp: _creation,
    dl.WeightOp: _creation,
}
# Ops with data-dependent result sizes are drawn by data_dependent.py.
# The bodies of user kernels are tested in tests/kernels.
OPS = [op for op in dl.Dl.operations if issubclass(op, DlOp) and not issubclass(op, DataDependent | dl.LoopsOp | dl.VaryOp)]


def recipe(op: type[DlOp]) -> Recipe:
    """Return the recipe of an op; raise KeyError if no family covers it."""
    for family, family_recipe in RECIPES.items():
        if issubclass(op, family):
            return family_recipe
    raise KeyError(f"{op.name}: add a recipe to {__name__}.RECIPES")
