"""Random `dl` programs, seeded: what stages and targets are compared on.

A program grows op by op from inputs of small shapes; each op is evaluated at once, so that one whose numbers run away is
left out. Values that rounding has touched decide nothing: comparisons, positions and conversions to integers read *exact*
ones, those that inputs and weights reach by moving, choosing and integer arithmetic alone. So two correct compilations of
a program agree closely.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlc.compiler import Program
from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, PropertyValue, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import element_type
from dlc.ir import ArrayAttr, Block, DictionaryAttr, ModuleOp, Region, SSAValue, StringAttr, SymbolRefAttr, func
from dlc.weights import WeightStore

Array = NDArray[np.generic]

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
LARGEST_ARRAY = 4096
LARGEST_NUMBER = 100.0
F32, I32, BOOL = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.bool_)

# Smooth and bounded in slope where their operand is not large, so that roundings stay small.
UNARY: tuple[tuple[type[DlOp], dict[str, PropertyValue]], ...] = (
    *((op, {}) for op in (dl.NegOp, dl.AbsOp, dl.ReluOp, dl.SigmoidOp, dl.TanhOp, dl.ErfOp, dl.SinOp, dl.CosOp, dl.ExpOp)),
    *((op, {}) for op in (dl.AtanOp, dl.SiluOp, dl.HardswishOp, dl.SoftplusOp, dl.SoftsignOp, dl.MishOp)),
    (dl.GeluOp, {"approximate": "none"}),
    (dl.GeluOp, {"approximate": "tanh"}),
    (dl.HardsigmoidOp, {"alpha": 0.2, "beta": 0.5}),
    (dl.LeakyReluOp, {"alpha": 0.1}),
    (dl.EluOp, {"alpha": 1.5}),
)
EXACT_UNARY = (dl.NegOp, dl.AbsOp, dl.ReluOp)
BINARY = (dl.AddOp, dl.SubOp, dl.MulOp, dl.MaximumOp, dl.MinimumOp)
CHOOSING = (dl.MaximumOp, dl.MinimumOp)
BITWISE = (dl.BitwiseAndOp, dl.BitwiseOrOp, dl.BitwiseXorOp)
COMPARISONS = (dl.EqualOp, dl.NotEqualOp, dl.LessOp, dl.LessEqualOp, dl.GreaterOp, dl.GreaterEqualOp)


@dataclass(eq=False)
class Known:
    """A value of the program, its array for the program's own inputs, and whether rounding has touched it."""

    value: SSAValue
    array: Array
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype


class Unsuitable(Exception):
    """The op drawn does not fit the values that there are."""


class RandomProgram:
    """The program of a seed, with inputs for it: `program`, `inputs`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.block = Block()
        self.build = Build(self.block)
        self.weights = WeightStore()
        self.values: list[Known] = []
        self.inputs = [self._input(F32, rank) for rank in self.random.sample([1, 2, 3, 4, 4], self.random.choice([1, 2, 2]))]
        if self.random.random() < 0.3:
            self.inputs.append(self._input(self.random.choice([I32, BOOL, np.dtype(np.int8), np.dtype(np.uint8)]), 2))
        wanted = len(self.values) + self.random.randint(3, 10)
        while len(self.values) < wanted:
            self._grow()
        self.program = Program(self._module(), self.weights, f"random{seed}")

    # The program around the ops

    def _input(self, dtype: np.dtype, rank: int) -> Array:
        shape = self._shape(rank)
        array = self._draw(shape, dtype)
        argument = self.block.insert_arg(tensor_type(shape, element_type(dtype)), len(self.block.args))
        self.values.append(Known(argument, array, exact=True))
        return array

    def _shape(self, rank: int) -> tuple[int, ...]:
        shape = [self.random.choice(SIZES) for _ in range(rank)]
        while math.prod(shape) > LARGEST_ARRAY // 4:
            shape[self.random.randrange(rank)] = self.random.choice(SIZES[:5])
        return tuple(shape)

    def _draw(self, shape: Sequence[int], dtype: np.dtype) -> Array:
        if dtype == F32:
            return self.numbers.standard_normal(shape).astype(F32)
        if dtype == BOOL:
            return self.numbers.random(shape) < 0.5
        return self.numbers.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype)

    def _module(self) -> ModuleOp:
        made = [v for v in self.values if v.value.owner is not self.block]
        ends = [v for v in made if not any(True for _ in v.value.uses)]
        # Sometimes a value that others read too, or an input as it is.
        others = [v for v in self.values if v not in ends]
        ends += self.random.sample(others, min(len(others), self.random.choice([0, 0, 1])))
        results = [v.value for v in ends]
        self.block.add_op(func.ReturnOp(*results))
        types = [a.type for a in self.block.args], [r.type for r in results]
        main = func.FuncOp("main", types, Region(self.block))
        main.arg_attrs, main.res_attrs = _names("x", len(types[0])), _names("y", len(types[1]))
        return ModuleOp([main])

    # One op more

    def _grow(self) -> None:
        try:
            self.random.choices(_STEPS, _WEIGHTS)[0](self)
        except Unsuitable:
            return

    def _add(self, op: type[DlOp], *operands: Known, exact: bool = False, **properties: PropertyValue) -> Known:
        """The result of a new op; raises Unsuitable, and adds nothing, if its numbers would run away."""
        made = op.make(*(o.value for o in operands), **properties)
        with np.errstate(all="ignore"):
            (array,) = made.evaluate(*(o.array for o in operands))
        if not 0 < array.size <= LARGEST_ARRAY or (array.dtype == F32 and not np.abs(array).max() < LARGEST_NUMBER):
            raise Unsuitable
        self.build.insert(made)
        self.values.append(Known(made.results[0], array, exact and all(o.exact for o in operands)))
        return self.values[-1]

    def _any(self, suits: Callable[[Known], bool] = lambda v: v.dtype == F32) -> Known:
        """A value, mostly a late one, so that programs are deep."""
        found = [v for v in self.values if suits(v)]
        if not found:
            raise Unsuitable
        return found[-min(len(found), 1 + int(self.random.expovariate(0.8)))]

    def _weight(self, shape: Sequence[int], dtype: np.dtype = F32, scale: float = 1.0) -> Known:
        array = self._draw(shape, dtype)
        if dtype == F32:
            array = (array * scale).astype(F32)
        name = self.weights.add(array)
        value = self.build(dl.WeightOp, symbol=SymbolRefAttr(name), type=tensor_type(shape, element_type(dtype)))
        return Known(value, array, exact=True)

    def _axis(self, v: Known) -> int:
        if not v.shape:
            raise Unsuitable
        return self.random.randrange(len(v.shape))

    def _partner(self, v: Known) -> Known:
        """Something that broadcasts with `v`: another value, a weight, a number."""
        fitting = [o for o in self.values if o.dtype == v.dtype and _broadcast(o.shape, v.shape)]
        kind = self.random.random()
        if kind < 0.6:
            return self.random.choice(fitting)
        if kind < 0.7:
            number = self._draw((), v.dtype)
            return Known(self.build.constant(number, element_type(v.dtype)), number, exact=True)
        shape = [1 if self.random.random() < 0.3 else s for s in v.shape][self.random.choice([0, 0, 1]) :]
        return self._weight(shape, v.dtype)

    def _unary(self) -> None:
        op, properties = self.random.choice(UNARY)
        self._add(op, self._any(), exact=op in EXACT_UNARY, **properties)

    def _binary(self) -> None:
        x, op = self._any(), self.random.choice(BINARY)
        pair = [x, self._partner(x)]
        self.random.shuffle(pair)
        self._add(op, *pair, exact=op in CHOOSING)

    def _divide(self) -> None:
        x = self._any()
        one = Known(self.build.scalar(1.0, like=x.value), np.ones((), F32), exact=True)
        size = self._add(dl.AddOp, self._add(dl.AbsOp, self._partner(x)), one)
        self._add(dl.DivOp, x, size) if self.random.random() < 0.7 else self._add(dl.SqrtOp, size)

    def _integers(self) -> None:
        x = self._any(lambda v: v.dtype.kind in "iu")
        op = self.random.choice([*CHOOSING, *BITWISE, dl.AddOp, dl.SubOp, dl.MulOp])
        self._add(op, x, self._partner(x), exact=True)

    def _booleans(self) -> None:
        x = self._any(lambda v: v.dtype == BOOL)
        if self.random.random() < 0.5:
            self._add(self.random.choice([dl.AndOp, dl.OrOp, dl.XorOp]), x, self._partner(x), exact=True)
        else:
            self._add(self.random.choice([dl.ReduceAnyOp, dl.ReduceAllOp]), x, axes=(self._axis(x),), exact=True)

    def _select(self) -> None:
        x = self._any(lambda v: v.exact)
        condition = x if x.dtype == BOOL else self._add(self.random.choice(COMPARISONS), x, self._partner(x), exact=True)
        a = self._any(lambda v: v.dtype == F32 and _broadcast(v.shape, condition.shape))
        b = self._any(lambda v: v.dtype == F32 and _broadcast(v.shape, np.broadcast_shapes(a.shape, condition.shape)))
        self._add(dl.SelectOp, condition, a, b, exact=True)

    def _cast(self) -> None:
        x = self._any(lambda v: v.exact)
        to = self.random.choice([t for t in (F32, I32, np.dtype(np.int64), np.dtype(np.int8)) if t != x.dtype])
        self._add(dl.CastOp, x, to=element_type(to), exact=True)

    def _reduce(self) -> None:
        x = self._any()
        op = self.random.choice([dl.ReduceSumOp, dl.ReduceMeanOp, dl.ReduceMaxOp, dl.ReduceMinOp, dl.ReduceL2Op])
        count = self.random.randint(1, max(1, len(x.shape)))
        axes = tuple(sorted(self.random.sample(range(len(x.shape)), min(count, len(x.shape)))))
        self._add(op, x, axes=axes, keepdims=self.random.random() < 0.5, exact=op in (dl.ReduceMaxOp, dl.ReduceMinOp))

    def _position(self) -> None:
        x = self._any(lambda v: v.exact and v.dtype != BOOL)
        self._add(self.random.choice([dl.ArgmaxOp, dl.ArgminOp]), x, axis=self._axis(x), keepdims=False, exact=True)

    def _row(self) -> None:
        x = self._any()
        axis = self._axis(x)
        match self.random.randrange(4):
            case 0:
                self._add(dl.SoftmaxOp, x, axis=axis)
            case 1:
                self._add(dl.LogSoftmaxOp, x, axis=axis)
            case 2:
                rest = x.shape[axis:]
                self._add(dl.LayerNormOp, x, self._weight(rest), self._weight(rest), axis=axis, epsilon=0.1)
            case _:
                self._add(dl.RmsNormOp, x, self._weight(x.shape[axis:]), axis=axis, epsilon=0.1)

    def _batch_norm(self) -> None:
        x = self._any()
        axis = self._axis(x)
        scale, bias, mean = (self._weight((x.shape[axis],)) for _ in range(3))
        one = Known(self.build.scalar(1.0, like=scale.value), np.ones((), F32), exact=True)
        variance = self._weight((x.shape[axis],))
        # An expression of weights, positive.
        values = len(self.values)
        variance = self._add(dl.AddOp, self._add(dl.AbsOp, variance), one)
        del self.values[values:]
        self._add(dl.BatchNormOp, x, scale, bias, mean, variance, axis=axis, epsilon=1e-3)

    def _matmul(self) -> None:
        x = self._any(lambda v: v.dtype == F32 and len(v.shape) >= 1)
        k = x.shape[-1]
        others = [v for v in self.values if v.dtype == F32 and len(v.shape) >= 2 and v.shape[-2] == k]
        suited = [v for v in others if _broadcast(v.shape[:-2], x.shape[:-2])]
        if suited and self.random.random() < 0.4:
            self._add(dl.MatmulOp, x, self.random.choice(suited))
            return
        batch = x.shape[:-2] if self.random.random() < 0.2 else ()
        w = self._weight((*batch, k, self.random.choice(SIZES)), scale=k**-0.5)
        if self.random.random() < 0.3:
            swap = (*range(len(w.shape) - 2), len(w.shape) - 1, len(w.shape) - 2)
            transposed = self.build(dl.TransposeOp, w.value, permutation=swap)
            w = Known(transposed, w.array.swapaxes(-1, -2), exact=True)
            axes = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (len(x.shape) - 1,), "rhs_contract": (len(swap) - 1,)}
            self._add(dl.DotGeneralOp, x, w, **axes)
        else:
            self._add(dl.MatmulOp, x, w)

    def _scores(self) -> None:
        """Rows of a value against one another, as attention does."""
        x = self._any(lambda v: v.dtype == F32 and len(v.shape) >= 2)
        rank = len(x.shape)
        batch = tuple(range(rank - 2))
        factor = Known(self.build.scalar(0.3, like=x.value), np.full((), 0.3, F32), exact=True)
        scores = self._add(
            dl.DotGeneralOp, x, x, lhs_batch=batch, rhs_batch=batch, lhs_contract=(rank - 1,), rhs_contract=(rank - 1,)
        )
        weights = self._add(dl.SoftmaxOp, self._add(dl.MulOp, scores, factor), axis=rank - 1)
        self._add(dl.MatmulOp, weights, x)

    def _window(self, x: Known) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Kernel sizes, strides and dilations that fit the spatial axes of `x`."""
        spatial = x.shape[1:-1]
        kernel = tuple(self.random.randint(1, min(3, s)) for s in spatial)
        strides = tuple(self.random.choice([1, 1, 2]) for _ in spatial)
        dilations = tuple(self.random.choice([1, 2]) if (k - 1) * 2 < s else 1 for k, s in zip(kernel, spatial, strict=True))
        return kernel, strides, dilations

    def _image(self) -> Known:
        x = self._any(lambda v: v.dtype == F32 and len(v.shape) in (3, 4))
        if self.random.random() < 0.5:
            return self._padded(x, (0, *(self.random.randint(0, 2) for _ in x.shape[1:-1]), 0), 0.0)
        return x

    def _padded(self, x: Known, by: tuple[int, ...], number: float) -> Known:
        value = Known(self.build.scalar(number, like=x.value), np.full((), number, F32), exact=True)
        return self._add(dl.PadOp, x, value, low=by, high=by, exact=True)

    def _convolve(self) -> None:
        x = self._image()
        kernel, strides, dilations = self._window(x)
        channels = x.shape[-1]
        groups = self.random.choice([1, 1, 1, channels, *(g for g in (2, 4) if channels % g == 0)])
        out = groups * self.random.choice([1, 1, 2, 5] if groups > 1 else [1, 3, 8, 16, 33])
        w = self._weight((*kernel, channels // groups, out), scale=0.7 * (math.prod(kernel) * channels // groups) ** -0.5)
        y = self._add(dl.ConvOp, x, w, strides=strides, dilations=dilations, groups=groups)
        if self.random.random() < 0.5:
            self._add(dl.ReluOp, self._add(dl.AddOp, y, self._weight((out,))))

    def _convolve_transposed(self) -> None:
        x = self._any(lambda v: v.dtype == F32 and len(v.shape) in (3, 4))
        kernel, strides, dilations = self._window(x)
        w = self._weight((*kernel, x.shape[-1], self.random.choice([1, 3, 8])), scale=0.3)
        self._add(dl.ConvTransposeOp, x, w, strides=strides, dilations=dilations, groups=1)

    def _pool(self) -> None:
        x = self._image()
        op = self.random.choice([dl.MaxPoolOp, dl.SumPoolOp])
        kernel, strides, dilations = self._window(x)
        self._add(op, x, kernel=kernel, strides=strides, dilations=dilations, exact=op is dl.MaxPoolOp)

    def _move(self) -> None:
        x = self._any(lambda v: True)
        rank = len(x.shape)
        match self.random.choice(["transpose", "reshape", "slice", "reverse", "broadcast", "concat", "pad"]):
            case "transpose":
                self._add(dl.TransposeOp, x, permutation=tuple(self.random.sample(range(rank), rank)), exact=True)
            case "reshape":
                self._add(dl.ReshapeOp, x, shape=self._reshaped(x.array.size), exact=True)
            case "slice" if rank:
                starts = [self.random.randrange(s) for s in x.shape]
                limits = [self.random.randint(a + 1, s) for a, s in zip(starts, x.shape, strict=True)]
                steps = [self.random.choice([1, 1, 2, 3]) for _ in x.shape]
                self._add(dl.SliceOp, x, starts=tuple(starts), limits=tuple(limits), strides=tuple(steps), exact=True)
            case "reverse" if rank:
                self._add(dl.ReverseOp, x, axes=(self._axis(x),), exact=True)
            case "broadcast":
                wide = tuple(self.random.choice(SIZES[:6]) if s == 1 else s for s in x.shape)
                self._add(dl.BroadcastToOp, x, shape=(*self.random.choice([(), (2,)]), *wide), exact=True)
            case "concat" if rank:
                axis = self._axis(x)
                fits = [v for v in self.values if v.dtype == x.dtype and _without(v.shape, axis) == _without(x.shape, axis)]
                parts = [x, *self.random.choices([v for v in fits if len(v.shape) == rank], k=self.random.choice([1, 2]))]
                self._add(dl.ConcatOp, *parts, axis=axis, exact=True)
            case "pad" if rank:
                by = [tuple(self.random.randint(0, min(2, s - 1)) for s in x.shape) for _ in range(2)]
                fill = Known(self.build.scalar(1, like=x.value), np.ones((), x.dtype), exact=True)
                mode = self.random.choice(["constant", "edge", "reflect", "wrap"])
                self._add(dl.PadOp, x, fill, low=by[0], high=by[1], pad_mode=mode, exact=True)
            case _:
                raise Unsuitable

    def _reshaped(self, size: int) -> tuple[int, ...]:
        shape: list[int] = []
        while size > 1 and len(shape) < 4:
            factor = self.random.choice([f for f in range(1, size + 1) if size % f == 0])
            shape.append(factor)
            size //= factor
        if size > 1 or self.random.random() < 0.2:
            shape.insert(self.random.randint(0, len(shape)), size)
        return tuple(shape)

    def _gather(self) -> None:
        x = self._any(lambda v: len(v.shape) >= 1)
        axis = self._axis(x)
        places = [v for v in self.values if v.exact and v.dtype.kind in "iu" and len(v.shape) <= 2]
        if places and self.random.random() < 0.5:
            indices = self.random.choice(places)
        else:
            indices = self._weight(self._shape(self.random.choice([1, 2])), np.dtype(np.int64))
        if self.random.random() < 0.7:
            self._add(dl.GatherOp, x, indices, axis=axis, exact=True)
        else:
            indices = self._weight([self.random.randint(1, s) for s in x.shape], np.dtype(np.int64))
            self._add(dl.GatherElementsOp, x, indices, axis=axis, exact=True)


# What an op is drawn from, and how often.
_DRAWN: dict[Callable[[RandomProgram], None], float] = {
    RandomProgram._unary: 4,
    RandomProgram._binary: 5,
    RandomProgram._divide: 1,
    RandomProgram._integers: 1.5,
    RandomProgram._booleans: 1,
    RandomProgram._select: 1,
    RandomProgram._cast: 0.7,
    RandomProgram._reduce: 2.5,
    RandomProgram._position: 0.5,
    RandomProgram._row: 2,
    RandomProgram._batch_norm: 1,
    RandomProgram._matmul: 2.5,
    RandomProgram._scores: 0.5,
    RandomProgram._convolve: 2.5,
    RandomProgram._convolve_transposed: 0.5,
    RandomProgram._pool: 1,
    RandomProgram._move: 4,
    RandomProgram._gather: 1,
}
_STEPS, _WEIGHTS = list(_DRAWN), list(_DRAWN.values())


def _broadcast(*shapes: Sequence[int]) -> bool:
    try:
        np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        return False
    return True


def _without(shape: Sequence[int], axis: int) -> list[int]:
    return [s for k, s in enumerate(shape) if k != axis]


def _names(prefix: str, count: int) -> ArrayAttr:
    return ArrayAttr([DictionaryAttr({"dl.name": StringAttr(f"{prefix}{k}")}) for k in range(count)])
