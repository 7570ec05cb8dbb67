"""Values during import, and the emitter that builds `dl` ops from them.

A value is *constant* if its elements are known at import: an initializer, or the result of an op on constants. An op on small
constants is folded instead of emitted, so that the shape arithmetic of exporters (Shape, Gather, Concat, Reshape) leaves no
ops. A constant becomes a literal or a weight of the program only when an emitted op reads it.
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
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import element_type as element_type_for
from dlc.dialects.dl.dtypes import is_bool, is_integer, numpy_dtype
from dlc.errors import DTypeError, ShapeError
from dlc.frontend import symbolic_arithmetic
from dlc.frontend.shape_tensors import ComputedElement, shape_tensor_elements
from dlc.frontend.size_guards import data_dependent_size_values
from dlc.frontend.value_numbering import ValueNumbering
from dlc.ir import (
    Attribute,
    Block,
    LocationAttr,
    NameLoc,
    NoneAttr,
    Operation,
    SSAValue,
    StringAttr,
    bf16,
    f16,
    f32,
    i64,
)
from dlc.shapes.dims import Dim, Size, decided_negative, is_known_different, is_known_less, is_nonnegative, is_static, product
from dlc.shapes.guards import Guard, assume_comparison
from dlc.weights import WeightStore

# Above the size of any shape arithmetic, below that of weights, whose expressions the compiler evaluates itself.
MAX_FOLDED_ELEMENTS = 1024
# Integer constants with up to this many elements are literals in the IR; larger ones are weights.
MAX_LITERAL_ELEMENTS = 64


class ImportedValue:
    """A tensor during import: its type, its elements if it is constant, and its SSA value once an op reads it.

    `constant_value` is an array of the element type, or of objects if there are symbolic sizes among its elements; None if the
    elements are computed at run time.
    """

    # Whether its elements are indices into the string pool.
    is_string = False

    def __init__(
        self, type: Tensor, *, constant_value: Array | None = None, ssa: SSAValue | None = None, name: str = ""
    ) -> None:
        self.type = type
        self.constant_value = constant_value
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
    """Return the location of ops imported from the node or initializer `name`."""
    return NameLoc(StringAttr(name), NoneAttr())


# The body of a scan: (emitter, states, elements of the input sequences) -> (next states, elements of the output sequences).
_Values: TypeAlias = "Sequence[ImportedValue]"
LoopStep: TypeAlias = "Callable[[Emitter, _Values, _Values], tuple[_Values, _Values]]"


class Emitter:
    """Build ops at the end of `block`: `emit(op, x, y, axis=1)` returns the result of a new op, or its constant-folded value.

    `outer` is the emitter of the enclosing block, if `block` is the body of an op: constants are materialized there.
    """

    def __init__(self, block: Block, weights: WeightStore, outer: Emitter | None = None) -> None:
        self.block = block
        self.build = DlBuilder(block, outer.build.location if outer is not None else None)
        self.weights = weights
        self.outer = outer
        # The string pool of the whole program: each string with its index.
        self.strings: dict[str, int] = {} if outer is None else outer.strings
        # Indices of the random ops without a seed, in the whole program.
        self.random_op_indices: Iterator[int] = count() if outer is None else outer.random_op_indices
        # The symbols of the whole program, and those defined inside `block` only.
        self._symbols: set[str] = set() if outer is None else outer._symbols
        self._local_symbols: set[str] = set()
        # Conditions on symbolic sizes that the import assumed, in the whole program.
        self.guards: list[Guard] = [] if outer is None else outer.guards
        # The data-dependent symbols of the whole program.
        self._data_dependent_symbols: set[str] = set() if outer is None else outer._data_dependent_symbols
        # Sizes read from data in `block`, by the value number of the integer that holds them.
        self._runtime_sizes: dict[Hashable, Size] = {}
        self._probe_operands: dict[Tensor, SSAValue] = {} if outer is None else outer._probe_operands
        self._value_numbering: ValueNumbering = ValueNumbering() if outer is None else outer._value_numbering

    @property
    def is_in_loop(self) -> bool:
        """Return whether `block` may run repeatedly: the body of a loop has arguments, a branch has none."""
        return self.outer is not None and (bool(self.block.args) or self.outer.is_in_loop)

    def argument(self, type: Tensor) -> SSAValue:
        """Add an argument to the program."""
        self._symbols |= {str(size) for size in shape_of(type) if isinstance(size, Dim)}
        return self.block.insert_arg(type, len(self.block.args))

    def new_size(self, name: str) -> Size:
        """Create a data-dependent size named `name_0`, `name_1`, …; return its value if the model is imported for it."""
        symbol = next(s for s in (f"{name}_{k}" for k in count()) if s not in self._symbols)
        self._symbols.add(symbol)
        self._local_symbols.add(symbol)
        self._data_dependent_symbols.add(symbol)
        return data_dependent_size_values.get().get(symbol, Dim.symbol(symbol))

    def are_different(self, a: Size, b: Size, origin: str) -> bool:
        """Return whether two sizes differ for all values of the symbols; if that is undecidable, equality becomes a guard."""
        return assume_comparison(is_known_different, a, b, origin, self.guards)

    def is_less(self, a: Size, b: Size, origin: str) -> bool:
        """Return whether `a < b`, by polynomials or for the sizes of a call; if that is unknown, `a >= b` becomes a guard."""
        decided = None if is_nonnegative(a - b) else decided_negative(a - b)
        return assume_comparison(is_known_less, a, b, origin, self.guards) if decided is None else decided

    def is_data_dependent(self, size: Size) -> bool:
        """Return whether a size depends on data."""
        return isinstance(size, Dim) and not self._data_dependent_symbols.isdisjoint(size.symbols())

    def as_size(self, number: Size | ComputedElement, largest: Size | None = None) -> Size:
        """Convert an integer to a size; a run-time integer becomes a data-dependent size, clamped to 0 from below.

        `largest` is an upper bound that the program guarantees, if there is one.
        """
        if not isinstance(number, ComputedElement):
            return number
        if largest == 0:
            return 0
        key = self._value_numbering.of(number.value)[0], number.index
        scope: Emitter | None = self
        while scope is not None:
            if key in scope._runtime_sizes:
                return scope._runtime_sizes[key]
            scope = scope.outer
        size = self._runtime_sizes[key] = self.new_size("number")
        self(dl.DynamicIotaOp, self.size_scalar(number), size=(size,), max_number=None if largest is None else (largest,))
        return size

    def scalar_as_size(self, number: ImportedValue, largest: Size | None = None) -> Size:
        """Convert a rank-0 integer to a size like `as_size`, including a symbolic size that may be negative."""
        element = shape_tensor_elements(self.ssa(number)).item()
        if isinstance(element, Dim) and not is_nonnegative(element):
            # A Dim is assumed to be nonnegative; the difference of two sizes need not be.
            element = ComputedElement(self.ssa(number), 0)
        return self.as_size(element, largest)

    def nonnegative_size(self, size: Size) -> Size:
        """Return max(size, 0); a size of input symbols as it is: where it is negative, the program is specialized."""
        if isinstance(size, int):
            return max(size, 0)
        return self.scalar_as_size(self.sizes(size)) if self.is_data_dependent(size) else size

    def size_scalar(self, size: Size | ComputedElement) -> ImportedValue:
        """Return a size or a computed element as a rank-0 i64."""
        if not isinstance(size, ComputedElement):
            return self.sizes(size)
        flat = self.reshape(ImportedValue(tensor_of(size.value), ssa=size.value), (product(shape_of(size.value)),))
        return self.cast(self.reshape(self.slice(flat, 0, size.index, size.index + 1), ()), i64)

    def require(self, condition: ImportedValue, message: str, *message_values: ImportedValue) -> None:
        """Emit a check that fails with `message` unless a condition holds.

        `message_values`, rank-0 i64, fill the last `{}` of the message.
        """
        otherwise = Block([dl.FailOp(message, [self.ssa(number) for number in message_values])])
        self.if_(condition, self.body((), lambda inner, _: ()), otherwise, ())

    def __call__(self, op: type[DlOp], *operands: ImportedValue, **properties: PropertyValue | None) -> ImportedValue:
        return self.all_results(op, *operands, **properties)[0]

    def all_results(
        self, op: type[DlOp], *operands: ImportedValue, **properties: PropertyValue | None
    ) -> tuple[ImportedValue, ...]:
        """Return all results of a new op."""
        constants = [
            v.constant_value for v in operands if v.constant_value is not None and v.constant_value.size <= MAX_FOLDED_ELEMENTS
        ]
        if len(constants) == len(operands):
            probe = op.make(*[self._probe_operand(v.type) for v in operands], **properties)
            folded = _fold(probe, constants)
            probe.erase()
            if folded is not None:
                return folded
        return self.unfolded(op, *operands, **properties)

    def _probe_operand(self, type: Tensor) -> SSAValue:
        """Return a value of a type outside of any program, to infer the result types of an op."""
        operand = self._probe_operands.get(type)
        if operand is None:
            operand = self._probe_operands[type] = Block(arg_types=[type]).args[0]
        return operand

    def unfolded(
        self, op: type[DlOp], *operands: ImportedValue, **properties: PropertyValue | None
    ) -> tuple[ImportedValue, ...]:
        """Return all results of a new op without constant folding, for ops that the compiler itself can treat better."""
        new_op = self.build.insert(op.make(*map(self.ssa, operands), **properties))
        return tuple(ImportedValue(r.type, ssa=r) for r in new_op.results)  # pyright: ignore[reportArgumentType]

    def constant(self, array: Array | Sequence[Any] | float, dtype: Any = None, name: str = "") -> ImportedValue:
        """Return a constant value, of `dtype` if given; a float dtype rounds.

        Raises DTypeError for a value that an integer dtype does not represent.
        """
        elements = np.asarray(array)
        if dtype is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # values out of range of a float dtype become infinite
                converted = elements.astype(dtype)
            if converted.dtype.kind in "iu" and (lost := elements[converted != elements]).size:
                raise DTypeError(f"the number {lost.flat[0]} is not representable in {converted.dtype}")
            elements = converted
        return ImportedValue(tensor_type(elements.shape, element_type_for(elements.dtype)), constant_value=elements, name=name)

    def sizes(self, entries: Sequence[Size] | Size) -> ImportedValue:
        """Return a constant i64 value that holds sizes, symbolic ones included."""
        elements = symbolic_arithmetic.object_array(entries)
        return ImportedValue(
            tensor_type(elements.shape, i64), constant_value=symbolic_arithmetic.without_symbols(elements, np.dtype(np.int64))
        )

    def scalar(self, number: int | float | bool, like: ImportedValue | Attribute) -> ImportedValue:
        """Return a constant rank-0 value with the element type of `like`, a value or an element type.

        Raises DTypeError as `constant` does.
        """
        return self.constant(np.asarray(number), numpy_dtype(like.element_type if isinstance(like, ImportedValue) else like))

    def full(self, number: int | float | bool, shape: Sequence[Size], like: ImportedValue | Attribute) -> ImportedValue:
        """Return a tensor filled with one value."""
        return self.broadcast(self.scalar(number, like), shape)

    def broadcast(self, x: ImportedValue, shape: Sequence[Size]) -> ImportedValue:
        """Broadcast `x` to exactly `shape`."""
        return x if x.shape == tuple(shape) else self(dl.BroadcastToOp, x, shape=tuple(shape))

    def tile(self, x: ImportedValue, repeats: Sequence[Size]) -> ImportedValue:
        """Repeat `x` the given number of times along each axis."""
        # [a, b] → [1, a, 1, b] → [r, a, s, b] → [r·a, s·b]
        split = [s for size in x.shape for s in (1, size)]
        expanded = [s for repeat, size in zip(repeats, x.shape, strict=True) for s in (repeat, size)]
        tiled = self.broadcast(self.reshape(x, split), expanded)
        return self.reshape(tiled, [repeat * size for repeat, size in zip(repeats, x.shape, strict=True)])

    def iota(self, size: Size, element_type: Attribute = i64, start: int | float = 0, step: int | float = 1) -> ImportedValue:
        """Return the vector `start, start + step, …`."""
        return self(dl.IotaOp, size=(size,), to=element_type, start=start, step=step)

    def reshape(self, x: ImportedValue, shape: Sequence[Size]) -> ImportedValue:
        return x if x.shape == tuple(shape) else self(dl.ReshapeOp, x, shape=tuple(shape))

    def transpose(self, x: ImportedValue, permutation: Sequence[int]) -> ImportedValue:
        identity = list(permutation) == list(range(x.rank))
        return x if identity else self(dl.TransposeOp, x, permutation=tuple(permutation))

    def cast(self, x: ImportedValue, to: Attribute) -> ImportedValue:
        return x if x.element_type == to else self(dl.CastOp, x, to=to)

    def widen(self, x: ImportedValue) -> ImportedValue:
        """Cast f16 and bf16 to f32, so that a computation of several ops rounds once, at its end."""
        return self.cast(x, f32) if x.element_type in (f16, bf16) else x

    def pad(
        self,
        x: ImportedValue,
        low: Sequence[int],
        high: Sequence[int],
        fill: ImportedValue | None = None,
        mode: str = "constant",
    ) -> ImportedValue:
        """Pad each axis of `x` with `fill` (default 0); negative amounts trim."""
        if min(*low, *high, 0) < 0:
            starts = [max(-p, 0) for p in low]
            limits = [s - max(-p, 0) for s, p in zip(x.shape, high, strict=True)]
            x = self(dl.SliceOp, x, starts=tuple(starts), limits=tuple(limits), strides=(1,) * x.rank)
            low, high = [max(p, 0) for p in low], [max(p, 0) for p in high]
        if not any(low) and not any(high):
            return x
        return self(dl.PadOp, x, self.scalar(0, x) if fill is None else fill, low=tuple(low), high=tuple(high), pad_mode=mode)

    def slice(self, x: ImportedValue, axis: int, start: Size, limit: Size) -> ImportedValue:
        """Return the elements `start` to `limit` of one axis."""
        if start == 0 and limit == x.shape[axis]:
            return x
        starts, limits = [0 if a != axis else start for a in range(x.rank)], list(x.shape)
        limits[axis] = limit
        return self(dl.SliceOp, x, starts=tuple(starts), limits=tuple(limits), strides=(1,) * x.rank)

    def scan(
        self,
        states: Sequence[ImportedValue],
        sequences: Sequence[ImportedValue],
        length: Size,
        step: LoopStep,
        reverse: bool = False,
    ) -> tuple[list[ImportedValue], list[ImportedValue]]:
        """Emit a scan of `length` iterations; return the last states and the output sequences.

        Each iteration reads one element of each of `sequences` along axis 0; with `reverse` from the last to the first.
        Raises ShapeError or DTypeError if an iteration changes the type of a state.
        """
        elements = [tensor_type(s.shape[1:], s.element_type) for s in sequences]
        count = len(states)

        def run(inner: Emitter, arguments: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
            next_states, outputs = step(inner, arguments[:count], arguments[count:])
            return [*_require_equal_types(states, next_states), *outputs]

        body = self.body([*(s.type for s in states), *elements], run)
        results = self.insert(dl.ScanOp.of([*map(self.ssa, (*states, *sequences))], body, count, length, reverse))
        return results[:count], results[count:]

    def while_(
        self,
        condition: ImportedValue,
        states: Sequence[ImportedValue],
        step: Callable[[Emitter, Sequence[ImportedValue]], Sequence[ImportedValue]],
    ) -> list[ImportedValue]:
        """Emit a while loop; return the last states. `step` returns the condition for the next iteration and the next states.

        Raises ShapeError or DTypeError if an iteration changes the type of a state.
        """

        def run(inner: Emitter, arguments: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
            cond, *next_states = step(inner, arguments)
            return [inner.reshape(cond, ()), *_require_equal_types(states, next_states)]

        body = self.body([s.type for s in states], run)
        return self.insert(dl.WhileOp.of(self.ssa(self.reshape(condition, ())), [*map(self.ssa, states)], body))

    def if_(self, condition: ImportedValue, then: Block, otherwise: Block, types: Sequence[Tensor]) -> list[ImportedValue]:
        """Emit a conditional with results of these types: `then` runs if the condition holds, else `otherwise`."""
        return self.insert(dl.IfOp.of(self.ssa(self.reshape(condition, ())), then, otherwise, types))

    def body(
        self, types: Sequence[Tensor], run: Callable[[Emitter, Sequence[ImportedValue]], Sequence[ImportedValue]]
    ) -> Block:
        """Build a block that yields the results of `run` for the arguments of the block."""
        body = Block(arg_types=types)
        inner = Emitter(body, self.weights, self)
        try:
            results = run(inner, [ImportedValue(t, ssa=a) for t, a in zip(types, body.args, strict=True)])
            if any(value.is_string for value in results):
                raise DTypeError(
                    "a string tensor as the result of a loop, or of a branch with a run-time condition, is not supported"
                )
            body.add_op(dl.YieldOp([inner.ssa(v) for v in results]))
        except BaseException:
            discard_block(body)
            raise
        return body

    def insert(self, op: Operation) -> list[ImportedValue]:
        """Insert an op at the end of the block and return its results."""
        return [ImportedValue(tensor_of(r), ssa=r) for r in self.build.insert(op).results]

    def ssa(self, value: ImportedValue) -> SSAValue:
        """Return the SSA value of `value`, materializing a constant in the program."""
        if value.ssa is None and self.outer is not None and self._local_symbols.isdisjoint(_symbols_in(value)):
            return self.outer.ssa(value)
        if value.ssa is None:
            assert value.constant_value is not None
            value.ssa = self._materialize(value, value.constant_value)
        return value.ssa

    def _materialize(self, value: ImportedValue, elements: Array) -> SSAValue:
        if elements.dtype == object:
            return self._materialize_sizes(value, elements)
        if _is_splat(elements) or (_is_literal(value.element_type) and elements.size <= MAX_LITERAL_ELEMENTS):
            return self.build.constant(elements, value.element_type)
        # Long names differ at their ends; the weight store derives file names from them.
        symbol = self.weights.add(elements, value.name[-60:] or "constant")
        origin = location(value.name) if value.name else self.build.location
        with self.build.at_location(origin) if origin is not None else self.build.at_location(location(symbol)):
            return self.build.insert(dl.WeightOp.of(symbol, elements, value.type)).results[0]

    def _materialize_sizes(self, value: ImportedValue, elements: Array) -> SSAValue:
        def materialize_size(size: Size) -> ImportedValue:
            if not isinstance(size, Dim):
                return self.constant(np.asarray([size], np.int64))
            return self.reshape(self.unfolded(dl.SizeOp, size=(size,), to=i64)[0], (1,))

        entries = [materialize_size(size) for size in elements.reshape(-1)]
        flat = entries[0] if len(entries) == 1 else self(dl.ConcatOp, *entries, axis=0)
        return self.ssa(self.cast(self.reshape(flat, elements.shape), value.element_type))


def discard_block(body: Block) -> None:
    """Erase a block that does not become part of the program, with its uses of other values."""
    body.erase(safe_erase=False)


def erase_producer(value: ImportedValue) -> None:
    """Erase the op that defines a value without users."""
    if value.ssa is not None and isinstance(owner := value.ssa.owner, Operation):
        owner.detach()
        owner.erase()


def _symbols_in(value: ImportedValue) -> set[str]:
    """Return the symbols of the sizes among the elements of a constant value."""
    entries = (
        value.constant_value.reshape(-1) if value.constant_value is not None and value.constant_value.dtype == object else ()
    )
    return {symbol for size in entries if isinstance(size, Dim) for symbol in size.symbols()}


def _require_equal_types(states: Sequence[ImportedValue], next_states: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
    """Return the next states; raise ShapeError or DTypeError if their types differ from those of the states."""
    for old, new in zip(states, next_states, strict=True):
        if old.type != new.type:
            error_type = ShapeError if old.element_type == new.element_type else DTypeError
            raise error_type(
                f"an iteration changes a state of type {old.type} to type {new.type}; the types of states must not change"
            )
    return next_states


def _is_literal(element_type: Attribute) -> bool:
    return is_integer(element_type) or is_bool(element_type)


def _is_splat(array: Array) -> bool:
    if array.size < 2:
        return array.size == 1
    # Comparing two elements rules out most weights without reading them all.
    first = array.flat[0]
    return bool(array.flat[1] == first) and bool((array == first).all())


def _fold(op: DlOp, operands: Sequence[Array]) -> tuple[ImportedValue, ...] | None:
    """Constant-fold `op` over constant operands; None if the results are large or depend on the value of a symbol."""
    types = [r.type for r in op.results]
    if not all(is_static(shape_of(t)) and product(shape_of(t)) <= MAX_FOLDED_ELEMENTS for t in types):
        return None
    if any(o.dtype == object for o in operands):
        result = symbolic_arithmetic.evaluate(op, operands)
        results = None if result is None else (result,)
    else:
        results = op.evaluate(*operands)
    if results is None:
        return None
    return tuple(ImportedValue(t, constant_value=r) for t, r in zip(types, results, strict=True))  # pyright: ignore[reportArgumentType]
