"""Low-precision types on every level of this processor: exact sums at the limits of a type, and a single rounding."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

import dlc
import dlc.numpy as dnp
from dlc.backends.cpu.llvm import assembly
from dlc.dialects import dl
from dlc.dialects.dl.base import tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.emission.llvm.kernel import emit_kernel
from dlc.ir import Attribute, Context, SSAValue
from dlc.passes.base import kernels_of
from dlc.pipelines import stages_of
from dlc.target import CPU_LEVELS, Target
from tests.backends.cpu.native import LEVELS
from tests.passes.dl.test_quantized_contractions import quantized
from tests.passes.programs import Writer, program, randoms

RNG = np.random.default_rng(7)


def model(op: str, x: np.ndarray, result: type, *weights: np.ndarray) -> ModelProto:
    names = [f"w{k}" for k in range(len(weights))]
    node = helper.make_node(op, ["x", *names], ["y"])
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, dtype, shape in (("x", x.dtype, x.shape), ("y", result, None))
    ]
    given = [numpy_helper.from_array(w, name) for name, w in zip(names, weights, strict=True)]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def extremes(dtype: type, *shape: int) -> np.ndarray:
    """Return the limits of a type in the first row and column, and random values elsewhere."""
    limits = np.iinfo(dtype)
    numbers = RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    numbers[0], numbers[:, 0] = limits.min, limits.max
    return numbers


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("data", [np.uint8, np.int8])
@pytest.mark.parametrize("weights", [np.uint8, np.int8])
@pytest.mark.parametrize("k", [1, 6, 67])
def test_sums_are_exact(k: int, weights: type, data: type, target: Target) -> None:
    x, w = extremes(data, 19, k), extremes(weights, k, 37)
    zeros = data(np.iinfo(data).max), weights(np.iinfo(weights).min + 3)
    for zero_x, zero_w in (zeros, (data(0), weights(0)), (data(1), weights(128 if weights == np.uint8 else 0))):
        made = dlc.compile_model(model("MatMulInteger", x, np.int32, w, zero_x, zero_w), target=target.name, num_threads=1)
        exact = (x.astype(np.int64) - int(zero_x)) @ (w.astype(np.int64) - int(zero_w))
        np.testing.assert_array_equal(made(x)["y"], exact)


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(9), np.int8(-128), np.int8(5)], ids=lambda z: f"{z.dtype}_{z}")
def test_ties_round_to_even(zero: np.generic, target: Target) -> None:
    x = np.concatenate([np.arange(-600, 600) / 2, [np.nan, np.inf, -np.inf, 1e30, -1e30]]).astype(np.float32)
    made, expected = (
        dlc.compile_model(model("QuantizeLinear", x, type(zero), np.float32(1), zero), target=name, num_threads=1)(x)["y"]
        for name in (target.name, "reference")
    )
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("name", ["cpu:generic", "cpu:avx2", "cpu:avx512"])
def test_rounding_is_fused_into_conversions(name: str) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return quantized(b, b(dl.ReluOp, x), np.uint8, zero=0)[0]

    p, target = program(body, *randoms((4, 64))), CPU_LEVELS[name]
    expected = p.run()
    for stage in stages_of(target):
        for step in stage.passes:
            step.apply(Context(), p.module)
    np.testing.assert_allclose(p.run()[0].astype(int), expected[0].astype(int), atol=1)
    code = assembly(emit_kernel(next(iter(kernels_of(p.module))), target).text, target)
    assert re.search(r"cvtps2dq", code) and not re.search(r"\tv?(round|rndscale|cvttps)", code)
    # The lower clamp is that of the activation.
    assert len(re.findall(r"\tv?maxps", code)) == len(re.findall(r"\tv?minps", code))


@pytest.mark.parametrize("target", LEVELS)
def test_rounding_with_other_uses_or_without_clamps_is_kept(target: Target) -> None:
    x = (np.arange(-40, 40) / 4).astype(np.float32)

    def f(x: dnp.Array) -> tuple[dnp.Array, ...]:
        y = dnp.round(x)
        clamped = dnp.clip(y, 0.5, 7.5)
        return y.astype(np.int32), dnp.clip(dnp.round(x * 3), -8, 7).astype(np.int8), clamped.astype(np.uint8), clamped

    for got, expected in zip(dlc.jit(target=target.name)(f)(x), dlc.jit(target="reference")(f)(x), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("size", [3, 16, 32, 57])
@pytest.mark.parametrize("target", LEVELS)
def test_clamped_conversions_of_any_width(target: Target, size: int) -> None:
    x = RNG.uniform(-400, 400, (3, size)).astype(np.float32)
    x[0, :3] = np.nan, np.inf, -np.inf

    def f(x: dnp.Array) -> tuple[dnp.Array, ...]:
        y = dnp.round(x)
        signed, unsigned = y.astype(np.int8), y.astype(np.uint8)
        words = [a.astype(t) for a in (signed, unsigned) for t in (np.int16, np.uint16, np.int32, np.float32, np.float64)]
        return signed, unsigned, *words, dnp.clip(y, -3, 200).astype(np.int16).astype(np.uint8).astype(np.int16)

    for got, expected in zip(dlc.jit(target=target.name)(f)(x), dlc.jit(target="reference")(f)(x), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["cpu:generic", "cpu:avx2"])
@pytest.mark.parametrize("to", [None, element_type(np.int16)], ids=["ui8", "i16"])
def test_pairs_of_registers_are_packed(to: Attribute | None, name: str) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        zero = b.scalar(0, like=tensor_type((), element_type(np.uint8)))
        return b(dl.QuantizeOp, x, b.scalar(0.5, like=x), zero, axis=0, to=to)

    p, target = program(body, *randoms((4, 64))), CPU_LEVELS[name]
    for stage in stages_of(target):
        for step in stage.passes:
            step.apply(Context(), p.module)
    code = assembly(emit_kernel(next(iter(kernels_of(p.module))), target).text, target)
    conversions, packs = (len(re.findall(rf"\tv?{op}", code)) for op in ("cvtps2dq", "packssdw"))
    assert conversions == 2 * packs and not re.search(r"\tv?pand\b", code)
    assert bool(re.search(r"packuswb", code)) == (to is None)
