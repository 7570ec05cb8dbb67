"""Along the middle axis of [a, n, b], element by element: running sums and products, places of extrema."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, rank_of, shape_of, tensor_type
from dlc.dialects.dl.dtypes import is_bool, is_float
from dlc.dialects.dl.interfaces import Sequential, is_unsigned, storage_type
from dlc.dialects.dl.loops import Index, Loops, tiles
from dlc.dims import Size
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    BoolAttr,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    SSAValue,
    StringAttr,
    TensorType,
    VectorType,
    arith,
    bf16,
    f16,
    i32,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)

# What is computed at once along b, in elements.
_LANES = 16
# So many elements are summed by themselves before they are added to those before: errors grow with that, and with the
# number of such blocks.
_BLOCK = 256


def _require(name: str, x: SSAValue) -> tuple[Size, ...]:
    """The shape of what is walked along; raises where it has not three axes, or is of bools or 16-bit floats."""
    element = element_type_of(x)
    if is_bool(element) or element in (f16, bf16):
        raise DTypeError(f"{name}: x of {element}; expected numbers, floats of 32 or 64 bits")
    if rank_of(x) != 3:
        raise ShapeError(f"{name}: x of shape {shape_of(x)}; expected three axes")
    return shape_of(x)


@irdl_op_definition
class AccumulateOp(Sequential):
    """`y[a, j, b]`: the sum (`kind` add) or product (mul) of `x[a, k, b]` for `k ≤ j`.

    `k < j` if `exclusive`, from the other end if `reverse`. Integers wrap around; sums of floats are blocked.
    (C1) `x` is of numbers, not of 16-bit floats; (C2) it has three axes, of sizes that are known in a kernel.
    """

    name = "dl.accumulate"
    x = operand_def(TensorType)
    kind = prop_def(StringAttr)
    exclusive = opt_prop_def(BoolAttr)
    reverse = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        if self.kind.data not in ("add", "mul"):
            raise ShapeError(f"dl.accumulate: kind {self.kind.data!r}; expected add or mul")
        return [tensor_type(_require(self.name, self.x), element_type_of(self.x))]

    @property
    def _identity(self) -> int:
        return 0 if self.kind.data == "add" else 1

    def reference(self, *operands: Array) -> Array:
        x = np.flip(operands[0], 1) if flag(self.reverse) else operands[0]
        if flag(self.exclusive) and x.shape[1]:
            x = np.concatenate([np.full_like(x[:, :1], self._identity), x[:, :-1]], 1)
        with np.errstate(all="ignore"):
            y = (np.cumsum if self.kind.data == "add" else np.cumprod)(x, 1, dtype=x.dtype)
        return np.flip(y, 1) if flag(self.reverse) else y

    def loops(self, b: Loops, operands: Sequence[SSAValue], results: Sequence[SSAValue]) -> None:
        """y[j] = before + own, where `own` is of the block that j is in, and `before` of the blocks before that."""
        (x,), (y,) = operands, results
        rows, n, columns = shape_of(self.x)
        element = storage_type(element_type_of(self.x))
        on_floats, on_integers = (arith.AddfOp, arith.AddiOp) if self.kind.data == "add" else (arith.MulfOp, arith.MuliOp)
        of = on_floats if is_float(element) else on_integers

        def combine(x: SSAValue, y: SSAValue) -> SSAValue:
            return b(of(x, y))

        for first, width, count in tiles(columns, _LANES):
            with b.grid(rows, count) as (row, tile):
                start = b.plus(b.times(tile, width), first)
                identity = b.spread(scalar.constant(b, self._identity, element), width)
                with b.carry([identity], 0, n, _BLOCK, name="block") as blocks:
                    (before,) = blocks.values
                    with b.carry([identity], blocks.at, b.least(b.plus(blocks.at, _BLOCK), n), name="j") as walk:
                        j = b.minus(b.minus(n, 1), walk.at) if flag(self.reverse) else walk.at
                        place = (row, j, start)
                        own = combine(walk.values[0], b.read(x, place, (width,), (2,)))
                        b.write(combine(before, walk.values[0] if flag(self.exclusive) else own), y, place, (2,))
                        walk.following = [own]
                    blocks.following = [combine(before, *walk.results)]


@irdl_op_definition
class ExtremePlaceOp(Sequential):
    """The place `j` of the largest `x[a, j, b]`, as i64 [a, b]; of the smallest if `smallest`.

    The first of equal ones, the last if `last`; NaN is extreme.
    (C1) `x` is of numbers, not of 16-bit floats; (C2) it has three axes, of sizes that are known in a kernel, the second
    between 1 and 2^31 - 1.
    """

    name = "dl.extreme_place"
    x = operand_def(TensorType)
    smallest = opt_prop_def(BoolAttr)
    last = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        rows, n, columns = _require(self.name, self.x)
        if n == 0 or (isinstance(n, int) and n >= 1 << 31):
            raise ShapeError(f"dl.extreme_place: {n} elements along the second axis of {shape_of(self.x)} (C2)")
        return [tensor_type((rows, columns), i64)]

    def reference(self, *operands: Array) -> Array:
        x = np.flip(operands[0], 1) if flag(self.last) else operands[0]
        found = (np.argmin if flag(self.smallest) else np.argmax)(x, 1)
        return x.shape[1] - 1 - found if flag(self.last) else found

    def loops(self, b: Loops, operands: Sequence[SSAValue], results: Sequence[SSAValue]) -> None:
        """Each lane has the best that it has seen, and where; where lanes are of one row, the best of them is the row's."""
        (x,), (y,) = operands, results
        rows, n, columns = shape_of(self.x)
        for first, width, count in tiles(columns, _LANES):
            # Of single columns the lanes are neighbours in a row: some registers, as long as there is enough for them.
            along = columns == 1
            width = width if not along else 32 if isinstance(n, int) and n >= 1024 else 8
            with b.grid(rows, count) as (row, tile):
                column = b.plus(b.times(tile, width), first)
                best, place = self._best(b, x, row, column, n, width, along)
                if along:
                    place = self._one_of(b, x, row, n, width, best, place)
                    b.store(b(arith.ExtSIOp(place, i64)), y, row, 0)
                else:
                    wide = arith.ExtSIOp.create(operands=[place], result_types=[VectorType(i64, (width,))])
                    b.write(b(wide), y, (row, column), (1,))

    def _best(self, b: Loops, x: SSAValue, row: Index, column: Index, n: Index, width: int, along: bool) -> Sequence[SSAValue]:
        """The best values of the lanes, and their places; lanes `along` a row may leave its end out (`_is_whole`)."""
        element, counts = storage_type(element_type_of(self.x)), VectorType(i32, (width,))
        low, high = scalar.limits(element_type_of(self.x))
        worst = b.spread(scalar.constant(b, high if flag(self.smallest) else low, element), width)
        nowhere = b.spread(scalar.constant(b, 0, i32), width)
        lanes = b(arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(counts, [k if along else 0 for k in range(width)])))
        end, step, axis = (b.minus(n, b.remainder(n, width)), width, 1) if along else (n, 1, 2)

        def considered(kept: Sequence[SSAValue], at: SSAValue) -> Sequence[SSAValue]:
            best, place = kept
            value = b.read(x, (row, at, column), (width,), (axis,))
            here = b(arith.AddiOp(b.spread(b(arith.IndexCastOp(at, i32)), width), lanes))
            better = self._later(b, value, best)
            return [scalar.select(b, better, value, best), scalar.select(b, better, here, place)]

        with b.carry([worst, nowhere], 0, end, step, name="j") as walk:
            walk.following = considered(walk.values, walk.at)
        if along and isinstance(n, int) and _is_whole(n, width) and n % width:
            # Elements that are considered twice change nothing.
            return considered(walk.results, b.at(n - width))
        return walk.results

    def _one_of(self, b: Loops, x: SSAValue, row: Index, n: Index, width: int, best: SSAValue, place: SSAValue) -> SSAValue:
        """Where the best of the lanes is, and of what is left over behind them."""
        last, element = flag(self.last), element_type_of(self.x)
        extreme = b.reduced(_kind(element, flag(self.smallest)), best)
        everywhere = b.spread(extreme, width)
        if is_float(element):
            # NaN is equal to nothing.
            equal, unordered = (b(arith.CmpfOp(best, *pair)) for pair in ((everywhere, "oeq"), (best, "uno")))
            holds = scalar.either(b, equal, unordered)
        else:
            holds = b(arith.CmpiOp(best, everywhere, "eq"))
        beyond = b.spread(scalar.constant(b, -1 if last else (1 << 31) - 1, i32), width)
        first = b.reduced(_kind(i32, not last), scalar.select(b, holds, place, beyond))
        if _is_whole(n, width):
            return first
        with b.carry([extreme, first], b.minus(n, b.remainder(n, width)), n, name="j") as walk:
            best, best_place = walk.values
            value, here = b.load(x, row, walk.at, 0), b(arith.IndexCastOp(walk.at, i32))
            better = self._better(b, value, best, here, best_place)
            walk.following = [scalar.select(b, better, value, best), scalar.select(b, better, here, best_place)]
        return walk.results[1]

    def _later(self, b: Loops, value: SSAValue, best: SSAValue) -> SSAValue:
        """Whether a value is the one to keep of itself and the best before it."""
        element, last = element_type_of(self.x), flag(self.last)
        if not is_float(element):
            relation = ("le" if last else "lt") if flag(self.smallest) else ("ge" if last else "gt")
            return scalar.compare(b, relation, value, best, element)
        if last:
            further = b(arith.CmpfOp(value, best, "ole" if flag(self.smallest) else "oge"))
            return scalar.either(b, further, b(arith.CmpfOp(value, value, "uno")))
        # Unordered relations hold for NaN: one that is the best stays.
        further = b(arith.CmpfOp(value, best, "ult" if flag(self.smallest) else "ugt"))
        return scalar.both(b, further, b(arith.CmpfOp(best, best, "ord")))

    def _better(self, b: Loops, value: SSAValue, best: SSAValue, place: SSAValue, best_place: SSAValue) -> SSAValue:
        """Whether a value is the one to keep of two in any order."""
        after = b(arith.CmpiOp(place, best_place, "sgt"))
        first, second = (self._later(b, *pair) for pair in ((value, best), (best, value)))
        # Behind the best it is as in a walk; before it, it is the one to keep unless the best is then.
        return scalar.select(b, after, first, b(arith.XOrIOp(second, b(arith.ConstantOp(IntegerAttr(1, 1))))))


def _kind(element: Attribute, smallest: bool) -> str:
    """The `vector.kind` of the smallest or the largest."""
    name = "min" if smallest else "max"
    return f"{name}imumf" if is_float(element) else name + ("ui" if is_unsigned(element) else "si")


def _is_whole(n: Index, width: int) -> bool:
    """Whether vectors cover n elements, the last one together with some before them."""
    return isinstance(n, int) and n >= width
