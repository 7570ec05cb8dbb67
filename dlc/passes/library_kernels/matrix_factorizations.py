"""Batched matrix factorizations: a task computes some matrices of the batch, or some columns of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, flag, number, shape_of
from dlc.dialects.dl.interfaces import LibraryKernel
from dlc.passes.library_kernels.builder import Buffer, KernelBuilder
from dlc.passes.library_kernels.eigenvalues import eigh, svd
from dlc.passes.library_kernels.elimination import cholesky, lu, triangular_solve
from dlc.passes.library_kernels.reflections import REFLECTED_ROWS as REFLECTED
from dlc.passes.library_kernels.reflections import householder, orthogonal
from dlc.passes.library_kernels.values import Index, KernelValue
from dlc.shapes.dims import Size, UndecidableError, product, row_major

# A function (builder, op, count, buffers) that generates the loops of an op, for a batch of `count` problems along the first
# axis of its buffers.
Rule: TypeAlias = "Callable[[KernelBuilder, Any, Size, Sequence[Buffer]], None]"


def batched(rule: Rule) -> Callable[..., None]:
    """Adapt a rule for one batch axis to buffers with all leading axes of the op's operands."""

    def generate(builder: KernelBuilder, op: LibraryKernel, *buffers: Buffer) -> None:
        leading = shape_of(op.operands[0])[:-2]
        count = product(leading)
        problems: list[Buffer] = []
        for value, buffer in zip((*op.operands, *op.results), buffers, strict=True):
            shape = (count, *(shape_of(value)[len(leading) :] or (1,)))
            problems.append(Buffer(builder, builder.op_builder.reinterpret(buffer.memref, 0, shape, row_major(shape))))
        rule(builder, op, count, problems)

    return generate


def _static_sizes(op: DlOp, *sizes: Size) -> list[int]:
    """Return matrix sizes as ints; raise UndecidableError for symbolic ones."""
    if not all(isinstance(s, int) for s in sizes):
        raise UndecidableError(f"{op.name}: matrix sizes must be static, got {' × '.join(map(str, sizes))}")
    return [int(s) for s in sizes]


def _lu(builder: KernelBuilder, op: dl.LuOp, count: Size, buffers: Sequence[Buffer]) -> None:
    (n,) = _static_sizes(op, shape_of(op.x)[-1])
    with builder.grid(count, n**3 // 3) as problem:
        lu(builder, *(b.subview_at(problem) for b in buffers), size=n)


def _triangular_solve(builder: KernelBuilder, op: dl.TriangularSolveOp, count: Size, buffers: Sequence[Buffer]) -> None:
    """Solve for some columns per task, since columns are independent."""
    n, columns = _static_sizes(op, *shape_of(op.b)[-2:])
    num_full_tiles, remainder = divmod(columns, builder.lanes)

    def solve(problem: KernelValue, column: Index, width: int) -> None:
        a, b, x = (buffer.subview_at(problem) for buffer in buffers)
        triangular_solve(builder, a, b, x, n, column, width, lower=flag(op.lower), unit=flag(op.unit))

    if num_full_tiles:
        with builder.grid(product((count, num_full_tiles)), n * n // 2 * builder.lanes) as task:
            solve(task // num_full_tiles, task % num_full_tiles * builder.lanes, builder.lanes)
    if remainder:
        with builder.grid(count, n * n // 2 * remainder) as problem:
            solve(problem, num_full_tiles * builder.lanes, remainder)


def _cholesky(builder: KernelBuilder, op: dl.CholeskyOp, count: Size, buffers: Sequence[Buffer]) -> None:
    (n,) = _static_sizes(op, shape_of(op.x)[-1])
    with builder.grid(count, n**3 // 6) as problem:
        cholesky(builder, *(b.subview_at(problem) for b in buffers), size=n)


def _householder(builder: KernelBuilder, op: dl.HouseholderOp, count: Size, buffers: Sequence[Buffer]) -> None:
    n, m = _static_sizes(op, *shape_of(op.x)[-2:])
    with builder.grid(count, 2 * n * m * min(n, m)) as problem:
        householder(builder, *(b.subview_at(problem) for b in buffers), rows=n, size=m)


def _orthogonal(builder: KernelBuilder, op: dl.OrthogonalOp, count: Size, buffers: Sequence[Buffer]) -> None:
    """Compute some columns of Q per task, since columns are independent."""
    k, m = _static_sizes(op, *shape_of(op.vectors)[-2:])
    num_full_tiles, remainder = divmod(int(number(op.count)), REFLECTED)

    def columns(problem: KernelValue, first: Index, height: int) -> None:
        vectors, scales, result = (b.subview_at(problem) for b in buffers)
        orthogonal(builder, vectors, scales, result, k, m, first, height)

    if num_full_tiles:
        with builder.grid(product((count, num_full_tiles)), 2 * k * m * REFLECTED) as task:
            columns(task // num_full_tiles, task % num_full_tiles * REFLECTED, REFLECTED)
    if remainder:
        with builder.grid(count, 2 * k * m * remainder) as problem:
            columns(problem, num_full_tiles * REFLECTED, remainder)


def _eigh(builder: KernelBuilder, op: dl.EighOp, count: Size, buffers: Sequence[Buffer]) -> None:
    (n,) = _static_sizes(op, shape_of(op.x)[-1])
    with builder.grid(count, 4 * n**3) as problem:
        eigh(builder, *(b.subview_at(problem) for b in buffers), size=n, with_vectors=flag(op.vectors))


def _svd(builder: KernelBuilder, op: dl.SvdOp, count: Size, buffers: Sequence[Buffer]) -> None:
    n, m = _static_sizes(op, *shape_of(op.x)[-2:])
    with builder.grid(count, 20 * n * n * m) as problem:
        svd(builder, *(b.subview_at(problem) for b in buffers), count=n, size=m)


RULES: dict[type[LibraryKernel], Rule] = {
    dl.LuOp: _lu,
    dl.TriangularSolveOp: _triangular_solve,
    dl.CholeskyOp: _cholesky,
    dl.HouseholderOp: _householder,
    dl.OrthogonalOp: _orthogonal,
    dl.EighOp: _eigh,
    dl.SvdOp: _svd,
}
