"""Factors of matrices: one task for some of the problems along the leading axes, or for a part of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, flag, number, shape_of
from dlc.dialects.dl.interfaces import Procedure
from dlc.dims import Size, UndecidableError, product, row_major
from dlc.passes.procedures.code import Buffer, Code
from dlc.passes.procedures.elimination import cholesky, lu, triangular_solve
from dlc.passes.procedures.reflections import ROWS as REFLECTED
from dlc.passes.procedures.reflections import householder, orthogonal
from dlc.passes.procedures.spectra import eigh, svd
from dlc.passes.procedures.values import Index, Value

# Writes the loops of an op, for `count` problems whose operands and results are along the first axis of buffers.
Rule: TypeAlias = "Callable[[Code, Any, Size, Sequence[Buffer]], None]"


def along_problems(rule: Rule) -> Callable[..., None]:
    """A rule for buffers whose leading axes are those of the op's operands."""

    def write(code: Code, op: Procedure, *buffers: Buffer) -> None:
        leading = shape_of(op.operands[0])[:-2]
        count = product(leading)
        problems: list[Buffer] = []
        for value, buffer in zip((*op.operands, *op.results), buffers, strict=True):
            shape = (count, *(shape_of(value)[len(leading) :] or (1,)))
            problems.append(Buffer(code, code.place.reinterpret(buffer.memref, 0, shape, row_major(shape))))
        rule(code, op, count, problems)

    return write


def _sizes(op: DlOp, *sizes: Size) -> list[int]:
    """Sizes of matrices as numbers."""
    if not all(isinstance(s, int) for s in sizes):
        raise UndecidableError(f"{op.name}: matrices of {' × '.join(map(str, sizes))}; their sizes must be known")
    return [int(s) for s in sizes]


def _lu(code: Code, op: dl.LuOp, count: Size, buffers: Sequence[Buffer]) -> None:
    (n,) = _sizes(op, shape_of(op.x)[-1])
    with code.grid(count, n**3 // 3) as one:
        lu(code, *(b.part(one) for b in buffers), size=n)


def _triangular_solve(code: Code, op: dl.TriangularSolveOp, count: Size, buffers: Sequence[Buffer]) -> None:
    """Each task has some columns: they have nothing to do with each other."""
    n, columns = _sizes(op, *shape_of(op.b)[-2:])
    whole, left = divmod(columns, code.lanes)

    def solve(one: Value, column: Index, width: int) -> None:
        a, b, x = (buffer.part(one) for buffer in buffers)
        triangular_solve(code, a, b, x, n, column, width, lower=flag(op.lower), unit=flag(op.unit))

    if whole:
        with code.grid(product((count, whole)), n * n // 2 * code.lanes) as part:
            solve(part // whole, part % whole * code.lanes, code.lanes)
    if left:
        with code.grid(count, n * n // 2 * left) as one:
            solve(one, whole * code.lanes, left)


def _cholesky(code: Code, op: dl.CholeskyOp, count: Size, buffers: Sequence[Buffer]) -> None:
    (n,) = _sizes(op, shape_of(op.x)[-1])
    with code.grid(count, n**3 // 6) as one:
        cholesky(code, *(b.part(one) for b in buffers), size=n)


def _householder(code: Code, op: dl.HouseholderOp, count: Size, buffers: Sequence[Buffer]) -> None:
    n, m = _sizes(op, *shape_of(op.x)[-2:])
    with code.grid(count, 2 * n * m * min(n, m)) as one:
        householder(code, *(b.part(one) for b in buffers), rows=n, size=m)


def _orthogonal(code: Code, op: dl.OrthogonalOp, count: Size, buffers: Sequence[Buffer]) -> None:
    """Each task has some columns of Q: they have nothing to do with each other."""
    k, m = _sizes(op, *shape_of(op.vectors)[-2:])
    whole, left = divmod(int(number(op.count)), REFLECTED)

    def columns(one: Value, first: Index, height: int) -> None:
        vectors, scales, result = (b.part(one) for b in buffers)
        orthogonal(code, vectors, scales, result, k, m, first, height)

    if whole:
        with code.grid(product((count, whole)), 2 * k * m * REFLECTED) as part:
            columns(part // whole, part % whole * REFLECTED, REFLECTED)
    if left:
        with code.grid(count, 2 * k * m * left) as one:
            columns(one, whole * REFLECTED, left)


def _eigh(code: Code, op: dl.EighOp, count: Size, buffers: Sequence[Buffer]) -> None:
    (n,) = _sizes(op, shape_of(op.x)[-1])
    with code.grid(count, 4 * n**3) as one:
        eigh(code, *(b.part(one) for b in buffers), size=n, with_vectors=flag(op.vectors))


def _svd(code: Code, op: dl.SvdOp, count: Size, buffers: Sequence[Buffer]) -> None:
    n, m = _sizes(op, *shape_of(op.x)[-2:])
    with code.grid(count, 20 * n * n * m) as one:
        svd(code, *(b.part(one) for b in buffers), count=n, size=m)


RULES: dict[type[Procedure], Rule] = {
    dl.LuOp: _lu,
    dl.TriangularSolveOp: _triangular_solve,
    dl.CholeskyOp: _cholesky,
    dl.HouseholderOp: _householder,
    dl.OrthogonalOp: _orthogonal,
    dl.EighOp: _eigh,
    dl.SvdOp: _svd,
}
