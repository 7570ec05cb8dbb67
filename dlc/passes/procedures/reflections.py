"""Orthogonal factors by reflections H = 1 - t·v·vᵀ, which leave zeros where v begins with zeros.

Matrices are held by their columns, as rows of buffers, so that v·x and x - s·v go along memory. Rows are taken a few at a
time: reflections are read once for all of them. Source: Golub and Van Loan, Matrix Computations, 5.1 and 5.2.
"""

from __future__ import annotations

from dlc.passes.procedures.code import Buffer, Code
from dlc.passes.procedures.elimination import copy
from dlc.passes.procedures.values import Index, Value, absolute, fma, select, sqrt, with_sign_of

# Rows that are reflected at once.
ROWS = 4


def reflect(code: Code, x: Buffer, rows: list[Index], v: Buffer, scale: Value, first: Index, size: int) -> None:
    """x_i -= t·(v·x_i)·v for some rows; v, whose `scale` is t, is 0 before column `first`."""
    products = code.sums(first, size, len(rows), lambda j, w: [(v.row(j, width=w), x.row(i, j, width=w)) for i in rows])
    shares = [-(scale * product) for product in products]

    def subtract(j: Index, w: int) -> None:
        line = v.row(j, width=w)
        for i, share in zip(rows, shares, strict=True):
            x.set_row(i, j, row=fma(share, line, x.row(i, j, width=w)))

    code.columns(first, size, subtract)


def reflection(code: Code, x: Buffer, first: Index, size: int, v: Buffer) -> tuple[Value, Value]:
    """The reflection of a row that leaves it one element from `first` on: writes v, 1 there, and returns t and the element.

    Elements before `first` are not looked at; v is 0 there, from the start of their line of columns.
    """
    here = code.index(first).as_integer()

    def behind(j: Index, w: int) -> Value:
        return select(code.numbered(j, w) > here, x.row(j, width=w), 0.0)

    largest = code.largest(first, size, lambda j, w: absolute(select(code.numbered(j, w) >= here, x.row(j, width=w), 0.0)))
    # Squares of what is scaled to 1 neither overflow nor vanish.
    unit = select(largest > code.smallest, 1.0 / largest, code.number(1.0))
    alpha = x[first] * unit

    def squares(j: Index, w: int) -> list[tuple[Value, Value]]:
        scaled = behind(j, w) * unit
        return [(scaled, scaled)]

    (rest,) = code.sums(first, size, 1, squares)
    beta = -with_sign_of(sqrt(fma(alpha, alpha, rest)), alpha)
    # Nothing is left to reflect where the rest is 0 already.
    needed = rest.differs(0.0)
    divisor = select(needed, alpha - beta, code.number(1.0))
    code.columns(first, size, lambda j, w: v.set_row(j, row=behind(j, w) * unit / divisor))
    v[first] = code.number(1.0)
    scale = select(needed, (beta - alpha) / beta, code.number(0.0))
    return scale, select(needed, beta / unit, x[first])


def householder(code: Code, x: Buffer, triangle: Buffer, vectors: Buffer, scales: Buffer, rows: int, size: int) -> None:
    """A matrix by its columns, x [rows, size], as Q·R: R by its columns in `triangle`, and the reflections that make Q."""
    copy(code, x, triangle, rows, size)
    zero, count = code.number(0.0), min(rows, size)
    with code.loop(0, count) as i, code.loop(0, size, name="j") as j:
        vectors[i, j] = zero

    with code.loop(0, rows, ROWS) as first:
        end = code.least(first + ROWS, rows)
        earlier, own = code.least(first, count), code.least(end, count)

        def reflect_by_earlier(lines: list[Index]) -> None:
            with code.loop(0, earlier, name="k") as k:
                reflect(code, triangle, lines, vectors.part(k), scales[k], k, size)

        code.groups(first, end, ROWS, reflect_by_earlier)
        with code.loop(earlier, own, name="k") as k:
            scale, left = reflection(code, triangle.part(k), k, size, vectors.part(k))
            scales[k] = scale
            with code.loop(k + 1, end) as i:
                reflect(code, triangle, [i], vectors.part(k), scale, k, size)
            with code.loop(k + 1, size, name="j") as j:
                triangle[k, j] = zero
            triangle[k, k] = left


def orthogonal(
    code: Code, vectors: Buffer, scales: Buffer, result: Buffer, count: int, size: int, first: Index, height: int
) -> None:
    """Some columns of the Q that `count` reflections make, as rows of the result."""
    lines: list[Index] = [first + r for r in range(height)]
    zero = code.number(0.0)
    for i in lines:
        with code.loop(0, size, name="j") as j:
            result[i, j] = zero
        result[i, i] = code.number(1.0)
    # A reflection behind its row leaves column i as it is.
    last = code.least(code.index(first) + height, count)
    with code.loop(0, last, name="t") as t:
        k = last - t - 1
        reflect(code, result, lines, vectors.part(k), scales[k], k, size)
