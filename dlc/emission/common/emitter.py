"""The base emitter: traverses a kernel once and records the registers, linear expressions and addresses of SSA values.

The traversal is the same in every language: values become registers, indices become linear expressions, memrefs become
addresses, and regions become scopes. The text that is emitted is specific to a language: the abstract methods below.

Note [Linear indices]
Values of type index are represented as linear expressions over opaque names (loop variables, loaded indices); they become
values of the language only where an op needs one. An address is `base + constants·names + constant`: the part with names is
computed once, in the outermost scope that defines all of them, and the registers of one tile differ only in the constant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, cast

from dlc.dialects.sizes import size_arguments, symbol
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.records import LoopRecord, TileAccess
from dlc.emission.common.registers import MemrefAddress, Register, Registers, Stride, vector_shape
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import Attribute, Block, IndexType, Operation, OpResult, SSAValue, VectorType, func, scf
from dlc.shapes.dims import Dim, Size
from dlc.target import Target

Handlers = Mapping[str, Callable[[Any, Operation], None]]


class EmissionScope:
    """A region that is being emitted: its lines so far, its current basic block, and a cache of values computed in it."""

    __slots__ = ("cached_names", "label", "lines")

    def __init__(self, label: str = "") -> None:
        self.lines: list[Any] = []
        self.label = label
        self.cached_names: dict[Hashable, str] = {}


class KernelEmitter(ABC):
    """Emit the body of one function of a kernel; `handlers` maps op names to the functions that emit them."""

    language: str
    # Whether address terms of the innermost scope are added to a pointer. If not, they stay in the displacement.
    hoists_innermost_addresses = True

    def __init__(self, kernel: func.FuncOp, target: Target, lanes: int, handlers: Handlers) -> None:
        self.block, self.kernel = kernel.body.block, kernel.sym_name.data
        self.target, self.lanes, self.handlers = target, lanes, handlers
        self.registers: dict[SSAValue, Registers] = {}
        self.linear_expressions: dict[SSAValue, LinearExpression] = {}
        self.views: dict[SSAValue, MemrefAddress] = {}
        self.scopes = [EmissionScope("entry")]
        self.local_bytes = 0
        # Maps symbols in buffer sizes to the kernel's size arguments.
        self.sizes = {symbol(k): a for k, a in enumerate(size_arguments(self.block))}
        # The IR keeps the types alive during the traversal, so their identity is a valid key, and a fast one.
        self._layouts: dict[int, tuple[Register, ...]] = {}

    # Ops

    def visit(self, op: Operation) -> None:
        """Emit one op."""
        handler = self.handlers.get(op.name)
        if handler is None:
            raise UnsupportedError(
                f"kernel @{self.kernel}: op {op.name!r} has no emitter for {self.language}; lower it before the end of the "
                "loops stage, or add a handler in dlc/emission"
            )
        handler(self, op)

    def visit_block(self, block: Block) -> Sequence[SSAValue]:
        """Emit the ops of a block and return the operands of its terminator."""
        last = block.last_op
        for op in block.ops:
            if op is last:
                return op.operands
            self.visit(op)
        return ()

    # Values

    def layout(self, type: Attribute) -> tuple[Register, ...]:
        """Return the registers of a value of this type; see Note [Registers of a vector]."""
        registers = self._layouts.get(id(type))
        if registers is None:
            registers = self._layouts[id(type)] = self._layout(type)
        return registers

    def _layout(self, type: Attribute) -> tuple[Register, ...]:
        if not isinstance(type, VectorType):
            return (Register(self.kind(type)),)
        vector = cast("VectorType[Attribute]", type)
        shape, kind = vector.get_shape(), self.kind(vector.element_type)
        return tuple(Register(kind, *segment) for segment in self.row_registers(shape[-1] if shape else 1)) * prod(shape[:-1])

    def rows(self, type: Attribute) -> Iterable[tuple[int, ...]]:
        """Iterate over the leading indices of each row of a value."""
        return product(*map(range, vector_shape(type)[:-1]))

    def regs(self, value: SSAValue) -> Registers:
        """Return the registers of a scalar or vector."""
        if (names := self.registers.get(value)) is None:
            if isinstance(value.type, IndexType):
                return (self.materialize(self.linear(value)),)
            self.emit_top_level_value(value)
            names = self.registers[value]
        return names

    def scalar(self, value: SSAValue) -> str:
        """Return the register of a scalar."""
        return self.regs(value)[0]

    def linear(self, value: SSAValue) -> LinearExpression:
        """Return the linear expression of a scalar of type index."""
        if (expression := self.linear_expressions.get(value)) is None:
            self.emit_top_level_value(value)
            expression = self.linear_expressions[value]
        return expression

    def view(self, value: SSAValue) -> MemrefAddress:
        """Return the address of a memref."""
        if (view := self.views.get(value)) is None:
            self.emit_top_level_value(value)
            view = self.views[value]
        return view

    def bind(self, value: SSAValue, registers: Sequence[str]) -> None:
        """Record that `value` is held in these registers."""
        if isinstance(value.type, IndexType):
            self.linear_expressions[value] = self.term(registers[0])
        else:
            self.registers[value] = tuple(registers)

    def term(self, name: str) -> LinearExpression:
        """Return the linear expression of a name that is defined in the current scope."""
        return LinearExpression(0, ((len(self.scopes) - 1, name, 1),))

    def emit_top_level_value(self, value: SSAValue) -> None:
        """Emit a value of the kernel's top level at the start of the current function."""
        if not (isinstance(value, OpResult) and value.op.parent is self.block and not value.op.regions):
            raise CompileError(f"kernel @{self.kernel}: a value of type {value.type} is used where it is not defined")
        inner = self.scopes[1:]
        del self.scopes[1:]
        self.visit(value.op)
        self.scopes.extend(inner)

    # Sizes

    def size(self, size: Size) -> LinearExpression:
        """Return the linear expression of a size; products of symbolic sizes are computed once."""
        total = LinearExpression(0)
        for monomial, coefficient in Dim.lift(size).terms.items():
            product = LinearExpression(1)
            for atom in monomial:
                product = self.scale_expression(product, self.linear(self.sizes[cast(str, atom)]))
            total = total.plus(product, coefficient)
        return total

    def scale_expression(self, expr: LinearExpression, stride: Stride) -> LinearExpression:
        """Return the linear expression of `expr · stride`; a nonlinear product becomes a new name."""
        factor = stride if isinstance(stride, LinearExpression) else LinearExpression(stride)
        if (product := expr.times(factor)) is not None:
            return product
        a, b = sorted(map(self.materialize, (expr, factor)))
        depth = max(f.terms[-1][0] for f in (expr, factor))
        return LinearExpression(0, ((depth, self.compute_at_depth(depth, ("times", a, b), lambda: self.times(a, b)), 1),))

    # Addresses

    def address(self, view: MemrefAddress, expr: LinearExpression) -> tuple[str, LinearExpression]:
        """Split `view.base[expr]` into a pointer and a remaining displacement; see Note [Linear indices]."""
        pointer, start, terms = view.base, 0, expr.terms
        for i in range(1, len(terms) + 1):
            if i == len(terms) or terms[i][0] != terms[start][0]:
                depth = terms[start][0]
                if depth == len(self.scopes) - 1 and not self.hoists_innermost_addresses:
                    break
                group, source = terms[start:i], pointer
                pointer = self.compute_at_depth(
                    depth, (view.base, terms[:i]), lambda g=group, p=source: self.advance(view, p, LinearExpression(0, g))
                )
                start = i
        return pointer, LinearExpression(expr.constant, terms[start:])

    def compute_at_depth(self, depth: int, key: Hashable, compute: Callable[[], str]) -> str:
        """Return the name that `compute` defines in the scope at `depth`; it is computed once per scope and key."""
        cached = self.scopes[depth].cached_names
        if (name := cached.get(key)) is None:
            inner = self.scopes[depth + 1 :]
            del self.scopes[depth + 1 :]
            name = cached[key] = compute()
            self.scopes.extend(inner)
        return name

    def constant_divisor(self, name: str, coefficient: int) -> int:
        """Return a constant that divides `coefficient · name`, as large as possible."""
        return coefficient

    # Abstract methods for values. A hint is a suggested name; `hints` gives one for each register of a value.

    @abstractmethod
    def kind(self, element: Attribute) -> str:
        """Return the kind of an element type.

        Raises UnsupportedError if the language or the device does not support it.
        """

    @abstractmethod
    def row_registers(self, size: int) -> list[tuple[int, int]]:
        """Return (width, used) of each register of a row of `size` elements."""

    @abstractmethod
    def hints(self, value: SSAValue, default: str) -> Iterable[str]:
        """Return a name hint for each register of a value."""

    @abstractmethod
    def materialize(self, expr: LinearExpression) -> str:
        """Emit the value of a linear expression as a 64-bit integer."""

    @abstractmethod
    def times(self, a: str, b: str) -> str:
        """Emit the product of two 64-bit integers."""

    @abstractmethod
    def literal(self, kind: str, value: float) -> str:
        """Return the text of a scalar literal."""

    @abstractmethod
    def splat_literal(self, type: Register, literal: str) -> str:
        """Return a register with a literal in all lanes."""

    @abstractmethod
    def table(self, type: Register, literals: list[str], hint: str) -> str:
        """Return a register of literals, one for each used lane."""

    @abstractmethod
    def splat(self, type: Register, scalar: str, hint: str) -> str:
        """Return a register with `scalar` in all lanes."""

    @abstractmethod
    def resize(self, type: Register, source_type: Register, value: str, hint: str, *, inline: bool = False) -> str:
        """Emit the conversion of a float register `source_type` to the width of `type`; `inline` if it has a single use."""

    @abstractmethod
    def combine(self, kind: str, type: Register, a: str, b: str, hint: str) -> str:
        """Emit the reduction of two registers with the combiner `vector.kind<kind>`."""

    @abstractmethod
    def mask_unused_lanes(self, kind: str, type: Register, value: str) -> str:
        """Return a register whose unused lanes contain the neutral element of the combiner."""

    @abstractmethod
    def halves(self, type: Register, value: str, hint: str) -> Sequence[str]:
        """Return the two halves of a register."""

    # Abstract methods for memory.

    @abstractmethod
    def advance(self, view: MemrefAddress, pointer: str, expr: LinearExpression) -> str:
        """Emit a pointer that is `expr` elements after `pointer`."""

    @abstractmethod
    def allocate_local(self, result: SSAValue, kind: str, count: int, *, workgroup: bool) -> str:
        """Declare a local array of `count` elements and return its name.

        `workgroup` places the array in the local memory of the work-group.
        """

    @abstractmethod
    def in_bounds(self, index: LinearExpression, size: LinearExpression) -> str:
        """Return the condition 0 ≤ index < size: "1" if it always holds, "0" if it never does."""

    @abstractmethod
    def conjunction(self, a: str, b: str) -> str:
        """Return the conjunction of two conditions that are not constant."""

    @abstractmethod
    def read_register(
        self, access: TileAccess, type: Register, offset: int, row_in_bounds: str, first_lane: int, padding: str, hint: str
    ) -> str:
        """Emit the read of a register whose first element is `offset` elements into a tile, at lane `first_lane` of its row.

        `row_in_bounds` is the condition for reading any element of the row; elements outside the buffer are `padding`.
        """

    @abstractmethod
    def read_lanes(
        self, access: TileAccess, type: Register, offsets: Sequence[int], contiguous_range: tuple[int, int] | None, hint: str
    ) -> str:
        """Emit the read of a register with one buffer offset per lane.

        If `contiguous_range` (first element, element count) is given, it contains all lanes.
        """

    def read_transposed(self, access: TileAccess, result: SSAValue, padding: str) -> list[str] | None:
        """Return the registers of a tile with strided rows, if the language can load contiguously and transpose."""
        return None

    @abstractmethod
    def write_register(
        self, access: TileAccess, type: Register, value: str, offset: int, row_in_bounds: str, first_lane: int
    ) -> None:
        """Emit the write of a register; the parameters are those of `read_register`."""

    # Abstract methods for control flow.

    @abstractmethod
    def write_loop(self, loop: LoopRecord) -> None:
        """Emit a loop."""

    @abstractmethod
    def write_if(self, op: scf.IfOp, condition: str) -> None:
        """Emit a branch whose condition is not constant."""

    @abstractmethod
    def write_while(self, op: scf.WhileOp, condition: int, forwarded: Sequence[int]) -> None:
        """Emit a while loop, given the positions of its condition and of its body's arguments among the carried values."""
