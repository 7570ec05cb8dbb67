"""Eigenvalues of symmetric matrices, and singular value decomposition.

Iterations until convergence are loops over the maximum number of steps; steps after convergence do nothing.
"""

from __future__ import annotations

from dlc.passes.library_kernels.builder import Buffer, Cell, KernelBuilder
from dlc.passes.library_kernels.elimination import copy, exchange
from dlc.passes.library_kernels.reflections import reflect, reflection
from dlc.passes.library_kernels.values import Index, KernelValue, absolute, copysign, fma, maximum, select, sqrt

# Rows that share each load of a vector.
_ROWS_PER_TILE = 4
# Maximum QL steps per eigenvalue (on average less than two are needed), and Jacobi sweeps over all pairs (6 to 10 are needed).
_MAX_QL_STEPS = 60
_MAX_JACOBI_SWEEPS = 40


def rotate(builder: KernelBuilder, x: Buffer, i: Index, k: Index, size: int, cosine: KernelValue, sine: KernelValue) -> None:
    """Rotate rows i and k of x: c·x_i - s·x_k and s·x_i + c·x_k."""

    def rotate_vectors(j: Index, w: int) -> None:
        first, second = x.row(i, j, width=w), x.row(k, j, width=w)
        x.set_row(i, j, row=fma(cosine, first, -(second * sine)))
        x.set_row(k, j, row=fma(cosine, second, first * sine))

    builder.columns(0, size, rotate_vectors)


def _safe_scale(builder: KernelBuilder, x: Buffer, rows: int, size: int) -> tuple[KernelValue, KernelValue]:
    """Return a factor that scales a matrix so that squares neither overflow nor underflow, and its reciprocal."""
    largest = builder.cell(builder.number(0.0))
    with builder.loop(0, rows) as i:
        row_maximum = builder.largest(0, size, lambda j, w: absolute(x.row(i, j, width=w)))
        largest.value = select(row_maximum > largest.value, row_maximum, largest.value)
    maximum = largest.value
    one, threshold = builder.number(1.0), builder.smallest**0.25
    needs_scaling = ((maximum < threshold) | (maximum > 1 / threshold)) & (maximum > builder.smallest)
    return select(needs_scaling, 1.0 / maximum, one), select(needs_scaling, maximum, one)


def _scale_matrix(builder: KernelBuilder, x: Buffer, rows: int, size: int, factor: KernelValue) -> None:
    with builder.loop(0, rows) as i:
        builder.columns(0, size, lambda j, w: x.set_row(i, j, row=x.row(i, j, width=w) * factor))


def _sort(builder: KernelBuilder, values: Buffer, count: int, descending: bool, rows: list[tuple[Buffer, int]]) -> None:
    """Sort values, and reorder the rows of matrices in the same way; NaN stays at its index."""
    with builder.loop(0, count) as i:
        best, position = builder.cell(values[i]), builder.cell(i)
        with builder.loop(i + 1, count, name="k") as k:
            value = values[k]
            is_better = value > best.value if descending else value < best.value
            best.value = select(is_better, value, best.value)
            position.value = select(is_better, k, position.value)
        best_position = position.value
        with builder.when(best_position.differs(i)):
            values[i], values[best_position] = best.value, values[i]
            for x, width in rows:
                exchange(builder, x, i, best_position, width)


def _orient(builder: KernelBuilder, x: Buffer, count: int, size: int, other_matrices: list[tuple[Buffer, int]]) -> None:
    """Negate each row with Σ x_j / (j + 1) < 0, and the same rows of other matrices."""
    zero, one = builder.number(0.0), builder.number(1.0)
    with builder.loop(0, count) as i:
        total, position = builder.cell(zero), builder.cell(one)
        with builder.loop(0, size, name="j") as j:
            total.value += x[i, j] / position.value
            position.value += one
        with builder.when(total.value < 0.0):
            for rows, width in ((x, size), *other_matrices):
                builder.columns(0, width, lambda j, w, rows=rows: rows.set_row(i, j, row=-rows.row(i, j, width=w)))


def eigh(builder: KernelBuilder, x: Buffer, values: Buffer, vectors: Buffer, size: int, *, with_vectors: bool) -> None:
    """Compute the eigenvalues of a symmetric matrix, ascending, and its eigenvectors as rows.

    Householder reflections make the matrix tridiagonal, implicit QL steps (Francis) diagonal. Source: Wilkinson and
    Reinsch, Handbook for Automatic Computation II, contributions 2 and 4 (tred2, imtql2).
    """
    copy(builder, x, vectors, size, size)
    factor, inverse_scale = _safe_scale(builder, vectors, size, size)
    _scale_matrix(builder, vectors, size, size, factor)
    off_diagonal, scales = builder.scratch(size), builder.scratch(size)
    off_diagonal[size - 1] = builder.number(0.0)
    _tridiagonal(builder, vectors, values, off_diagonal, scales, size)
    if with_vectors:
        _accumulate_reflections(builder, vectors, scales, size)
    with builder.loop(0, size, name="l") as first:
        is_active = builder.cell(builder.number(1.0))
        with builder.loop(0, _MAX_QL_STEPS), builder.when(is_active.value > 0.0):
            end = _block_end(builder, values, off_diagonal, first, size)
            with builder.when(end.equals(first)):
                is_active.value = builder.number(0.0)
            with builder.when(end > first):
                _implicit_ql_step(builder, values, off_diagonal, vectors, first, end, size, with_vectors)
    with builder.loop(0, size) as i:
        values[i] = values[i] * inverse_scale
    _sort(builder, values, size, False, [(vectors, size)] if with_vectors else [])
    if with_vectors:
        _orient(builder, vectors, size, size, [])


def _tridiagonal(builder: KernelBuilder, a: Buffer, diagonal: Buffer, off_diagonal: Buffer, scales: Buffer, size: int) -> None:
    """Reduce a symmetric matrix to tridiagonal form; row k of a receives the reflection of the columns after k."""
    v, p, half = builder.scratch(size), builder.scratch(size), builder.number(0.5)
    with builder.loop(0, size) as i:
        v[i] = p[i] = builder.number(0.0)
    with builder.loop(0, size - 2, name="k") as k:
        first = k + 1
        scale, left = reflection(builder, a.subview_at(k), first, size, v)
        off_diagonal[k], scales[k] = left, scale
        p[k] = builder.number(0.0)

        def multiply_by_v(row_indices: list[Index]) -> None:
            products = builder.sums(
                first, size, len(row_indices), lambda j, w: [(v.row(j, width=w), a.row(i, j, width=w)) for i in row_indices]
            )
            for i, product in zip(row_indices, products, strict=True):
                p[i] = product * scale

        builder.groups(first, size, _ROWS_PER_TILE, multiply_by_v)
        (factor,) = builder.sums(first, size, 1, lambda j, w: [(p.row(j, width=w), v.row(j, width=w))])
        factor = -(factor * scale * half)
        builder.columns(first, size, lambda j, w: p.set_row(j, row=fma(factor, v.row(j, width=w), p.row(j, width=w))))

        def subtract(row_indices: list[Index]) -> None:
            factors = [(-v[i], -p[i]) for i in row_indices]

            def update(j: Index, w: int) -> None:
                row_v, row_p = v.row(j, width=w), p.row(j, width=w)
                for i, (p_factor, v_factor) in zip(row_indices, factors, strict=True):
                    a.set_row(i, j, row=fma(p_factor, row_p, fma(v_factor, row_v, a.row(i, j, width=w))))

            builder.columns(first, size, update)

        builder.groups(first, size, _ROWS_PER_TILE, subtract)
        with builder.loop(first, size, name="j") as j:
            a[k, j] = v[j]
    with builder.loop(0, size) as i:
        diagonal[i] = a[i, i]
    if size > 1:
        off_diagonal[size - 2] = a[size - 2, size - 1]


def _accumulate_reflections(builder: KernelBuilder, a: Buffer, scales: Buffer, size: int) -> None:
    """Replace the reflections in the rows of a by the transpose of their product, starting with the last one."""
    zero, one, v = builder.number(0.0), builder.number(1.0), builder.scratch(size)
    for i in range(max(0, size - 2), size):
        for j in range(max(0, size - 2), size):
            a[i, j] = one if i == j else zero
    with builder.loop(0, size - 2, name="t") as t:
        k = builder.index(size - 3) - t
        first = k + 1
        first_column = first.as_integer()
        builder.columns(
            first, size, lambda j, w: v.set_row(j, row=select(builder.iota(j, w) >= first_column, a.row(k, j, width=w), 0.0))
        )
        builder.groups(
            first, size, _ROWS_PER_TILE, lambda row_indices: reflect(builder, a, row_indices, v, scales[k], first, size)
        )
        with builder.loop(first, size) as i:
            a[i, k] = zero
            a[k, i] = zero
        a[k, k] = one


def _block_end(builder: KernelBuilder, diagonal: Buffer, off_diagonal: Buffer, first: KernelValue, size: int) -> KernelValue:
    """Return the first index, starting at `first`, whose off-diagonal element is negligible."""
    end, is_found = builder.cell(builder.index(size - 1)), builder.cell(builder.number(0.0))
    with builder.loop(first, size - 1) as i, builder.when(is_found.value.equals(0.0)):
        diagonal_magnitude = absolute(diagonal[i]) + absolute(diagonal[i + 1])
        with builder.when(absolute(off_diagonal[i]) <= diagonal_magnitude * builder.epsilon):
            end.value, is_found.value = i, builder.number(1.0)
    return end.value


def _implicit_ql_step(
    builder: KernelBuilder, d: Buffer, e: Buffer, z: Buffer, first: KernelValue, end: KernelValue, size: int, with_vectors: bool
) -> None:
    """Apply one implicit QL step to the block [first, end], which reduces its first off-diagonal element."""
    zero, one = builder.number(0.0), builder.number(1.0)
    g = (d[first + 1] - d[first]) / (e[first] * 2.0)
    root = sqrt(fma(g, g, one))
    shifted = d[end] - d[first] + e[first] / (g + copysign(root, g))
    g, s, c, p, is_active = (builder.cell(value) for value in (shifted, one, one, zero, one))
    with builder.loop(0, end - first, name="t") as t, builder.when(is_active.value > 0.0):
        i = end - t - 1
        f, b = s.value * e[i], c.value * e[i]
        larger = maximum(absolute(f), absolute(g.value))
        with builder.when(larger.equals(0.0)):
            # The tridiagonal matrix splits into two blocks at this row.
            e[i + 1] = zero
            d[i + 1] = d[i + 1] - p.value
            e[end] = zero
            is_active.value = zero
        with builder.when(larger.differs(0.0)):
            # Scale by the larger element: squares of tiny ones would underflow, and the rotation would not be orthogonal.
            side, other = f / larger, g.value / larger
            length = sqrt(fma(side, side, other * other))
            sine, cosine = side / length, other / length
            e[i + 1] = larger * length
            shifted_diagonal = d[i + 1] - p.value
            change = fma(d[i] - shifted_diagonal, sine, cosine * b * 2.0)
            p.value = sine * change
            d[i + 1] = shifted_diagonal + p.value
            g.value = fma(cosine, change, -b)
            s.value, c.value = sine, cosine
            if with_vectors:
                rotate(builder, z, i, i + 1, size, cosine, sine)
    with builder.when(is_active.value > 0.0):
        d[first] = d[first] - p.value
        e[first] = g.value
        e[end] = zero


def svd(builder: KernelBuilder, x: Buffer, values: Buffer, rows: Buffer, rotations: Buffer, count: int, size: int) -> None:
    """Compute the SVD of x [count, size] by one-sided Jacobi rotations of its rows.

    Returns the lengths of the orthogonalized rows (singular values, descending), the rotated rows, and the rotations.
    All pairs of rows are rotated repeatedly, until none changes. Source: Demmel and Veselić, Jacobi's method is more
    accurate than QR (1992), and Golub and Van Loan, Matrix Computations, 8.6.3.
    """
    copy(builder, x, rows, count, size)
    zero, one = builder.number(0.0), builder.number(1.0)
    with builder.loop(0, count) as i:
        with builder.loop(0, count, name="j") as j:
            rotations[i, j] = zero
        rotations[i, i] = one
    factor, inverse_scale = _safe_scale(builder, rows, count, size)
    _scale_matrix(builder, rows, count, size, factor)
    is_active = builder.cell(one)
    with builder.loop(0, _MAX_JACOBI_SWEEPS), builder.when(is_active.value > 0.0):
        is_active.value = zero
        _square_norms(builder, rows, values, count, size)
        with (
            builder.loop(0, count - 1, name="p") as p,
            builder.loop(p + 1, count, _ROWS_PER_TILE, name="q") as q,
            builder.when(_needs_rotation(builder, rows, values, p, q, count, size)),
            builder.loop(q, builder.minimum_index(q + _ROWS_PER_TILE, count), name="k") as k,
        ):
            _orthogonalize_rows(builder, rows, rotations, values, p, k, count, size, is_active)
    _square_norms(builder, rows, values, count, size)
    with builder.loop(0, count) as i:
        values[i] = sqrt(values[i]) * inverse_scale
    _scale_matrix(builder, rows, count, size, inverse_scale)
    _sort(builder, values, count, True, [(rows, size), (rotations, count)])
    _orient(builder, rotations, count, count, [(rows, size)])


def _square_norms(builder: KernelBuilder, rows: Buffer, squares: Buffer, count: int, size: int) -> None:
    with builder.loop(0, count) as i:
        (squares[i],) = builder.sums(0, size, 1, lambda j, w: [(rows.row(i, j, width=w), rows.row(i, j, width=w))])


def _is_above_rounding(builder: KernelBuilder, product: KernelValue, a: KernelValue, b: KernelValue, size: int) -> KernelValue:
    """Return whether a product of two rows with squared norms a and b exceeds the rounding error."""
    limit = sqrt(a) * sqrt(b) * (builder.epsilon * size**0.5)
    return (absolute(product) > limit) & (absolute(product) > builder.smallest)


def _needs_rotation(
    builder: KernelBuilder, x: Buffer, squares: Buffer, p: KernelValue, q: KernelValue, count: int, size: int
) -> KernelValue:
    """Return whether row p is not orthogonal to one of the rows of a tile that starts at q, which is rare."""
    row_indices = [q, *(builder.minimum_index(q + r, count - 1) for r in range(1, _ROWS_PER_TILE))]
    products = builder.sums(
        0, size, _ROWS_PER_TILE, lambda j, w: [(x.row(p, j, width=w), x.row(k, j, width=w)) for k in row_indices]
    )
    is_needed, *conditions = (
        _is_above_rounding(builder, product, squares[p], squares[k], size)
        for k, product in zip(row_indices, products, strict=True)
    )
    for condition in conditions:
        is_needed = is_needed | condition
    return is_needed


def _orthogonalize_rows(
    builder: KernelBuilder,
    x: Buffer,
    rotations: Buffer,
    squares: Buffer,
    p: KernelValue,
    q: KernelValue,
    count: int,
    size: int,
    is_active: Cell,
) -> None:
    """Rotate two rows to be orthogonal, unless they already are, up to rounding."""
    (product,) = builder.sums(0, size, 1, lambda j, w: [(x.row(p, j, width=w), x.row(q, j, width=w))])
    a, b = squares[p], squares[q]
    with builder.when(_is_above_rounding(builder, product, a, b, size)):
        ratio = (b - a) / (product * 2.0)
        tangent = copysign(1.0 / (absolute(ratio) + sqrt(fma(ratio, ratio, builder.number(1.0)))), ratio)
        cosine = 1.0 / sqrt(fma(tangent, tangent, builder.number(1.0)))
        sine = cosine * tangent
        squares[p], squares[q] = a - tangent * product, b + tangent * product
        rotate(builder, x, p, q, size, cosine, sine)
        rotate(builder, rotations, p, q, count, cosine, sine)
        is_active.value = builder.number(1.0)
