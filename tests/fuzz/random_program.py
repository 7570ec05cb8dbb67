"""Random `dl` programs, seeded: what targets and stages are compared on.

A program grows op by op (recipes.py) from inputs, weights and constants that are made when an op wants them. Each op is
evaluated at once, so that every value has its array and the bound of its error (bounds.py); an op whose result nothing can
be said about is left out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from dlc.compiler import Program
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, PropertyValue, is_narrow, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, element_type, numpy_dtype
from dlc.errors import DTypeError, ShapeError
from dlc.ir import ArrayAttr, Block, DictionaryAttr, ModuleOp, Operation, Region, SSAValue, StringAttr, SymbolRefAttr, func
from dlc.weights import WeightStore
from tests.fuzz.bounds import track
from tests.fuzz.tracked import Tracked
from tests.ops.sample import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, is_float

FLOATS, INTEGERS = (F32, F64, F16, BF16), (I8, I16, I32, I64, U8, U16, U32, U64)
NUMBERS = (*FLOATS, *INTEGERS)
ANY = (*NUMBERS, BOOL)
# Types that are stored and moved, not computed with.
NARROW = tuple(numpy_dtype(t) for t in ELEMENT_TYPES.values() if is_narrow(t))
# Nothing, one, small and large primes, a vector's lanes and one more or less.
SIZES = (0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 23, 31, 32, 33, 47, 63, 64, 65, 100, 127, 128, 129)
SMALL = (1, 2, 3, 4, 5)
LARGEST_ARRAY = 4096
RANKS = (0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5)


@dataclass(eq=False)
class Known:
    """A value of the program with its array and the bound of its error."""

    value: SSAValue
    tracked: Tracked

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tracked.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.tracked.array.dtype

    @property
    def exact(self) -> bool:
        return self.tracked.error is None

    @property
    def may_be_read(self) -> bool:
        """Panels are unpacked for contractions, by passes; other readers may be refused, so that it ends a program here."""
        return not isinstance(self.value.owner, dl.UnpackOp)


class Unsuitable(Exception):
    """The op drawn does not fit the values that there are."""


class RandomProgram:
    """The program of a seed: `inputs` for its arguments and what its `results` should be.

    Programs that are given one block and one store share a module.
    """

    def __init__(self, seed: int, block: Block | None = None, weights: WeightStore | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.block = Block() if block is None else block
        self.build = Build(self.block)
        self.weights = WeightStore() if weights is None else weights
        self.values: list[Known] = []
        self.inputs: list[Array] = []
        self.ops: set[type[DlOp]] = set()
        self.left_out: Collection[type[Operation]] = ()
        # Most programs are of one type and tame; what they do with special values is asked of the others.
        self.special = self.random.random() < 0.3
        self.types = self.random.choices(NUMBERS, [12, 3, 3, 3, *[1.5] * 8], k=self.random.choice([1, 1, 2]))

    def grow(self, step: Callable[[RandomProgram], None], size: int) -> None:
        """Takes steps until `size` ops are made; a step that does not fit is forgotten."""
        for _ in range(4 * size):
            if len(self.made) >= size:
                return
            try:
                step(self)
            except (Unsuitable, ShapeError, DTypeError):
                continue

    @property
    def made(self) -> list[Known]:
        """The values that ops compute."""
        return [v for v in self.values if not v.tracked.given]

    @property
    def results(self) -> list[Known]:
        """What the program returns: all that nothing else reads, and sometimes a value that something reads, or an input."""
        ends = [v for v in self.made if not any(True for _ in v.value.uses)]
        rest = [v for v in self.values if v not in ends]
        return ends + rest[-1:] * (self.seed % 5 == 0 or not ends)

    # Values

    def fresh(self, dtype: np.dtype, shape: Sequence[int], scale: float = 1.0) -> Known:
        """A new input, weight or constant."""
        return self.given(self.numbers_of(dtype, shape, scale))

    def given(self, array: Array) -> Known:
        """An input, weight or constant with these elements."""
        kind = self.random.random()
        element = element_type(array.dtype)
        array = np.ascontiguousarray(array).reshape(array.shape)
        if kind < 0.6 or _is_extreme(array):
            value: SSAValue = self.block.insert_arg(tensor_type(array.shape, element), len(self.block.args))
            self.inputs.append(array)
        elif kind < 0.85 or array.size > 16 or np.isnan(array.astype(np.float64)).any():
            return self.weight(array)
        else:
            value = self.build.constant(array, element)
            self.ops.add(dl.ConstantOp)
        self.values.append(Known(value, Tracked(array, given=True)))
        return self.values[-1]

    def weight(self, array: Array) -> Known:
        """A weight with these elements."""
        of_type = tensor_type(array.shape, element_type(array.dtype))
        value = self.build(dl.WeightOp, symbol=SymbolRefAttr(self.weights.add(array)), type=of_type)
        self.ops.add(dl.WeightOp)
        self.values.append(Known(value, Tracked(array, given=True)))
        return self.values[-1]

    def numbers_of(self, dtype: np.dtype, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Random elements: whole numbers, normal ones, ones of all magnitudes, or special ones among them."""
        rng, shape = self.numbers, tuple(shape)
        if dtype == BOOL:
            return rng.random(shape) < 0.5
        if dtype in NARROW:
            return np.asarray(np.round(rng.standard_normal(shape) * 2 + 1, 1)).astype(np.float32).astype(dtype)
        if not is_float(dtype):
            info = np.iinfo(dtype)
            if not self.special:
                return rng.integers(max(info.min, -9), 10, shape).astype(dtype)
            array = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
            extremes = np.array([info.min, info.max, 0, 1, info.max // 2 + 1], dtype)
            return np.asarray(np.where(rng.random(shape) < 0.4, rng.choice(extremes, shape), array)).astype(dtype)
        kind = self.random.random()
        if kind < 0.35:
            return (rng.integers(-4, 5, shape) * (1 if scale == 1 else 0.25)).astype(dtype)
        if not self.special or kind < 0.5:
            return (rng.standard_normal(shape) * scale).astype(dtype)
        info = ml_dtypes.finfo(dtype)
        array = rng.standard_normal(shape) * np.exp2(rng.integers(-20, 12, shape).astype(np.float64))
        if kind > 0.65:
            large, normal, least = float(info.max), float(info.smallest_normal), float(info.smallest_subnormal)
            values = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 0.5, large, -large, normal, -normal, least, 1e3, -1e3]
            array = np.where(rng.random(shape) < 0.5, rng.choice(values, shape), array)
        with np.errstate(all="ignore"):
            return np.asarray(array).astype(dtype)

    def shape(self, rank: int | None = None, largest: int = LARGEST_ARRAY // 4) -> tuple[int, ...]:
        """Random sizes of at most so many elements."""
        rank = self.random.choice(RANKS) if rank is None else rank
        shape = [self.random.choice(SIZES) for _ in range(rank)]
        while math.prod(s or 1 for s in shape) > largest:
            shape[self.random.randrange(rank)] = self.random.choice(SMALL)
        return tuple(shape)

    def dtype(self, among: Sequence[np.dtype] = ANY) -> np.dtype:
        """A dtype of these, one of the program's own if there is one."""
        own = [d for d in self.types if d in among]
        if own and self.random.random() < 0.8:
            return self.random.choice(own)
        return self.random.choice(among)

    def any(
        self,
        among: Sequence[np.dtype] = ANY,
        suits: Callable[[tuple[int, ...]], bool] = lambda shape: True,
        ranks: Sequence[int] = RANKS,
        exact: bool = False,
    ) -> Known:
        """A value of one of these dtypes whose shape suits: one that there is, mostly a late one, or a new one."""
        found = [v for v in self.values if v.dtype in among and suits(v.shape) and (v.exact or not exact) and v.may_be_read]
        if found and self.random.random() < 0.8:
            return found[-min(len(found), 1 + int(self.random.expovariate(0.8)))]
        for _ in range(20):
            shape = self.shape(self.random.choice(ranks))
            if suits(shape):
                return self.fresh(self.dtype(among), shape)
        raise Unsuitable

    def like(
        self, dtype: np.dtype, suits: Callable[[tuple[int, ...]], bool], shape: Sequence[int], scale: float = 1.0
    ) -> Known:
        """A value of this dtype whose shape suits, or a new one of `shape`."""
        found = [v for v in self.values if v.dtype == dtype and suits(v.shape) and v.may_be_read]
        if found and self.random.random() < 0.5:
            return self.random.choice(found)
        return self.fresh(dtype, shape, scale)

    def partner(self, x: Known) -> Known:
        """A value that broadcasts with `x`."""
        shape = [1 if self.random.random() < 0.2 else s for s in x.shape][self.random.choice([0, 0, 0, 1, 5]) :]
        return self.like(x.dtype, lambda s: _within(s, x.shape), shape)

    def axis(self, x: Known) -> int:
        """An axis of `x`, counted from either end."""
        if not x.shape:
            raise Unsuitable
        axis = self.random.randrange(len(x.shape))
        return axis - len(x.shape) if self.random.random() < 0.2 else axis

    def axes(self, x: Known) -> tuple[int, ...]:
        """Some axes of `x`, often one or all."""
        rank = len(x.shape)
        count = self.random.choice([min(1, rank), rank, self.random.randint(0, rank)])
        return tuple(self.random.sample(range(rank), count))

    def flag(self) -> bool:
        return self.random.random() < 0.5

    # Ops

    def add(self, op: type[DlOp], *operands: Known, **properties: PropertyValue | None) -> Known:
        """The first result of a new op; raises Unsuitable, and adds nothing, if it is too large or nothing is known of it."""
        made = op.make(*(o.value for o in operands), **properties)
        if any(math.prod(int(s) for s in r.type.get_shape()) > LARGEST_ARRAY for r in made.results):
            raise Unsuitable
        known = self._added(made, track(made, *(o.tracked for o in operands)))
        self.ops.add(op)
        return known

    def scan(self, op: dl.ScanOp, state: Known, sequence: Known) -> Known:
        """The last state of a scan with one state and one sequence; raises Unsuitable if nothing is known of it."""
        return self._added(op, track_scan(op, state.tracked, sequence.tracked))

    def _added(self, op: Operation, tracked: Sequence[Tracked]) -> Known:
        if any(t.array.size and t.free.mean() > 0.5 for t in tracked):
            raise Unsuitable
        self.build.insert(op)
        results = [Known(r, t) for r, t in zip(op.results, tracked, strict=True)]
        self.values += results
        return results[0]


def track_scan(op: dl.ScanOp, state: Tracked, sequence: Tracked) -> list[Tracked]:
    """The results of a scan with one state and one sequence."""
    now, made = state, [Tracked(np.zeros(state.array.shape, state.array.dtype))]
    for k in range(len(sequence.array)):
        element = Tracked(sequence.array[k], None if sequence.error is None else sequence.error[k], sequence.given)
        known: dict[SSAValue, Tracked] = dict(zip(op.block.args, (now, element), strict=True))
        for inner in op.block.ops:
            if isinstance(inner, DlOp):
                known.update(zip(inner.results, track(inner, *(known[v] for v in inner.operands)), strict=True))
        now, *rest = (known[v] for v in op.yielded)
        made += rest
    errors = np.stack([t.errors for t in made])[1:]
    stacked = Tracked(np.stack([t.array for t in made])[1:], errors if np.any(errors) else None)
    return [Tracked(now.array, now.error), stacked]


def _is_extreme(array: Array) -> bool:
    """Whether floats are such that their products may overflow or vanish: passes multiply weights into one another."""
    if not is_float(array.dtype) or array.dtype in NARROW or not array.size:
        return False
    x, info = np.abs(array.astype(np.float64)), ml_dtypes.finfo(array.dtype)
    return bool(((x > float(info.max) ** 0.4) | ((x < float(info.smallest_normal) ** 0.4) & (x > 0)) | np.isnan(x)).any())


def _within(shape: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    try:
        return math.prod(np.broadcast_shapes(shape, larger)) <= LARGEST_ARRAY
    except ValueError:
        return False


class Batch:
    """Independent programs as one module: `program`, `inputs`, and what each of its results should be.

    `owners` says whose each result is.
    """

    def __init__(self, made: Callable[[int, Block, WeightStore], RandomProgram], seeds: Sequence[int]) -> None:
        block, weights = Block(), WeightStore()
        programs = [made(seed, block, weights) for seed in seeds]
        self.ops = {op for p in programs for op in p.ops}
        self.inputs = [array for p in programs for array in p.inputs]
        results = [(p.seed, known) for p in programs for known in p.results]
        self.owners = [seed for seed, _ in results]
        self.expected = [known.tracked for _, known in results]
        values = [known.value for _, known in results]
        block.add_op(func.ReturnOp(*values))
        main = func.FuncOp("main", ([a.type for a in block.args], [v.type for v in values]), Region(block))
        main.arg_attrs, main.res_attrs = named_values("x", len(block.args)), named_values("y", len(values))
        self.program = Program(ModuleOp([main]), weights, f"random{seeds[0]}")


def named_values(prefix: str, count: int) -> ArrayAttr:
    """Names for arguments or results."""
    return ArrayAttr([DictionaryAttr({"dl.name": StringAttr(f"{prefix}{k}")}) for k in range(count)])
