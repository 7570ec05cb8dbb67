"""Values during import, and the emitter that makes `dl` ops over them.

A value may be *known*: an initialiser, or computed at import from known ones. An op over small known values is evaluated
instead of emitted, so that the shape arithmetic which exporters write (Shape, Gather, Concat, Reshape) leaves no trace. A
known value becomes a constant or a weight of the program only when an emitted op reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import (
    Array,
    DlOp,
    PropertyValue,
    Tensor,
    element_type_of,
    rank_of,
    shape_of,
    tensor_of,
    tensor_type,
)
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import element_type as element_type_for
from dlc.dialects.dl.dtypes import is_bool, is_integer, numpy_dtype
from dlc.dims import Dim, Size, is_static, never_negative, product
from dlc.errors import DTypeError, ShapeError
from dlc.frontend import symbolic
from dlc.frontend.computations import Computations
from dlc.frontend.decided import Element, elements_of
from dlc.ir import (
    Attribute,
    Block,
    LocationAttr,
    NameLoc,
    NoneAttr,
    Operation,
    SSAValue,
    StringAttr,
    SymbolRefAttr,
    bf16,
    f16,
    f32,
    i64,
)
from dlc.weights import WeightStore

# Shape arithmetic and scalars lie far below; tables of weights far above stay expressions for the compiler.
FOLD_LIMIT = 1024
# The most elements of an integer literal in the IR; anything larger is a weight.
LITERAL_LIMIT = 64


class Value:
    """A tensor during import: its type, its elements where they are known, its SSA value once an op reads it.

    Known elements are an array of the element type, or of objects when symbolic sizes are among them.
    """

    # Whether its elements are places in a list of texts.
    is_text = False

    def __init__(self, type: Tensor, *, known: Array | None = None, ssa: SSAValue | None = None, name: str = "") -> None:
        self.type = type
        self.known = known
        self.ssa = ssa
        self.name = name

    @property
    def shape(self) -> tuple[Size, ...]:
        return shape_of(self.type)

    @property
    def rank(self) -> int:
        return rank_of(self.type)

    @property
    def element_type(self) -> Attribute:
        return element_type_of(self.type)

    def __str__(self) -> str:
        return f"{self.name or 'a value'} of type {self.type}"


def location(name: str) -> LocationAttr:
    """The provenance of ops that come from the node or initialiser `name`."""
    return NameLoc(StringAttr(name), NoneAttr())


# A step of a recurrence: the next states, and an element of each sequence that the steps make, from an emitter for its ops,
# the states and the elements of the sequences that it reads.
Step: TypeAlias = "Callable[[Emitter, Sequence[Value], Sequence[Value]], tuple[Sequence[Value], Sequence[Value]]]"


class Emitter:
    """`emit(op, x, y, axis=1)` is the value of a new op at the end of `block`, or of its evaluation where it folds.

    `outer` is the emitter of the block that the op stands in whose body `block` is: known values enter the program there.
    """

    def __init__(self, block: Block, weights: WeightStore, outer: Emitter | None = None) -> None:
        self.block = block
        self.build = Build(block, outer.build.location if outer is not None else None)
        self.weights = weights
        self.outer = outer
        # The texts of the whole program, each with its place among them.
        self.texts: dict[str, int] = {} if outer is None else outer.texts
        # Numbers for what the program draws without a seed.
        self.draws: Iterator[int] = count() if outer is None else outer.draws
        # The names of sizes in the whole program, and those that are known inside of `block` only.
        self._symbols: set[str] = set() if outer is None else outer._symbols
        self._own: set[str] = set()
        # What the whole program takes to hold of open sizes: binding them checks it.
        self.taken: list[str] = [] if outer is None else outer.taken
        # The sizes of the whole program that data decides.
        self._by_data: set[str] = set() if outer is None else outer._by_data
        # Numbers that data has, by what computes them, which are sizes in `block`.
        self._decided: dict[Hashable, Size] = {}
        self._stand_ins: dict[Tensor, SSAValue] = {} if outer is None else outer._stand_ins
        self._computations: Computations = Computations() if outer is None else outer._computations

    @property
    def is_in_loop(self) -> bool:
        """Whether `block` is run in steps: a loop's body takes arguments, a branch none."""
        return self.outer is not None and (bool(self.block.args) or self.outer.is_in_loop)

    def argument(self, type: Tensor) -> SSAValue:
        """One more argument of the program."""
        self._symbols |= {str(size) for size in shape_of(type) if isinstance(size, Dim)}
        return self.block.insert_arg(type, len(self.block.args))

    def new_size(self, name: str) -> Size:
        """A size of its own that data decides, called `name_0`, `name_1`, …"""
        symbol = next(s for s in (f"{name}_{k}" for k in count()) if s not in self._symbols)
        self._symbols.add(symbol)
        self._own.add(symbol)
        self._by_data.add(symbol)
        return Dim.symbol(symbol)

    def is_by_data(self, size: Size) -> bool:
        """Whether data decides a size."""
        return isinstance(size, Dim) and not self._by_data.isdisjoint(size.symbols())

    def as_size(self, number: Size | Element, largest: Size | None = None) -> Size:
        """A number as a size: one that is computed is found when the program runs, and below 0 it is a size of 0.

        `largest` is what it is at most, if the program sees to it.
        """
        if not isinstance(number, Element):
            return number
        if largest == 0:
            return 0
        key = self._computations.of(number.value)[0], number.place
        around: Emitter | None = self
        while around is not None:
            if key in around._decided:
                return around._decided[key]
            around = around.outer
        size = self._decided[key] = self.new_size("number")
        self(dl.NumbersOp, self.number(number), size=(size,), largest=None if largest is None else (largest,))
        return size

    def counted(self, number: Value, largest: Size | None = None) -> Size:
        """An integer without axes as a size, as `as_size` has it; so of sizes what may be below 0."""
        counted = elements_of(self.ssa(number)).item()
        if isinstance(counted, Dim) and not never_negative(counted):
            # Compared with 0 it would be taken for a size, which is never below.
            counted = Element(self.ssa(number), 0)
        return self.as_size(counted, largest)

    def number(self, of: Size | Element) -> Value:
        """A size, or what is computed, as an i64 without axes."""
        if not isinstance(of, Element):
            return self.sizes(of)
        flat = self.reshape(Value(tensor_of(of.value), ssa=of.value), (product(shape_of(of.value)),))
        return self.cast(self.reshape(self.slice(flat, 0, of.place, of.place + 1), ()), i64)

    def require(self, condition: Value, message: str, *numbers: Value) -> None:
        """Fails with `message` where a condition does not hold; `numbers`, i64 without axes, stand where its last `{}` are."""
        otherwise = Block([dl.FailOp(message, [self.ssa(number) for number in numbers])])
        self.if_(condition, self.body((), lambda inner, _: ()), otherwise, ())

    def __call__(self, op: type[DlOp], *operands: Value, **properties: PropertyValue | None) -> Value:
        return self.all(op, *operands, **properties)[0]

    def all(self, op: type[DlOp], *operands: Value, **properties: PropertyValue | None) -> tuple[Value, ...]:
        """Every result of a new op."""
        known = [v.known for v in operands if v.known is not None and v.known.size <= FOLD_LIMIT]
        if len(known) == len(operands):
            probe = op.make(*[self._stand_in(v.type) for v in operands], **properties)
            folded = _fold(probe, known)
            probe.erase()
            if folded is not None:
                return folded
        return self.unfolded(op, *operands, **properties)

    def _stand_in(self, type: Tensor) -> SSAValue:
        """A value of a type that is in no program, to see what ops make of it."""
        known = self._stand_ins.get(type)
        if known is None:
            known = self._stand_ins[type] = Block(arg_types=[type]).args[0]
        return known

    def unfolded(self, op: type[DlOp], *operands: Value, **properties: PropertyValue | None) -> tuple[Value, ...]:
        """Every result of a new op, also where the operands are known: for whom the compiler knows more of them."""
        made = self.build.insert(op.make(*map(self.ssa, operands), **properties))
        return tuple(Value(r.type, ssa=r) for r in made.results)  # pyright: ignore[reportArgumentType]

    def constant(self, array: Array | Sequence[Any] | float, dtype: Any = None, name: str = "") -> Value:
        """A known value."""
        if dtype is None:
            known = np.asarray(array)
        else:
            with np.errstate(over="ignore"):  # what is beyond a type is infinite there
                known = np.asarray(array, dtype)
        return Value(tensor_type(known.shape, element_type_for(known.dtype)), known=known, name=name)

    def sizes(self, entries: Sequence[Size] | Size) -> Value:
        """A known i64 value of sizes, symbolic ones among them."""
        known = symbolic.object_array(entries)
        return Value(tensor_type(known.shape, i64), known=symbolic.settled(known, np.dtype(np.int64)))

    def scalar(self, number: int | float | bool, like: Value | Attribute) -> Value:
        """A known rank-0 value with the element type of `like`, or that element type."""
        return self.constant(np.asarray(number), numpy_dtype(like.element_type if isinstance(like, Value) else like))

    def full(self, number: int | float | bool, shape: Sequence[Size], like: Value | Attribute) -> Value:
        """A tensor of one number."""
        return self.broadcast(self.scalar(number, like), shape)

    def broadcast(self, x: Value, shape: Sequence[Size]) -> Value:
        """`x` broadcast to exactly `shape`."""
        return x if x.shape == tuple(shape) else self(dl.BroadcastToOp, x, shape=tuple(shape))

    def tile(self, x: Value, repeats: Sequence[Size]) -> Value:
        """`x` so many times along each of its axes."""
        # [a, b] → [1, a, 1, b] → [r, a, s, b] → [r·a, s·b]
        split = [s for size in x.shape for s in (1, size)]
        wide = [s for repeat, size in zip(repeats, x.shape, strict=True) for s in (repeat, size)]
        tiled = self.broadcast(self.reshape(x, split), wide)
        return self.reshape(tiled, [repeat * size for repeat, size in zip(repeats, x.shape, strict=True)])

    def iota(self, size: Size, element_type: Attribute = i64, start: int | float = 0, step: int | float = 1) -> Value:
        """The numbers `start, start + step, …`."""
        return self(dl.IotaOp, size=(size,), to=element_type, start=start, step=step)

    def reshape(self, x: Value, shape: Sequence[Size]) -> Value:
        return x if x.shape == tuple(shape) else self(dl.ReshapeOp, x, shape=tuple(shape))

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        identity = list(permutation) == list(range(x.rank))
        return x if identity else self(dl.TransposeOp, x, permutation=tuple(permutation))

    def cast(self, x: Value, to: Attribute) -> Value:
        return x if x.element_type == to else self(dl.CastOp, x, to=to)

    def wide(self, x: Value) -> Value:
        """Floats of 16 bits in f32: what takes several steps is rounded once, at its end."""
        return self.cast(x, f32) if x.element_type in (f16, bf16) else x

    def slice(self, x: Value, axis: int, start: Size, limit: Size) -> Value:
        """The elements `start` to `limit` of one axis."""
        if start == 0 and limit == x.shape[axis]:
            return x
        starts, limits = [0 if a != axis else start for a in range(x.rank)], list(x.shape)
        limits[axis] = limit
        return self(dl.SliceOp, x, starts=tuple(starts), limits=tuple(limits), strides=(1,) * x.rank)

    def scan(
        self, states: Sequence[Value], sequences: Sequence[Value], length: Size, step: Step, reverse: bool = False
    ) -> tuple[list[Value], list[Value]]:
        """The last states, and the sequences that `length` steps make, one for each element of `sequences` (along axis 0), in
        reverse from the last to the first.

        Raises ShapeError or DTypeError for states that do not keep their types.
        """
        elements = [tensor_type(s.shape[1:], s.element_type) for s in sequences]
        count = len(states)

        def run(inner: Emitter, arguments: Sequence[Value]) -> Sequence[Value]:
            following, made = step(inner, arguments[:count], arguments[count:])
            return [*_kept(states, following), *made]

        body = self.body([*(s.type for s in states), *elements], run)
        results = self.results(dl.ScanOp.of([*map(self.ssa, (*states, *sequences))], body, count, length, reverse))
        return results[:count], results[count:]

    def while_(
        self, condition: Value, states: Sequence[Value], step: Callable[[Emitter, Sequence[Value]], Sequence[Value]]
    ) -> list[Value]:
        """The last states of a loop that runs while it says so; `step` gives whether it goes on, and the next states.

        Raises ShapeError or DTypeError for states that do not keep their types.
        """

        def run(inner: Emitter, arguments: Sequence[Value]) -> Sequence[Value]:
            going, *following = step(inner, arguments)
            return [inner.reshape(going, ()), *_kept(states, following)]

        body = self.body([s.type for s in states], run)
        return self.results(dl.WhileOp.of(self.ssa(self.reshape(condition, ())), [*map(self.ssa, states)], body))

    def if_(self, condition: Value, then: Block, otherwise: Block, types: Sequence[Tensor]) -> list[Value]:
        """The results, of these types, of the body that is run: `then` where the condition holds."""
        return self.results(dl.IfOp.of(self.ssa(self.reshape(condition, ())), then, otherwise, types))

    def body(self, types: Sequence[Tensor], run: Callable[[Emitter, Sequence[Value]], Sequence[Value]]) -> Block:
        """A block that yields what `run` makes of its arguments."""
        body = Block(arg_types=types)
        inner = Emitter(body, self.weights, self)
        try:
            made = run(inner, [Value(t, ssa=a) for t, a in zip(types, body.args, strict=True)])
            if any(value.is_text for value in made):
                raise DTypeError("text as the result of a loop, or of a branch that data picks, is not supported")
            body.add_op(dl.YieldOp([inner.ssa(v) for v in made]))
        except BaseException:
            discard(body)
            raise
        return body

    def results(self, op: Operation) -> list[Value]:
        """The results of an op that is put at the end of the block."""
        return [Value(tensor_of(r), ssa=r) for r in self.build.insert(op).results]

    def ssa(self, value: Value) -> SSAValue:
        """The SSA value of `value`; a known one enters the program here."""
        if value.ssa is None and self.outer is not None and self._own.isdisjoint(_symbols_in(value)):
            return self.outer.ssa(value)
        if value.ssa is None:
            assert value.known is not None
            value.ssa = self._materialised(value, value.known)
        return value.ssa

    def _materialised(self, value: Value, known: Array) -> SSAValue:
        if known.dtype == object:
            return self._of_sizes(value, known)
        if _is_splat(known) or (_is_literal(value.element_type) and known.size <= LITERAL_LIMIT):
            return self.build.constant(known, value.element_type)
        # The end of a name is its own; the store makes file names of it.
        symbol = self.weights.add(known, value.name[-60:] or "constant")
        place = location(value.name) if value.name else self.build.location
        with self.build.at(place) if place is not None else self.build.at(location(symbol)):
            return self.build(dl.WeightOp, symbol=SymbolRefAttr(symbol), type=value.type)

    def _of_sizes(self, value: Value, known: Array) -> SSAValue:
        def one(size: Size) -> Value:
            if not isinstance(size, Dim):
                return self.constant(np.asarray([size], np.int64))
            return self.reshape(self.unfolded(dl.SizeOp, size=(size,), to=i64)[0], (1,))

        entries = [one(size) for size in known.reshape(-1)]
        flat = entries[0] if len(entries) == 1 else self(dl.ConcatOp, *entries, axis=0)
        return self.ssa(self.cast(self.reshape(flat, known.shape), value.element_type))


def discard(body: Block) -> None:
    """Drops a block that is not to be part of the program: its ops read nothing any more."""
    body.erase(safe_erase=False)


def withdraw(value: Value) -> None:
    """Drops the op that makes a value, which nothing reads."""
    if value.ssa is not None and isinstance(owner := value.ssa.owner, Operation):
        owner.detach()
        owner.erase()


def _symbols_in(value: Value) -> set[str]:
    """The names of the sizes among a value's elements."""
    entries = value.known.reshape(-1) if value.known is not None and value.known.dtype == object else ()
    return {symbol for size in entries if isinstance(size, Dim) for symbol in size.symbols()}


def _kept(states: Sequence[Value], following: Sequence[Value]) -> Sequence[Value]:
    """The next states; raises ShapeError or DTypeError unless they have the types of the states."""
    for old, new in zip(states, following, strict=True):
        if old.type != new.type:
            wrong = ShapeError if old.element_type == new.element_type else DTypeError
            raise wrong(f"a state of type {old.type} becomes one of type {new.type}; states keep their types")
    return following


def _is_literal(element_type: Attribute) -> bool:
    return is_integer(element_type) or is_bool(element_type)


def _is_splat(array: Array) -> bool:
    if array.size < 2:
        return array.size == 1
    # The first two elements tell most weights from a splat without reading them.
    first = array.flat[0]
    return bool(array.flat[1] == first) and bool((array == first).all())


def _fold(op: DlOp, operands: Sequence[Array]) -> tuple[Value, ...] | None:
    """The results of `op` over known operands; none when they are large or hang on the value of a symbol."""
    types = [r.type for r in op.results]
    if not all(is_static(shape_of(t)) and product(shape_of(t)) <= FOLD_LIMIT for t in types):
        return None
    if any(o.dtype == object for o in operands):
        result = symbolic.evaluate(op, operands)
        results = None if result is None else (result,)
    else:
        results = op.evaluate(*operands)
    if results is None:
        return None
    return tuple(Value(t, known=r) for t, r in zip(types, results, strict=True))  # pyright: ignore[reportArgumentType]
