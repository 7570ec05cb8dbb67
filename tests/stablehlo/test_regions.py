"""Bodies of reductions, windows, sorts and scatters, which are matched as a whole: functions of JAX, compared with JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.backends.reference import evaluate
from dlc.errors import UnsupportedError
from dlc.stablehlo import read_module

jax = pytest.importorskip("jax")
lax, jnp = jax.lax, jax.numpy

_RANDOM = np.random.default_rng(0)
NEGATIVE = -np.abs(_RANDOM.standard_normal((5, 7))).astype(np.float32)
MIXED = _RANDOM.standard_normal((5, 7)).astype(np.float32)
INTEGERS = _RANDOM.integers(-2, 3, (4, 6)).astype(np.int32)
SPECIAL = np.array([0.0, -0.0, np.nan, 1, -1, -np.inf, np.inf, 0.0, -0.0, -np.nan, 2], np.float32)
INDICES = np.broadcast_to(np.arange(7, dtype=np.int32), (5, 7))
# Each op with an initial value that is not neutral.
OPS = {"max": (lax.max, 0.5), "min": (lax.min, -0.5), "add": (lax.add, 1), "mul": (lax.mul, 2)}


def check(function: Callable[..., Any], *operands: np.ndarray) -> None:
    """Compare a function compiled by dlc with JAX's result."""
    wanted = jax.tree.leaves(jax.jit(function)(*operands))
    got = jax.tree.leaves(dlc.from_jax(function, *operands, target="reference")(*operands))
    for one, other in zip(got, map(np.asarray, wanted), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)


def op_names(function: Callable[..., Any], *operands: np.ndarray) -> set[str]:
    read = read_module(jax.jit(function).lower(*operands).as_text(), "m.mlir")
    return {op.name for op in read.module.walk()}


@pytest.mark.parametrize("kind", OPS)
@pytest.mark.parametrize(
    ("window", "strides", "settings"),
    [
        ((2, 2), (1, 1), {"padding": "VALID"}),
        ((3, 2), (2, 1), {"padding": "SAME"}),
        ((3, 2), (2, 1), {"padding": "SAME", "base_dilation": (1, 2), "window_dilation": (1, 2)}),
        ((1, 7), (1, 1), {"padding": [(0, 0), (6, 0)]}),
    ],
    ids=["valid", "padded", "dilated", "cumulative"],
)
def test_the_initial_value_of_windows_counts_once(
    kind: str, window: tuple[int, int], strides: tuple[int, int], settings: dict[str, Any]
) -> None:
    op, init = OPS[kind]
    check(lambda x: lax.reduce_window(x, np.float32(init), op, window, strides, **settings), NEGATIVE)
    check(lambda x: lax.reduce_window(x + 1j, np.complex64(2), lax.add, window, strides, **settings), NEGATIVE)


@pytest.mark.parametrize("kind", OPS)
def test_the_initial_value_of_a_reduction_counts_once(kind: str) -> None:
    op, init = OPS[kind]
    check(lambda x: lax.reduce(x, np.float32(init), op, (1,)), NEGATIVE)
    check(lambda x: lax.reduce(x, np.float32(init), op, (0,)), NEGATIVE[:0])
    check(lambda x: lax.reduce(x, np.int32(3), op, (0, 1)), INTEGERS)
    pair = (np.float32(init), np.float32(init + 1))
    check(lambda x: lax.reduce((x, x), pair, lambda a, b: (op(a[0], b[0]), op(a[1], b[1])), (0,)), NEGATIVE)


@pytest.mark.parametrize("op", [lax.bitwise_xor, lax.bitwise_and, lax.bitwise_or])
def test_reductions_of_bits(op: Callable[..., Any]) -> None:
    check(lambda x: lax.reduce(x, np.int32(5), op, (1,)), INTEGERS)
    check(lambda x: lax.reduce(x > 0, np.array(True), op, (1,)), INTEGERS)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_index_of_an_extremum(name: str) -> None:
    find = getattr(jnp, name)
    for x in (MIXED, np.tile(SPECIAL, (2, 1)), INTEGERS, np.full((2, 3), -np.inf, np.float32), INTEGERS > 0):
        check(lambda x: find(x, 1), x)
        check(lambda x: find(x, 0), x)
    assert f"dl.{name}" in op_names(lambda x: find(x, 1), np.zeros((40, 300), np.float32))


@pytest.mark.parametrize("first", [lambda a, b: a > b, lambda a, b: abs(a) > abs(b), lambda a, b: -a > -b])
@pytest.mark.parametrize(("init", "index", "step"), [(0.5, -1, 1), (-np.inf, -1, 3)])
def test_index_of_another_extremum(first: Callable[..., Any], init: float, index: int, step: int) -> None:
    """Another comparison, another initial value, other indices."""

    def body(a: Any, b: Any) -> Any:
        is_first = first(a[0], b[0])
        return lax.select(is_first, a[0], b[0]), lax.select(is_first, a[1], b[1])

    check(lambda x: lax.reduce((x, step * INDICES), (np.float32(init), np.int32(index)), body, (1,)), MIXED)


def test_sorts() -> None:
    for x in (MIXED, SPECIAL, INTEGERS, INTEGERS > 0, INTEGERS.astype(np.uint8), MIXED.astype(np.float16)):
        check(lambda x: lax.sort(x), x)
        check(lambda x: jnp.argsort(x), x)
        check(lambda x: jnp.argsort(x, descending=True), x)
    check(lambda x: lax.sort((x, x[::-1], x + 1), num_keys=2), INTEGERS)
    check(lambda x: jnp.lexsort((x[:2], x[2:])), INTEGERS)
    check(lambda x, y: lax.sort(lax.complex(x, y)), np.round(MIXED), MIXED)
    check(lambda x: lax.approx_min_k(x, 3, reduction_dimension=0), MIXED)
    assert "dl.sort" in op_names(lambda x: lax.sort(x), MIXED)


def _sorted(comparator: str, *operands: np.ndarray) -> list[np.ndarray]:
    """Sort i32 or f32 vectors with a comparator of %p, %q (the first operand), %r, %s (the second)."""
    kinds = ["f32" if x.dtype == np.float32 else "i32" for x in operands]
    types = [f"tensor<{x.size}x{kind}>" for x, kind in zip(operands, kinds, strict=True)]
    arguments = [f"{name}: tensor<{kinds[k // 2]}>" for k, name in enumerate(("%p", "%q", "%r", "%s")[: 2 * len(operands)])]
    names = [f"%{letter}" for letter, _ in zip("ab", operands, strict=False)]
    all_types = ", ".join(types)
    results = ", ".join(f"%0#{k}" if len(operands) > 1 else "%0" for k in range(len(operands)))
    text = (
        f"func.func @main({', '.join(f'{name}: {type}' for name, type in zip(names, types, strict=True))}) -> ({all_types}) {{\n"
        f'%0:{len(operands)} = "stablehlo.sort"({", ".join(names)}) <{{dimension = 0 : i64, is_stable = true}}> ({{\n'
        f"^bb0({', '.join(arguments)}):\n{comparator}\n}}) : ({all_types}) -> ({all_types})\n"
        f"return {results} : {all_types}\n}}"
    )
    read = read_module(f"module {{\n{text}\n}}", "m.mlir")
    return [np.asarray(y) for y in evaluate(read.module, operands, read.weights)]


SCALAR = " : tensor<f32>\n"
COMPARE = " : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
COMPARE_I32 = " : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
RETURN = "stablehlo.return %c : tensor<i1>"


def test_sort_keys() -> None:
    x = np.array([3, -1, 2, -5, 0, 4], np.float32)
    absolute = f"%k = stablehlo.abs %p{SCALAR}%l = stablehlo.abs %q{SCALAR}"
    np.testing.assert_array_equal(
        _sorted(f"{absolute}%c = stablehlo.compare LT, %k, %l{COMPARE}{RETURN}", x)[0], [0, -1, 2, 3, 4, -5]
    )
    negated = f"%k = stablehlo.negate %p{SCALAR}%l = stablehlo.negate %q{SCALAR}"
    np.testing.assert_array_equal(
        _sorted(f"{negated}%c = stablehlo.compare LT, %k, %l{COMPARE}{RETURN}", x)[0], np.sort(x)[::-1]
    )
    exchanged = f"%c = stablehlo.compare LT, %q, %p{COMPARE}{RETURN}"
    np.testing.assert_array_equal(_sorted(exchanged, x)[0], np.sort(x)[::-1])
    total = f"%c = stablehlo.compare LT, %p, %q, TOTALORDER{COMPARE}{RETURN}"
    zeros = np.array([1, 0.0, -0.0, np.nan, -np.inf, 0.0, -0.0], np.float32)
    (got,) = _sorted(total, zeros)
    np.testing.assert_array_equal(got, np.sort(zeros))
    np.testing.assert_array_equal(np.signbit(got[:-1]), [True, True, True, False, False, False])


def test_the_most_significant_key_is_the_one_that_decides() -> None:
    """The second operand decides, ascending; the first one, descending, decides ties."""
    a, b = np.random.default_rng(1).integers(0, 3, (2, 20)).astype(np.int32)
    comparator = (
        f"%1 = stablehlo.compare LT, %r, %s{COMPARE_I32}%2 = stablehlo.compare EQ, %s, %r{COMPARE_I32}"
        f"%3 = stablehlo.compare GT, %p, %q{COMPARE_I32}%4 = stablehlo.and %3, %2 : tensor<i1>\n"
        f"%c = stablehlo.or %1, %4 : tensor<i1>\n{RETURN}"
    )
    order = np.lexsort((-a, b))
    for got, wanted in zip(_sorted(comparator, a, b), (a[order], b[order]), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "comparator",
    [
        f"%c = stablehlo.compare LT, %p, %p{COMPARE}{RETURN}",
        f"%c = stablehlo.compare LE, %p, %q{COMPARE}{RETURN}",
        f"%k = stablehlo.abs %p{SCALAR}%c = stablehlo.compare LT, %k, %q{COMPARE}{RETURN}",
        f"%k = stablehlo.add %p, %q{SCALAR}%c = stablehlo.compare LT, %k, %q{COMPARE}{RETURN}",
        f"%1 = stablehlo.compare LT, %p, %q{COMPARE}%c = stablehlo.not %1 : tensor<i1>\n{RETURN}",
    ],
)
def test_other_comparators_are_refused(comparator: str) -> None:
    with pytest.raises(UnsupportedError, match=r"m.mlir:3: stablehlo.sort: its comparator must compare keys"):
        _sorted(comparator, MIXED[0])


def test_gradients_of_pooling() -> None:
    for init, op in ((-np.inf, lax.max), (np.inf, lax.min)):
        for padding in ("VALID", "SAME"):
            check(
                jax.grad(lambda x: (lax.reduce_window(x, init, op, (2, 2), (1, 2), padding) ** 2).sum()),  # noqa: B023
                MIXED,
            )


def test_a_scatter_of_differences_is_refused() -> None:
    text = (
        "module {\nfunc.func @main(%a: tensor<4xf32>, %b: tensor<3xf32>) -> tensor<4xf32> {\n"
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        '%0 = "stablehlo.select_and_scatter"(%a, %b, %z) <{window_dimensions = array<i64: 2>}> ({\n'
        "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n"
        f"%1 = stablehlo.compare GE, %p, %q{COMPARE}stablehlo.return %1 : tensor<i1>\n}}, {{\n"
        f"^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%1 = stablehlo.subtract %p, %q{SCALAR}stablehlo.return %1 : tensor<f32>\n"
        "}) : (tensor<4xf32>, tensor<3xf32>, tensor<f32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>\n}\n}"
    )
    with pytest.raises(UnsupportedError, match="its body must return the update or be one of"):
        read_module(text, "m.mlir")


def test_scatters() -> None:
    at = np.array([0, 0, 2])
    check(lambda x: x.at[:, at].max(1), INTEGERS)
    check(lambda x: (x > 0).at[:, at].max(True), INTEGERS)
    check(lambda x: (x + 1j).at[:, at].add(7j), MIXED)
    check(lambda x: (x + 1j).at[:, at].set(7j), MIXED)


def test_values_at_zeros_and_infinities() -> None:
    """The sign keeps the sign of zero, and ln |Γ| is infinite at both infinities."""
    x = np.array([0.0, -0.0, 3, -3, np.nan, np.inf, -np.inf, -0.3], np.float32)
    for function in (lax.sign, lax.round, lax.lgamma):
        got = dlc.from_jax(function, x, target="reference")(x)
        np.testing.assert_allclose(got, function(x), 1e-6)
        np.testing.assert_array_equal(np.signbit(got[:4]), np.signbit(function(x)[:4]))
