"""Kernels of several ops: their lowering and fusion, and equal results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.build import DlBuilder
from dlc.errors import UnsupportedError
from dlc.ir import ModuleOp, NameLoc, NoneAttr, SSAValue, StringAttr, linalg
from tests.mlir import accepted_by_mlir, needs_mlir
from tests.passes.linalg.kernels import generics, kernel, kernel_of, lowered, op_names, run, types_of

Case = tuple[list[np.ndarray], Callable[..., SSAValue | list[SSAValue]]]


def random_array(*shape: int, dtype: str = "float32") -> np.ndarray:
    random = np.random.default_rng(len(shape) + sum(shape))
    return random.standard_normal(shape).astype(dtype)


def convolve(build: DlBuilder, x: SSAValue, w: SSAValue, groups: int = 1) -> SSAValue:
    return build(dl.ConvOp, x, w, strides=(1, 1), dilations=(1, 1), groups=groups)


def halo(build: DlBuilder, x: SSAValue, value: float = 0.0) -> SSAValue:
    return build(dl.PadOp, x, build.scalar(value, like=x), low=(0, 1, 1, 0), high=(0, 1, 1, 0))


def without_halo(build: DlBuilder, x: SSAValue) -> SSAValue:
    n, h, w, c = x.type.get_shape()
    return build(dl.SliceOp, x, starts=(0, 1, 1, 0), limits=(n, h - 1, w - 1, c), strides=(1, 1, 1, 1))


def residual_block(build: DlBuilder, x: SSAValue, w: SSAValue, bias: SSAValue, skip: SSAValue) -> SSAValue:
    c = convolve(build, x, build(dl.UnpackOp, w, axis=3, tile=4, size=8))
    e = build(dl.AddOp, build(dl.AddOp, c, bias), without_halo(build, skip))
    return halo(build, build(dl.ReluOp, e))


def squares_and_sums(build: DlBuilder, x: SSAValue) -> list[SSAValue]:
    square = build(dl.MulOp, x, x)
    return [square, build(dl.ReduceSumOp, square, axes=(1,), keepdims=False)]


CASES: dict[str, Case] = {
    "residual_block": ([random_array(1, 8, 8, 3), random_array(2, 3, 3, 3, 4), random_array(8), random_array(1, 8, 8, 8)], residual_block),
    "padded_inside": (
        [random_array(1, 6, 6, 4), random_array(3, 3, 4, 2)],
        lambda b, x, w: convolve(b, halo(b, b(dl.SigmoidOp, x)), w),
    ),
    "padded_argument": ([random_array(1, 4, 4, 2)], lambda b, x: halo(b, x, 3.0)),
    "concatenated": (
        [random_array(2, 3), random_array(2, 5)],
        lambda b, x, y: b(dl.ConcatOp, b(dl.ReluOp, x), y, b(dl.AddOp, x, x), axis=1),
    ),
    "padded_concatenation": (
        [random_array(1, 3, 3, 2), random_array(1, 3, 3, 1)],
        lambda b, x, y: halo(b, b(dl.ConcatOp, b(dl.ReluOp, x), b(dl.NegOp, y), axis=3)),
    ),
    "concatenated_twice": ([random_array(2, 3)], lambda b, x: (lambda y: b(dl.ConcatOp, y, y, axis=0))(b(dl.ReluOp, x))),
    "padded_and_read": ([random_array(1, 3, 3, 2)], lambda b, x: (lambda y: [halo(b, y), b(dl.NegOp, y)])(b(dl.ReluOp, x))),
    "depthwise": ([random_array(1, 6, 6, 8), random_array(2, 3, 3, 1, 4)], lambda b, x, w: b(
        dl.ReluOp, convolve(b, x, b(dl.UnpackOp, w, axis=3, tile=4, size=8), groups=8)
    )),
    "grouped": ([random_array(1, 6, 6, 8), random_array(3, 3, 4, 6)], lambda b, x, w: b(dl.ReluOp, convolve(b, x, w, groups=2))),
    "grouped_last": ([random_array(1, 6, 6, 8), random_array(3, 3, 4, 6)], lambda b, x, w: halo(b, convolve(b, x, w, groups=2))),
    "transposed_operands": (
        [random_array(4, 3), random_array(5, 4)],
        lambda b, x, y: b(
            dl.MatmulOp, b(dl.TransposeOp, x, permutation=(1, 0)), b(dl.TransposeOp, b(dl.ReluOp, y), permutation=(1, 0))
        ),
    ),
    "transposed_last": (
        [random_array(2, 3, 4), random_array(4, 5)],
        lambda b, x, y: b(dl.TransposeOp, b(dl.ReluOp, b(dl.MatmulOp, x, y)), permutation=(2, 0, 1)),
    ),
    "sum_of_broadcast": (
        [random_array(3, 1)],
        lambda b, x: b(dl.ReduceSumOp, b(dl.BroadcastToOp, x, shape=(3, 4)), axes=(1,), keepdims=False),
    ),
    "sum_of_reversed": ([random_array(3, 4)], lambda b, x: b(dl.ReduceSumOp, b(dl.ReverseOp, x, axes=(1,)), axes=(1,))),
    "softmax": ([random_array(4, 9)], lambda b, x: b(dl.SoftmaxOp, b(dl.MulOp, x, b.scalar(0.5, like=x)), axis=1)),
    "layer_norm": (
        [random_array(4, 9), random_array(4, 9), random_array(9), random_array(9)],
        lambda b, x, y, s, t: b(dl.LayerNormOp, b(dl.AddOp, x, y), s, t, axis=1, epsilon=1e-5),
    ),
    "half": (
        [random_array(4, 9, dtype="float16"), random_array(9, 5, dtype="float16")],
        lambda b, x, y: b(dl.ReluOp, b(dl.MatmulOp, x, y)),
    ),
    "several_results": ([random_array(4, 9)], squares_and_sums),
    "same_result_twice": ([random_array(4, 9)], lambda b, x: [b(dl.ReluOp, x)] * 2),
    "argument_returned": ([random_array(4, 9)], lambda b, x: x),
    "literal_returned": ([random_array(2)], lambda b, x: b(dl.BroadcastToOp, b.scalar(3.0, like=x), shape=(4, 5))),
    "literal_in_matmul": ([random_array(2, 3)], lambda b, x: b(
        dl.MatmulOp, x, b(dl.BroadcastToOp, b.scalar(2.0, like=x), shape=(3, 4))
    )),
    "gather_of_transposed": (
        [random_array(4, 5), np.array([[0, 3], [-1, 2]])],
        lambda b, x, i: b(dl.GatherOp, b(dl.TransposeOp, b(dl.NegOp, x), permutation=(1, 0)), i, axis=1),
    ),
    "edges": ([random_array(3, 4)], lambda b, x: b(
        dl.NegOp, b(dl.PadOp, x, b.scalar(0.0, like=x), low=(1, 2), high=(0, 1), pad_mode="edge")
    )),
    "reshaped": (
        [random_array(4, 6)],
        lambda b, x: b(dl.NegOp, b(dl.ReshapeOp, b(dl.TransposeOp, b(dl.AbsOp, x), permutation=(1, 0)), shape=(3, 8))),
    ),
    "pooled": ([random_array(1, 6, 6, 4)], lambda b, x: b(
        dl.MaxPoolOp, halo(b, b(dl.NegOp, x), -np.inf), kernel=(3, 3), strides=(2, 2), dilations=(1, 1)
    )),
    "sliced_with_steps": ([random_array(6, 8)], lambda b, x: b(
        dl.NegOp, b(dl.SliceOp, b(dl.TransposeOp, x, permutation=(1, 0)), starts=(1, 0), limits=(8, 5), strides=(2, 3))
    )),
    "sliced_and_reversed": ([random_array(2, 6, 4)], lambda b, x: b(
        dl.NegOp,
        b(dl.SliceOp, b(dl.ReverseOp, x, axes=(2,)), starts=(0, 2, 1), limits=(1, 5, 4), strides=(1, 2, 1)),
    )),
}  # fmt: skip
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def module(case: Case) -> ModuleOp:
    return kernel_of(types_of(*case[0]), case[1])


@each_case
@pytest.mark.parametrize("fuse", [False, True], ids=["lowered", "fused"])
def test_results_match(case: Case, fuse: bool) -> None:
    expected = run(module(case), *case[0])
    for got, want in zip(run(lowered(module(case), fuse=fuse), *case[0]), expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-3 if got.dtype == np.float16 else 1e-5, atol=1e-6)


@needs_mlir
def test_mlir_accepts_fused_kernels() -> None:
    accepted_by_mlir([lowered(module(c)) for c in CASES.values()])


def test_epilogue_is_one_op_that_writes_its_window() -> None:
    m = lowered(module(CASES["residual_block"]))
    border = ["tensor.extract_slice", "linalg.fill", "tensor.insert_slice"]
    assert op_names(m) == [
        "tensor.empty", "linalg.fill", "linalg.generic",
        "tensor.extract_slice", "tensor.extract_slice", "linalg.generic", "tensor.insert_slice",
        *border * 2,
    ]  # fmt: skip
    contraction, epilogue = generics(m)
    assert [op.name for op in contraction.body.block.ops] == ["arith.mulf", "arith.addf", "linalg.yield"]
    assert [op.name for op in epilogue.body.block.ops] == ["arith.addf", "arith.addf", "arith.maximumf", "linalg.yield"]
    weights = contraction.indexing_maps.data[1].data
    assert str(weights) == "(d0, d1, d2, d3, d4, d5, d6) -> ((d3 floordiv 4), d4, d5, d6, (d3 mod 4))"
    assert kernel(m).body.block.args[-1].name_hint == "out"


def test_concat_operands_are_computed_in_place() -> None:
    m = lowered(module(CASES["concatenated"]))
    assert op_names(m) == ["tensor.extract_slice", "linalg.generic", "tensor.insert_slice"] * 3
    assert [len(g.inputs) for g in generics(m)] == [1, 1, 1]


def test_depthwise_convolution_iterates_over_channels_once() -> None:
    contraction, _ = generics(lowered(module(CASES["depthwise"])))
    x, w, y = (str(m.data) for m in contraction.indexing_maps)
    iterators = "(d0, d1, d2, d3, d4, d5)"
    assert x == f"{iterators} -> (d0, (d1 + d4), (d2 + d5), d3)"
    assert w == f"{iterators} -> ((d3 floordiv 4), d4, d5, 0, (d3 mod 4))"
    assert y == f"{iterators} -> (d0, d1, d2, d3)"


def test_softmax_stores_values_with_two_readers() -> None:
    """The scaled row and its exponentials have two readers each, so they are stored; the factor is one per row."""
    m = lowered(module(CASES["softmax"]))
    assert [g.results[0].name_hint for g in generics(m)] == ["mul", "reduce_max", "exp", "reduce_sum", "div", "mul"]


def test_elementwise_producers_are_not_repeated() -> None:
    """A contraction reads each element many times: its producer stays whole."""
    m = lowered(module(CASES["transposed_operands"]))
    assert [g.results[0].name_hint for g in generics(m)] == ["relu", "matmul"]


def test_a_producer_with_all_uses_in_one_reader_is_inlined() -> None:
    def silu_of_sum(build: DlBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
        s = build(dl.AddOp, x, y)
        return build(dl.MulOp, s, build(dl.SigmoidOp, s))

    m = lowered(kernel_of(types_of(random_array(4, 5), random_array(4, 5)), silu_of_sum))
    (only,) = generics(m)
    assert len(only.inputs) == 2
    assert op_names(m) == ["linalg.generic"]


def test_locations_are_kept() -> None:
    def named(build: DlBuilder, x: SSAValue, w: SSAValue) -> SSAValue:
        with build.at_location(NameLoc(StringAttr("#0"), NoneAttr())):
            c = build(dl.MatmulOp, x, w)
        with build.at_location(NameLoc(StringAttr("#1"), NoneAttr())):
            return build(dl.ReluOp, c)

    m = lowered(kernel_of(types_of(random_array(4, 5), random_array(5, 6)), named))
    places = [(op.name, str(op.location)) for op in kernel(m).body.block.ops if isinstance(op, linalg.GenericOp)]
    assert [p for _, p in places] == ['loc("#0")', 'loc("#1")']


def test_array_constant_is_rejected() -> None:
    m = kernel_of(types_of(random_array(2)), lambda b, x: b(dl.AddOp, x, b.constant(np.array([1.0, 2.0]), x.type.element_type)))
    with pytest.raises(UnsupportedError, match="make it an argument"):
        lowered(m)
