"""Samples of sorting, argsort and search, against Python's `sorted` and counts."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.testing.sample import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, Sample, values


def argsort(x: np.ndarray, axis: int, descending: bool, count: int | None) -> np.ndarray:
    def order(row: np.ndarray) -> list[int]:
        # NaN is the largest; sorted() keeps the order of equal keys.
        keys = [(bool(v != v), 0.0 if v != v else float(v)) for v in row]
        if descending:
            keys = [(not isnan, -v) for isnan, v in keys]
        return sorted(range(len(row)), key=lambda k: keys[k])[:count]

    return np.apply_along_axis(order, axis, x)


def _argsort(dtype: np.dtype, axis: int, descending: bool, count: int | None = None) -> Sample:
    x = values(dtype, 3, 9, 2, scale=1.0)
    if dtype.kind == "f":
        # Ties and NaN.
        x = np.round(x)
        x[0, 2:4] = np.nan
    properties = {"axis": axis, "descending": descending} | ({} if count is None else {"count": (count,)})
    label = f"axis{axis}" + "_descending" * descending + (f"_first{count}" if count else "")
    return Sample(dl.ArgsortOp, (x,), lambda x: argsort(x, axis, descending, count), properties, label=label)


def _long_argsort(dtype: np.dtype, descending: bool, count: int | None, *shape: int) -> Sample:
    """Rows that are longer than a network; ties, and NaN for floats."""
    x = np.round(values(dtype, *shape, scale=9.0).astype(np.float64)).astype(dtype)
    if dtype.kind == "f":
        x[:, 3:140:40] = np.nan
        x[:, 5:140:30] = -np.inf if descending else np.inf
    properties = {"axis": 1, "descending": descending} | ({} if count is None else {"count": (count,)})
    label = f"long{shape[1]}" + "_descending" * descending + (f"_first{count}" if count else "")
    return Sample(dl.ArgsortOp, (x,), lambda x: argsort(x, 1, descending, count), properties, label=label)


def _sort(dtype: np.dtype, axis: int, descending: bool, *shape: int) -> Sample:
    """Ties, and NaN and infinities for floats."""
    x = np.round(values(dtype, *shape, scale=9.0).astype(np.float64)).astype(dtype)
    if dtype.kind in "fV":
        x[0, 1:3], x[-1, :2], x[0, 0] = np.nan, -np.inf, np.inf

    def expected(x: np.ndarray) -> np.ndarray:
        return np.take_along_axis(x, argsort(x, axis, descending, None), axis)

    label = f"axis{axis}_of_{'x'.join(map(str, shape))}" + "_descending" * descending
    return Sample(dl.SortOp, (x,), expected, {"axis": axis, "descending": descending}, label=label)


def _sort_columns(dtype: np.dtype, *shape: int, descending: bool = False) -> Sample:
    """Floats with NaN, zeros of both signs and infinities."""
    x, label = values(dtype, *shape, scale=90.0), "x".join(map(str, shape)) + "_descending" * descending
    if dtype.kind == "f":
        x[0, :6, 0] = [0.0, -np.nan, np.inf, -0.0, -np.inf, np.nan]

    def in_order(column: np.ndarray) -> list[float]:
        return sorted(column, key=lambda v: (v != v, 0 if v != v else v, not np.signbit(v)), reverse=descending)

    def expected(x: np.ndarray) -> np.ndarray:
        return np.apply_along_axis(in_order, 1, x).astype(dtype)

    return Sample(dl.NetworkSortOp, (x,), expected, {"descending": descending}, label=label)


def _sort_rows(dtype: np.dtype, rows: int, n: int, descending: bool = False) -> Sample:
    """The columns of `_sort_columns` as rows, sorted by a network across lanes."""
    sample = _sort_columns(dtype, rows, n, 1, descending=descending)
    label = f"{rows}x{n}" + "_descending" * descending
    return Sample(
        dl.BitonicSortOp,
        (sample.operands[0][..., 0],),
        lambda x: sample.expected(x[..., None])[..., 0],
        sample.properties,
        label=label,
    )


def _partition(dtype: np.dtype, rows: int, n: int, kth: int, spread: float = 90.0) -> Sample:
    """Ties, and for floats NaN, zeros of both signs and infinities."""
    x = np.round(values(dtype, rows, n, scale=spread).astype(np.float64)).astype(dtype)
    if dtype.kind == "f":
        x[:, :7] = [0.0, -np.nan, np.inf, -0.0, -np.inf, np.nan, 0.0]

    def in_order(row: np.ndarray) -> list[float]:
        keys = [(True, 0, True) if v != v else (False, v, not np.signbit(v)) for v in row]
        pivot = sorted(keys)[kth]
        parts = (
            [v for v, key in zip(row, keys, strict=True) if is_in(key)] for is_in in (pivot.__gt__, pivot.__eq__, pivot.__lt__)
        )
        return [v for part in parts for v in part]

    def expected(x: np.ndarray) -> np.ndarray:
        return np.apply_along_axis(in_order, 1, x).astype(dtype)

    return Sample(dl.PartitionOp, (x,), expected, {"kth": kth}, label=f"{kth}_of_{n}")


def _smallest(dtype: np.dtype, rows: int, n: int, count: int) -> Sample:
    x = values(dtype, rows, n, scale=90.0)
    return Sample(dl.SmallestKOp, (x,), lambda x: np.sort(x, 1)[:, :count], {"size": (count,)}, label=f"{count}_of_{n}")


def _sort_digits(dtype: np.dtype, ends: tuple[int, ...], signed: bool, n: int = 37, first: int | None = None) -> Sample:
    """Random elements; with `first`, elements near that value, and the extreme values of the type."""
    x = values(dtype, 2, n, scale=90.0)
    if first is not None:
        x[0] += dtype.type(first)
        x[1, 2:4] = np.iinfo(dtype).min, np.iinfo(dtype).max

    def in_order(x: np.ndarray, high: int, signed: bool) -> np.ndarray:
        def number(v: int, least: int) -> int:
            bits = high - ends[0]
            if signed and ends[-1] == 8 * dtype.itemsize:
                return ((int(v) >> ends[0]) - (least >> ends[0])) % 2**bits
            unsigned = (int(v) >> ends[0]) % 2**bits
            return (unsigned + 2 ** (bits - 1)) % 2**bits if signed and high == ends[-1] else unsigned

        return np.array([sorted(r, key=lambda v: number(v, int(min(r)))) for r in x], dtype)

    def expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return in_order(x, ends[-1], signed), in_order(x, ends[-2], signed)

    label = f"bits{'to'.join(map(str, ends))}" + "_signed" * signed + f"_{n}" + ("" if first is None else f"_near_{first}")
    return Sample(dl.RadixSortOp, (x,), expected, {"ends": ends, "signed": signed}, label=label)


def _searched(op: type[DlOp], dtype: np.dtype, right: bool, size: int = 21) -> Sample:
    """Ties; for floats also zeros of both signs, infinities and NaN, whose position by `binary_search` is 0."""
    x, wanted = (values(dtype, 2, 3, n, seed=n, scale=4.0) for n in (size, 15))
    if dtype.kind in "fV":
        special = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, -np.nan], dtype)
        x[..., :6], wanted[..., -6:] = special, special
    x = np.take_along_axis(x, argsort(x, -1, False, None), -1)
    wanted[..., :3] = x[..., size // 2 : size // 2 + 3]

    def expected(x: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        def before(a: float, b: float) -> bool:
            return bool(a < b or (b != b and a == a) or (right and (a == b or (a != a and b != b))))

        counts = [sum(before(a, w) for a in x[place[:-1]]) for place, w in np.ndenumerate(wanted)]
        positions = np.array(counts).reshape(wanted.shape)
        return positions if op is dl.SearchsortedOp else np.where(wanted == wanted, positions, 0)

    return Sample(op, (x, wanted), expected, {"right": right}, label=f"{size}_" + ("right" if right else "left"))


SAMPLES = [
    *(_argsort(F32, 1, d, count) for d in (False, True) for count in (None, 3)),
    *(_argsort(d, 2, True) for d in (F16, I8, BOOL)),
    _argsort(I64, 0, False, 2),
    *(_long_argsort(F32, d, count, 2, 150) for d in (False, True) for count in (None, 5)),
    _long_argsort(I8, False, None, 1, 65),
    _long_argsort(U8, True, 70, 1, 300),
    _long_argsort(F16, False, None, 1, 129),
    _long_argsort(I64, False, None, 1, 90),
    _long_argsort(F32, True, None, 33, 12),
    _sort(F32, 1, False, 3, 150),
    _sort(F32, 1, True, 20, 13),
    _sort(F32, 0, False, 9, 20),
    _sort(F64, 1, False, 1, 40),
    *(_sort(d, 1, False, 2, 9) for d in (F16, BF16, BOOL)),
    _sort(I64, 1, True, 1, 40),
    _sort(U8, 1, True, 1, 200),
    _sort_columns(I32, 2, 7, 18),
    _sort_columns(I32, 19, 21, 1),
    _sort_columns(I8, 3, 5, 1),
    _sort_columns(I64, 11, 20, 1),
    *(_sort_columns(F32, *shape, descending=down) for shape in ((19, 33, 1), (2, 9, 21)) for down in (False, True)),
    _sort_columns(F64, 3, 12, 1, descending=True),
    _sort_columns(I8, 3, 12, 5, descending=True),
    _sort_columns(I64, 17, 1, 1),
    _sort_digits(I32, (0, 8), False),
    *(_sort_rows(d, 2, 70) for d in (F32, F64, I32, I64)),
    *(_sort_rows(F32, 1, n, descending=True) for n in (6, 33, 128, 300)),
    _sort_rows(I32, 2, 1),
    _sort_rows(I32, 3, 1000),
    *(_partition(d, 3, 37, 20) for d in (F32, F64, I32, I64)),
    *(_partition(I32, 2, n, kth) for n, kth in ((8, 0), (9, 8), (700, 3))),
    *(_partition(F32, 1, 9000, kth) for kth in (0, 3000, 8999)),
    _partition(I32, 1, 9000, 40, 1e8),
    *(_smallest(I64, 3, 37, count) for count in (1, 2, 6, 37)),
    _smallest(I8, 2, 9, 4),
    _sort_digits(I32, (0, 10, 21, 32), True),
    _sort_digits(I8, (0, 8), True),
    _sort_digits(I64, (60, 64), True),
    _sort_digits(I64, (3, 5, 9), False),
    _sort_digits(I64, (32, 43, 54, 64), True),
    _sort_digits(I32, (0, 10, 21, 32), True, 37, 1 << 30),
    _sort_digits(I32, (0, 10, 21, 32), True, 9, -3),
    # Long rows of few values, sorted by counting.
    _sort_digits(I32, (0, 10, 21, 32), True, 900, -3),
    _sort_digits(I8, (0, 8), True, 300),
    _sort_digits(np.dtype(np.int16), (0, 8, 16), True, 300, 5),
    _sort_digits(I64, (0, 8, 16, 24, 32, 40, 48, 56, 64), True, 900, 100),
    _sort_digits(I64, (0, 8, 16, 24, 32, 40, 48, 56, 64), True, 37, 100),
    *(_searched(op, F32, right) for op in (dl.SearchsortedOp, dl.BinarySearchOp) for right in (False, True)),
    *(_searched(op, I32, True) for op in (dl.SearchsortedOp, dl.BinarySearchOp)),
    *(_searched(op, U8, False) for op in (dl.SearchsortedOp, dl.BinarySearchOp)),
    *(_searched(dl.SearchsortedOp, d, True) for d in (F16, BF16, F64, I8, I64)),
    *(_searched(dl.SearchsortedOp, F32, right, 300) for right in (False, True)),
    _searched(dl.SearchsortedOp, U8, True, 300),
]
