"""Build loops on buffers: Python's `with` and subscripts insert `scf`, `memref` and `vector` ops.

    with builder.loop(0, n) as i:                      scf.for %i = 0 to n {
        total.value += x[i] * y[i]              →        … memref.load; arith.mulf; arith.addf; memref.store … }

A `Cell` is a mutable variable, which later passes promote to a register. `kernel_values.py` has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from dlc.dialects.sizes import sizes_of
from dlc.ir import AffineExpr, AffineMap, Attribute, SSAValue, arith, memref
from dlc.passes.kernel_values import Index, KernelValue, ValueBuilder, element_of, shape_of_vector, ssa
from dlc.passes.types import memref_of
from dlc.shapes.dims import Size, row_major


class KernelBuilder(ValueBuilder):
    """Insert ops at the end of the innermost open block."""

    # Control flow

    @contextmanager
    def loop(self, low: Index, high: Index, step: Index = 1, name: str = "i") -> Generator[KernelValue]:
        """`for i in range(low, high, step)`."""
        outer = self.op_builder
        loop_op = outer.loop(ssa(low), ssa(high), ssa(step), name=name)
        self.op_builder = outer.at_block_end(loop_op.body.block)
        yield KernelValue(self, loop_op.body.block.args[0])
        self.op_builder.yield_()
        self.op_builder = outer

    @contextmanager
    def when(self, condition: KernelValue) -> Generator[None]:
        """`if condition`."""
        outer = self.op_builder
        self.op_builder = outer.branch(condition.ssa)
        yield
        self.op_builder = outer

    # Values

    def index(self, value: Index) -> KernelValue:
        return value if isinstance(value, KernelValue) else KernelValue(self, self.op_builder.value(value))

    def size(self, size: Size) -> Index:
        """Return a static or symbolic size as an index."""
        value = self.op_builder.compute_size(size)
        return value if isinstance(value, int) else KernelValue(self, value)

    def minimum_index(self, a: Index, b: Index) -> KernelValue:
        """Return the smaller of two indices."""
        return self.op(arith.MinUIOp(self.index(a).ssa, self.index(b).ssa))

    # Memory

    def cell(self, value: KernelValue) -> Cell:
        """Return a new mutable variable with an initial value."""
        cell = self.uninitialized_cell(value.type, signed=value.signed)
        cell.value = value
        return cell

    def uninitialized_cell(self, type: Attribute, *, signed: bool = True) -> Cell:
        memory = self.op_builder.alloca(element_of(type), shape_of_vector(type) or (1,))
        return Cell(Buffer(self, memory, signed), bool(shape_of_vector(type)))

    def scratch(self, *shape: int, element: Attribute) -> Buffer:
        """Allocate an uninitialized private buffer."""
        return Buffer(self, self.op_builder.alloca(element, shape))


@dataclass(frozen=True, eq=False)
class Buffer:
    """A memref: `x[i, j]` is an element; `block` loads a vector; `signed` is the signedness of integers."""

    builder: KernelBuilder
    memref: SSAValue
    signed: bool = True

    def __getitem__(self, indices: Index | tuple[Index, ...]) -> KernelValue:
        load_op = memref.LoadOp.create(
            operands=[self.memref, *self._indices(indices)], result_types=[memref_of(self.memref).element_type]
        )
        return self.builder.op(load_op, signed=self.signed)

    def __setitem__(self, indices: Index | tuple[Index, ...], value: KernelValue) -> None:
        self.builder.op_builder.insert(memref.StoreOp.create(operands=[value.ssa, self.memref, *self._indices(indices)]))

    def block(
        self,
        start: Sequence[Index],
        shape: tuple[int, ...],
        axes: tuple[int, ...],
        padding: KernelValue | None = None,
        masked_dims: Sequence[int] = (),
    ) -> KernelValue:
        """Load an n-D vector along `axes`, starting at `start`; elements outside along `masked_dims` are `padding`."""
        read = self.builder.op_builder.transfer_read(
            self.memref,
            [ssa(i) for i in start],
            shape,
            _axes_map(len(start), axes),
            None if padding is None else padding.ssa,
            masked_dims,
        )
        return KernelValue(self.builder, read, self.signed)

    def set_block(
        self, start: Sequence[Index], axes: tuple[int, ...], block: KernelValue, masked_dims: Sequence[int] = ()
    ) -> None:
        """Store an n-D vector along `axes`, starting at `start`; elements outside along `masked_dims` are not stored."""
        indices, map_ = [ssa(i) for i in start], _axes_map(len(start), axes)
        self.builder.op_builder.transfer_write(block.ssa, self.memref, indices, map_, masked_dims)

    def vector(self) -> KernelValue:
        """Load all elements of a buffer of static shape."""
        shape = memref_of(self.memref).get_shape()
        return self.block((0,) * len(shape), shape, tuple(range(len(shape))))

    def set_vector(self, value: KernelValue) -> None:
        """Store all elements of a buffer of static shape."""
        rank = len(memref_of(self.memref).get_shape())
        self.set_block((0,) * rank, tuple(range(rank)), value)

    def with_shape(self, shape: tuple[Size, ...]) -> Buffer:
        """Return the elements of a contiguous buffer in another shape."""
        if shape == sizes_of(self.memref):
            return self
        return Buffer(self.builder, self.builder.op_builder.reinterpret(self.memref, 0, shape, row_major(shape)), self.signed)

    def _indices(self, indices: Index | tuple[Index, ...]) -> Sequence[SSAValue]:
        return [self.builder.index(i).ssa for i in (indices if isinstance(indices, tuple) else (indices,))]


@lru_cache(maxsize=64)
def _axes_map(rank: int, axes: tuple[int, ...]) -> AffineMap:
    return AffineMap(rank, 0, tuple(AffineExpr.dimension(axis) for axis in axes))


class Cell:
    """A mutable variable, which later passes promote to a register."""

    def __init__(self, buffer: Buffer, is_vector: bool) -> None:
        self.buffer = buffer
        self.is_vector = is_vector

    @property
    def value(self) -> KernelValue:
        return self.buffer.vector() if self.is_vector else self.buffer[0]

    @value.setter
    def value(self, value: KernelValue) -> None:
        if self.is_vector:
            self.buffer.set_vector(value)
        else:
            self.buffer[0] = value
