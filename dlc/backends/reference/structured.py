"""`linalg` ops, on tensors and on buffers.

A `linalg.generic` is evaluated for its whole iteration space at once: each operand becomes an array with one axis per
iterator (a strided view where its map is linear, of size 1 where the operand does not depend on the iterator), and the
body runs once on these arrays. Reductions become `ufunc.reduce`, sums of products matrix products; a body whose
accumulator is used in another way is run once per reduced point.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from dlc.backends.reference.access import Linear, access, full_rank, index_array, linear
from dlc.backends.reference.contraction import MATRIX_DTYPES, contract
from dlc.backends.reference.machine import Adapt, Frame, rule, varies
from dlc.backends.reference.scalars import unsigned
from dlc.backends.reference.values import Array, EvaluationError, Value, View, describe, expand, rank
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
    """An associative and commutative operation of two elements."""

    function: np.ufunc
    on_unsigned: bool = False

    def along(self, x: Array, axes: tuple[int, ...]) -> Array:
        """All elements along axes combined; the axes stay, with size 1."""
        operand = unsigned(x) if self.on_unsigned else x
        return self.function.reduce(operand, axis=axes, keepdims=True, dtype=operand.dtype).view(x.dtype)

    def of(self, a: Array, b: Array) -> Array:
        """Two arrays combined element by element."""
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
# NumPy's arithmetic on bools is not that of one-bit integers.
NOT_ON_BOOLS = (arith.AddiOp, arith.MuliOp, arith.MaxSIOp, arith.MinSIOp)


@dataclass(frozen=True)
class Nest:
    """What is derived once from a `linalg.generic`."""

    maps: tuple[AffineMap, ...]
    forms: tuple[tuple[Linear | None, ...], ...]
    extents: tuple[int, ...]
    reduced: tuple[int, ...]
    # The op that updates the accumulator, how to apply it along axes, and the value that it adds.
    combinator: Operation | None
    element: SSAValue | None
    # The factors of that value where the body sums products.
    factors: tuple[SSAValue, SSAValue] | None
    # What need not run, since the recognised shape replaces it.
    skipped: frozenset[Operation]
    has_regions: bool

    @property
    def rank(self) -> int:
        return len(self.extents)


def nest_of(op: linalg.GenericOp, *shapes: tuple[int, ...]) -> Nest:
    """The iteration space over operands of these shapes and the recognised shape of the body."""
    maps = tuple(m.data for m in op.indexing_maps)
    count = maps[0].num_dims
    forms = tuple(tuple(linear(e, count) for e in m.results) for m in maps)
    reduced = tuple(i for i, t in enumerate(op.iterator_types) if t == IteratorTypeAttr.reduction())
    combinator, element = _combinator(op.body.block) if reduced else (None, None)
    multiply, factors = _factors(combinator, element)
    return Nest(
        maps=maps,
        forms=forms,
        extents=_extents(op, forms, shapes, count),
        reduced=reduced,
        combinator=combinator,
        element=element,
        factors=factors,
        skipped=frozenset(o for o in (combinator, multiply, op.body.block.last_op) if o is not None),
        has_regions=any(inner.regions for inner in op.body.block.ops),
    )


def _extents(
    op: Operation, forms: Sequence[Sequence[Linear | None]], shapes: Sequence[tuple[int, ...]], count: int
) -> tuple[int, ...]:
    """Each iterator's extent, from the sizes of the operands that it indexes."""
    extents: dict[int, int] = {}
    # An iterator that stands alone first; then what is left of a sum, as in h + kh.
    for alone in (True, False):
        for form, size in ((f, n) for fs, shape in zip(forms, shapes, strict=True) for f, n in zip(fs, shape, strict=True)):
            if form is None:
                continue
            unknown = [d for d, c in enumerate(form.coefficients) if c > 0 and d not in extents]
            others = [d for d, c in enumerate(form.coefficients) if c and d in extents]
            if len(unknown) == 1 and (not alone or (not others and form.constant == 0)):
                rest = sum(form.coefficients[d] * (extents[d] - 1) for d in others if form.coefficients[d] > 0)
                extents[unknown[0]] = (size - 1 - form.constant - rest) // form.coefficients[unknown[0]] + 1
    if len(extents) < count:
        missing = sorted(set(range(count)) - set(extents))
        raise EvaluationError(f"{describe(op)}: no operand gives the extents of iterators {missing}")
    return tuple(extents[d] for d in range(count))


def _only_use(value: SSAValue) -> bool:
    return len(list(value.uses)) == 1


def _combinator(body: Block) -> tuple[Operation | None, SSAValue | None]:
    """The op `combine(accumulator, element)` that a body yields, if it has that form."""
    last = body.last_op
    assert last is not None
    root = last.operands[0].owner
    accumulator = body.args[-1]
    if not isinstance(root, Operation) or not _only_use(accumulator) or not _only_use(root.results[0]):
        return None, None
    if isinstance(root, math.FmaOp):
        return (root, None) if root.c is accumulator else (None, None)
    if type(root) not in COMBINATORS or accumulator not in root.operands:
        return None, None
    if isinstance(root, NOT_ON_BOOLS) and accumulator.type == i1:
        return None, None
    (element,) = [v for v in root.operands if v is not accumulator] or [accumulator]
    return (root, element) if element is not accumulator else (None, None)


def _factors(
    combinator: Operation | None, element: SSAValue | None
) -> tuple[Operation | None, tuple[SSAValue, SSAValue] | None]:
    """The product that a sum adds, and its factors."""
    if isinstance(combinator, math.FmaOp):
        return None, (combinator.a, combinator.b)
    if isinstance(combinator, arith.AddfOp | arith.AddiOp) and isinstance(element, OpResult):
        product = element.owner
        if isinstance(product, arith.MulfOp | arith.MuliOp) and _only_use(element):
            return product, (product.lhs, product.rhs)
    return None, None


def contents(op: Operation, frame: Frame, name: SSAValue) -> Array:
    """The elements of a tensor or buffer; a scalar as itself."""
    value = frame[name]
    return value.read(op) if isinstance(value, View) else value


@rule(linalg.GenericOp)
def generic(op: linalg.GenericOp, frame: Frame) -> Sequence[Value]:
    operands = [contents(op, frame, v) for v in op.operands]
    shapes = [a.shape[a.ndim - rank(v.type) :] for v, a in zip(op.operands, operands, strict=True)]
    nest = frame.machine.fact(op, nest_of, *shapes)
    arrays = [
        full_rank(access(op, array, forms, m, nest.extents) if rank(v.type) else expand(array, nest.rank), nest.rank)
        for v, array, forms, m in zip(op.operands, operands, nest.forms, nest.maps, strict=True)
    ]
    result = full_rank(_evaluate(op, nest, frame, arrays), nest.rank)
    return _store(op, nest, frame, operands[-1], result)


def _evaluate(op: linalg.GenericOp, nest: Nest, frame: Frame, arrays: list[Array]) -> Array:
    """The elements of the result: an axis of points, then one per iterator; of size 1 where nothing varies."""
    body = op.body.block
    iterators = [i[None] for i in np.ogrid[tuple(slice(n) for n in nest.extents)]] if nest.rank else []
    if nest.has_regions:
        return _every_point_in_lockstep(nest, frame, body, arrays, iterators)
    inner = _BodyFrame(frame, iterators)
    if not nest.reduced:
        return cast(Array, inner.run(body, arrays)[0])
    if nest.combinator is None or 0 in nest.extents:
        return _one_reduced_point_at_a_time(nest, frame, body, arrays, iterators)
    inner.run(body, arrays, nest.skipped)
    combinator = COMBINATORS[type(nest.combinator)]
    if nest.factors is not None:
        u, v = (full_rank(inner.array(f), nest.rank) for f in nest.factors)
        if u.dtype in MATRIX_DTYPES or u.dtype.kind == "i":
            return combinator.of(arrays[-1], contract(u, v, (1, *nest.extents), [a + 1 for a in nest.reduced]))
        element = u * v
    else:
        element = full_rank(inner.array(cast(SSAValue, nest.element)), nest.rank)
    # Where the element does not depend on a reduced iterator it still counts once per value of it.
    sizes = [n if a in nest.reduced else s for a, (n, s) in enumerate(zip(nest.extents, element.shape[1:], strict=True))]
    elements = np.broadcast_to(element, (element.shape[0], *sizes))
    return combinator.of(arrays[-1], combinator.along(elements, tuple(a + 1 for a in nest.reduced)))


class _BodyFrame(Frame):
    """The frame of a body: scalars are arrays over points and iterators. `iterators` holds what `linalg.index` gives."""

    def __init__(self, outer: Frame, iterators: Sequence[Array], points: int | None = None, adapt: Adapt | None = None):
        super().__init__(outer.machine, points, outer, adapt or self._captured)
        self.iterators = iterators

    def _captured(self, value: Value, t: Attribute) -> Value:
        """An outer value; one that varies with the points of a grid gets an axis per iterator."""
        count = len(self.iterators)
        if isinstance(value, View):
            return value.per_point(lambda x: expand(x, count))
        return expand(value, count) if varies(value, t) and not isinstance(t, TensorType) else value


@rule(linalg.IndexOp)
def iterator_value(op: linalg.IndexOp, frame: Frame) -> Sequence[Value]:
    while not isinstance(frame, _BodyFrame):
        assert frame.outer is not None
        frame = frame.outer
    return (frame.iterators[int(op.dim.value.data)],)


def _one_reduced_point_at_a_time(
    nest: Nest, frame: Frame, body: Block, arrays: list[Array], iterators: Sequence[Array]
) -> Array:
    """The definition: the accumulator goes through the body once per reduced point, in order."""

    def at(array: Array, point: dict[int, int]) -> Array:
        places = [slice(None)] * array.ndim
        for axis, i in point.items():
            if array.shape[axis] > 1:
                places[axis] = slice(i, i + 1)
        return array[tuple(places)]

    axes = [a + 1 for a in nest.reduced]
    accumulator = arrays[-1]
    for place in itertools.product(*(range(nest.extents[a]) for a in nest.reduced)):
        point = dict(zip(axes, place, strict=True))
        inner = _BodyFrame(frame, [at(i, point) for i in iterators])
        (result,) = inner.run(body, [*(at(a, point) for a in arrays[:-1]), accumulator])
        accumulator = full_rank(cast(Array, result), nest.rank)
    return accumulator


def _every_point_in_lockstep(nest: Nest, frame: Frame, body: Block, arrays: list[Array], iterators: Sequence[Array]) -> Array:
    """A body with loops or branches inside: each point of the iteration space is a point in lockstep."""
    if nest.reduced:
        raise UnsupportedError("linalg.generic with a reduction and a body that has regions; split it into two")
    shape = (frame.points or 1, *nest.extents)
    repeats = int(np.prod(nest.extents))

    def flat(array: Array) -> Array:
        return np.broadcast_to(array, shape).reshape(-1)

    def captured(value: Value, t: Attribute) -> Value:
        if isinstance(value, View):
            return value.per_point(lambda x: np.repeat(x, repeats))
        return np.repeat(value, repeats) if varies(value, t) else value

    inner = _BodyFrame(frame, [flat(i) for i in iterators], shape[0] * repeats, captured)
    (result,) = inner.run(body, [flat(a) for a in arrays])
    return np.broadcast_to(cast(Array, result), shape[0] * repeats).reshape(shape)


def _store(op: linalg.GenericOp, nest: Nest, frame: Frame, before: Array, result: Array) -> Sequence[Value]:
    """Writes the elements through the output's map into `before`, the output's contents."""
    target = frame[op.outputs[0]]
    if result.dtype != before.dtype:
        raise EvaluationError(f"{describe(op)}: the body gives {result.dtype}, the output holds {before.dtype}")
    memory = before if isinstance(target, View) else np.array(before)
    lead = memory.ndim - len(nest.forms[-1])
    if lead == 0:
        if result.shape[0] > 1:
            raise EvaluationError(f"{describe(op)}: points of a grid write different values to one place")
        result = result[0]
    if all(form is not None for form in nest.forms[-1]):
        access(op, memory, nest.forms[-1], nest.maps[-1], nest.extents)[...] = result
    else:
        iterators = np.ogrid[tuple(slice(n) for n in nest.extents)]
        places = tuple(index_array(e, iterators) for e in nest.maps[-1].results)
        memory[(slice(None),) * lead + places] = result
    if not isinstance(target, View):
        return (memory,)
    if lead:
        target.write(op, memory)
    return ()


@rule(linalg.FillOp)
def fill(op: linalg.FillOp, frame: Frame) -> Sequence[Value]:
    value, target = frame.array(op.inputs[0]), frame[op.outputs[0]]
    if isinstance(target, View):
        target.write(op, expand(value, len(target.shape)))
        return ()
    return (np.full(target.shape, value, target.dtype),)


@rule(linalg.CopyOp)
def copy(op: linalg.CopyOp, frame: Frame) -> Sequence[Value]:
    value, target = contents(op, frame, op.inputs[0]), frame[op.outputs[0]]
    if isinstance(target, View):
        target.write(op, value)
        return ()
    return (value,)
