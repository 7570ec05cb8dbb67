"""Errors in a traced function name the user's line and the repair."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import ArgumentError, DlcError, DTypeError, ShapeError, UnsupportedError
from dlc.shapes.dims import UndecidableError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def _loops(x: Any) -> Any:
    while x.sum() > 0:
        x = x - 1


def _grows(x: Any) -> Any:
    y = np.ones((3, 4), np.float32)
    y += x


def _fills(x: Any) -> Any:
    y = np.zeros(4, np.float32)
    y[0] = x[0, 0]


CASES: dict[str, tuple[Callable[[Any], Any], type[DlcError], str]] = {
    "no_list": (lambda x: dnp.stack(3), DTypeError, r"stack: got a int, expected a list of arrays; write stack\(\[x, y\]\)"),
    "no_shape": (lambda x: dnp.zeros("ab"), DTypeError, "zeros: size 'ab'; expected an integer"),
    "half_a_size": (lambda x: x.reshape((x.size / 2, 2)), DTypeError, "reshape: size 6.0; expected an integer"),
    "negative_size": (lambda x: dnp.ones((2, -1)), ShapeError, "ones: size -1; expected at least 0"),
    "large_size": (lambda x: dnp.broadcast_to(x[0, 0], 10**30), ShapeError, "broadcast_to: size 1000.*63 bits"),
    "keys_shape": (
        lambda x: dlc.random.normal(dlc.random.key(0), "ab"),
        DTypeError,
        r"dlc\.random\.normal: shape = 'ab'; expected an integer >= 0 or a list of integers >= 0",
    ),
    "no_branch": (lambda x: dlc.lax.cond(x[0, 0] > 0, 1, 2), DTypeError, "dlc.lax.cond: true_fun is a int; expected a func"),
    "one_branch": (
        lambda x: dlc.lax.switch(0, _loops),
        DTypeError,
        r"switch: branches is a function; expected a sequence: write \[_loops, …\]",
    ),
    "no_body": (lambda x: dlc.lax.fori_loop(0, 3, None, x), DTypeError, "body_fun is a NoneType; expected a function"),
    "no_step": (lambda x: dlc.lax.scan(3, 0.0, x), DTypeError, "dlc.lax.scan: f is a int; expected a function"),
    "while": (_loops, DTypeError, r"a condition \(if, while.*dlc\.numpy\.where.*static_argnames"),
    "and": (lambda x: x[0, 0] and x, DTypeError, "& | ~ for and, or, not"),
    "in": (lambda x: 3 in x, DTypeError, "a condition"),
    "range": (lambda x: range(x[0, 0].astype(int)), DTypeError, "range.*static_argnames"),
    "list": (lambda x: [1, 2][x[0, 0]], DTypeError, r"dlc\.numpy\.take"),
    "math": (lambda x: math.sin(x[0, 0]), DTypeError, r"float\(\).*in place of the one in math"),
    "format": (lambda x: f"{x[0, 0]:.2f}", DTypeError, "format the result"),
    "table": (lambda x: X[x[0].astype(int)], DTypeError, r"dlc\.numpy\.take\(table, i, axis=0\)"),
    "element": (_fills, DTypeError, "an element of a NumPy array"),
    "item": (lambda x: x[0, 0].item(), DTypeError, "rank 0"),
    "tolist": (lambda x: x.tolist(), DTypeError, "iterate"),
    "complex": (lambda x: complex(x[0, 0]), DTypeError, r"x \+ 0j is an array of complex numbers"),
    "two_counts": (
        lambda x: x[x > 0] + x[x < 0],
        ShapeError,
        r"dl\.add: sizes count0 and count1 do not match.*count0 is the result size of dl\.nonzero at test_errors",
    ),
    "count_and_known": (lambda x: x[x > 0] * X[0], ShapeError, r"dl\.mul: sizes 4 and count0 do not match"),
    "stacked_counts": (
        lambda x: dnp.stack([x[x > 0], x[x < 0]]),
        UndecidableError,
        r"count1 is the result size of dl\.nonzero",
    ),
    "len_of_count": (lambda x: len(x[x > 0]), UndecidableError, r"the size count0 is symbolic"),
    "slices_of_count": (lambda x: x[x > 0][:2] + x[x > 0][:3], ShapeError, r"sizes count1 and count2 do not match"),
    "update_slice_of_count": (
        lambda x: x[:, x[0] > 0].at[[0, 1], :2].set(1),
        UndecidableError,
        r"an update of the slice.*size count0.*arange",
    ),
    "changing_carry": (
        lambda x: dlc.lax.fori_loop(0, 3, lambda i, c: c[c > i], x[x > 0]),
        ShapeError,
        r"fori_loop: init_val is float32\[count0\], value from body_fun is float32\[count1\]",
    ),
    "counts_of_branches": (
        lambda x: dlc.lax.cond(x[0, 0] > 0, lambda: x[x > 0], lambda: x[x < 0]),
        ShapeError,
        r"cond: result of true_fun is float32\[count0\], result of false_fun is float32\[count1\]",
    ),
    "count_of_each_step": (
        lambda x: dlc.lax.map(lambda r: r[r > 0], x),
        ShapeError,
        r"an iteration returns an array of shape \(count",
    ),
    "count_of_each_lane": (
        dlc.vmap(lambda r: r[r > 0].sum()),
        UnsupportedError,
        r"dlc\.vmap: dl\.nonzero has data-dependent result sizes",
    ),
    "bool_index": (lambda x: x[True], UnsupportedError, "a bool of rank 0"),
    "float_index": (lambda x: x[np.array([1.0])], DTypeError, "an index of dtype float64"),
    "too_large": (lambda x: x.astype(np.int64) + 2**63, DTypeError, r"too large.*such as numpy\.uint64\(9223372036854775808\)"),
    "outside": (lambda x: x[np.array([0, 3])], ShapeError, "indices from 0 to 3 are out of bounds for axis 0"),
    "mask_shape": (
        lambda x: x[np.ones((2, 4), bool)],
        ShapeError,
        r"a mask of shape \(2, 4\) for the axes of shape \(3, 4\) from axis 0",
    ),
    "ellipses": (lambda x: x[..., 0, ...], ShapeError, "more than one Ellipsis"),
    "step": (lambda x: x[:: x.argmax()], UnsupportedError, "a slice with step .*a static integer"),
    "update_slice": (lambda x: x.at[[0, 1], : x.argmax()].set(1), UnsupportedError, "an update of a slice with traced bounds"),
    "size": (lambda x: x.reshape(x.argmax(), -1), UnsupportedError, "a size is a traced value"),
    "arange": (
        lambda x: dnp.arange(x[0]),
        ShapeError,
        r"arange: start, stop and step of shapes \(\), \(4,\) and \(\); expected scalars",
    ),
    "bincount": (lambda x: dnp.bincount(x), ShapeError, r"bincount: .*\(3, 4\).* expected a vector of integers"),
    "update": (
        lambda x: x.at[0].set(np.ones(3)),
        ShapeError,
        r"a value of shape \(3,\) does not broadcast to the selected shape \(4,\)",
    ),
    "update_mask": (lambda x: x.at[x[0] > 0].set(1), ShapeError, "a mask of shape"),
    "in_place": (_grows, UnsupportedError, r"assign the result.*not x \+= y"),
    "axis": (lambda x: x.sum(2), ShapeError, r"sum: axis 2 of an array of shape \(3, 4\)"),
    "axes": (lambda x: x.sum((0, -2)), ShapeError, "repeats an axis"),
    "empty": (lambda x: x[:0].max(0), ShapeError, "no elements along axis 0.*pass initial"),
    "subtract": (lambda x: (x > 0) - (x > 1), DTypeError, "logical_xor"),
    "shift": (lambda x: x << 1, DTypeError, "shift_left of float32"),
    "where": (lambda x: dnp.where(x > 0, x), ArgumentError, "pass both, or neither"),
    "len": (lambda x: len(x[0, 0]), ShapeError, "rank 0"),
    "unpacked": (lambda x: list(x.sum()), ShapeError, "rank 0"),
    "order": (lambda x: x.reshape(-1, order="A"), UnsupportedError, "memory layout"),
    "pad": (lambda x: dnp.pad(x, 1, mode="mirror"), UnsupportedError, "expected one of constant, edge"),
    "einsum": (lambda x: dnp.einsum("ij,kj->ijk", x), ShapeError, "2 terms, but there are 1 operands"),
    "einsum_sizes": (lambda x: dnp.einsum("ij,jk", x, x), ShapeError, "'j'.*sizes 4 and 3"),
    "stack": (lambda x: dnp.stack([x, x.T]), ShapeError, "expected equal shapes"),
    "split": (lambda x: dnp.split(x, 2), ShapeError, "array_split"),
    "solve": (lambda x: dnp.linalg.solve(x, x), ShapeError, "expected square matrices"),
    "qr": (lambda x: dnp.linalg.qr(x, mode="raw"), UnsupportedError, 'expected "reduced"'),
    "norm": (lambda x: dnp.linalg.norm(x, 3), UnsupportedError, r"matrix_norm: ord 3; expected"),
    "no_order": (lambda x: dnp.digitize(x, [1, 3, 2]), ShapeError, r"digitize: bins \[1, 3, 2\]; expected ascending"),
    "numpy_only": (lambda x: np.apply_over_axes(np.sum, x, 0), UnsupportedError, r"no .apply_over_axes.: reduce along"),
    "numpy_eig": (lambda x: np.linalg.eig(1j * x), ShapeError, "eig: an array of shape .*; expected square matrices"),
    "numpy_setting": (
        lambda x: np.sum(x, out=np.zeros(4)),
        UnsupportedError,
        r"sum: out = float64\[4\]; dlc\.numpy supports None only",
    ),
    "accumulate": (lambda x: np.subtract.accumulate(x), UnsupportedError, r"numpy\.subtract\.accumulate on a traced array"),
    "axis_kind": (lambda x: x.argmax(1.5), DTypeError, r"argmax: axis 1\.5; expected an integer"),
    "axis_name": (lambda x: x.sum(axis="rows"), DTypeError, "sum: axis 'rows'; expected"),
    "dtype_name": (lambda x: x.astype("floaty"), DTypeError, "array.astype: dtype = 'floaty'; expected a dtype"),
    "complex_dtype": (lambda x: dnp.floor(x.astype(np.complex64)), DTypeError, r"does not support complex arrays"),
    "ragged": (lambda x: x + dnp.array([[1, 2], [3]]), ShapeError, "a list is not an array"),
    "zeros": (lambda x: dnp.zeros(x.argmax()), UnsupportedError, "zeros: a size is a traced value"),
    "tile": (lambda x: dnp.tile(x, -1), ShapeError, "tile: repetitions: size -1; expected"),
    "conv": (lambda x: dlc.nn.conv(x, X.reshape(1, 3, 4, 1)), ShapeError, r"\(3, 4\), kernel \(1, 3\); expected \[N"),
    "numpy_keyword": (
        lambda x: np.median(x, overwrite_input=3),
        UnsupportedError,
        "median: overwrite_input = 3; .* False only",
    ),
    "pad_width": (lambda x: dnp.pad(x, -1), ArgumentError, "pad: pad_width -1; expected integers ≥ 0"),
    "differences": (lambda x: dnp.diff(x, -1), ArgumentError, "diff: n -1; expected at least 0"),
    "points": (lambda x: dnp.interp(x, x[0], x[0, :2]), ShapeError, r"xp of shape \(4,\) and fp of shape \(2,\)"),
    "mean_dtype": (lambda x: dnp.nanmean(x, dtype=np.int32), DTypeError, "nanmean: dtype int32 for an array of float32"),
    "indexing": (
        lambda x: dnp.meshgrid(x[0], x[0], indexing="xx"),
        ArgumentError,
        "meshgrid: indexing 'xx'; expected 'xy' or 'ij'",
    ),
    "dtype": (lambda x: x.astype("U3"), DTypeError, "dtype = 'U3'; expected"),
    "take": (lambda x: dnp.take(x, [7], axis=1), ShapeError, "out of bounds"),
}


@pytest.mark.parametrize(("function", "kind", "message"), CASES.values(), ids=CASES)
def test_error(function: Callable[[Any], Any], kind: type[DlcError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        dlc.jit(function)(X)
    first = inspect.getsourcelines(function)[1]
    assert str(caught.value).startswith(tuple(f"test_errors.py:{first + k}: " for k in range(3))), caught.value


def test_unknown_attribute() -> None:
    with pytest.raises(AttributeError, match="an array of a traced function has no 'put': it modifies an array in place"):
        dlc.jit(lambda x: x.put([0], 1))(X)
    with pytest.raises(AttributeError, match="has no 'colour'"):
        dlc.jit(lambda x: x.colour)(X)


def test_equal_functions_name_their_own_lines() -> None:
    """Although the program compiled for one function would serve the other."""

    def one(x: Any, i: Any) -> Any:
        return x[i]

    def other(x: Any, i: Any) -> Any:
        return x[i]

    for function in (one, other):
        line = inspect.getsourcelines(function)[1] + 1
        with pytest.raises(DlcError, match=rf"test_errors\.py:{line}: index 9 is outside axis 0 of size 3"):
            dlc.jit(function)(X, np.int64(9))


@pytest.mark.parametrize(
    ("function", "axes", "axis"),
    [
        (lambda x, i: x[i], (0, 0), 0),
        (lambda x, i: x[i], (0, None), 0),
        (lambda x, i: x[:, i], (0, 0), 1),
        (lambda x, i: x[:, i], (None, 0), 1),
        (lambda x, i: x[0, :, i], (0, None), 2),
        (lambda x, i: x[None, ..., i], (0, 0), 2),
        (lambda x, i: dnp.take_along_axis(x, i.reshape(1, 1, -1), 2), (0, 0), 2),
        (lambda x, i: dnp.take_along_axis(x, i.reshape(1, 1, 1, -1), 3), (None, 0), 3),
        (lambda x, i: x.at[i, i].set(0), (0, 0), 0),
        (lambda x, i: x.at[:, i].add(1), (0, 0), 1),
        (lambda x, i: x[i, 0, i * 0], (0, 0), 0),
    ],
)
def test_axes_are_counted_as_the_user_counts_them(function: Any, axes: tuple[int | None, ...], axis: int) -> None:
    """Independent of preceding slices and of batch axes."""
    x, i = np.zeros((2, 3, 4, 5)), np.array([[0, 1], [1, 9]])
    with pytest.raises(
        DlcError, match=rf"test_errors\.py:\d+: index 9 is outside axis {axis} of size {x.shape[axis + (axes[0] == 0)]}"
    ):
        dlc.jit(dlc.vmap(function, in_axes=axes))(x, i if axes[1] == 0 else i[1])


def test_jit_arguments() -> None:
    def rows(x: Any) -> Any:
        return x + 1

    for dynamic, message in (
        ({"x": {2: "N"}}, r"dynamic has axis 2 of 'x', which has the shape \(3, 4\)"),
        ({"x": {-1: "N"}}, "dynamic has axis -1 of 'x'"),
        ({"x": {0: "n:a"}}, "jit: dynamic: x: 'n:a': the bound 'a' of a range is not a number; write N, N:1..32"),
        ({"x": {0: "n:-3.."}}, "the bound '-3' of a range is not a number"),
        ({"x": {0: " "}}, "dynamic: x: ' ': the size has no name"),
    ):
        with pytest.raises((DTypeError, ShapeError), match=message):
            dlc.jit(rows, dynamic=cast(Any, dynamic))(X)
    with pytest.raises(AttributeError, match=r"x\.at\[…\] has no 'power'; it has get, set, add"):
        dlc.jit(lambda x: x.at[0].power(2))(X)


@pytest.mark.parametrize("key", [0, -1])
def test_update_of_an_empty_array(key: int) -> None:
    with pytest.raises(ShapeError, match=r"out of bounds for axis 0 of shape \(0, 4\)"):
        dlc.jit(lambda x: x.at[np.array([key])].set(1))(X[:0])
    with pytest.raises(DlcError, match=r"index -?[01] is outside axis 0 of size 0"):
        dlc.jit(lambda x, i: x.at[i].set(1))(X[:0], np.int64(key))
    assert dlc.jit(lambda x, i: x.at[i].set(1))(X[:0], np.zeros(0, np.int64)).shape == (0, 4)
    with pytest.raises(DlcError, match=r"index -?[01] is outside axis 0 of size 0"):
        dlc.jit(lambda x, i: x.at[i, i].set(1))(X[:0], np.int64([key]))
