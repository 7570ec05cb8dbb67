"""Eigenvalues of symmetric matrices, and singular values.

An iteration that ends when it has converged is a loop of as many steps as it may take, whose later ones do nothing.
"""

from __future__ import annotations

from dlc.passes.procedures.code import Buffer, Cell, Code
from dlc.passes.procedures.elimination import copy, exchange
from dlc.passes.procedures.reflections import reflect, reflection
from dlc.passes.procedures.values import Index, Value, absolute, fma, maximum, select, sqrt, with_sign_of

# Rows that are treated at once.
_ROWS = 4
# Steps for an eigenvalue, of which it takes less than two in the mean; sweeps over all pairs, of which it takes 6 to 10.
_MOST_STEPS = 60
_MOST_SWEEPS = 40


def rotate(code: Code, x: Buffer, i: Index, k: Index, size: int, cosine: Value, sine: Value) -> None:
    """Rows i and k of x become c·x_i - s·x_k and s·x_i + c·x_k."""

    def both(j: Index, w: int) -> None:
        first, second = x.row(i, j, width=w), x.row(k, j, width=w)
        x.set_row(i, j, row=fma(cosine, first, -(second * sine)))
        x.set_row(k, j, row=fma(cosine, second, first * sine))

    code.columns(0, size, both)


def _scale(code: Code, x: Buffer, rows: int, size: int) -> tuple[Value, Value]:
    """A factor for the elements of a matrix under which squares neither overflow nor vanish, and its reciprocal."""
    largest = code.cell(code.number(0.0))
    with code.loop(0, rows) as i:
        found = code.largest(0, size, lambda j, w: absolute(x.row(i, j, width=w)))
        largest.value = select(found > largest.value, found, largest.value)
    known = largest.value
    one, far = code.number(1.0), code.smallest**0.25
    needed = ((known < far) | (known > 1 / far)) & (known > code.smallest)
    return select(needed, 1.0 / known, one), select(needed, known, one)


def _multiply(code: Code, x: Buffer, rows: int, size: int, factor: Value) -> None:
    with code.loop(0, rows) as i:
        code.columns(0, size, lambda j, w: x.set_row(i, j, row=x.row(i, j, width=w) * factor))


def _sort(code: Code, values: Buffer, count: int, descending: bool, rows: list[tuple[Buffer, int]]) -> None:
    """Values in order, and rows of matrices with them; NaN stays where it is."""
    with code.loop(0, count) as i:
        best, place = code.cell(values[i]), code.cell(i)
        with code.loop(i + 1, count, name="k") as k:
            found = values[k]
            better = found > best.value if descending else found < best.value
            best.value = select(better, found, best.value)
            place.value = select(better, k, place.value)
        chosen = place.value
        with code.when(chosen.differs(i)):
            values[i], values[chosen] = best.value, values[i]
            for x, width in rows:
                exchange(code, x, i, chosen, width)


def _orient(code: Code, x: Buffer, count: int, size: int, others: list[tuple[Buffer, int]]) -> None:
    """Of two opposite vectors, that of which Σ x_j / (j + 1) is not negative, and rows of other matrices with it."""
    zero, one = code.number(0.0), code.number(1.0)
    with code.loop(0, count) as i:
        total, place = code.cell(zero), code.cell(one)
        with code.loop(0, size, name="j") as j:
            total.value += x[i, j] / place.value
            place.value += one
        with code.when(total.value < 0.0):
            for rows, width in ((x, size), *others):
                code.columns(0, width, lambda j, w, rows=rows: rows.set_row(i, j, row=-rows.row(i, j, width=w)))


def eigh(code: Code, x: Buffer, values: Buffer, vectors: Buffer, size: int, *, with_vectors: bool) -> None:
    """The eigenvalues of a symmetric matrix, ascending, and its eigenvectors as rows.

    Reflections from both sides leave three diagonals, rotations after Francis one. Source: Wilkinson and Reinsch, Handbook
    for Automatic Computation II, contributions 2 and 4 (tred2, imtql2).
    """
    copy(code, x, vectors, size, size)
    factor, back = _scale(code, vectors, size, size)
    _multiply(code, vectors, size, size, factor)
    beside, scales = code.scratch(size), code.scratch(size)
    beside[size - 1] = code.number(0.0)
    _tridiagonal(code, vectors, values, beside, scales, size)
    if with_vectors:
        _collect(code, vectors, scales, size)
    with code.loop(0, size, name="l") as first:
        going = code.cell(code.number(1.0))
        with code.loop(0, _MOST_STEPS), code.when(going.value > 0.0):
            end = _end(code, values, beside, first, size)
            with code.when(end.equals(first)):
                going.value = code.number(0.0)
            with code.when(end > first):
                _step(code, values, beside, vectors, first, end, size, with_vectors)
    with code.loop(0, size) as i:
        values[i] = values[i] * back
    _sort(code, values, size, False, [(vectors, size)] if with_vectors else [])
    if with_vectors:
        _orient(code, vectors, size, size, [])


def _tridiagonal(code: Code, a: Buffer, diagonal: Buffer, beside: Buffer, scales: Buffer, size: int) -> None:
    """A symmetric matrix with zeros but on three diagonals, by reflections of columns k + 1 and up; they stay in row k of a."""
    v, p, half = code.scratch(size), code.scratch(size), code.number(0.5)
    with code.loop(0, size) as i:
        v[i] = p[i] = code.number(0.0)
    with code.loop(0, size - 2, name="k") as k:
        first = k + 1
        scale, left = reflection(code, a.part(k), first, size, v)
        beside[k], scales[k] = left, scale
        p[k] = code.number(0.0)

        def times_v(lines: list[Index]) -> None:
            products = code.sums(
                first, size, len(lines), lambda j, w: [(v.row(j, width=w), a.row(i, j, width=w)) for i in lines]
            )
            for i, product in zip(lines, products, strict=True):
                p[i] = product * scale

        code.groups(first, size, _ROWS, times_v)
        (share,) = code.sums(first, size, 1, lambda j, w: [(p.row(j, width=w), v.row(j, width=w))])
        share = -(share * scale * half)
        code.columns(first, size, lambda j, w: p.set_row(j, row=fma(share, v.row(j, width=w), p.row(j, width=w))))

        def subtract(lines: list[Index]) -> None:
            factors = [(-v[i], -p[i]) for i in lines]

            def change(j: Index, w: int) -> None:
                row_v, row_p = v.row(j, width=w), p.row(j, width=w)
                for i, (of_p, of_v) in zip(lines, factors, strict=True):
                    a.set_row(i, j, row=fma(of_p, row_p, fma(of_v, row_v, a.row(i, j, width=w))))

            code.columns(first, size, change)

        code.groups(first, size, _ROWS, subtract)
        with code.loop(first, size, name="j") as j:
            a[k, j] = v[j]
    with code.loop(0, size) as i:
        diagonal[i] = a[i, i]
    if size > 1:
        beside[size - 2] = a[size - 2, size - 1]


def _collect(code: Code, a: Buffer, scales: Buffer, size: int) -> None:
    """The transpose of the product of the reflections in the rows of a, in their place: from the last one on."""
    zero, one, v = code.number(0.0), code.number(1.0), code.scratch(size)
    for i in range(max(0, size - 2), size):
        for j in range(max(0, size - 2), size):
            a[i, j] = one if i == j else zero
    with code.loop(0, size - 2, name="t") as t:
        k = code.index(size - 3) - t
        first = k + 1
        here = first.as_integer()
        code.columns(first, size, lambda j, w: v.set_row(j, row=select(code.numbered(j, w) >= here, a.row(k, j, width=w), 0.0)))
        code.groups(first, size, _ROWS, lambda lines: reflect(code, a, lines, v, scales[k], first, size))
        with code.loop(first, size) as i:
            a[i, k] = zero
            a[k, i] = zero
        a[k, k] = one


def _end(code: Code, diagonal: Buffer, beside: Buffer, first: Value, size: int) -> Value:
    """The first place from `first` on beside which there is nothing but rounding."""
    end, found = code.cell(code.index(size - 1)), code.cell(code.number(0.0))
    with code.loop(first, size - 1) as i, code.when(found.value.equals(0.0)):
        size_here = absolute(diagonal[i]) + absolute(diagonal[i + 1])
        with code.when(absolute(beside[i]) <= size_here * code.epsilon):
            end.value, found.value = i, code.number(1.0)
    return end.value


def _step(code: Code, d: Buffer, e: Buffer, z: Buffer, first: Value, end: Value, size: int, with_vectors: bool) -> None:
    """Rotations from `end` up to `first` that make the last element beside the diagonal smaller."""
    zero, one = code.number(0.0), code.number(1.0)
    g = (d[first + 1] - d[first]) / (e[first] * 2.0)
    root = sqrt(fma(g, g, one))
    shifted = d[end] - d[first] + e[first] / (g + with_sign_of(root, g))
    g, s, c, p, going = (code.cell(value) for value in (shifted, one, one, zero, one))
    with code.loop(0, end - first, name="t") as t, code.when(going.value > 0.0):
        i = end - t - 1
        f, b = s.value * e[i], c.value * e[i]
        larger = maximum(absolute(f), absolute(g.value))
        with code.when(larger.equals(0.0)):
            # The matrix falls apart here.
            e[i + 1] = zero
            d[i + 1] = d[i + 1] - p.value
            e[end] = zero
            going.value = zero
        with code.when(larger.differs(0.0)):
            # Squares of small numbers would lose what makes the rotation one.
            side, other = f / larger, g.value / larger
            length = sqrt(fma(side, side, other * other))
            sine, cosine = side / length, other / length
            e[i + 1] = larger * length
            moved = d[i + 1] - p.value
            change = fma(d[i] - moved, sine, cosine * b * 2.0)
            p.value = sine * change
            d[i + 1] = moved + p.value
            g.value = fma(cosine, change, -b)
            s.value, c.value = sine, cosine
            if with_vectors:
                rotate(code, z, i, i + 1, size, cosine, sine)
    with code.when(going.value > 0.0):
        d[first] = d[first] - p.value
        e[first] = g.value
        e[end] = zero


def svd(code: Code, x: Buffer, values: Buffer, rows: Buffer, rotations: Buffer, count: int, size: int) -> None:
    """Rotations of the rows of x [count, size] that leave them orthogonal, their lengths, descending, and what is left.

    Each pair of rows is rotated until none changes. Source: Demmel and Veselić, Jacobi's method is more accurate than QR
    (1992), and Golub and Van Loan, Matrix Computations, 8.6.3.
    """
    copy(code, x, rows, count, size)
    zero, one = code.number(0.0), code.number(1.0)
    with code.loop(0, count) as i:
        with code.loop(0, count, name="j") as j:
            rotations[i, j] = zero
        rotations[i, i] = one
    factor, back = _scale(code, rows, count, size)
    _multiply(code, rows, count, size, factor)
    going = code.cell(one)
    with code.loop(0, _MOST_SWEEPS), code.when(going.value > 0.0):
        going.value = zero
        _measure(code, rows, values, count, size)
        with (
            code.loop(0, count - 1, name="p") as p,
            code.loop(p + 1, count, _ROWS, name="q") as q,
            code.when(_is_needed(code, rows, values, p, q, count, size)),
            code.loop(q, code.least(q + _ROWS, count), name="k") as k,
        ):
            _separate(code, rows, rotations, values, p, k, count, size, going)
    _measure(code, rows, values, count, size)
    with code.loop(0, count) as i:
        values[i] = sqrt(values[i]) * back
    _multiply(code, rows, count, size, back)
    _sort(code, values, count, True, [(rows, size), (rotations, count)])
    _orient(code, rotations, count, count, [(rows, size)])


def _measure(code: Code, rows: Buffer, squares: Buffer, count: int, size: int) -> None:
    with code.loop(0, count) as i:
        (squares[i],) = code.sums(0, size, 1, lambda j, w: [(rows.row(i, j, width=w), rows.row(i, j, width=w))])


def _exceeds(code: Code, product: Value, a: Value, b: Value, size: int) -> Value:
    """Whether a product of rows whose squares are a and b is more than rounding."""
    limit = sqrt(a) * sqrt(b) * (code.epsilon * size**0.5)
    return (absolute(product) > limit) & (absolute(product) > code.smallest)


def _is_needed(code: Code, x: Buffer, squares: Buffer, p: Value, q: Value, count: int, size: int) -> Value:
    """Whether row p is not orthogonal to one of a few rows from q on: mostly they all are."""
    lines = [q, *(code.least(q + r, count - 1) for r in range(1, _ROWS))]
    products = code.sums(0, size, _ROWS, lambda j, w: [(x.row(p, j, width=w), x.row(k, j, width=w)) for k in lines])
    first, *others = (_exceeds(code, product, squares[p], squares[k], size) for k, product in zip(lines, products, strict=True))
    for other in others:
        first = first | other
    return first


def _separate(
    code: Code, x: Buffer, rotations: Buffer, squares: Buffer, p: Value, q: Value, count: int, size: int, going: Cell
) -> None:
    """Rotates two rows so that they are orthogonal, if they are not within rounding."""
    (product,) = code.sums(0, size, 1, lambda j, w: [(x.row(p, j, width=w), x.row(q, j, width=w))])
    a, b = squares[p], squares[q]
    with code.when(_exceeds(code, product, a, b, size)):
        ratio = (b - a) / (product * 2.0)
        tangent = with_sign_of(1.0 / (absolute(ratio) + sqrt(fma(ratio, ratio, code.number(1.0)))), ratio)
        cosine = 1.0 / sqrt(fma(tangent, tangent, code.number(1.0)))
        sine = cosine * tangent
        squares[p], squares[q] = a - tangent * product, b + tangent * product
        rotate(code, x, p, q, size, cosine, sine)
        rotate(code, rotations, p, q, count, cosine, sine)
        going.value = code.number(1.0)
