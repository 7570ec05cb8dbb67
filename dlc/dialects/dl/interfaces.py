"""The structure of `dl` ops, as interfaces that passes speak to.

A pass asks `isinstance(op, Elementwise)`, never for an op by name, so that a new op is fused, tiled and lowered untouched.
Scalar bodies are built with `arith` and `math` on the *storage* types of the kernels: signless integers, where the op
knows its operands' signedness from the `dl` types it carries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dlc.dialects.dl.base import Array, DlOp, is_narrow, shape_of, sizes
from dlc.dims import Dim, Size, UndecidableError
from dlc.errors import DlcError
from dlc.ir import (
    AffineExpr,
    AffineMap,
    Attribute,
    Block,
    DenseIntOrFPElementsAttr,
    IntegerType,
    LocationAttr,
    Operation,
    Signedness,
    SSAValue,
    StringAttr,
    i8,
)
from dlc.runtime.python_ops.selection import Setting, select


class Body:
    """Appends scalar ops to the block of a structured op and hands back their results."""

    def __init__(self, block: Block, location: LocationAttr | None = None) -> None:
        self.block = block
        self.location = location

    def __call__(self, op: Operation) -> SSAValue:
        """Appends `op` and returns its only result."""
        if self.location is not None:
            op.location = self.location
        self.block.add_op(op)
        return op.results[0]

    def size(self, size: Dim) -> SSAValue:
        """A size that comes with a call, as an `index`; raises UndecidableError where there is no kernel that is given it."""
        raise UndecidableError(f"the size {size} is not known")


def storage_type(element_type: Attribute) -> Attribute:
    """The element type inside kernels: `ui8`, `si8` and narrow numbers become `i8`, everything else is itself."""
    if is_narrow(element_type):
        return i8
    match element_type:
        case IntegerType(signedness=s, width=w) if s.data != Signedness.SIGNLESS:
            return IntegerType(int(w.data))
        case _:
            return element_type


def is_unsigned(element_type: Attribute) -> bool:
    """Whether a `dl` element type is an unsigned integer (bool counts as one: its values are 0 and 1)."""
    match element_type:
        case IntegerType(signedness=s, width=w):
            return bool(s.data == Signedness.UNSIGNED or w.data == 1)
        case _:
            return False


class Elementwise(DlOp, ABC):
    """Each result element depends on the operands' elements at the same, broadcast, place."""

    def broadcast(self) -> Sequence[tuple[Sequence[Size], Sequence[Size]]]:
        return [(shape_of(v), shape_of(self.results[0])) for v in self.operands]

    @abstractmethod
    def scalar(self, body: Body, *elements: SSAValue) -> SSAValue:
        """One result element from one element of each operand."""


class Reduction(DlOp, ABC):
    """One operand, combined along axes: `result = combine over axes of element(x)`, then `finish`."""

    @property
    @abstractmethod
    def reduction_axes(self) -> tuple[int, ...]:
        """The reduced axes of the operand, counted from the front, ascending."""

    @property
    @abstractmethod
    def keeps_axes(self) -> bool:
        """Whether reduced axes stay in the result with size 1."""

    @abstractmethod
    def identity(self) -> int | float:
        """The value that the accumulator starts with."""

    @abstractmethod
    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        """The next accumulator."""


@dataclass(frozen=True)
class Structure:
    """An iteration space over an op's operands and result, as in `linalg.generic`.

    `maps`: one per operand, one for each entry of `again`, then the result's. `extents`: the iterators' sizes. `reductions`:
    which iterators are reduced. `views`: the shapes that operands and result have under these maps: their own, or a row-major
    reshape of it (a grouped convolution sees its channels as groups × channels of a group). `again`: the positions of operands
    that one step reads at further places.
    """

    maps: tuple[AffineMap, ...]
    extents: tuple[Size, ...]
    reductions: tuple[bool, ...]
    views: tuple[tuple[Size, ...], ...]
    again: tuple[int, ...] = ()


class Contraction(DlOp, ABC):
    """Sum of products over an iteration space of affine accesses: matmul, convolution.

    Operands: data, weights, and what else belongs to the weights.
    """

    @property
    def expands_weights(self) -> bool:
        """Whether a step makes factors of its weights first, which all rows of a register tile share."""
        return False

    @property
    def sums_in_steps(self) -> bool:
        """Whether a step adds products up by themselves, in registers beside those of the result."""
        return False

    @property
    def known_factor(self) -> DenseIntOrFPElementsAttr | None:
        """The numbers of its second operand, where they are known: code is made for them."""
        return None

    @property
    def word_product(self) -> StringAttr | None:
        """What the product of its factors is called, where these are words of narrow numbers."""
        return None

    @abstractmethod
    def structure(self) -> Structure:
        """The iteration space; parallel iterators in result order first, then the reduced ones."""

    @abstractmethod
    def added(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        """The sum after a step, which adds the product of an element of each operand, in the structure's order."""


class Window(DlOp, ABC):
    """A reduction over sliding windows of one operand (pooling); padding is a `dl.pad` before it."""

    @abstractmethod
    def structure(self) -> Structure:
        """The iteration space; the reduced iterators are the window's."""

    @abstractmethod
    def identity(self) -> int | float:
        """The value that the accumulator starts with."""

    @abstractmethod
    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        """The next accumulator."""


class Movement(DlOp, ABC):
    """Each result element is one element of the only operand, at an affine place: transpose, broadcast, slice, flip."""

    TAKES_NARROW: ClassVar[bool] = True

    @abstractmethod
    def source_map(self) -> AffineMap:
        """Result index → operand index."""


class Gathering(DlOp, ABC):
    """Each result element is computed by a body from its own index, reading operands at computed places."""

    @abstractmethod
    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        """The result element at `indices` (one `index` value per result axis).

        `sources` are the operands as tensors, read with `tensor.extract`; places that come from data are clamped or
        checked as the op defines.
        """


class Scattering(DlOp, ABC):
    """Rows of a result, written one after the other at places that come from data. Operands: x, indices, updates.

    Update `[i…, s…]` is combined with element `[row(indices[i…]), s…]` of the result, which starts as `x`.
    """

    @abstractmethod
    def row(self, body: Body, index: SSAValue) -> tuple[SSAValue, SSAValue | None]:
        """The row that an index names, as a place inside of the result, and whether it is one: None if it always is."""

    @abstractmethod
    def combine(self, body: Body, element: SSAValue, update: SSAValue) -> SSAValue:
        """The next element of the result."""


class Procedure(DlOp, ABC):
    """Results that loops make, written by hand, in which a step goes on with what the steps before it have left.

    It is a kernel by itself: nothing is fused to it, its operands are whole tensors and all its results are stored. The loops
    stand in `dlc/passes/procedures`; leading axes that all operands have are many problems.
    """


class Sequential(Procedure, ABC):
    """A procedure along rows, an order or running sums: there may be any number of rows along the first axis."""


class Composite(DlOp, ABC):
    """An op that is defined by simpler ones; kept whole where one kernel for all of it is better."""

    @abstractmethod
    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """The same results from simpler ops; `dlc.dialects.dl.build.Build` at this op makes them."""


class Staged(Composite, ABC):
    """A composite that is one kernel of several stages: what its decomposition computes first, a cache keeps for the rest.

    Elementwise ops may follow in its kernel, as they do after a contraction.
    """


class RowComposite(Composite, ABC):
    """A composite whose decomposition treats each row along `row_axes` by itself: softmax, layer norm.

    Its decomposition consists of reductions over exactly `row_axes` (axes kept) and elementwise ops, so that all of it can
    be one kernel with one pass over rows.
    """

    @property
    @abstractmethod
    def row_axes(self) -> tuple[int, ...]:
        """The axes that a row spans, counted from the front."""


class DataDependent(DlOp, ABC):
    """Results of which data decides the sizes, or that are text.

    Where kernels can count what there is (`data_dependent/selection.py`), they do; the others Python computes, while the
    program waits. Types name such a size by a symbol of its own, in the property `size`. What is called like the op in
    `runtime/python_ops/selection.py` computes it, and is its definition.
    """

    @property
    def selection(self) -> str:
        """What it is called there."""
        return self.name.removeprefix("dl.")

    @property
    def settings(self) -> Mapping[str, Setting]:
        """What it takes besides its operands."""
        return {}

    @property
    def decided(self) -> tuple[Size, ...]:
        """The sizes that data decides: symbols, or what is known to come."""
        size = self.properties.get("size")
        return () if size is None else sizes(size)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        try:
            return select(self.selection, operands, self.settings)
        except DlcError as error:
            raise type(error)(f"{self.name} at {self.location}: {error}") from error


def broadcast_map(operand: SSAValue | Attribute, result: SSAValue | Attribute) -> AffineMap:
    """How an elementwise op reads an operand for its result: trailing axes aligned, repeated axes at 0."""
    sizes, shape = shape_of(operand), shape_of(result)
    lead = len(shape) - len(sizes)
    places = (
        AffineExpr.constant(0) if size == 1 != shape[lead + axis] else AffineExpr.dimension(lead + axis)
        for axis, size in enumerate(sizes)
    )
    return AffineMap(len(shape), 0, tuple(places))
