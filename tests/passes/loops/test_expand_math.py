"""Each function of `math`, expanded and evaluated, is within its documented error, and correct in edge cases."""

from __future__ import annotations

import math as libm

import ml_dtypes
import numpy as np
import pytest

import dlc
from dlc.backends.reference import evaluate
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, arith, math, parse_module
from dlc.passes.loops.expand_math import FORMULAS, ExpandMathPass

CONTEXT = make_context()
DTYPES = {"f32": np.float32, "f64": np.float64}
# Documented bounds in ulp, f32 and f64; see the docstrings of the formulas.
BOUNDS = {
    "exp": (1, 1), "exp_at_most_zero": (1, 1), "exp_normal_range": (2.1, 1), "exp_flushed": (1, 1), "exp2": (1, 1), "exp2_flushed": (1, 1), "expm1": (2, 2), "sinh": (3, 3), "cosh": (2, 2), "tanh": (6, 3),
    "log": (2, 2), "log2": (3, 3), "log10": (3, 3), "log1p": (3, 3), "asinh": (3, 3), "acosh": (3, 3), "atanh": (3, 3),
    "sin": (2, 2), "cos": (2, 2), "tan": (4, 4), "asin": (3, 3), "acos": (3, 3), "atan": (3, 3), "atan2": (4, 4),
    "powf": (1, 2), "rsqrt": (2, 2), "cbrt": (1, 1), "erf": (6, 4), "ldexp": (0.5, 0.5),
}  # fmt: skip
# Attributes of an op that select another formula.
OPS_WITH_ATTRIBUTES = {
    "exp_at_most_zero": ("exp", " {at_most_zero}"),
    "exp_normal_range": ("exp", " {normal_range}"),
    "exp_flushed": ("exp", " {flush_subnormals}"),
    "exp2_flushed": ("exp2", " {flush_subnormals}"),
    "exp_absolute_accuracy": ("exp", " {at_most_zero, absolute_accuracy}"),
}
# The f32 and f64 values closest to multiples of π/2, and other close ones.
NEAR_MULTIPLES_OF_HALF_PI = [16367173 * 2.0**72, 6381956970095103 * 2.0**797, 22.0, 355.0, 5419351.0, 1e22]
erf = np.vectorize(libm.erf, otypes=[np.float64])
EXACT = {
    "exp_at_most_zero": np.exp, "exp_normal_range": np.exp, "exp_flushed": np.exp, "exp2_flushed": np.exp2, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "atan2": np.arctan2, "powf": np.power, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": erf,
    "ldexp": lambda x, n: x * 2.0 ** np.floor(np.clip(n, -9999, 9999)),
}  # fmt: skip
# Formulas that use `math.ldexp` if the target has it.
SCALED = ("exp", "exp2", "powf", "ldexp")


def exact(name: str, *x: np.ndarray) -> np.ndarray:
    """Return the function with many more digits than f32, and 11 bits more than f64; erf only has those of f64."""
    return EXACT.get(name, getattr(np, name, None))(*(v.astype(np.float64 if name == "erf" else np.longdouble) for v in x))


def expand(
    name: str,
    arity: int,
    t: str,
    size: int,
    vector: str | None = None,
    precise: bool = False,
    fused: bool = True,
    has_ldexp: bool = False,
) -> ModuleOp:
    vector = vector or f"vector<{size}x{t}>"
    buffer, axes = vector.replace("vector", "memref"), vector.count("x")
    zeros, places = ", ".join(["%c0"] * axes), ", ".join(f"d{k}" for k in range(axes))
    whole = f"affine_map<({places}) -> ({places})>"
    bounds = f"{{in_bounds = [{', '.join(['true'] * axes)}], permutation_map = {whole}}}"
    arguments = "".join(f"%x{k}: {buffer}, " for k in range(arity))
    reads = "\n".join(f"%v{k} = vector.transfer_read %x{k}[{zeros}], %f {bounds} : {buffer}, {vector}" for k in range(arity))
    op, said = OPS_WITH_ATTRIBUTES.get(name, (name, ""))
    module = parse_module(
        CONTEXT,
        f"""
        func.func @main({arguments}%y: {buffer}) attributes {{kernel}} {{
          %c0 = arith.constant 0 : index
          %f = arith.constant 0.0 : {t}
          {reads}
          %r = math.{op} {", ".join(f"%v{k}" for k in range(arity))}{said} : {vector}
          vector.transfer_write %r, %y[{zeros}] {bounds} : {vector}, {buffer}
          func.return
        }}""",
    )
    ExpandMathPass(precise=precise, fused=fused, has_ldexp=has_ldexp).apply(CONTEXT, module)
    module.verify()
    return module


def evaluate_function(name: str, t: str, *x: np.ndarray, precise: bool = False, has_ldexp: bool = False) -> np.ndarray:
    (y,) = evaluate(expand(name, len(x), t, x[0].size, precise=precise, has_ldexp=has_ldexp), x)
    return y


def samples(name: str, dtype: type) -> list[np.ndarray]:
    """Return samples of the non-trivial range, dense, and of all magnitudes."""
    rng = np.random.default_rng(1)
    n = 3000
    sign = rng.choice([-1.0, 1.0], n)
    decades, limit, turns = (30, 87, 1e5) if dtype is np.float32 else (250, 707, 1e9)
    greatest = libm.log10(np.finfo(dtype).max)

    def uniform(low, high):
        return rng.uniform(low, high, n)

    def magnitudes(low, high):
        return 10 ** rng.uniform(low, high, n)

    match name:
        case "exp" | "exp_normal_range" | "exp_flushed" | "expm1" | "sinh" | "cosh":
            parts = [uniform(-limit, limit), uniform(-2, 2), sign * magnitudes(-6, 0)]
        case "exp_at_most_zero":
            parts = [uniform(-limit, 0), uniform(-2, 0), -magnitudes(-6, 0)]
        case "exp2" | "exp2_flushed":
            parts = [uniform(-1.4 * limit, 1.4 * limit), uniform(-2, 2)]
        case "tanh" | "erf" | "atan" | "asinh" | "cbrt":
            parts = [uniform(-10, 10), uniform(-2, 2), sign * magnitudes(-6, 0), sign * magnitudes(-decades, decades)]
        case "log" | "log2" | "log10" | "rsqrt":
            parts = [magnitudes(-decades, decades), uniform(0.4, 2.5), 1 + sign * magnitudes(-6, -1)]
        case "log1p":
            parts = [uniform(-0.99, 2), magnitudes(-8, decades), -magnitudes(-8, -0.01)]
        case "acosh":
            parts = [uniform(1, 3), magnitudes(0, decades)]
        case "atanh" | "asin" | "acos":
            parts = [uniform(-1, 1), sign * magnitudes(-8, -0.01)]
        case "sin" | "cos" | "tan":
            # Few arguments for the slow path: the evaluator is slow for each.
            parts = [
                uniform(-10, 10),
                uniform(-turns, turns),
                (sign * magnitudes(-6, greatest))[::12],
                NEAR_MULTIPLES_OF_HALF_PI,
            ]
        case "atan2":
            other = np.concatenate([uniform(-10, 10), sign[::-1] * magnitudes(-10, 10)]).astype(dtype)
            return [np.concatenate([uniform(-10, 10), sign * magnitudes(-10, 10)]).astype(dtype), other]
        case "ldexp":
            return [(sign * magnitudes(-decades, 0)).astype(dtype), uniform(-1.4 * limit, 1.4 * limit).astype(dtype)]
        case "powf":
            powers = np.concatenate([uniform(-8, 8), uniform(-4, 4)]).astype(dtype)
            return [np.concatenate([uniform(0, 10), magnitudes(-7, 7)]).astype(dtype), powers]
    x = np.concatenate(parts)
    return [x[np.abs(x) <= np.finfo(dtype).max].astype(dtype)]


def test_every_formula_has_a_bound():
    assert {op.name.removeprefix("math.") for op in FORMULAS} - {"arith.remf"} == set(BOUNDS) - set(OPS_WITH_ATTRIBUTES)


@pytest.mark.parametrize("t", DTYPES)
@pytest.mark.parametrize(("name", "has_ldexp"), [*((name, False) for name in BOUNDS), *((name, True) for name in SCALED)])
def test_error_bound(name: str, t: str, has_ldexp: bool):
    dtype = DTYPES[t]
    x = samples(name, dtype)
    y, expected = evaluate_function(name, t, *x, has_ldexp=has_ldexp), exact(name, *x)
    spacing = np.spacing(np.maximum(np.abs(expected.astype(dtype)), np.finfo(dtype).tiny))
    error = np.abs((y - expected) / spacing)
    worst = int(np.argmax(error))
    bound = BOUNDS[name][t == "f64"] + (0.5 if (name, t) == ("erf", "f64") else 0)
    assert error[worst] <= bound, f"{name}({[v[worst] for v in x]}) = {y[worst]}, exact {expected[worst]}"


@pytest.mark.parametrize("name", BOUNDS)
def test_precise_functions_are_rounded_once(name: str):
    x = samples(name, np.float32)
    y, expected = evaluate_function(name, "f32", *x, precise=True), exact(name, *x)
    spacing = np.spacing(np.maximum(np.abs(expected.astype(np.float32)), np.finfo(np.float32).tiny))
    assert np.abs((y - expected) / spacing).max() <= 0.501


def edges(dtype: type) -> np.ndarray:
    f = np.finfo(dtype)
    overflow = [88.7, 88.8, 89.4, 89.5, 104.0, 127.9, 128.0, 709.7, 710.4, 710.5, 1023.9, 1024.0]
    underflow = [-87.5, -103.9, -104.1, -126.5, -149.5, -160.0, -708.5, -745.1, -746.0, -1022.5, -1074.5, -1076.0]
    near_one = [1 + float(f.eps), 1 - float(f.eps), -1 - float(f.eps), -1 + float(f.eps)]
    half = [0.0, 0.5, 1.0, 2.0, 3.0, np.inf, f.tiny, f.smallest_subnormal, f.tiny / 8, f.max, 1e-30, 20.0, 40.0]
    return np.array([*half, *(-np.array(half)), np.nan, *overflow, *underflow, *near_one], dtype)


@pytest.mark.parametrize("t", DTYPES)
@pytest.mark.parametrize(("name", "has_ldexp"), [*((name, False) for name in BOUNDS), *((name, True) for name in SCALED)])
def test_edges(name: str, t: str, has_ldexp: bool):
    """Signed zeros, infinities, NaN, subnormals, overflow and underflow."""
    dtype = DTYPES[t]
    x = [edges(dtype)]
    if name == "exp_at_most_zero":
        x = [x[0][~(x[0] > 0)]]
    if name == "exp_normal_range":
        x = [x[0][(x[0] != dtype(88.7 if t == "f32" else 709.7))]]  # infinite, although e^x is a normal number
    if name in ("atan2", "powf"):
        more = np.array([4, 5, 2.5, -2.5, 1e20, -1e20, 2**24 + 1], dtype)
        x = [v.ravel() for v in np.meshgrid(*[np.concatenate([x[0], more])] * 2)]
    if name == "ldexp":
        x = [v.ravel() for v in np.meshgrid(x[0], x[0][np.isfinite(x[0])])]
    with np.errstate(all="ignore"):
        y, expected = evaluate_function(name, t, *x, has_ldexp=has_ldexp), exact(name, *x).astype(dtype)
        if name.endswith("_flushed"):
            expected = np.where(np.abs(expected) < np.finfo(dtype).tiny, 0, expected)
        near = np.abs(y - expected) <= 6 * np.spacing(np.abs(expected))
    same = (np.isnan(y) & np.isnan(expected)) | ((y == expected) | near) & (np.signbit(y) == np.signbit(expected))
    wrong = [(tuple(float(v[k]) for v in x), float(y[k]), float(expected[k])) for k in np.flatnonzero(~same)]
    assert not wrong


@pytest.mark.parametrize(("t", "x"), [("f32", [-88, -95, -120, -np.inf]), ("f64", [-709, -730, -800, -np.inf])])
def test_subnormal_exponentials_of_negative_arguments_are_zero(t: str, x: list[float]):
    for name in ("exp_at_most_zero", "exp_normal_range"):
        np.testing.assert_array_equal(evaluate_function(name, t, np.array(x, DTYPES[t])), 0)
    infinite = evaluate_function("exp_normal_range", t, -np.array(x[1:], DTYPES[t]))
    np.testing.assert_array_equal(infinite, np.inf)
    np.testing.assert_array_equal(evaluate_function("exp_flushed", t, np.array(x, DTYPES[t])), 0)
    np.testing.assert_array_equal(evaluate_function("exp2_flushed", t, float(np.log2(np.e)) * np.array(x, DTYPES[t])), 0)


@pytest.mark.parametrize("t", DTYPES)
@pytest.mark.parametrize("name", BOUNDS)
def test_error_bound_where_fma_rounds_twice(name: str, t: str):
    dtype = DTYPES[t]
    x = [v[:: 12 if name in ("sin", "cos", "tan") else 1] for v in samples(name, dtype)]
    module = expand(name, len(x), t, x[0].size, fused=False)
    for op in [op for op in module.walk() if isinstance(op, math.FmaOp)]:
        assert op.parent is not None
        product = arith.MulfOp(op.a, op.b)
        op.parent.insert_op_before(product, op)
        total = arith.AddfOp(product, op.c)
        op.parent.insert_op_before(total, op)
        op.result.replace_all_uses_with(total.result)
    (y,) = evaluate(module, x)
    expected = exact(name, *x)
    spacing = np.spacing(np.maximum(np.abs(expected.astype(dtype)), np.finfo(dtype).tiny))
    more = {("exp2", "f32"): 0.2, ("exp2", "f64"): 0.2, ("erf", "f64"): 0.5}.get((name.removesuffix("_flushed"), t), 0)
    assert (np.abs((y - expected) / spacing)).max() <= BOUNDS[name][t == "f64"] + more


@pytest.mark.parametrize("target", ["cpu", "cpu:generic"])
@pytest.mark.parametrize("t", DTYPES)
def test_compiled_trigonometric_functions_at_all_magnitudes(t: str, target: str):
    """The same for many more arguments, and those next to multiples of π/2."""
    dtype, rng = DTYPES[t], np.random.default_rng(2)
    greatest = libm.log10(np.finfo(dtype).max)
    x = rng.choice([-1.0, 1.0], 20_003) * 10 ** rng.uniform(-6, greatest, 20_003)
    x = np.concatenate([x, np.arange(1, 3000) * (np.pi / 2), rng.integers(1, 3_000_000, 3000) * (np.pi / 2)]).astype(dtype)
    names = ("sin", "cos", "tan")
    compiled = dlc.jit(lambda x: tuple(getattr(dlc.numpy, name)(x) for name in names), target=target)
    for name, y in zip(names, compiled(x), strict=True):
        expected = exact(name, x)
        error = np.abs((y - expected) / np.spacing(np.abs(expected.astype(dtype))))
        assert error.max() <= BOUNDS[name][t == "f64"], f"{name}({x[error.argmax()]})"


@pytest.mark.parametrize("t", DTYPES)
def test_elements_are_independent(t: str):
    x = np.array([0.1, 3.0, -700.25, 1e30, np.inf, np.nan], DTYPES[t])
    together = evaluate_function("sin", t, x)
    alone = np.concatenate([evaluate_function("sin", t, x[k : k + 1]) for k in range(x.size)])
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("t", ["f16", "bf16"])
def test_half_precision_is_rounded_once(t: str):
    dtype = np.dtype(np.float16 if t == "f16" else ml_dtypes.bfloat16)
    x = np.linspace(-4, 4, 100).astype(dtype)
    np.testing.assert_array_equal(evaluate_function("exp", t, x), np.exp(x.astype(np.float64)).astype(dtype))


def test_vectors_keep_their_shape_and_constants_are_shared():
    module = expand("tanh", 1, "f32", 0, "vector<2x3x4xf32>")
    x = np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 3, 4)
    (y,) = evaluate(module, [x])
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-6)
    (function,) = module.ops
    names = [op.name for op in function.body.block.ops]
    constants = [str(op.properties["value"]) for op in function.body.block.ops if op.name == "arith.constant"]
    # All constants are at the start, each once.
    assert "arith.constant" not in names[len(constants) :]
    assert len(set(constants)) == len(constants)


def test_scalars():
    module = parse_module(
        CONTEXT,
        """
        func.func @main(%x: memref<f64>, %y: memref<f64>) attributes {kernel} {
          %v = memref.load %x[] : memref<f64>
          %r = math.log %v : f64
          memref.store %r, %y[] : memref<f64>
          func.return
        }""",
    )
    ExpandMathPass().apply(CONTEXT, module)
    module.verify()
    (y,) = evaluate(module, [np.array(10.0)])
    assert y == pytest.approx(np.log(10.0), rel=1e-15)
    assert not any(op.name == "math.log" for op in module.walk())


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("t", DTYPES)
def test_softmax_weights_have_small_absolute_error(t: str, fused: bool):
    """1 at 0; elsewhere a small absolute error, never above 1; 0 for masked scores, and NaN for NaN."""
    dtype = DTYPES[t]
    x = np.concatenate([*(-abs(v) for v in samples("exp", dtype)), [0.0, -1e4, -np.inf, np.nan]]).astype(dtype)
    (y,) = evaluate(expand("exp_absolute_accuracy", 1, t, x.size, fused=fused), [x])
    assert y[-4:-1].tolist() == [1, 0, 0] and np.isnan(y[-1])
    assert np.all(np.abs(y[:-1] - exact("exp", x[:-1])) <= (2.0**-22 if t == "f32" else 2.0**-51)) and y[:-1].max() == 1
