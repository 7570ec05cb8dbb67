"""Calls of every function of dlc.numpy: the source text of the arguments, over the arrays of `DATA`."""

from __future__ import annotations

from typing import Any

import numpy as np

draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


NUMBERS = {"i1": 100, "u1": 200, "i2": 300, "i4": 7, "i8": 9, "u4": 5, "u8": 11}
KINDS = ("b", "i1", "u1", "i2", "i4", "i8", "u8", "f2", "f4", "f8")


def elements(kind: str) -> np.ndarray:
    """Return small values of a dtype, including special values of floats."""
    if kind == "b":
        return np.array([True, False, True, True, False, False, True, False])
    if kind[0] == "f":
        return np.array([0.5, -1.75, 0.0, -0.0, np.inf, -np.inf, np.nan, 3.0], kind)
    return np.array([0, 1, 2, 3, 7, 100, 5, 4], kind) if kind[0] == "u" else np.array([0, 1, -2, 3, -7, 100, 5, -1], kind)


def others(kind: str) -> np.ndarray:
    """Return second operands, which are nonzero for integers."""
    if kind == "b":
        return np.array([True, True, False, True, False, True, True, False])
    if kind[0] == "f":
        return np.array([1.25, 2.0, -0.0, 0.5, -np.inf, 2.0, 1.0, -3.0], kind)
    return np.array([1, 2, 3, 1, 2, 3, 4, 1], kind)


DATA: dict[str, Any] = {
    **{f"x_{kind}": elements(kind) for kind in KINDS},
    **{f"y_{kind}": others(kind) for kind in KINDS},
    "f": normal(3, 4),
    "g": normal(3, 4),
    "c": normal(2, 3, 4),
    "q": normal(4, 4) + 4 * np.eye(4, dtype=np.float32),
    "qs": normal(2, 3, 3),
    "v": normal(5),
    "w": normal(3),
    "row": normal(4),
    "d": normal(3, 4).astype(np.float64),
    "h": normal(3, 4).astype(np.float16),
    "i": np.array([[7, -7, 3, 1], [0, 5, -2, 4], [9, 3, 3, 2]], np.int32),
    "j": np.array([2, 0, 1, 0, 2]),
    "u": np.array([[200, 100, 3, 9]], np.uint8),
    "t": np.array([[True, False, True, True], [False] * 4, [True] * 4]),
    "n": np.array([[1, np.nan, 3], [np.nan, np.nan, np.nan], [4, -5, np.inf]], np.float32),
    "m3": np.array([[1, np.nan, 3], [2, 0, np.nan], [4, -5, 1]], np.float32),
    "ties": np.array([3, 1, 3, 2, 1, 1, 2], np.int32),
    "edges": np.array([-1.0, -0.2, 0.0, 0.0, 1.5], np.float32),
    "zero": np.zeros((0, 3), np.float32),
    "long": normal(300),
    "s": np.float32(2.5),
    "k": np.int64(2),
}

_FLOATS = ("x_b", "x_i1", "x_i2", "x_i4", "x_f2", "x_f4", "x_f8", "zero", "s")
_ALL = (*(f"x_{kind}" for kind in KINDS), "zero", "s")
_PAIRS = (
    *(f"x_{kind}, y_{kind}" for kind in KINDS),
    "f, row",
    "c, f",
    "f, 2.5",
    "3, f",
    "i, u",
    "i, s",
    "u, 2",
    "h, f",
    "zero, w",
)
_FLOAT_PAIRS = tuple(p for p in _PAIRS if p not in ("i, u", "u, 2"))
_WHOLE = ("x_i1, y_i1", "x_u1, y_u1", "x_i4, y_i4", "x_i8, y_i8", "x_u8, y_u8", "i, 3", "u, u")

_METHODS = (
    "averaged_inverted_cdf", "closest_observation", "hazen", "higher", "interpolated_inverted_cdf", "inverted_cdf", "lower",
    "median_unbiased", "midpoint", "nearest", "normal_unbiased", "weibull",
)  # fmt: skip


def _for(names: str, calls: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {name: calls for name in names.split()}


_NAN = ("n", "n, 1", "n, 0, keepdims=True", "f, 1", "i")
_AXES = ("f", "c, 1", "c, (0, -1), keepdims=True", "x_i4", "s", "h, 0", "d, 1")

# By family, in the order of `dlc.numpy.FAMILIES`. A call that fails in NumPy must fail in dlc.
CASES: dict[str, dict[str, tuple[str, ...]]] = {
    "elementwise": {
        **_for("ceil fix floor negative positive rint sign square trunc", _ALL),
        **_for("acos acosh asin asinh atan atanh cbrt cos cosh deg2rad exp2 expm1 log10 log1p log2", _FLOATS),
        **_for("rad2deg sin sinc sinh tan tanh", _FLOATS),
        **_for("add multiply subtract divide", _PAIRS),
        **_for("floor_divide remainder fmod divmod", tuple(p for p in _PAIRS if p != "x_b, y_b")),
        "reciprocal": ("x_f2", "x_f4", "x_f8", "f", "y_i4", "zero", "s"),
        "power": ("x_f4, y_f4", "x_f8, y_f8", "x_i4, y_i4", "x_u1, y_u1", "f, 2", "f, 3.0", "abs(f), 0.5", "2.0, f", "i, 3", "s, s"),
        "float_power": ("abs(f), g", "i, 2"),
        "round": ("f", "f, 2", "d, -1", "i", "i, 1", "i * 17, -1", "h, 1", "x_f4", "x_b", "x_u1"),
        "where": ("t, f, g", "t, f, 0", "i, 1.0, f", "t, i, f", "True, f, g", "t, 1, 2", "t, h, 1.5"),
        "clip": ("f, a_min=0, a_max=1", "f, max=row", "f, 0, min=1", "f, -0.5, 0.5", "f, None, 0.5", "i, -1, 4", "f, row, None", "f, min=0", "i, 0.5, 2.5", "x_f4, -1, 1", "zero, 0, 1"),
    },
    "complex_numbers": {
        "astype": tuple(f"{x}, m.{to}" for x in ("i", "t", "u", "3 * f") for to in ("int32", "float64", "bool", "float16", "int8")),
        "conj": ("x_i4", "x_f4", "zero", "s"),
        **_for("abs real", _ALL),
        **_for("exp log sqrt", _FLOATS),
        **_for("imag iscomplex isreal iscomplexobj isrealobj", ("x_f4", "x_f8", "zero", "s")),
        "angle": ("x_f4", "x_f8", "zero", "s", "x_f4, deg=True", "x_f4, True"),
    },
    "floats": {
        **_for("atan2 copysign hypot logaddexp logaddexp2 heaviside nextafter", (*_FLOAT_PAIRS, "x_u1, y_i1", "x_i2, y_u1", "x_b, 2", "x_b, y_i1")),
        "modf": ("x_f4", "x_f8", "x_f2", "f", "i", "zero"),
        **_for("fabs spacing", ("x_f2", "x_f4", "x_f8", "f")),
        "frexp": ("x_f2", "x_f4", "x_f8", "x_f8 * 1e-310", "f"),
        "ldexp": ("f, 3", "f, i", "x_f8, i[0, 0]", "x_f4, x_i1", "d, -1080", "f, g"),
        "nan_to_num": ("x_f2", "x_f4", "x_f8", "i", "n, nan=7.0, posinf=1.0, neginf=-1.0"),
    },
    "integers": {
        "gcd": ("i, i[::-1]", "x_i1, 12", "x_u1, u[0, 1]", "x_i8, y_i8", "x_i2, x_i2[::-1]", "f, g"),
        "lcm": ("i, i[::-1]", "x_i1, 97", "x_u1, y_u1", "x_i8, y_i8", "f, g"),
        "bitwise_count": ("i", "x_i1", "x_u1", "x_i2", "x_i8", "x_u8", "f"),
        "packbits": ("t", "t, 1", "i, 0, 'little'", "v", "t, bitorder='x'"),
        "unpackbits": ("u", "u, 1, 13", "u, 1, -3, 'little'", "u, 0, 11", "i"),
        "unravel_index": ("j, (2, 3)", "j, 3", "i % 5, (1, 5, 1)"),
        "ravel_multi_index": ("(j % 2, j), (2, 3)", "(j,), (4,)", "(j,), (4, 2)"),
    },
    "polynomials": {
        **_for("polyadd polysub polymul", ("v, w", "w, v", "j, ties", "f, v")),
        "polydiv": ("v, w",),
        "polyder": ("v", "v, 2", "j", "w, 5", "v, -1"),
        "polyint": ("v", "v, 2", "w, 2, [1.0, 2.0]", "v, -1", "v, 3, [1.0, 2.0]"),
        "poly": ("d[0]",),
        "polyfit": ("d[0], d[1], 2", "d[0], d.T, 1", "d[0], d[1], 1, w=m.abs(d[2])"),
        # The order of roots is not defined: test_general_eigenvalues.py.
        "roots": (),
        "polyval": ("w, f", "v, 2.5", "j, ties", "row, h"),
    },
    "comparison": {
        **_for("equal greater greater_equal less less_equal not_equal maximum minimum fmax fmin", _PAIRS),
        **_for("logical_and logical_or logical_xor", _PAIRS),
        **_for("bitwise_and bitwise_or bitwise_xor", ("x_b, y_b", *_WHOLE)),
        **_for("bitwise_left_shift bitwise_right_shift", _WHOLE),
        **_for("isfinite isinf isnan signbit", _ALL),
        **_for("isneginf isposinf", ("x_f2", "x_f4", "x_f8", "x_i4")),
        "bitwise_invert": ("x_b", "x_i1", "x_u1", "x_i8"),
        "logical_not": _ALL,
        "isclose": ("f, f + 1e-6", "f, g", "n, n", "n, n, equal_nan=True", "i, i", "f, 1.0, rtol=0.5", "x_f8, y_f8"),
        "allclose": ("f, f", "f, g", "n, n, equal_nan=True"),
        "array_equal": ("f, f", "f, g", "f, row", "n, n", "n, n, equal_nan=True", "i, i"),
        "array_equiv": ("f, f", "f, row", "s, s"),
    },
    "reductions": {
        **_for("sum prod", (*_AXES, "u", "t", "t, 1", "f, 1, m.float64", "f, None, where=t", "f, 0, initial=2", "zero", "zero, 0")),
        **_for("max min", (*_AXES, "f, 1, None, True", "x_f4", "u", "t, 0", "f, 1, initial=1, where=t", "t, initial=3", "i, 0, initial=2.5", "zero, 1", "zero, 0, initial=0", "zero")),
        **_for("mean", (*_AXES, "f, 0, None, None", "t", "u, 1", "f, 1, m.float64", "c, None, where=c > 0")),
        **_for("any all", ("t", "t, 0", "t, 1, keepdims=True", "f", "i, 1", "zero", "zero, 0", "t, 1, where=t")),
        "count_nonzero": ("t", "i, 1", "f, (0, 1)", "zero"),
        "ptp": ("f", "f, 1", "u, 1", "i, 0, keepdims=True"),
        "average": ("f, 1, row, True", "f, returned=True, axis=0", "f, (1, 0), g.T", "f, None, row", "i, 1, keepdims=True, returned=True", "f", "f, 1, row", "f, weights=abs(g)", "i, 0", "f, 0, w, keepdims=True", "i, 0, abs(w)", "t, 0, h[:, 0]"),
        **_for("argmax argmin", ("f", "f, 1", "c, -1, keepdims=True", "i", "ties", "n", "n, 1", "t, 1")),
        **_for("var std", (*_AXES, "t", "u, 1", "f, 1, m.float64", "c, None, where=c > 0", "f, 0, None, None, 1, True", "f, 1, mean=f.mean(1, keepdims=True)", "f, correction=1", "f, ddof=1, correction=1")),
        **_for("nanmax nanmin nansum nanprod", (*_NAN, "n, 0, initial=2", "n, 1, initial=-3, where=t[:, :3]")),
        **_for("nanmean nanvar nanstd", (*_NAN, "n, 1, m.int32", "m3, 0, where=m3 > 0", "i, 0, m.float32")),
        **_for("nanargmax nanargmin", ("m3", "m3, 1", "f, 0")),
    },
    "cumulative": {
        **_for("cumsum cumprod", ("f", "f, 1", "c, 0", "i, 1", "u, 1", "t, 0", "zero, 0", "f, 1, m.float64", "v", "h, -1")),
        **_for("cumulative_sum cumulative_prod", ("v", "f, axis=1", "i, axis=0, include_initial=True", "u, axis=-1, dtype=m.int32")),
        **_for("nancumsum nancumprod", ("n, 1", "i, 0")),
        "diff": ("f, n=-1", "f, 1, axis=0, prepend=g", "v", "f", "f, 2, 0", "t", "f, prepend=0", "i, axis=0, append=i", "f, 5", "zero"),
        "trapezoid": ("v", "f, dx=0.5", "f, row", "f, axis=0", "f, g"),
        **_for("convolve correlate", ("v, w", "w, v", "v, w, mode='same'", "v, row, mode='valid'", "v, row, mode='full'", "ties, ties")),
    },
    "sampled_data": {
        "gradient": ("f, w * 0 + m.arange(3, dtype=m.float32) ** 2, axis=0", "f, m.asarray([0.0, 1, 3]), m.asarray([0, 1.0, 3, 7]), edge_order=2", "d, 2.0, axis=1, edge_order=2", "c, edge_order=2, axis=1", "f, edge_order=3", "f, w, w", "f", "v", "f, 0.5, axis=1", "f, 0.5, 2, axis=(1, 0)", "i, axis=0", "h, axis=1", "c", "f[:1]"),
        "ediff1d": ("f", "i, 7", "ties, [1, 2], 3", "v[:1]"),
        "unwrap": ("v * 9", "f * 9, axis=0", "f * 9, 4, period=5.0", "c * 9"),
        "cov": ("d, fweights=[1, 2, 3, 1], aweights=m.abs(row)", "f, dtype=m.float64", "f", "v", "f[0], f[1]", "d, rowvar=False, bias=True", "d, ddof=0", "d, aweights=m.abs(row)", "h", "c"),
        "corrcoef": ("f, dtype=m.float64", "f", "f[0], f[1]", "d, rowvar=False", "v"),
    },
    "sorting": {
        "sort": ("f, kind='heapsort'", "f, 0, 'stable'", "f, kind='x'", "f, kind='stable', stable=True", "ties, axis=-1, order=None", "f", "f, 0", "c, None", "n", "ties", "t", "u", "zero, 0", "x_f2", "x_f8"),
        "argsort": ("ties, -1, 'stable'", "f, kind='x'", "f", "f, 0", "ties, stable=True", "n", "v"),
        **_for("partition argpartition", ("v[:1], 0", "v, 99", "d, [0, -9], 0")),
        "lexsort": ("m.stack([ties, ties[::-1]])", "f"),
        "searchsorted": ("edges, f", "edges, f, 'right'", "m.sort(ties), 2", "m.sort(v), v", "edges, n", "v, f, 'left', m.argsort(v)", "m.sort(x_f2), x_f2", "m.sort(x_f8), x_f8, 'right'", "m.sort(x_i1), x_i1", "m.linspace(-2, 2, 200, dtype=m.float32), n", "edges, 0.5"),
        "digitize": ("f, edges", "f, edges, True", "n, edges[::-1]", "f, edges[::-1], True", "ties, m.sort(v)[::-1]", "f, edges[:0]"),
        "isin": ("i, [3, 5], assume_unique=True, kind='sort'", "f, f[:2], kind='table'", "i, [3], kind='x'", "i, [3, 5]", "ties, v", "f, f[:2]", "t, True", "i, j, invert=True", "zero, w", "n, list(range(-70, 70))"),
        "interp": ("f, v, v * 2, period=1.5", "f, v, w", "f, v[:0], w[:0]", "f, v, v, period=0", "f, m.sort(v), v", "f, m.sort(v), v, -9, 9.5", "x_f4, m.sort(v), v"),
    },
    "quantiles": {
        "median": ("c, (0, 1), None, False, True", "f", "f, 1", "v", "c, (0, 2), keepdims=True", "n, 1", "i", "h, 0", "zero, 1"),
        "quantile": ("f, 0.3", "zero, [0.1, 0.9], 1", "f, [0.1, 0.9], 1", "c, 0.5, (0, 1)", "zero, 0.3, 0", "f, 0.3, method='x'", "f, 2.0", "f, 0.5, method='linear', weights=g", "f, 0.4, 1, method='inverted_cdf', weights=m.abs(row)", "f, [0, 0.5, 1], 0, method='inverted_cdf', weights=m.abs(g)", "i, 0.5, method='inverted_cdf', weights=m.abs(i)", "n, 0.5, 0, None, False, 'hazen', True", *(f"{x}, method='{k}'" for k in _METHODS for x in ("v, 0.37", "i, [0, 0.5, 1], 1", "d, 0.25, 0"))),
        "percentile": ("f, [10, 50], method='hazen'", "f, 101", "f, 30", "v, [10, 50], keepdims=True", "i, 25, 1"),
        "nanmedian": ("m3, 0, None, False, True", "n", "n, 0", "m3, 1, keepdims=True", "i, 1", "zero, 1"),
        "nanquantile": ("m3, 0.3", "zero, 0.3, 1", "n[:2], [0.1, 0.9], 1", "m3, 0.4, method='inverted_cdf', weights=m.abs(i[:, :3])", *(f"m3, 0.37, 0, method='{k}'" for k in _METHODS)),
        "nanpercentile": ("m3, 30", "n[:2], [10, 50], 0"),
    },
    "data_dependent_shapes": {
        **_for("nonzero flatnonzero argwhere", ("f", "t", "zero", "n")),
        "extract": ("t, i", "row > 0, row"),
        "compress": ("[True, False, True], f, 0", "[False, True], f"),
        "unique": ("ties", "n", "i, return_index=True, return_inverse=True, return_counts=True", "f, axis=0", "n[[0, 2, 0]], axis=0", "c, axis=-1"),
        **_for("unique_all unique_counts unique_inverse", ("ties", "n", "zero", "t")),
        # Newer versions of NumPy return these in any order.
        "unique_values": ("j * 0 + 3", "zero"),
        **_for("union1d", ("ties, i", "j, ties")),
        "intersect1d": ("ties, i", "j, ties", "ties, i, return_indices=True", "j[:3], ties[1:4], assume_unique=True"),
        "setdiff1d": ("ties, i", "j, ties", "j[:3], i, assume_unique=True"),
        "setxor1d": ("ties, i", "ties, j"),
        "trim_zeros": ("m.asarray([[0, 0, 0], [0, 1, 0]])", "j, trim='x'", "j - 2", "j, 'f'"),
        "bincount": ("j", "j, v", "j, minlength=9"),
        "histogram2d": ("v, v[::-1], 3", "i[0], i[1] * 2, [2, 3], [(-7, 9), (-4, 4)]", "f, f", "v, v, edges, density=True", "v, v[::-1], [edges, 2], weights=v"),
        "histogram_bin_edges": ("f", "f, 3, (-1, 1)", "i, 4", "f, edges"),
        "histogramdd": ("f, 2", "c.reshape(6, 4)[:, :3], (2, 3, edges)", "[v, v * 2], 3, density=True", "v, 4", "f, 2, weights=w", "d, 3, [(-1, 1)] * 4"),
        "histogram": ("f, 4, density=True", "f, edges, None, True", "f, 3, weights=m.abs(g)", "i, 3, (-4, 5), False, i", "f, 0", "f", "f, 3, (-1, 1)", "f, edges"),
    },
    "shape_manipulation": {
        **_for("atleast_1d atleast_2d atleast_3d", ("s", "v", "f", "c", "s, v, f")),
        "broadcast_arrays": ("f, row", "s, c, w[:, None]"),
        "broadcast_shapes": ("(3, 1), (1, 4)", "(), 2", "(2,), (3,)"),
        "broadcast_to": ("row, (3, 4)", "s, (2, 2)", "w, 3", "zero, (2, 0, 3)"),
        "diag": ("v", "v, 1", "w, -2", "f", "f, 1", "f, -1"),
        "diagflat": ("f, 1", "w"),
        "diagonal": ("f", "f, 1", "c, -1, 1, 2", "c, 0, 0, 2", "f, 9"),
        "expand_dims": ("f, 0", "f, -1", "f, (0, 2)", "s, 0"),
        "flip": ("c", "c, 1", "c, (0, -1)", "s"),
        **_for("fliplr flipud", ("f", "c")),
        "matrix_transpose": ("f", "c"),
        "moveaxis": ("c, 0, -1", "c, (0, 1), (2, 0)"),
        "ndim": ("c", "s"),
        "permute_dims": ("c", "c, (2, 0, -2)", "f, (1, 0)"),
        "ravel": ("c, order='F'", "c, 'C'", "c", "zero", "s"),
        "repeat": ("f, 2", "f, 2, 1", "f, [1, 0, 3], 0", "w, [1, 2, 0]"),
        "reshape": ("c, (4, 6), order='F'", "c, (-1, 3), 'F'", "c, (4, 6), order='X'", "c, (4, 6)", "c, (-1, 2)", "c, -1", "zero, (3, 0)", "s, (1, 1)"),
        "roll": ("f, 1", "f, -1, 0", "f, (1, 2), (0, 1)", "f, 7, 1", "zero, 2", "v, k, 0"),
        "resize": ("f, (2, 3)", "f, 30", "v, (3, 4)", "zero, (2, 2)", "s, (2,)", "i, (0, 3)"),
        "rollaxis": ("c, 2", "c, 0, 3", "c, -1, 1", "c, 1, -1", "c, 1, 1"),
        "rot90": ("f, -1", "f, 0", "f", "f, 2", "f, 3", "c, 1, (1, 2)"),
        "shape": ("c",),
        "size": ("c", "c, 1"),
        "squeeze": ("c[:, :1]", "c[:1, :1], axis=1", "u"),
        "swapaxes": ("c, 0, -1", "f, 0, 0"),
        "tile": ("f, 2", "f, (2, 1)", "w, (2, 1, 3)", "c, (1, 2)"),
        "transpose": ("c", "c, (1, 0, 2)", "v"),
    },
    "joining": {
        "append": ("f, g", "f, f, 0", "v, 3.0", "i, u, 0"),
        "array_split": ("v, 3", "f, 3, 1", "v, [1, 3]", "v, 7", "v, m.asarray([4, 2])"),
        "column_stack": ("[w, w]", "[w, f]"),
        "concat": ("[f, i], dtype=m.float64", "[f, g], 1, None", "[f, g], dtype=m.int8, casting='unsafe'", "[f, g]", "[f, i], axis=1", "(c, c), axis=None", "[c, c[:, :1], 2 * c], 1", "[h, f]", "[zero, zero]", "[v]"),
        "dstack": ("[f, g]", "[w, w]"),
        **_for("hstack vstack", ("[w, w]", "[f, g]", "[s, s]")),
        "stack": ("[f, g], dtype=m.float64", "[f, g], dtype=m.int32", "[f, i], 0, None, dtype=m.float64, casting='safe'", "[f, g], dtype=m.float16, casting='all'", "[f, g]", "[f, g], 1", "[f, g], axis=-1", "[s, s]"),
        "split": ("f, 2, 1", "v, 5", "f, [1], 0"),
        "hsplit": ("f, 2", "v, [2]"),
        "vsplit": ("f, 3",),
        "dsplit": ("c, 2",),
        "unstack": ("f", "f, axis=1"),
        "block": ("[f, g]", "[[f, g], [g, f]]", "[[w], [w]]", "[[[f]], [[g]]]", "v", "[[f], g]"),
        "delete": ("f, 1, 0", "f, [0, -1], 1", "f, slice(None, None, 2)", "f, [True, False, True], 0", "v, []", "f, 7, 0"),
        "insert": ("f, 1, 9.0, 0", "f, [0, 2], 9.0, 1", "f, 1, w, 1", "f, 2, 8", "f, [1, 1, 3], w, 1", "f, -1, g[:1], 0", "f, 9, 0.0, 0"),
    },
    "padding": {
        "pad": (
            "f, 1", "f, (1, 2)", "f, ((0, 1), (2, 0)), constant_values=3", "i, 1", "zero, 1", "v, (7, 9), mode='reflect'",
            *(f"f, ((1, 2), (2, 1)), mode='{mode}'" for mode in ("edge", "reflect", "symmetric", "wrap")),
            *(f"{x}, ((1, 2), (2, 1)), mode='{mode}'" for mode in ("linear_ramp", "maximum", "mean", "median", "minimum") for x in "fi"),
            *(f"f, 2, mode='{mode}', stat_length=((1, 2), (3, 9))" for mode in ("maximum", "mean", "median", "minimum")),
            "f, ((1, 2), (2, 1)), mode='linear_ramp', end_values=((1, -2), (3, 5))",
        ),
    },
    "indexing": {
        "choose": ("1 - 2 * (j > 1), [v, -v]", "j, [v, -v]", "j % 2, [v, -v], None, 'raise'", "j, [v, -v], mode='x'", "j, [v, 2 * v, -v]", "j + 1, [v, 2 * v, -v], mode='wrap'", "1, [f, g]"),
        "piecewise": ("f, [f < 0, f > 1], [-1, 1]", "f, [f < 0, f > -1], [lambda x: -x, m.square, 9]", "i, [i > 3], [lambda x, k, j: x * k + j, 0.75], 2, 1", "v, v > 0, [1, 2]", "w, [w > 9], [1]"),
        "ix_": ("j, [1, 0]", "w > 0, j", "j"),
        "sliding_window_view": ("v, 3", "f, (2, 3)", "c, 2, 1", "c, (2, 2), (1, 1)", "f, 1, -1", "v, (5,)", "long, 40", "t, (3, 2)"),
        "select": ("[f > 0, g > 0], [f, g]", "[t], [i], default=9", "[f > 1, f < -1], [f, 0.0], 5.0"),
        "take": ("f, j, 0, None, 'clip'", "f, j, mode='x'", "f, j", "f, j, 0", "f, [[0, -1], [1, 2]], axis=1", "f, 2, 0", "v, j + 4, mode='clip'", "v, j - 7, mode='wrap'", "f, k, 0", *(f"long, x_{x}, mode='{mode}'" for x in ("i1", "u1") for mode in ("clip", "wrap"))),
        "take_along_axis": ("long, x_i1, 0", "f, m.argsort(f, axis=0), 0", "f, i % 3, axis=1", "w, j, None", "c, j[:2, None, None], axis=1"),
    },
    "matrix_products": {
        "cross": ("f[:, :3], f.T[:3], axisa=0, axisb=0, axisc=1", "f[:, :3], f.T[:3], -1, 0", "w, w[::-1]", "f[:, :3], w", "f[:, :3].T, f[:, 1:].T, axis=0"),
        "dot": ("f, g.T", "c, row", "f, s", "c, f.T", "v, v", "f, m.swapaxes(c, 1, 2)", "t, t.T"),
        "inner": ("f, g", "v, v", "c, row", "f, s"),
        "kron": ("w, v", "f, q", "w, f"),
        "matmul": ("f, g.T", "f, row", "row, f.T", "c, f.T", "row, row", "i, i.T", "t, t.T", "h, h.T", "d, f.T", "zero, zero.T"),
        "matvec": ("c, row", "f, g[0]"),
        "outer": ("w, v", "f, w", "i, u"),
        "tensordot": ("f, g", "f, g, ((0, 1), (0, 1))", "c, f, ([2], [1])", "w, v, 0", "c, f, (2, 1)", "i, i, ((1,), (1,))"),
        "trace": ("f", "q, 1", "c, 0, 1, 2", "i"),
        "vdot": ("f, g", "v, v"),
        "vecdot": ("f, g", "c, row", "f, g, axis=0", "v, v"),
        "vecmat": ("row, c.mT", "w, f"),
    },
    "einstein_summation": {
        "einsum": ("f, [0, 1], q, [1, 2]", "f, [0, 1], q, [1, 2], [2, 0]", "c, [Ellipsis, 1], [1, Ellipsis]", "'ij,jk', f, q, optimize=True, out=None", "'ij,jk', i, i.T, dtype=m.float64", "f", "f, [70, 1]", 
            "'ij,jk->ik', f, q", "'ij,jk', f, q", "'ij->ji', f", "'ij->', f", "'ij->j', f", "'ii', q", "'ii->i', q", "'i,j', w, v",
            "'...ij,...jk->...ik', c, q", "'bij,bkj->bik', c, c", "'ij,ij->i', f, g", "'ij,j', f, row", "'bij,jk,k->bi', c, q, row",
            "'i...->...', c", "'...', c", "'bij->jb...', c", "'ij,kj->ik', i, i", "'aab->b', qs[:, :2]", "'...i,...i', c, f", "'ij,kl->ijkl', f, q",
        ),
    },
    "linalg": {
        "cholesky": ("q @ q.T", "q @ q.T, upper=True", "qs @ qs.mT + 3 * m.eye(3, dtype=m.float32)"),
        "cond": ("q", "qs, 1", "q, -2", "f", "0 * q", "0 * q, -2"),
        "cross": ("w, w[::-1]",),
        "det": ("q", "qs", "m.eye(3, dtype=m.float32)[::-1]", "i[:, :3]", "m.zeros((2, 2), dtype=m.float32)"),
        "diagonal": ("c", "q, offset=1"),
        # The signs of singular vectors may differ from NumPy's: test_linalg.py.
        "eig": (),
        "eigh": (),
        "eigvals": (),
        "eigvalsh": ("q", "qs, 'U'", "i[:, :3]"),
        "inv": ("q", "qs", "q.astype(m.float64)"),
        "lstsq": ("f.T, row", "f, g[:, :2]", "m.ones((2, 4), dtype=m.float64), w[:2].astype(m.float64)", "q, row, 0.9"),
        "matmul": ("f, g.T",),
        "matrix_norm": ("f", "c, ord=1", "c, ord=-1, keepdims=True", "f, ord=m.inf", "f, ord=-m.inf"),
        "matrix_power": ("q, 3", "q, 0", "qs, 1", "q, -2"),
        "matrix_rank": ("f", "qs @ qs.mT", "m.ones((3, 3), dtype=m.float32)", "w", "q, 4.5", "c, rtol=0.9"),
        "matrix_transpose": ("c",),
        "multi_dot": ("[f, q, row]", "[w, f, q]"),
        "norm": ("f", "v, 1", "f, axis=1", "f, 'fro'", "c, 1, (0, 2)", "v, 3", "f, m.inf, 0, True", "i", "f, 2", "c, 'nuc', (0, 2)", "f, -2"),
        "outer": ("w, v",),
        "pinv": ("f", "qs", "m.ones((3, 4), dtype=m.float32), 1e-3", "c, 0.5"),
        "qr": ("f", "f.T", "qs", "f.T, mode='complete'", "f, mode='complete'", "c, mode='r'", "i.T"),
        "slogdet": ("q", "-qs"),
        "solve": ("q, f.T", "q, row", "qs, c[:, :, :2]", "m.eye(4, dtype=m.float32)[::-1], row"),
        "tensorinv": ("q.reshape(2, 2, 4)", "q, 1", "q.reshape(4, 2, 2), ind=1"),
        "tensorsolve": ("q.reshape(2, 2, 4), f[:2, :2]", "q.reshape(2, 2, 4).transpose(2, 0, 1), f[:2, :2], axes=(0,)", "q.reshape(4, 2, 2).transpose(2, 1, 0), row, axes=(1, 0)", "f, row"),
        "svd": ("f, compute_uv=False",),
        "svdvals": ("f", "c", "qs.astype(m.float64)"),
        "tensordot": ("f, g",),
        "trace": ("c[:, :, :3]", "q, offset=1"),
        "vecdot": ("f, g",),
        "vector_norm": ("f", "f, axis=1, ord=1", "c, axis=(0, 2), ord=m.inf", "v, ord=0", "v, ord=-m.inf", "f, axis=0, ord=3, keepdims=True"),
    },
    "creation": {
        "arange": ("4", "1, 9, 2, dtype=m.float32", "3, 0, -1", "k, 9, k", "x_i1[4], x_i1[5]"),
        "array": ("f, ndmin=4", "f, order='K', subok=True", "f", "[s, 2 * s]", "[[1, 2], [3, 4]]"),
        "asarray": ("[1, 2], copy=False", "f, order='C'", "f", "f, m.float64", "[f, g]", "[1.5, 2]"),
        "copy": ("f",),
        "empty": (),
        "empty_like": (),
        "eye": ("3, dtype=m.int32", "3, 4, k=1, dtype=m.float64", "2, 3, -1, m.float32"),
        "from_dlpack": (),
        "full": ("(2, 3), 7", "3, True", "(2, 2), s", "(2, 4), row", "2, 1.5, dtype=m.float64"),
        "full_like": ("f, 7, shape=(2, 5)", "f, 7", "f, s", "i, 2, dtype=m.float64"),
        "geomspace": ("1, 8, 4, dtype=m.float32", "1.0, 2 + m.abs(d), 4"),
        "identity": ("3, dtype=m.float32",),
        "indices": ("(2, 3), sparse=True", "(2, 3)",),
        "linspace": ("0, 1, 5, retstep=True, dtype=m.float64", "w, 2 * w, 3, axis=1", "s, 3, 2, True, True", "0, 1, 5, dtype=m.float32", "0.0, s, 4", "w, 2 * w, 3, endpoint=False", "2, 3, 1, dtype=m.float64"),
        "logspace": ("w, 2, 3, axis=-1", "0, 2, 3, dtype=m.float32", "0.0, s, 3"),
        "meshgrid": ("w, v, sparse=True", "w, v, indexing='xx'", "w, v", "w, v, indexing='ij'", "w, v, row", "w"),
        "ones": ("(2, 3), m.int8", "4, dtype=m.float64"),
        "ones_like": ("f", "i, dtype=m.bool"),
        "tri": ("3, dtype=m.float32", "3, 4, 1, m.int32"),
        **_for("tril triu", ("f", "q, k=1", "c, -1", "i", "t")),
        **_for("tril_indices triu_indices", ("3", "3, 1", "3, -1, 4")),
        "vander": ("w", "w, 2", "w, 4, increasing=True"),
        "zeros": ("(2, 0), m.float32", "3, m.bool"),
        "zeros_like": ("f", "i", "f, dtype=m.int8"),
    },
}  # fmt: skip
