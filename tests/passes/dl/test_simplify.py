"""`simplify`: each rule on the smallest program that triggers it, with equal values before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.dialects import dl
from dlc.dialects.dl.base import flag
from dlc.ir import SSAValue, f32, f64, i1, i32, i64
from dlc.passes.dl.simplification.cse import CsePass
from dlc.passes.dl.simplification.dce import DcePass
from dlc.passes.dl.simplification.simplify import SimplifyPass
from tests.passes.programs import Writer, program, randoms

FLOATS = np.array([[-np.inf, -2.5, -0.0, 0.0], [1.0, 3.0, np.inf, np.nan]], np.float32)
INTS = np.array([[-3, 0, 5, 7]], np.int32)


def number(b: Writer, value: float, like: SSAValue) -> SSAValue:
    return b.scalar(value, like=like)


Case = tuple[Callable[[Writer, SSAValue], SSAValue], list[str]]


def slice_(b: Writer, x: SSAValue, starts: tuple[int, ...], limits: tuple[int, ...]) -> SSAValue:
    return b(dl.SliceOp, x, starts=starts, limits=limits, strides=(1,) * len(starts))


def padded(b: Writer, x: SSAValue) -> SSAValue:
    return b(dl.PadOp, x, number(b, 7, x), low=(1, 0), high=(0, 2))


def sliced_convolution(b: Writer, x: SSAValue) -> SSAValue:
    """Results 1 and 2 of six: their receptive field begins at the second element, and ends in the padding."""
    rows = b(dl.PadOp, b(dl.ReshapeOp, x, shape=(2, 4, 1)), number(b, 0, x), low=(0, 0, 0), high=(0, 11, 0))
    w = b.weight(randoms((3, 1, 5))[0].astype(np.float32))
    y = b(dl.ConvOp, rows, w, strides=(2,), dilations=(2,), groups=1)
    return slice_(b, y, (1, 1, 0), (2, 3, 5))


ON_FLOATS: dict[str, Case] = {
    "x + (-0.0)": (lambda b, x: b(dl.AddOp, x, number(b, -0.0, x)), []),
    "x + 0.0 is none: -0.0": (lambda b, x: b(dl.AddOp, x, number(b, 0.0, x)), ["add"]),
    "x - 0.0": (lambda b, x: b(dl.SubOp, x, number(b, 0.0, x)), []),
    "x · 1": (lambda b, x: b(dl.MulOp, number(b, 1, x), x), []),
    "x · -1": (lambda b, x: b(dl.MulOp, number(b, -1, x), x), ["neg"]),
    "x · 0 is none: NaN": (lambda b, x: b(dl.MulOp, x, number(b, 0, x)), ["mul"]),
    "x / 1": (lambda b, x: b(dl.DivOp, x, number(b, 1, x)), []),
    "x / 4 is exact": (lambda b, x: b(dl.DivOp, x, number(b, 4, x)), ["mul"]),
    "x / 3 is not": (lambda b, x: b(dl.DivOp, x, number(b, 3, x)), ["div"]),
    "1 / x": (lambda b, x: b(dl.DivOp, number(b, 1, x), x), ["reciprocal"]),
    "x⁰": (lambda b, x: b(dl.PowOp, x, number(b, 0, x)), []),
    "x¹": (lambda b, x: b(dl.PowOp, x, number(b, 1, x)), []),
    "x²": (lambda b, x: b(dl.PowOp, x, number(b, 2, x)), ["mul"]),
    "x⁴": (lambda b, x: b(dl.PowOp, x, number(b, 4, x)), ["mul", "mul"]),
    "x⁻¹": (lambda b, x: b(dl.PowOp, x, number(b, -1, x)), ["reciprocal"]),
    "x^½": (lambda b, x: b(dl.PowOp, x, number(b, 0.5, x)), ["sqrt"]),
    "x^1.5 stays": (lambda b, x: b(dl.PowOp, x, number(b, 1.5, x)), ["pow"]),
    "max(x, -inf)": (lambda b, x: b(dl.MaximumOp, x, number(b, -np.inf, x)), []),
    "min(x, inf)": (lambda b, x: b(dl.MinimumOp, number(b, np.inf, x), x), []),
    "-(-x)": (lambda b, x: b(dl.NegOp, b(dl.NegOp, x)), []),
    "relu(relu(x))": (lambda b, x: b(dl.ReluOp, b(dl.ReluOp, x)), ["relu"]),
    "cast to a wider type and back": (lambda b, x: b(dl.CastOp, b(dl.CastOp, x, to=f64), to=f32), []),
    "cast to an integer and back stays": (lambda b, x: b(dl.CastOp, b(dl.CastOp, x, to=i64), to=f32), ["cast", "cast"]),
    "select(true)": (lambda b, x: b(dl.SelectOp, b.constant(np.array(True), i1), x, b(dl.NegOp, x)), []),
    "select of equals": (lambda b, x: b(dl.SelectOp, b(dl.IsnanOp, x), x, x), []),
    "logistic": (
        lambda b, x: b(dl.DivOp, number(b, 1, x), b(dl.AddOp, number(b, 1, x), b(dl.ExpOp, b(dl.NegOp, x)))),
        ["sigmoid"],
    ),
    "transpose twice": (lambda b, x: b(dl.TransposeOp, b(dl.TransposeOp, x, permutation=(1, 0)), permutation=(1, 0)), []),
    "reshape twice": (lambda b, x: b(dl.ReshapeOp, b(dl.ReshapeOp, x, shape=(8,)), shape=(4, 2)), ["reshape"]),
    "reshape and back": (lambda b, x: b(dl.ReshapeOp, b(dl.ReshapeOp, x, shape=(8,)), shape=(2, 4)), []),
    "all of it": (lambda b, x: b(dl.SliceOp, x, starts=(0, 0), limits=(2, 4), strides=(1, 1)), []),
    "slice of a slice": (
        lambda b, x: b(
            dl.SliceOp,
            b(dl.SliceOp, x, starts=(0, 1), limits=(2, 4), strides=(1, 2)),
            starts=(1, 1),
            limits=(2, 2),
            strides=(1, 1),
        ),
        ["slice"],
    ),
    "slice of elementwise ops": (
        lambda b, x: slice_(b, b(dl.MulOp, b(dl.ExpOp, x), b.weight(randoms((4,))[0].astype(np.float32))), (1, 2), (2, 4)),
        ["slice", "exp", "slice", "mul"],
    ),
    "slice of an elementwise op of a product": (
        lambda b, x: slice_(b, b(dl.NegOp, b(dl.ReduceSumOp, x, axes=(0,), keepdims=True)), (0, 1), (1, 2)),
        ["reduce_sum", "neg", "slice"],
    ),
    "slice of a concatenation": (
        lambda b, x: b(dl.SliceOp, b(dl.ConcatOp, b(dl.NegOp, x), x, axis=1), starts=(0, 4), limits=(2, 8), strides=(1, 1)),
        [],
    ),
    "one element of what is reversed": (
        lambda b, x: b(dl.SliceOp, b(dl.ReverseOp, x, axes=(0,)), starts=(1, 0), limits=(2, 4), strides=(1, 1)),
        ["slice"],
    ),
    "more elements of what is reversed": (
        lambda b, x: b(dl.SliceOp, b(dl.ReverseOp, x, axes=(1,)), starts=(1, 0), limits=(2, 3), strides=(1, 1)),
        ["reverse", "slice"],
    ),
    "concatenation of one": (lambda b, x: b(dl.ConcatOp, x, axis=0), []),
    "nested concatenation": (lambda b, x: b(dl.ConcatOp, b(dl.ConcatOp, x, x, axis=1), x, axis=1), ["concat"]),
    "concatenation of very many": (
        lambda b, x: b(dl.ConcatOp, *[x] * 150, b(dl.ConcatOp, x, x, axis=1), axis=1),
        ["concat"] * 3,
    ),
    "no padding": (lambda b, x: b(dl.PadOp, x, number(b, 0, x), low=(0, 0), high=(0, 0)), []),
    "pad of a pad": (
        lambda b, x: b(
            dl.PadOp, b(dl.PadOp, x, number(b, 1, x), low=(1, 0), high=(0, 0)), number(b, 1, x), low=(0, 2), high=(1, 0)
        ),
        ["pad"],
    ),
    "pads of two numbers": (
        lambda b, x: b(
            dl.PadOp, b(dl.PadOp, x, number(b, 1, x), low=(1, 0), high=(0, 0)), number(b, 2, x), low=(0, 2), high=(1, 0)
        ),
        ["pad", "pad"],
    ),
    "a pad that takes away": (lambda b, x: b(dl.PadOp, x, number(b, 0, x), low=(0, -1), high=(-1, 0)), ["slice"]),
    "padding that is cut off": (lambda b, x: slice_(b, padded(b, x), (1, 0), (3, 4)), []),
    "some of what is padded": (lambda b, x: slice_(b, padded(b, x), (0, 1), (2, 5)), ["slice", "pad"]),
    "nothing but padding": (lambda b, x: slice_(b, padded(b, x), (0, 4), (3, 6)), ["pad", "slice"]),
    "some places of a convolution": (sliced_convolution, ["reshape", "slice", "pad", "conv"]),
    "implied broadcast": (
        lambda b, x: b(dl.AddOp, x, b(dl.BroadcastToOp, number(b, 2, x), shape=(2, 4))),
        ["add"],
    ),
    "needed broadcast": (lambda b, x: b(dl.NegOp, b(dl.BroadcastToOp, x, shape=(3, 2, 4))), ["broadcast_to", "neg"]),
    "constant tensor": (lambda b, x: b(dl.AddOp, x, b.constant(np.full((2, 4), 2.0), f32)), ["add"]),
    "reduction over nothing": (lambda b, x: b(dl.ReduceSumOp, x, axes=(), keepdims=True), []),
    "axes dropped by a reshape": (
        lambda b, x: b(dl.ReduceMaxOp, x, axes=(1,), keepdims=False),
        ["reduce_max", "reshape"],
    ),
    "one known place": (lambda b, x: b(dl.GatherOp, x, b.constant(np.array(-1), i64), axis=1), ["slice", "reshape"]),
}
ON_INTS: dict[str, Case] = {
    "x + 0": (lambda b, x: b(dl.AddOp, x, number(b, 0, x)), []),
    "x · 0": (lambda b, x: b(dl.MulOp, x, number(b, 0, x)), []),
    "x²": (lambda b, x: b(dl.PowOp, x, number(b, 2, x)), ["mul"]),
    "constants": (lambda b, x: b(dl.AddOp, x, b(dl.MulOp, number(b, 3, x), number(b, 4, x))), ["add"]),
    "iota of constants": (lambda b, x: b(dl.AddOp, x, b(dl.IotaOp, size=(4,), to=i32, start=1, step=2)), ["add"]),
}


@pytest.mark.parametrize("name", ON_FLOATS)
def test_on_floats(name: str) -> None:
    body, expected = ON_FLOATS[name]
    with np.errstate(all="ignore"):
        p = program(body, FLOATS).apply(SimplifyPass(), DcePass(), tolerance=1e-6)
    assert p.ops == expected


@pytest.mark.parametrize("name", ON_INTS)
def test_on_integers(name: str) -> None:
    body, expected = ON_INTS[name]
    assert program(body, INTS).apply(SimplifyPass(), DcePass()).ops == expected


def square(b: Writer, x: SSAValue) -> SSAValue:
    return b(dl.MulOp, x, x)


def nested_scales(b: Writer, x: SSAValue) -> SSAValue:
    y = square(b, x)
    for _ in range(1201):
        y = b(dl.MulOp, y, number(b, -0.75, x))
    return y


# Arguments of exponentials, and whether they are provably non-positive.
ARGUMENTS: dict[str, tuple[Callable[[Writer, SSAValue], SSAValue], bool]] = {
    "x": (lambda b, x: x, False),
    "-x": (lambda b, x: b(dl.NegOp, x), False),
    "x²": (square, False),
    "-x²": (lambda b, x: b(dl.NegOp, square(b, x)), True),
    "-½·x²": (lambda b, x: b(dl.MulOp, number(b, -0.5, x), square(b, x)), True),
    "-(-½·x²)": (lambda b, x: b(dl.NegOp, b(dl.MulOp, square(b, x), number(b, -0.5, x))), False),
    "-2·|x|": (lambda b, x: b(dl.MulOp, b(dl.AbsOp, x), number(b, -2, x)), True),
    "x²·(-¾)·(-¾)·…": (nested_scales, True),
    "-(exp(x)·x)": (lambda b, x: b(dl.NegOp, b(dl.MulOp, b(dl.ExpOp, x), x)), False),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_exponentials_of_non_positive_values_are_marked(name: str) -> None:
    argument, expected = ARGUMENTS[name]
    with np.errstate(all="ignore"):
        p = program(lambda b, x: b(dl.ExpOp, argument(b, x)), FLOATS).apply(SimplifyPass(), tolerance=1e-6)
    *_, last = (op for op in p.main.body.block.ops if isinstance(op, dl.ExpOp))
    assert flag(last.at_most_zero) is expected


def test_rule_results_are_simplified() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.MulOp, b(dl.PowOp, x, number(b, 1, x)), number(b, 1, x))
        return b(dl.TransposeOp, b(dl.TransposeOp, y, permutation=(1, 0)), permutation=(1, 0))

    assert program(body, *randoms((2, 3))).apply(SimplifyPass()).ops == []


def test_equal_expressions_are_computed_once() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        sums = [b(dl.AddOp, b(dl.ExpOp, x), b(dl.NegOp, x)) for _ in range(2)]
        return b(dl.MulOp, *sums)

    assert program(body, *randoms((4,))).apply(CsePass()).ops == ["exp", "neg", "add", "mul"]


def test_concatenation_extends_the_longest_prefix() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        layers = [x, b(dl.NegOp, x)]
        for _ in range(3):
            layers.append(b(dl.ReduceSumOp, b(dl.ConcatOp, *layers, axis=1), axes=(1,), keepdims=True))
        # Not along another axis, and not a prefix that starts elsewhere.
        others = [b(dl.ConcatOp, *layers[:2], x, axis=0), b(dl.ConcatOp, *layers[1:], axis=1)]
        sums = [b(dl.ReduceSumOp, v, axes=(0,), keepdims=True) for v in (b(dl.ConcatOp, *layers, x, axis=1), *others)]
        return b(dl.ConcatOp, *sums, axis=1)

    p = program(body, *randoms((2, 3))).apply(CsePass())
    assert [len(op.operands) for op in p.main.body.block.ops if isinstance(op, dl.ConcatOp)] == [2, 2, 2, 3, 4, 3, 3]


def test_unused_ops_are_erased() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        b(dl.NegOp, b(dl.ExpOp, x))
        return x

    assert program(body, *randoms((4,))).apply(DcePass()).ops == []


def test_a_selection_of_static_size_is_not_erased() -> None:
    """The program checks its size when it runs."""

    def body(b: Writer, x: SSAValue) -> SSAValue:
        b(dl.NonzeroOp, b(dl.GreaterEqualOp, x, x), size=(4,))
        return x

    assert program(body, *randoms((4,))).apply(DcePass()).ops == ["greater_equal", "nonzero"]


@pytest.mark.parametrize(("row", "rest"), [((1, 4), (3, 4)), ((2, 4), (3, 2, 4))])
def test_a_scatter_that_is_broadcast_is_not_merged_with_the_sum(row: tuple[int, ...], rest: tuple[int, ...]) -> None:
    """`scatter_add(0, i, u) + rest`, where `rest` has more rows than the scatter."""

    def function(x: Any, rest: Any, i: Any) -> Any:
        return dlc.vjp(lambda x: x[i] * 2.0, x)[1](np.ones(4, np.float32))[0] + rest

    expected = np.zeros(row, np.float32)
    expected[0] = 2
    got = dlc.jit(function)(np.zeros(row, np.float32), np.ones(rest, np.float32), np.int32(0))
    np.testing.assert_array_equal(got, expected + np.ones(rest, np.float32))
