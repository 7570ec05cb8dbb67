"""One visit from loops to text: names, scopes, and what each SSA value has become; languages derive from it.

What a visit is, is the same in every language: values become registers, indices linear forms, memrefs views; regions are
scopes. What is written for it is a language's own: the abstract methods below.

Note [Linear indices]
Values of type index are kept as linear forms over the names that are not (loop variables, loaded indices), and become
values of the language only where something needs them. An address is `base + constants·names + constant`: the names' part
is computed once, in the outermost scope that has all of them, and registers of one tile differ only by the constant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, cast

from dlc.dialects.sizes import size_arguments, symbol
from dlc.dims import Dim, Size
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.records import Access, Loop
from dlc.emission.visit.registers import Register, Registers, Stride, View, vector_shape
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import Attribute, Block, IndexType, Operation, OpResult, SSAValue, VectorType, func, scf
from dlc.target import Target

Handlers = Mapping[str, Callable[[Any, Operation], None]]


class Scope:
    """A region being written: its lines so far, the block it is in, and what it has computed already."""

    __slots__ = ("known", "label", "lines")

    def __init__(self, label: str = "") -> None:
        self.lines: list[Any] = []
        self.label = label
        self.known: dict[Hashable, str] = {}


class Visit(ABC):
    """Writes the body of one function of a kernel; `handlers` maps an op's name to the function that writes it."""

    language: str
    # Whether a pointer is computed for what only the innermost scope knows too, or written out there.
    points_to_all = True

    def __init__(self, kernel: func.FuncOp, target: Target, lanes: int, handlers: Handlers) -> None:
        self.block, self.kernel = kernel.body.block, kernel.sym_name.data
        self.target, self.lanes, self.handlers = target, lanes, handlers
        self.registers: dict[SSAValue, Registers] = {}
        self.linears: dict[SSAValue, Linear] = {}
        self.views: dict[SSAValue, View] = {}
        self.scopes = [Scope("entry")]
        self.local_bytes = 0
        # The kernel's arguments that are sizes, by what they are called in sizes of buffers.
        self.sizes = {symbol(k): a for k, a in enumerate(size_arguments(self.block))}
        # The IR keeps the types alive while it is visited, so their identity is a sound key, and a quick one.
        self._layouts: dict[int, tuple[Register, ...]] = {}

    # Ops

    def visit(self, op: Operation) -> None:
        handler = self.handlers.get(op.name)
        if handler is None:
            raise UnsupportedError(
                f"kernel @{self.kernel}: {op.name!r} cannot be written in {self.language}; expand it before the end of the "
                "loops stage, or add a handler in dlc/emission"
            )
        handler(self, op)

    def visit_block(self, block: Block) -> Sequence[SSAValue]:
        """Writes the ops of a block; the operands of its terminator."""
        last = block.last_op
        for op in block.ops:
            if op is last:
                return op.operands
            self.visit(op)
        return ()

    # Values

    def layout(self, type: Attribute) -> tuple[Register, ...]:
        """The registers of a value of this type; see Note [Registers of a vector]."""
        found = self._layouts.get(id(type))
        if found is None:
            found = self._layouts[id(type)] = self._layout(type)
        return found

    def _layout(self, type: Attribute) -> tuple[Register, ...]:
        if not isinstance(type, VectorType):
            return (Register(self.kind(type)),)
        vector = cast("VectorType[Attribute]", type)
        shape, kind = vector.get_shape(), self.kind(vector.element_type)
        return tuple(Register(kind, *piece) for piece in self.pieces(shape[-1] if shape else 1)) * prod(shape[:-1])

    def rows(self, type: Attribute) -> Iterable[tuple[int, ...]]:
        """The leading indices of each row of a value."""
        return product(*map(range, vector_shape(type)[:-1]))

    def regs(self, value: SSAValue) -> Registers:
        """The registers that hold a scalar or vector."""
        if (found := self.registers.get(value)) is None:
            if isinstance(value.type, IndexType):
                return (self.materialize(self.linear(value)),)
            self.shared(value)
            found = self.registers[value]
        return found

    def scalar(self, value: SSAValue) -> str:
        return self.regs(value)[0]

    def linear(self, value: SSAValue) -> Linear:
        """The linear form of a scalar of type index."""
        if (found := self.linears.get(value)) is None:
            self.shared(value)
            found = self.linears[value]
        return found

    def view(self, value: SSAValue) -> View:
        if (found := self.views.get(value)) is None:
            self.shared(value)
            found = self.views[value]
        return found

    def bind(self, value: SSAValue, registers: Sequence[str]) -> None:
        """Says that `value` lives in these registers."""
        if isinstance(value.type, IndexType):
            self.linears[value] = self.term(registers[0])
        else:
            self.registers[value] = tuple(registers)

    def term(self, name: str) -> Linear:
        """The linear form of a name defined in the current scope."""
        return Linear(0, ((len(self.scopes) - 1, name, 1),))

    def shared(self, value: SSAValue) -> None:
        """A value of the kernel's top level, written at the start of this function."""
        if not (isinstance(value, OpResult) and value.op.parent is self.block and not value.op.regions):
            raise CompileError(f"kernel @{self.kernel}: a value of type {value.type} is used where it is not defined")
        inner = self.scopes[1:]
        del self.scopes[1:]
        self.visit(value.op)
        self.scopes.extend(inner)

    # Sizes

    def size(self, size: Size) -> Linear:
        """The linear form of a size; products of sizes are computed once."""
        total = Linear(0)
        for monomial, coefficient in Dim.lift(size).terms.items():
            product = Linear(1)
            for atom in monomial:
                product = self.scaled(product, self.linear(self.sizes[cast(str, atom)]))
            total = total.plus(product, coefficient)
        return total

    def scaled(self, form: Linear, stride: Stride) -> Linear:
        """The linear form of `form` steps of `stride`: a name of its own where it is not linear."""
        by = stride if isinstance(stride, Linear) else Linear(stride)
        if (product := form.times(by)) is not None:
            return product
        a, b = sorted(map(self.materialize, (form, by)))
        depth = max(f.terms[-1][0] for f in (form, by))
        return Linear(0, ((depth, self.at_depth(depth, ("times", a, b), lambda: self.times(a, b)), 1),))

    # Addresses

    def address(self, view: View, form: Linear) -> tuple[str, Linear]:
        """A pointer to `view.base[form]` but for the part of the form that is returned; see Note [Linear indices]."""
        pointer, start, terms = view.base, 0, form.terms
        for i in range(1, len(terms) + 1):
            if i == len(terms) or terms[i][0] != terms[start][0]:
                depth = terms[start][0]
                if depth == len(self.scopes) - 1 and not self.points_to_all:
                    break
                group, source = terms[start:i], pointer
                pointer = self.at_depth(
                    depth, (view.base, terms[:i]), lambda g=group, p=source: self.advance(view, p, Linear(0, g))
                )
                start = i
        return pointer, Linear(form.constant, terms[start:])

    def at_depth(self, depth: int, key: Hashable, compute: Callable[[], str]) -> str:
        """What `compute` defines, once per scope, in the scope at `depth`."""
        known = self.scopes[depth].known
        if (name := known.get(key)) is None:
            inner = self.scopes[depth + 1 :]
            del self.scopes[depth + 1 :]
            name = known[key] = compute()
            self.scopes.extend(inner)
        return name

    def multiple(self, name: str, coefficient: int) -> int:
        """A number that `coefficient · name` is surely a multiple of."""
        return coefficient

    # What a language writes: values. A hint is what a name may be like, `hints` those of a value's registers.

    @abstractmethod
    def kind(self, element: Attribute) -> str:
        """The kind of an element type.

        Raises UnsupportedError for one that the language or the device lacks.
        """

    @abstractmethod
    def pieces(self, size: int) -> list[tuple[int, int]]:
        """(width, used) of each register of a row of `size` elements."""

    @abstractmethod
    def hints(self, value: SSAValue, default: str) -> Iterable[str]: ...

    @abstractmethod
    def materialize(self, form: Linear) -> str:
        """A value of 64 bits that is a linear form."""

    @abstractmethod
    def times(self, a: str, b: str) -> str:
        """The product of two values of 64 bits."""

    @abstractmethod
    def literal(self, kind: str, value: float) -> str:
        """One element."""

    @abstractmethod
    def splat_literal(self, t: Register, literal: str) -> str:
        """A literal in all lanes of a register."""

    @abstractmethod
    def table(self, t: Register, literals: list[str], hint: str) -> str:
        """A register of literals, one for each lane that is used."""

    @abstractmethod
    def splat(self, t: Register, scalar: str, hint: str) -> str:
        """A register with `scalar` in all lanes."""

    @abstractmethod
    def resize(self, t: Register, s: Register, value: str, hint: str, *, inline: bool = False) -> str:
        """A float as one of another width; `inline` if it has only one use."""

    @abstractmethod
    def combine(self, kind: str, t: Register, a: str, b: str, hint: str) -> str:
        """Two registers by the combiner `vector.kind<kind>`."""

    @abstractmethod
    def without_tail(self, kind: str, t: Register, value: str) -> str:
        """A register whose unused lanes do not matter to the combiner."""

    @abstractmethod
    def halves(self, t: Register, value: str, hint: str) -> Sequence[str]: ...

    # What a language writes: memory.

    @abstractmethod
    def advance(self, view: View, pointer: str, form: Linear) -> str:
        """A pointer as many elements further."""

    @abstractmethod
    def array(self, result: SSAValue, kind: str, count: int, *, workgroup: bool) -> str:
        """The name of a new local array, of the group's where `workgroup` says so."""

    @abstractmethod
    def inside(self, place: Linear, size: int) -> str:
        """Whether a place lies in 0 … size − 1: "1" if it surely does, "0" if it surely does not."""

    @abstractmethod
    def both(self, a: str, b: str) -> str:
        """Whether two conditions hold that are not known."""

    @abstractmethod
    def read_register(self, a: Access, t: Register, offset: int, row: str, start: int, padding: str, hint: str) -> str:
        """The register whose first element lies `offset` elements into a tile, at lane `start` of its row.

        `row` is the condition for all of the row to be read; what lies outside the buffer is `padding`.
        """

    @abstractmethod
    def read_lanes(self, a: Access, t: Register, offsets: Sequence[int], piece: tuple[int, int] | None, hint: str) -> str:
        """The register whose lanes are so many elements into a tile; all are in a piece of the buffer, its first element and
        how many there are, if one is given."""

    def read_turned(self, a: Access, result: SSAValue) -> list[str] | None:
        """The registers of a tile whose rows run across memory, if the language has a way to read it along memory."""
        return None

    @abstractmethod
    def write_register(self, a: Access, t: Register, value: str, offset: int, row: str, start: int) -> None: ...

    # What a language writes: control.

    @abstractmethod
    def write_loop(self, loop: Loop) -> None: ...

    @abstractmethod
    def write_if(self, op: scf.IfOp, condition: str) -> None: ...
