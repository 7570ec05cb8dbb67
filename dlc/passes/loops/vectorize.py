"""`vectorize`: structured ops on tiles become n-D vectors and loops over what is reduced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from dlc.dialects.shape_cast import ShapeCastOp
from dlc.dialects.sizes import strides_of
from dlc.dialects.unrolled import UNROLLED
from dlc.ir import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    Context,
    DenseIntOrFPElementsAttr,
    FastMathFlag,
    MemRefType,
    Operation,
    SSAValue,
    UnitAttr,
    UnknownLoc,
    arith,
    func,
    index,
    linalg,
    math,
    memref,
    vector,
)
from dlc.passes.base import KernelPass
from dlc.passes.structured import Constants, Index, Place
from dlc.passes.tiling.structured_ops import (
    IN_HALVES,
    ONE_STEP,
    iterator_extents,
    loads_at_computed_places,
    neighbour_loads,
    operand_maps,
    reduction_iterators,
)
from dlc.passes.types import memref_of, vector_type, zero_attribute

# Which vector.reduction an op that combines two elements is.
_KINDS: dict[type[Operation], str] = {
    arith.AddfOp: "add", arith.AddiOp: "add", arith.MulfOp: "mul", arith.MuliOp: "mul",
    arith.MaximumfOp: "maximumf", arith.MinimumfOp: "minimumf",
    arith.MaxnumfOp: "maxnumf", arith.MinnumfOp: "minnumf",
    arith.MaxSIOp: "maxsi", arith.MaxUIOp: "maxui", arith.MinSIOp: "minsi", arith.MinUIOp: "minui",
    arith.AndIOp: "and", arith.OrIOp: "or", arith.XOrIOp: "xor",
}  # fmt: skip

# So many elements of a body of so few ops follow one another in a loop, which has about as many instructions of its own.
_SIDE_BY_SIDE, _SHORT_BODY = 4, 24


@dataclass(frozen=True)
class VectorizePass(KernelPass):
    """Computes each structured op on a tile with one vector per operand.

        linalg.generic (w, o, k): (w, k), (k, o) → (w, o)  ins(%x, %w) outs(%acc) { mulf; addf }
      →
        %a = vector.transfer_read %acc : vector<14x32xf32>
        %r = scf.for %k = 0 to 192 iter_args(%s = %a) {
          %xv = vector.transfer_read %x[0, %k] {(w, k) -> (w, 0)} : vector<14x32xf32>
          %wv = vector.transfer_read %w[%k, 0] {(k, o) -> (0, o)} : vector<14x32xf32>
          scf.yield (vector.fma %xv, %wv, %s) }
        vector.transfer_write %r, %acc

    The parallel iterators are the vector's dimensions, in the order in which the output stores them; the reduced ones are
    loops. A product added to an accumulator is one fused operation, and so is one that says it may. A body that loads from
    memory at places that it computes runs element by element, a few of them in each step of a loop.

        (w, p, c): (w, p floordiv 4, c)   →   %xv = vector.shape_cast (vector.transfer_read %x[0, 0, 1]
                                                  {(w, g, c) -> (w, g, 0)} : vector<8x4x4xf32>) to vector<8x16xf32>

    An operand that repeats elements along an iterator is read with an axis for the repetitions. What is reduced between these
    elements is no loop: at known places a whole piece of memory can be read, of which each step takes its lanes.

    Requires static shapes and maps that select iterators, or repeat elements along them. Leaves no `linalg`.
    """

    name = "vectorize"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        constants = Constants(kernel)
        for op in list(kernel.walk()):
            if isinstance(op, linalg.FillOp | linalg.GenericOp):
                block = op.parent
                assert block is not None
                _Vectorizer(op, Place(constants, block, op.location, anchor=op)).run()
                op.detach()
                op.erase()


class _Vectorizer:
    def __init__(self, op: linalg.GenericOp | linalg.FillOp, place: Place) -> None:
        self.op = op
        self.place = place
        self.body = op.regions[0].block
        self.own = set(self.body.ops)
        self.maps = operand_maps(op)
        self.extents = [int(extent) for extent in iterator_extents(op)]
        self.reduced = reduction_iterators(op)
        self.output = op.operands[-1]
        out = [_position(e) for e in self.maps[-1].results]
        # Of a body that loads at computed places the lanes are those that its loads have.
        loads = loads_at_computed_places(op)
        lane = neighbour_loads(op) if loads else None
        self.axes: list[int] = [lane] if lane in out else [] if loads else out
        # Whether loads at computed places are vectors.
        self.loads_lanes = bool(self.axes) and loads
        self.shape = tuple(self.extents[d] for d in self.axes)
        self.loops = [d for d in range(len(self.extents)) if d not in self.axes]
        self.unrolled = set(self.between())

    def run(self) -> None:
        if isinstance(self.op, linalg.FillOp):
            self.write(self.place, self.spread(self.place, self.op.operands[0]), {})
        elif self.is_horizontal():
            self.reduce_horizontally()
        elif all(self.reduced[d] for d in self.loops):
            start = self.accumulator(self.place, {})
            end = self.reduction(self.place, self.loops, start, {}) if self.loops else self.compute(self.place, start, {})
            self.write(self.place, end, {})
        else:
            self.by_element(self.place, self.loops, {})

    def accumulator(self, place: Place, at: dict[int, Index]) -> SSAValue:
        """What the output holds; where the body does not ask for it, any value of its type."""
        if self.body.args[-1].first_use:
            return self.read(place, len(self.op.operands) - 1, at)
        element = memref_of(self.output).element_type
        return self.spread(place, place.constants.get(zero_attribute(element), element))

    def reduction(self, place: Place, dims: Sequence[int], carried: SSAValue, at: dict[int, Index]) -> SSAValue:
        """Loops over the reduced iterators, the accumulator carried."""
        if not dims:
            return self.compute(place, carried, at)
        d, *rest = dims
        if d in self.unrolled:
            for k in range(self.extents[d]):
                carried = self.reduction(place, rest, carried, {**at, d: k})
            return carried
        if not rest and IN_HALVES in self.op.attributes and self.extents[d] % 2 == 0:
            return self.halves(place, d, carried, at)
        loop = place.loop(0, self.extents[d], 1, [carried], name=f"k{d}")
        if UNROLLED in self.op.attributes:
            loop.attributes[UNROLLED] = UnitAttr()
        inside = place.inside(loop.body.block)
        i, accumulator = loop.body.block.args
        accumulator.name_hint = "acc"
        inside.yield_(self.reduction(inside, rest, accumulator, {**at, d: i}))
        return loop.res[0]

    def halves(self, place: Place, d: int, carried: SSAValue, at: dict[int, Index]) -> SSAValue:
        """A sum as two, of the first and of the second half of what is reduced: neither waits for the other."""
        half = self.extents[d] // 2
        element = memref_of(self.output).element_type
        zero = self.spread(place, place.constants.get(zero_attribute(element), element))
        loop = place.loop(0, half, 1, [carried, zero], name=f"k{d}")
        inside = place.inside(loop.body.block)
        i, *sums = loop.body.block.args
        for value in sums:
            value.name_hint = "acc"
        places = i, inside.add(i, half)
        inside.yield_(*(self.compute(inside, acc, {**at, d: k}) for acc, k in zip(sums, places, strict=True)))
        return place.op(arith.AddfOp(loop.res[0], loop.res[1]))

    def by_element(self, place: Place, dims: Sequence[int], at: dict[int, Index]) -> None:
        if not dims:
            self.write(place, self.compute(place, self.accumulator(place, at), at), at)
            return
        d, *rest = dims
        step = _SIDE_BY_SIDE if not rest and len(self.own) <= _SHORT_BODY else 1
        whole = self.extents[d] // step * step
        if whole:
            loop = place.loop(0, whole, step, name=f"k{d}")
            inside = place.inside(loop.body.block)
            for k in range(step):
                self.by_element(inside, rest, {**at, d: inside.add(loop.body.block.args[0], k)})
            inside.yield_()
        for k in range(whole, self.extents[d]):
            self.by_element(place, rest, {**at, d: k})

    def compute(self, place: Place, accumulator: SSAValue, at: dict[int, Index]) -> SSAValue:
        """The body on vectors; `at` says where the loops stand."""
        values: dict[SSAValue, SSAValue] = {self.body.args[-1]: accumulator}
        # What is the same in every lane, where places are computed of it.
        scalars: dict[SSAValue, SSAValue] = {}
        for k, arg in enumerate(self.body.args[:-1]):
            if (use := arg.first_use) is not None:
                values[arg] = self.read(_from(place, use.operation), k, at)
                values[arg].name_hint = arg.name_hint

        def lookup(value: SSAValue) -> SSAValue:
            if value not in values:
                values[value] = self.spread(place, scalars.get(value, value))
            return values[value]

        whole = place
        for op in self.body.ops:
            place = _from(whole, op)
            if self.loads_lanes and self.is_uniform(op, scalars):
                scalars[op.results[0]] = self.uniform(place, op, scalars, at)
                continue
            match op:
                case linalg.YieldOp():
                    return lookup(op.operands[0])
                case linalg.IndexOp():
                    values[op.result] = self.iteration(place, op.dim.value.data, at)
                case arith.ConstantOp():
                    values[op.result] = self.spread(place, place.constants.get(op.value, op.result.type))
                case memref.LoadOp() if self.loads_lanes:
                    *outer, last = op.indices
                    first = [scalars.get(i, i) for i in (*outer, *self.offsets(last))]
                    indices = [*first, *(0 for _ in op.indices[len(first) :])]
                    rank = len(op.indices)
                    lanes = AffineMap(rank, 0, (AffineDimExpr(rank - 1),))
                    values[op.results[0]] = place.transfer_read(op.memref, indices, self.shape, lanes)
                case memref.LoadOp() if self.shape:
                    places = [place.constants.get(cast(arith.ConstantOp, i.owner).value, index) for i in op.indices]
                    load = memref.LoadOp.create(operands=[op.memref, *places], result_types=[op.results[0].type])
                    values[op.results[0]] = self.spread(place, place.op(load, op.results[0].name_hint))
                case arith.MulfOp() if self.fused(op) is not None:
                    pass
                case _:
                    product = next((p for p in map(_owner, op.operands) if p is not None and self.fused(p) is op), None)
                    if product is not None:
                        values[op.results[0]] = self.multiply_add(place, op, product, lookup)
                    else:
                        values[op.results[0]] = self.lifted(place, op, [lookup(v) for v in op.operands])
        raise AssertionError("a structured op's body ends in linalg.yield")

    def is_uniform(self, op: Operation, scalars: Mapping[SSAValue, SSAValue]) -> bool:
        """Whether an op of the body has one result for all lanes."""
        if isinstance(op, linalg.IndexOp):
            return op.dim.value.data not in self.axes
        inside = [v for v in op.operands if v.owner is self.body or _owner(v) in self.own]
        return bool(op.results) and all(v in scalars for v in inside)

    def uniform(self, place: Place, op: Operation, scalars: Mapping[SSAValue, SSAValue], at: dict[int, Index]) -> SSAValue:
        """Such a result."""
        match op:
            case linalg.IndexOp():
                return place.value(at[op.dim.value.data])
            case arith.ConstantOp():
                return place.constants.get(op.value, op.result.type)
            case _:
                copy = op.create(
                    operands=[scalars.get(v, v) for v in op.operands],
                    result_types=[r.type for r in op.results],
                    properties=op.properties,
                    attributes=op.attributes,
                )
                return place.op(copy, op.results[0].name_hint)

    def offsets(self, last: SSAValue) -> list[SSAValue]:
        """What is added to the lane's number in an index, if anything is."""
        terms = last.owner.operands if isinstance(last.owner, arith.AddiOp) else ()
        return [t for t in terms if not (isinstance(t.owner, linalg.IndexOp) and t.owner.dim.value.data in self.axes)]

    def lifted(self, place: Place, op: Operation, operands: Sequence[SSAValue]) -> SSAValue:
        """A scalar op on whole vectors."""
        types = [vector_type(self.shape, r.type) if self.shape else r.type for r in op.results]
        lifted = op.create(operands=operands, result_types=types, properties=op.properties, attributes=op.attributes)
        return place.op(lifted, op.results[0].name_hint)

    def fused(self, product: Operation) -> Operation | None:
        """The addition that a product is fused into, with one rounding: to the accumulator, or within what is added to it."""
        if not isinstance(product, arith.MulfOp) or not (any(self.reduced) or ONE_STEP in self.op.attributes):
            return None
        uses = list(product.result.uses)
        if len(uses) != 1 or not isinstance(uses[0].operation, arith.AddfOp):
            return None
        addition = uses[0].operation
        contracts = FastMathFlag.ALLOW_CONTRACT in addition.fastmath.data
        first = next(o for o in map(_owner, addition.operands) if isinstance(o, arith.MulfOp))
        return addition if first is product and (contracts or self.body.args[-1] in addition.operands) else None

    def multiply_add(self, place: Place, op: Operation, product: Operation, lookup: Callable[[SSAValue], SSAValue]) -> SSAValue:
        addend = next(v for v in op.operands if v is not product.results[0])
        operands = [*map(lookup, product.operands), lookup(addend)]
        kind = vector.FMAOp if self.shape else math.FmaOp
        fma = kind.create(operands=operands, result_types=[operands[2].type])
        if not self.shape:
            fma.properties["fastmath"] = cast(arith.AddfOp, op).fastmath
        return place.op(fma, op.results[0].name_hint)

    def iteration(self, place: Place, d: int, at: dict[int, Index]) -> SSAValue:
        """Where iterator `d` stands, in every lane."""
        if d in at:
            return self.spread(place, place.value(at[d]))
        axis = self.axes.index(d)
        counts = vector_type((self.extents[d], *[1] * (len(self.axes) - axis - 1)), index)
        dense = DenseIntOrFPElementsAttr.from_list(cast(Any, counts), list(range(self.extents[d])))
        steps = place.constants.get(dense, counts)
        wanted = vector_type(self.shape, index)
        return steps if wanted == counts else place.op(vector.BroadcastOp.create(operands=[steps], result_types=[wanted]))

    def spread(self, place: Place, scalar: SSAValue) -> SSAValue:
        return place.splat(scalar, self.shape) if self.shape else scalar

    def read(self, place: Place, k: int, at: dict[int, Index]) -> SSAValue:
        """Operand `k` as a vector over the axes; axes that it does not have are broadcast."""
        operand = self.op.operands[k]
        if not isinstance(operand.type, MemRefType):
            return self.spread(place, operand)
        positions = [_position(e) for e in self.maps[k].results]
        times = {d: n for d, n in zip(positions, map(_repetitions, self.maps[k].results), strict=True) if n > 1}
        indices: list[Index] = [at.get(d, 0) for d in positions]
        if not any(d in positions for d in self.axes):
            load = memref.LoadOp.create(
                operands=[operand, *map(place.value, indices)], result_types=[memref_of(operand).element_type]
            )
            return self.spread(place, place.op(load))
        results: list[AffineExpr] = []
        shape: list[int] = []
        for d, size in zip(self.axes, self.shape, strict=True):
            results.append(AffineDimExpr(positions.index(d)) if d in positions else AffineConstantExpr(0))
            shape.append(size // times.get(d, 1))
            if d in times:
                results.append(AffineConstantExpr(0))
                shape.append(times[d])
        read = place.transfer_read(operand, indices, tuple(shape), AffineMap(len(positions), 0, tuple(results)))
        if not times:
            return read
        element = memref_of(operand).element_type
        return place.op(ShapeCastOp.create(operands=[read], result_types=[vector_type(self.shape, element)]))

    def between(self) -> Iterator[int]:
        """The loops along which an operand that repeats elements has neighbours."""
        for operand, map_ in zip(self.op.operands, self.maps, strict=True):
            if any(_repetitions(e) > 1 for e in map_.results):
                steps = zip(map(_position, map_.results), strides_of(operand), strict=True)
                yield from (d for d, stride in steps if stride == 1 and d in self.loops)

    def write(self, place: Place, value: SSAValue, at: dict[int, Index]) -> None:
        positions = [_position(e) for e in self.maps[-1].results]
        indices: list[Index] = [at.get(d, 0) for d in positions]
        if not self.axes:
            place.insert(memref.StoreOp.create(operands=[value, self.output, *map(place.value, indices)]))
            return
        results = tuple(AffineDimExpr(positions.index(d)) for d in self.axes)
        place.transfer_write(value, self.output, indices, AffineMap(len(positions), 0, results))

    def is_horizontal(self) -> bool:
        """Whether it combines one row of partial results into one element.

        Lanes lie at a distance that is a number.
        """
        if self.axes or len(self.loops) != 1 or len(self.op.operands) != 2 or not self.reduced[0]:
            return False
        if not all(isinstance(stride, int) for stride in strides_of(self.op.operands[0])):
            return False
        first, last = self.body.first_op, self.body.last_op
        return (
            type(first) in _KINDS and first is not None and first.next_op is last and set(first.operands) == set(self.body.args)
        )

    def reduce_horizontally(self) -> None:
        combine = self.body.first_op
        assert combine is not None
        source = self.op.operands[0]
        row = self.place.transfer_read(source, [0], (self.extents[0],), AffineMap.identity(1))
        kind = vector.CombiningKindAttr(vector.CombiningKindFlag(_KINDS[type(combine)]))
        total = vector.ReductionOp.create(
            operands=[row],
            result_types=[memref_of(source).element_type],
            properties={"kind": kind, "fastmath": arith.FastMathFlagsAttr("none")},
        )
        start = self.read(self.place, 1, {})
        values: dict[SSAValue, SSAValue] = {self.body.args[0]: self.place.op(total), self.body.args[1]: start}
        self.write(self.place, self.lifted(self.place, combine, [values[v] for v in combine.operands]), {})


def _from(place: Place, op: Operation) -> Place:
    """The same place for what comes from an op of the body, which may be another op of the model than the last one."""
    return place if isinstance(op.location, UnknownLoc) else place.located(op.location)


def _position(expr: AffineExpr) -> int:
    match expr:
        case AffineDimExpr(position) | AffineBinaryOpExpr(
            AffineBinaryOpKind.FloorDiv, AffineDimExpr(position), AffineConstantExpr()
        ):
            return position
        case _:
            raise ValueError(f"vectorize: access by {expr}; run collapse-iterators and tile-kernels before")


def _repetitions(expr: AffineExpr) -> int:
    """How often an operand has each element along the iterator that it is read by."""
    return expr.rhs.value if isinstance(expr, AffineBinaryOpExpr) and isinstance(expr.rhs, AffineConstantExpr) else 1


def _owner(value: SSAValue) -> Operation | None:
    return value.owner if isinstance(value.owner, Operation) else None
