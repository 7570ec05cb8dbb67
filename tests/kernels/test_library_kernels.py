"""Library kernels of symbolic sizes: their bounds are proved for all sizes, and one program is correct for small and large sizes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, tensor_type
from dlc.ir import Block, f32, i1, i32, i64
from dlc.library_kernels.registry import LIBRARY_KERNELS
from dlc.shapes.dims import Dim, Size, UndecidableError
from tests.targets import TARGETS

A, B, M, N = map(Dim.symbol, "abmn")
_RADIX = {"ends": (0, 8, 16, 24, 32), "signed": True}
_BOXES = (f32, i1, i64, f32)
_TREES = (f32, i32, i32, i32, f32)


@pytest.mark.parametrize(
    ("op", "elements", "shapes", "properties"),
    [
        (dl.SmallestKOp, i32, [(A, N)], {"size": (M,)}),
        (dl.SmallestKOp, i32, [(A, 6)], {"size": (M,)}),
        (dl.SmallestKOp, i32, [(A, N)], {"size": (3,)}),
        (dl.SmallestKOp, i32, [(A, N * B)], {"size": (M // 2 + 1,)}),
        (dl.TrueIndicesOp, i1, [(A, N * B + 2)], {"size": (M,)}),
        (dl.RadixSortOp, i32, [(A, N * B + 3)], _RADIX),
        (dl.AccumulateOp, f32, [(A, N, B)], {"kind": "add", "exclusive": True, "reverse": True}),
        (dl.AccumulateOp, f32, [(A, N * B, 8)], {"kind": "add"}),
        (dl.AccumulateOp, f32, [(A, N // 2, 1)], {"kind": "mul"}),
        (dl.ArgExtremumOp, f32, [(A, N, 1)], {"smallest": True}),
        (dl.ArgExtremumOp, f32, [(A, N, B)], {"last": True}),
        (dl.ArgExtremumOp, f32, [(A, 50, B)], {"segments": 8}),
        (dl.ArgExtremumOp, f32, [(A, 50, 1)], {"segments": 8}),
        (dl.NetworkSortOp, f32, [(A, 7, 1)], {"descending": False}),
        (dl.NetworkSortOp, f32, [(A, 7, B)], {"descending": True}),
        (dl.BitonicSortOp, f32, [(A, 100)], {}),
        (dl.PartitionOp, f32, [(A, 100)], {"kth": 7}),
        (dl.PartitionOp, i64, [(A, 10_000)], {"kth": 5_000}),
        (dl.SuppressOverlapsOp, _BOXES, [(A, N, 4), (A, N), (A,), (A,)], {}),
        (dl.TreeEnsembleOp, _TREES, [(A, 5), (77, 4), (11,), (2,), (77, 3)], {"kind": "add"}),
        (dl.LuOp, f32, [(A, 20, 20)], {}),
        (dl.CholeskyOp, f32, [(A, B, 20, 20)], {}),
        (dl.SvdOp, f32, [(A, 4, 6)], {}),
        (dl.EighOp, f32, [(A, 9, 9)], {"vectors": True}),
        (dl.LuOp, f32, [(A, 2, N, N)], {"complex": True}),
        (dl.EighOp, f32, [(A, 2, N, N)], {"complex": True, "vectors": True}),
    ],
    ids=lambda p: p.name if isinstance(p, type) else "",
)
def test_bounds_are_proved(op: type[DlOp], elements: Any, shapes: list[tuple[Size, ...]], properties: dict[str, Any]) -> None:
    types = elements if isinstance(elements, tuple) else (elements,) * len(shapes)
    block = Block(arg_types=[tensor_type(shape, element) for shape, element in zip(shapes, types, strict=True)])
    LIBRARY_KERNELS[op](op.make(*block.args, **properties))


def test_bounds_without_proof_are_undecided() -> None:
    """Without a constraint, k may exceed the length of a row."""

    class Unconstrained(dl.SmallestKOp):
        size_constraints = ()

    (x,) = Block(arg_types=[tensor_type((A, N), i32)]).args
    with pytest.raises(UndecidableError, match="m - 1 <= n - 1"):
        LIBRARY_KERNELS[dl.SmallestKOp](Unconstrained.make(x, size=(M,)))


def _rows(n: int) -> np.ndarray:
    """Random values, ties, NaN, infinities, equal values, all NaN, descending values and zeros of both signs."""
    x = np.random.default_rng(n).normal(size=n).astype(np.float32)
    ties, i = np.round(x), np.arange(n)
    infinite = np.where(i % 2 == 0, np.inf, -ties)
    rows = (
        x,
        ties,
        np.where(i % 3, x, np.nan),
        infinite,
        0 * x,
        np.full(n, np.nan),
        np.sort(x)[::-1],
        np.where(i % 2, 0.0, -0.0),
    )
    return np.stack(rows).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
def test_products_underflow_only_if_results_do(target: str) -> None:
    """A block of 256 factors has the product 1e-40, of which f32 stores four digits."""
    x = np.ones((512, 1), np.float32)
    x[0], x[300], x[301] = 1e30, 1e-20, 1e-20
    compiled = dlc.jit(target=target)(lambda x: dnp.cumprod(x, axis=0))
    np.testing.assert_allclose(compiled(x), np.cumprod(x, axis=0, dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_sizes(target: str) -> None:
    """Sizes at the ends of vectors and blocks; keys are also the extreme integers."""

    def functions(x: Any, k: Any) -> tuple[Any, ...]:
        along_rows = [dnp.sort(x, axis=1), dnp.argsort(x, axis=1), dnp.argmax(x, axis=1), dnp.argmin(x, axis=1)]
        return (
            *along_rows,
            dnp.sort(x, axis=0),
            dnp.argmax(x, axis=0),
            dnp.cumsum(k, axis=1),
            dnp.cumprod(k, axis=0),
            dnp.sort(k),
        )

    def expected(x: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, ...]:
        along_rows = [np.sort(x, axis=1), np.argsort(x, axis=1, kind="stable"), np.argmax(x, axis=1), np.argmin(x, axis=1)]
        return (*along_rows, np.sort(x, axis=0), np.argmax(x, axis=0), np.cumsum(k, axis=1), np.cumprod(k, axis=0), np.sort(k))

    compiled = dlc.jit(target=target, dynamic={"x": {0: "a", 1: "n:1.."}, "k": {0: "a", 1: "n:1.."}})(functions)
    limits = np.iinfo(np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for n in (1, 2, 3, 7, 9) if target == "reference" else (1, 2, 3, 7, 8, 9, 255, 256, 257):
            x = _rows(n)
            k = np.resize(np.array([limits.max, limits.min, -1, 0, 5], np.int32), x.shape)
            for count in (8, 1):
                for got, wanted in zip(compiled(x[:count], k[:count]), expected(x[:count], k[:count]), strict=True):
                    np.testing.assert_array_equal(got, wanted)
    assert len(compiled._specializations.entries) == 1
