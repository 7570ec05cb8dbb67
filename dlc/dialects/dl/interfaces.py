"""The interfaces of `dl` ops, which describe their structure to passes.

A pass tests `isinstance(op, Elementwise)` and never names an op, so that a new op is fused, tiled and lowered without changes.
Scalar bodies are built with `arith` and `math` on the *storage* types of the kernels: integers are signless there, and the op
knows the signedness of its operands from their `dl` types.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dlc.dialects.dl.base import Array, DlOp, is_storage_only, rank_of, shape_of, sizes
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
from dlc.runtime.python_ops.registry import OpSetting, run_python_op
from dlc.shapes.dims import Dim, Size, UndecidableError


class Body:
    """Appends scalar ops to the block of a structured op and returns their results."""

    def __init__(self, block: Block, location: LocationAttr | None = None) -> None:
        self.block = block
        self.location = location

    def __call__(self, op: Operation) -> SSAValue:
        """Append `op` and return its only result."""
        if self.location is not None:
            op.location = self.location
        self.block.add_op(op)
        return op.results[0]

    def checked_index(self, integer_index: SSAValue, size: Size) -> SSAValue | None:
        """Return an integer as an `index` within an axis of `size`, if an earlier check computed it; else None."""
        return None

    def size(self, size: Dim) -> SSAValue:
        """Return a symbolic size as an `index`; raises UndecidableError unless the size is a kernel argument."""
        raise UndecidableError(f"the size {size} is symbolic, and the kernel does not take it as an argument")


def storage_type(element_type: Attribute) -> Attribute:
    """Return the element type inside kernels: signless integers for signed and unsigned ones, `i8` for storage-only types."""
    if is_storage_only(element_type):
        return i8
    match element_type:
        case IntegerType(signedness=s, width=w) if s.data != Signedness.SIGNLESS:
            return IntegerType(int(w.data))
        case _:
            return element_type


def is_unsigned(element_type: Attribute) -> bool:
    """Return whether a `dl` element type is an unsigned integer; bool counts as one, with the values 0 and 1."""
    match element_type:
        case IntegerType(signedness=s, width=w):
            return bool(s.data == Signedness.UNSIGNED or w.data == 1)
        case _:
            return False


class Elementwise(DlOp, ABC):
    """Each result element depends on the operand elements at the same index, after broadcasting."""

    def broadcast(self) -> Sequence[tuple[Sequence[Size], Sequence[Size]]]:
        return [(shape_of(v), shape_of(self.results[0])) for v in self.operands]

    @abstractmethod
    def scalar(self, body: Body, *elements: SSAValue) -> SSAValue:
        """Emit the scalar code of one result element from one element of each operand."""


class Reduction(DlOp, ABC):
    """A reduction of one operand along axes: `result = combine(x over axes)`, starting from `identity`."""

    @property
    @abstractmethod
    def reduction_axes(self) -> tuple[int, ...]:
        """The reduced axes of the operand, counted from the front, ascending."""

    @property
    @abstractmethod
    def keeps_reduced_axes(self) -> bool:
        """Return whether the result keeps reduced axes with size 1."""

    @abstractmethod
    def identity(self) -> int | float:
        """Return the initial value of the accumulator."""

    @abstractmethod
    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        """Emit the next accumulator."""


@dataclass(frozen=True)
class Structure:
    """An iteration space over an op's operands and result, as in `linalg.generic`.

    Attributes:
        maps: The indexing maps: one per operand, one per entry of `repeated_operands`, then the result's.
        extents: The sizes of the iterators.
        reductions: Whether each iterator is a reduction.
        views: The shapes of operands and result under these maps: their own shapes or row-major reshapes of them. For
            example, a grouped convolution views its channels as groups × channels per group.
        repeated_operands: The indices of operands that one iteration reads again at further positions.
    """

    maps: tuple[AffineMap, ...]
    extents: tuple[Size, ...]
    reductions: tuple[bool, ...]
    views: tuple[tuple[Size, ...], ...]
    repeated_operands: tuple[int, ...] = ()


class Contraction(DlOp, ABC):
    """A sum of products over an iteration space with affine accesses: matmul, convolution.

    Operands: data, weights, then further parameters of the weights.
    """

    @property
    def dequantizes_weights(self) -> bool:
        """Return whether an iteration dequantizes its weights first, once for all rows of a register tile."""
        return False

    @property
    def has_step_accumulators(self) -> bool:
        """Return whether an iteration sums its products in separate registers, which are then added to the accumulators."""
        return False

    @property
    def constant_matrix(self) -> DenseIntOrFPElementsAttr | None:
        """The constant values of the second operand, for which specialized code is generated; None if they are not constant."""
        return None

    @property
    def packed_dot_name(self) -> StringAttr | None:
        """The name of the packed dot product (`PACKED_DOTS`) if the operands are packed dot-product operands; else None."""
        return None

    @abstractmethod
    def structure(self) -> Structure:
        """Return the iteration space: parallel iterators in result order first, then reduction iterators."""

    @abstractmethod
    def accumulate(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        """Emit `total` plus the product of one element of each operand, in the structure's order."""


class Window(DlOp, ABC):
    """A reduction over sliding windows of one operand (pooling); padding is a separate `dl.pad`."""

    @abstractmethod
    def structure(self) -> Structure:
        """Return the iteration space; the reduction iterators are the window's."""

    @abstractmethod
    def identity(self) -> int | float:
        """Return the initial value of the accumulator."""

    @abstractmethod
    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        """Emit the next accumulator."""


class DataMovement(DlOp, ABC):
    """A data-movement op: each result element is one element of the only operand, at an affine index.

    Examples are transpose, broadcast, slice and flip.
    """

    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True

    @abstractmethod
    def source_map(self) -> AffineMap:
        """Return the affine map from a result index to an operand index."""


class GatherLike(DlOp, ABC):
    """A body computes each result element from its index; the body reads operands at computed indices."""

    @abstractmethod
    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        """Emit the result element at `indices` (one `index` value per result axis).

        `sources` are the operands as tensors, read with `tensor.extract`; data-dependent indices are clamped or checked as the
        op defines.
        """


class ScatterLike(DlOp, ABC):
    """Writes rows of the result sequentially at data-dependent indices. Operands: x, indices, updates.

    Update `[i…, s…]` is combined with element `[row(indices[i…]), s…]` of the result, which starts as `x`.
    """

    @abstractmethod
    def row(self, body: Body, index: SSAValue) -> tuple[SSAValue, SSAValue | None]:
        """Emit the row that an index refers to, clamped to the result, and whether it is in bounds; None if it always is."""

    @abstractmethod
    def combine(self, body: Body, element: SSAValue, update: SSAValue) -> SSAValue:
        """Emit the next element of the result."""


class LibraryKernel(DlOp, ABC):
    """An op that is implemented by hand-written loops, because each iteration depends on the results of earlier ones.

    It is a separate kernel: nothing is fused into it, it reads its operands from memory and stores all results. The loops
    are in `dlc/library_kernels`. The leading axes that all operands have are batch axes.
    """

    @property
    def num_batch_axes(self) -> int:
        """The number of batch axes of an op on matrices, which are the last two axes of the first operand."""
        return rank_of(self.operands[0]) - 2

    @property
    def size_constraints(self) -> Sequence[Size]:
        """The sizes that the constraints of the op require not to be negative; its loops rely on them."""
        return ()


class RowwiseKernel(LibraryKernel, ABC):
    """A library kernel on independent rows (sorting, scans): the first axis is a batch of any size."""


class Composite(DlOp, ABC):
    """An op that is defined by simpler ops; it is not decomposed where a single kernel is faster."""

    @abstractmethod
    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """Return the same results computed by simpler ops, created by a `dlc.dialects.dl.build.DlBuilder` at this op."""


class StagedComposite(Composite, ABC):
    """A composite that becomes one kernel of several stages, whose intermediate results stay in the cache.

    Elementwise ops may follow in its kernel, as they do after a contraction.
    """


class RowComposite(Composite, ABC):
    """A composite whose decomposition treats each row along `row_axes` independently: softmax, layer norm.

    The decomposition consists of reductions over exactly `row_axes` (axes kept) and elementwise ops, so that all of it can
    become one kernel with one pass over rows.
    """

    @property
    @abstractmethod
    def row_axes(self) -> tuple[int, ...]:
        """The axes that a row spans, counted from the front."""


class DataDependent(DlOp, ABC):
    """An op whose results have data-dependent sizes, are strings, or are computed by a user function or by other ranks.

    Kernels compute the ops whose result size a kernel can count (`data_dependent/selection.py`); Python computes the
    others while the program waits. Types name a data-dependent size by a symbol, which is in the property `size`. The function
    of the same name in `runtime/python_ops/registry.py` defines the op.
    """

    @property
    def function_name(self) -> str:
        """The name of the defining function."""
        return self.name.removeprefix("dl.")

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        """The keyword arguments of the function."""
        return {}

    @property
    def data_dependent_sizes(self) -> tuple[Size, ...]:
        """The data-dependent sizes: symbols or static sizes."""
        size = self.properties.get("size")
        return () if size is None else sizes(size)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        try:
            return run_python_op(self.function_name, operands, self.settings)
        except DlcError as error:
            raise type(error)(f"{self.name} at {self.location}: {error}") from error


def broadcast_map(operand: SSAValue | Attribute, result: SSAValue | Attribute) -> AffineMap:
    """Return the indexing map of an operand of an elementwise op: trailing axes aligned, broadcast axes at index 0."""
    sizes, shape = shape_of(operand), shape_of(result)
    lead = len(shape) - len(sizes)
    indices = (
        AffineExpr.constant(0) if size == 1 != shape[lead + axis] else AffineExpr.dimension(lead + axis)
        for axis, size in enumerate(sizes)
    )
    return AffineMap(len(shape), 0, tuple(indices))
