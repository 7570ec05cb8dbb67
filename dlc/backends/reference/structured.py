"""`linalg` ops, on tensors and on buffers.

A `linalg.generic` is evaluated for its whole iteration space at once. Each operand becomes an array with one axis per iterator;
the size is 1 for iterators on which the operand does not depend. An affine map gives a strided view. The body runs once on
these arrays. Reductions become `ufunc.reduce`; sums of products become matrix products. A body that uses its accumulator in
another way runs once per reduced point.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from dlc.backends.reference.affine_indexing import AffineIndex, affine_index, full_rank, index_array, index_operand
from dlc.backends.reference.contraction import MATRIX_DTYPES, contract
from dlc.backends.reference.evaluation_context import Frame, ValueAdapter, rule, varies
from dlc.backends.reference.scalars import unsigned
from dlc.backends.reference.values import Array, EvaluationError, MemrefView, Value, describe, expand, rank
from dlc.errors import UnsupportedError
from dlc.ir import (
    AffineMap,
    Attribute,
    Block,
    IteratorTypeAttr,
    Operation,
    OpResult,
    SSAValue,
    TensorType,
    arith,
    i1,
    linalg,
    math,
)


@dataclass(frozen=True)
class Combinator:
    """An associative and commutative binary operation."""

    function: np.ufunc
    on_unsigned: bool = False

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Array:
        """Combine all elements along axes; these have size 1 in the result."""
        operand = unsigned(x) if self.on_unsigned else x
        return self.function.reduce(operand, axis=axes, keepdims=True, dtype=operand.dtype).view(x.dtype)

    def combine(self, a: Array, b: Array) -> Array:
        """Combine two arrays elementwise."""
        return cast(Array, self.function(unsigned(a), unsigned(b)) if self.on_unsigned else self.function(a, b)).view(a.dtype)


COMBINATORS: dict[type[Operation], Combinator] = {
    arith.AddfOp: Combinator(np.add), math.FmaOp: Combinator(np.add), arith.MulfOp: Combinator(np.multiply),
    arith.MaximumfOp: Combinator(np.maximum), arith.MinimumfOp: Combinator(np.minimum),
    arith.MaxnumfOp: Combinator(np.fmax), arith.MinnumfOp: Combinator(np.fmin),
    arith.AddiOp: Combinator(np.add), arith.MuliOp: Combinator(np.multiply),
    arith.MaxSIOp: Combinator(np.maximum), arith.MinSIOp: Combinator(np.minimum),
    arith.MaxUIOp: Combinator(np.maximum, True), arith.MinUIOp: Combinator(np.minimum, True),
    arith.AndIOp: Combinator(np.bitwise_and), arith.OrIOp: Combinator(np.bitwise_or),
    arith.XOrIOp: Combinator(np.bitwise_xor),
}  # fmt: skip
# NumPy's arithmetic on bools differs from arithmetic on one-bit integers.
NON_BOOLEAN_OPS = (arith.AddiOp, arith.MuliOp, arith.MaxSIOp, arith.MinSIOp)


@dataclass(frozen=True)
class GenericPlan:
    """The memoized analysis of a `linalg.generic`."""

    maps: tuple[AffineMap, ...]
    affine_indices: tuple[tuple[AffineIndex | None, ...], ...]
    extents: tuple[int, ...]
    reduced: tuple[int, ...]
    # The op that updates the accumulator.
    combinator: Operation | None
    # The other operand of `combinator`.
    element: SSAValue | None
    # The factors of `element` if the body sums products.
    factors: tuple[SSAValue, SSAValue] | None
    # Ops of the matched pattern, which are not executed.
    skipped: frozenset[Operation]
    has_regions: bool

    @property
    def rank(self) -> int:
        return len(self.extents)


def plan_generic(op: linalg.GenericOp, *shapes: tuple[int, ...]) -> GenericPlan:
    """Derive the iteration space for operands of these shapes, and match the body against known patterns."""
    maps = tuple(m.data for m in op.indexing_maps)
    count = maps[0].num_dims
    affine_indices = tuple(tuple(affine_index(e, count) for e in m.results) for m in maps)
    reduced = tuple(i for i, t in enumerate(op.iterator_types) if t == IteratorTypeAttr.reduction())
    combinator, element = _match_combinator(op.body.block) if reduced else (None, None)
    multiply, factors = _match_factors(combinator, element)
    return GenericPlan(
        maps=maps,
        affine_indices=affine_indices,
        extents=_infer_extents(op, affine_indices, shapes, count),
        reduced=reduced,
        combinator=combinator,
        element=element,
        factors=factors,
        skipped=frozenset(o for o in (combinator, multiply, op.body.block.last_op) if o is not None),
        has_regions=any(inner.regions for inner in op.body.block.ops),
    )


def _infer_extents(
    op: Operation, affine_indices: Sequence[Sequence[AffineIndex | None]], shapes: Sequence[tuple[int, ...]], count: int
) -> tuple[int, ...]:
    """Compute the extent of each iterator from the sizes of the operands that it indexes."""
    extents: dict[int, int] = {}
    # First the indices that are a single iterator; then the remaining iterator of a sum such as h + kh.
    for is_single in (True, False):
        for affine, size in (
            (f, n) for fs, shape in zip(affine_indices, shapes, strict=True) for f, n in zip(fs, shape, strict=True)
        ):
            if affine is None:
                continue
            unknown_iterators = [d for d, c in enumerate(affine.coefficients) if c > 0 and d not in extents]
            known_iterators = [d for d, c in enumerate(affine.coefficients) if c and d in extents]
            if len(unknown_iterators) == 1 and (not is_single or (not known_iterators and affine.constant == 0)):
                known_extent = sum(
                    affine.coefficients[d] * (extents[d] - 1) for d in known_iterators if affine.coefficients[d] > 0
                )
                extents[unknown_iterators[0]] = (size - 1 - affine.constant - known_extent) // affine.coefficients[
                    unknown_iterators[0]
                ] + 1
    if len(extents) < count:
        missing = sorted(set(range(count)) - set(extents))
        raise EvaluationError(f"{describe(op)}: no operand gives the extents of iterators {missing}")
    return tuple(extents[d] for d in range(count))


def _has_single_use(value: SSAValue) -> bool:
    """Return whether a value has exactly one use."""
    return len(list(value.uses)) == 1


def _match_combinator(body: Block) -> tuple[Operation | None, SSAValue | None]:
    """Match `combine(accumulator, element)` as the value that a body yields; return the op and the element."""
    last = body.last_op
    assert last is not None
    root = last.operands[0].owner
    accumulator = body.args[-1]
    if not isinstance(root, Operation) or not _has_single_use(accumulator) or not _has_single_use(root.results[0]):
        return None, None
    if isinstance(root, math.FmaOp):
        return (root, None) if root.c is accumulator else (None, None)
    if type(root) not in COMBINATORS or accumulator not in root.operands:
        return None, None
    if isinstance(root, NON_BOOLEAN_OPS) and accumulator.type == i1:
        return None, None
    (element,) = [v for v in root.operands if v is not accumulator] or [accumulator]
    return (root, element) if element is not accumulator else (None, None)


def _match_factors(
    combinator: Operation | None, element: SSAValue | None
) -> tuple[Operation | None, tuple[SSAValue, SSAValue] | None]:
    """Match a sum of products; return the multiplication (None for an fma) and its factors."""
    if isinstance(combinator, math.FmaOp):
        return None, (combinator.a, combinator.b)
    if isinstance(combinator, arith.AddfOp | arith.AddiOp) and isinstance(element, OpResult):
        product = element.owner
        if isinstance(product, arith.MulfOp | arith.MuliOp) and _has_single_use(element):
            return product, (product.lhs, product.rhs)
    return None, None


def contents(op: Operation, frame: Frame, operand: SSAValue) -> Array:
    """Return the elements of a tensor or buffer, or a scalar."""
    value = frame[operand]
    return value.read(op) if isinstance(value, MemrefView) else value


@rule(linalg.GenericOp)
def generic(op: linalg.GenericOp, frame: Frame) -> Sequence[Value]:
    operands = [contents(op, frame, v) for v in op.operands]
    shapes = [a.shape[a.ndim - rank(v.type) :] for v, a in zip(op.operands, operands, strict=True)]
    plan = frame.context.memoize(op, plan_generic, *shapes)
    arrays = [
        full_rank(
            index_operand(op, array, affine_indices, m, plan.extents) if rank(v.type) else expand(array, plan.rank), plan.rank
        )
        for v, array, affine_indices, m in zip(op.operands, operands, plan.affine_indices, plan.maps, strict=True)
    ]
    result = full_rank(_evaluate(op, plan, frame, arrays), plan.rank)
    return _store(op, plan, frame, operands[-1], result)


def _evaluate(op: linalg.GenericOp, plan: GenericPlan, frame: Frame, arrays: list[Array]) -> Array:
    """Return the result with an axis of grid points, then one per iterator; the size is 1 where the result is constant."""
    body = op.body.block
    iterators = [i[None] for i in np.ogrid[tuple(slice(n) for n in plan.extents)]] if plan.rank else []
    if plan.has_regions:
        return _evaluate_in_lockstep(plan, frame, body, arrays, iterators)
    inner = _BodyFrame(frame, iterators)
    if not plan.reduced:
        return cast(Array, inner.run(body, arrays)[0])
    if plan.combinator is None or 0 in plan.extents:
        return _evaluate_sequentially(plan, frame, body, arrays, iterators)
    inner.run(body, arrays, plan.skipped)
    combinator = COMBINATORS[type(plan.combinator)]
    if plan.factors is not None:
        u, v = (full_rank(inner.array(f), plan.rank) for f in plan.factors)
        if u.dtype in MATRIX_DTYPES or u.dtype.kind == "i":
            return combinator.combine(arrays[-1], contract(u, v, (1, *plan.extents), [a + 1 for a in plan.reduced]))
        element = u * v
    else:
        element = full_rank(inner.array(cast(SSAValue, plan.element)), plan.rank)
    # Broadcast an element that does not depend on a reduced iterator: it is combined once per iteration.
    sizes = [n if a in plan.reduced else s for a, (n, s) in enumerate(zip(plan.extents, element.shape[1:], strict=True))]
    elements = np.broadcast_to(element, (element.shape[0], *sizes))
    return combinator.combine(arrays[-1], combinator.reduce(elements, tuple(a + 1 for a in plan.reduced)))


class _BodyFrame(Frame):
    """The frame of a body: scalars are arrays over points and iterators. `iterators` holds the results of `linalg.index`."""

    def __init__(self, outer: Frame, iterators: Sequence[Array], points: int | None = None, adapt: ValueAdapter | None = None):
        super().__init__(outer.context, points, outer, adapt or self._expand_captured)
        self.iterators = iterators

    def _expand_captured(self, value: Value, type: Attribute) -> Value:
        """Return a captured value; one that varies with the grid points gets an axis per iterator."""
        count = len(self.iterators)
        if isinstance(value, MemrefView):
            return value.per_point(lambda x: expand(x, count))
        return expand(value, count) if varies(value, type) and not isinstance(type, TensorType) else value


@rule(linalg.IndexOp)
def iterator_value(op: linalg.IndexOp, frame: Frame) -> Sequence[Value]:
    while not isinstance(frame, _BodyFrame):
        assert frame.outer is not None
        frame = frame.outer
    return (frame.iterators[int(op.dim.value.data)],)


def _evaluate_sequentially(
    plan: GenericPlan, frame: Frame, body: Block, arrays: list[Array], iterators: Sequence[Array]
) -> Array:
    """Evaluate a reduction sequentially: pass the accumulator through the body once per reduced point, in order."""

    def slice_at_point(array: Array, point: dict[int, int]) -> Array:
        slices = [slice(None)] * array.ndim
        for axis, i in point.items():
            if array.shape[axis] > 1:
                slices[axis] = slice(i, i + 1)
        return array[tuple(slices)]

    axes = [a + 1 for a in plan.reduced]
    accumulator = arrays[-1]
    for reduced_indices in itertools.product(*(range(plan.extents[a]) for a in plan.reduced)):
        point = dict(zip(axes, reduced_indices, strict=True))
        inner = _BodyFrame(frame, [slice_at_point(i, point) for i in iterators])
        (result,) = inner.run(body, [*(slice_at_point(a, point) for a in arrays[:-1]), accumulator])
        accumulator = full_rank(cast(Array, result), plan.rank)
    return accumulator


def _evaluate_in_lockstep(
    plan: GenericPlan, frame: Frame, body: Block, arrays: list[Array], iterators: Sequence[Array]
) -> Array:
    """Evaluate a body with loops or branches at all points of the iteration space in lockstep, along one array axis."""
    if plan.reduced:
        raise UnsupportedError("linalg.generic with a reduction whose body has regions; split it into two ops")
    shape = (frame.points or 1, *plan.extents)
    repeats = int(np.prod(plan.extents))

    def flatten(array: Array) -> Array:
        return np.broadcast_to(array, shape).reshape(-1)

    def repeat_captured(value: Value, type: Attribute) -> Value:
        if isinstance(value, MemrefView):
            return value.per_point(lambda x: np.repeat(x, repeats))
        return np.repeat(value, repeats) if varies(value, type) else value

    inner = _BodyFrame(frame, [flatten(i) for i in iterators], shape[0] * repeats, repeat_captured)
    (result,) = inner.run(body, [flatten(a) for a in arrays])
    return np.broadcast_to(cast(Array, result), shape[0] * repeats).reshape(shape)


def _store(op: linalg.GenericOp, plan: GenericPlan, frame: Frame, output_contents: Array, result: Array) -> Sequence[Value]:
    """Write the elements through the output's map into `output_contents`."""
    target = frame[op.outputs[0]]
    if result.dtype != output_contents.dtype:
        raise EvaluationError(f"{describe(op)}: the body gives {result.dtype}, the output has {output_contents.dtype}")
    memory = output_contents if isinstance(target, MemrefView) else np.array(output_contents)
    num_point_axes = memory.ndim - len(plan.affine_indices[-1])
    if num_point_axes == 0:
        if result.shape[0] > 1:
            raise EvaluationError(f"{describe(op)}: points of a grid write different values to one element")
        result = result[0]
    if all(affine is not None for affine in plan.affine_indices[-1]):
        index_operand(op, memory, plan.affine_indices[-1], plan.maps[-1], plan.extents)[...] = result
    else:
        iterators = np.ogrid[tuple(slice(n) for n in plan.extents)]
        indices = tuple(index_array(e, iterators) for e in plan.maps[-1].results)
        memory[(slice(None),) * num_point_axes + indices] = result
    if not isinstance(target, MemrefView):
        return (memory,)
    if num_point_axes:
        target.write(op, memory)
    return ()


@rule(linalg.FillOp)
def fill(op: linalg.FillOp, frame: Frame) -> Sequence[Value]:
    value, target = frame.array(op.inputs[0]), frame[op.outputs[0]]
    if isinstance(target, MemrefView):
        target.write(op, expand(value, len(target.shape)))
        return ()
    return (np.full(target.shape, value, target.dtype),)


@rule(linalg.CopyOp)
def copy(op: linalg.CopyOp, frame: Frame) -> Sequence[Value]:
    value, target = contents(op, frame, op.inputs[0]), frame[op.outputs[0]]
    if isinstance(target, MemrefView):
        target.write(op, value)
        return ()
    return (value,)
