"""`channels-last`, `fold-transposes-into-contractions` and `sink-reshapes`: data is not copied to other layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.ir import SSAValue
from dlc.passes.dl.movement.channels_last import ChannelsLastPass
from dlc.passes.dl.movement.fold_transposes_into_contractions import FoldTransposesIntoContractionsPass
from dlc.passes.dl.movement.sink_reshapes import SinkReshapesPass
from dlc.passes.dl.simplification.cse import CsePass
from dlc.passes.dl.simplification.decompose_composites import DecomposeCompositesPass
from dlc.passes.dl.simplification.simplify import SimplifyPass
from tests.passes.programs import Program, Writer, program, randoms

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def conv(b: Writer, x: SSAValue, channels: int, kernel: int = 1) -> SSAValue:
    """A convolution of a channels-first tensor, padded to keep its size, as the importer emits it."""
    (w,) = randoms((kernel, kernel, x.type.get_shape()[1], channels), seed=kernel)
    border = (0, 0, kernel // 2, kernel // 2)
    x = b(dl.PadOp, x, b.scalar(0.0, like=x), low=border, high=border)
    x = b(dl.TransposeOp, x, permutation=LAST)
    y = b(dl.ConvOp, x, b.weight(w), strides=(1, 1), dilations=(1, 1), groups=1)
    return b(dl.TransposeOp, y, permutation=FIRST)


def data_transposes(p: Program) -> int:
    """Count the transposes of data, not of weights."""
    constant = {v for op in p.main.body.block.ops if not op.operands for v in op.results}
    return sum(isinstance(op, dl.TransposeOp) and op.x not in constant for op in p.main.body.block.ops)


def channels_last(p: Program, tolerance: float = 1e-5) -> Program:
    passes = (SimplifyPass(), DecomposeCompositesPass(), SimplifyPass(), ChannelsLastPass(), SimplifyPass(), CsePass())
    return p.apply(*passes, tolerance=tolerance)


def test_transposes_remain_at_both_ends_only() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        first = b(dl.ReluOp, conv(b, x, 4, 3))
        scale = b.weight(randoms((4, 1, 1))[0])
        second = conv(b, b(dl.MulOp, scale, first), 4, 3)
        return b(dl.SiluOp, b(dl.AddOp, first, second))

    p = channels_last(program(body, *randoms((2, 3, 6, 5))))
    assert data_transposes(p) == 2
    assert p.ops[0] == "transpose", "the input's transpose comes before its pad"
    assert p.ops[-1] == "transpose"


def test_squeeze_and_excite_needs_reshapes_only() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = conv(b, x, 4)
        pooled = b(dl.ReduceMeanOp, y, axes=(2, 3), keepdims=True)
        gate = b(dl.SigmoidOp, conv(b, pooled, 4))
        y = conv(b, b(dl.MulOp, gate, y), 3)
        return b(dl.ReshapeOp, b(dl.ReduceMaxOp, y, axes=(2, 3), keepdims=False), shape=(2, 3))

    p = channels_last(program(body, *randoms((2, 3, 4, 5))))
    assert data_transposes(p) == 1
    assert p.ops.count("reshape") == 1


SINKING_OPS: dict[str, Any] = {
    "concat": lambda b, x: b(dl.ConcatOp, x, x, axis=1),
    "slice": lambda b, x: b(dl.SliceOp, x, starts=(0, 1, 0, 2), limits=(2, 3, 4, 5), strides=(1, 1, 2, 1)),
    "reverse": lambda b, x: b(dl.ReverseOp, x, axes=(1,)),
    "softmax": lambda b, x: b(dl.SoftmaxOp, x, axis=1),
    "reduce_sum": lambda b, x: b(dl.ReduceSumOp, x, axes=(2,), keepdims=True),
    "pad": lambda b, x: b(dl.PadOp, x, b.scalar(1.0, like=x), low=(0, 1, 0, 0), high=(0, 0, 2, 0)),
    "broadcast_to": lambda b, x: b(dl.BroadcastToOp, b(dl.ReduceMaxOp, x, axes=(3,), keepdims=True), shape=(2, 3, 4, 5)),
    "split": lambda b, x: b(dl.ReshapeOp, b(dl.ConcatOp, x, x, axis=1), shape=(2, 2, 3, 4, 5)),
    "merge": lambda b, x: b(dl.ReshapeOp, x, shape=(2, 3, 20)),
}


@pytest.mark.parametrize("name", SINKING_OPS)
def test_transpose_sinks(name: str) -> None:
    p = program(lambda b, x: SINKING_OPS[name](b, b(dl.TransposeOp, x, permutation=FIRST)), *randoms((2, 4, 5, 3)))
    p.apply(SimplifyPass(), ChannelsLastPass(), tolerance=1e-5)
    # The exception is a pad, which shares a kernel with the transpose before it.
    assert p.ops.index("transpose") == (0 if name == "pad" else len(p.ops) - 1)


def enlarged(b: Writer, x: SSAValue) -> SSAValue:
    """Upscale images by two along height and width with linear interpolation, as `Resize` is imported."""
    for axis, shape in ((2, (-1, 1)), (3, (-1,))):
        size = 2 * x.type.get_shape()[axis]
        before, after = (b.weight(((np.arange(size) + k) // 2 % (size // 2)).astype(np.int64)) for k in (0, 1))
        share = b.weight(randoms((size,))[0].reshape(shape))
        x = b(dl.AddOp, b(dl.MulOp, b(dl.GatherOp, x, before, axis=axis), share), b(dl.GatherOp, x, after, axis=axis))
    return x


@pytest.mark.parametrize("last", [False, True])
def test_resize_between_convolutions_needs_no_transpose(last: bool) -> None:
    """At the end of a model the small image is transposed."""

    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = enlarged(b, conv(b, x, 4))
        return y if last else conv(b, y, 3)

    p = channels_last(program(body, *randoms((1, 3, 4, 6))))
    kinds = [op for op in p.ops if op in ("conv", "transpose", "gather")]
    assert data_transposes(p) == 2
    assert kinds[-6:] == (["conv", "transpose"] + ["gather"] * 4 if last else ["gather"] * 4 + ["conv", "transpose"])


def test_reshape_that_merges_axes_keeps_its_transpose() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.ReshapeOp, b(dl.TransposeOp, x, permutation=FIRST), shape=(2, 60))

    assert channels_last(program(body, *randoms((2, 4, 5, 3)))).ops == ["transpose", "reshape"]


def test_no_transpose_is_added() -> None:
    def body(b: Writer, x: SSAValue, y: SSAValue) -> SSAValue:
        return b(dl.AddOp, b(dl.TransposeOp, x, permutation=(1, 0)), y)

    assert channels_last(program(body, *randoms((3, 4), (4, 3)))).ops == ["transpose", "add"]


def attention(b: Writer, x: SSAValue) -> SSAValue:
    def head(permutation: tuple[int, ...]) -> SSAValue:
        return b(dl.TransposeOp, b(dl.ReshapeOp, x, shape=(2, 5, 3, 4)), permutation=permutation)

    scores = b(dl.MatmulOp, b(dl.MulOp, head((0, 2, 1, 3)), b.scalar(0.5, like=x)), head((0, 2, 3, 1)))
    mixed = b(dl.MatmulOp, b(dl.SoftmaxOp, scores, axis=-1), head((0, 2, 1, 3)))
    return b(dl.ReshapeOp, b(dl.TransposeOp, mixed, permutation=(0, 2, 1, 3)), shape=(2, 5, 12))


def test_attention_heads_are_read_in_place() -> None:
    p = channels_last(program(attention, *randoms((2, 5, 12))))
    p.apply(FoldTransposesIntoContractionsPass(), tolerance=1e-5)
    # The keys are transposed, since their vectors run along the result's last axis; queries and values are not.
    assert data_transposes(p) == 2
    assert p.ops.count("dot_general") == 2


@pytest.mark.parametrize(
    ("shapes", "matrix"),
    [
        (((6, 4), (6,)), 0),
        (((4,), (6, 4)), 1),
        (((1, 4), (6, 4)), 1),
        (((2, 1, 4), (2, 6, 4)), 1),
        (((2, 6, 4), (6,)), 0),
        (((4,), (2, 6, 4)), 1),
    ],
)
def test_vector_products_read_transposed_matrices_in_place(shapes: list[tuple[int, ...]], matrix: int) -> None:
    def body(b: Writer, *operands: SSAValue) -> SSAValue:
        sides = list(operands)
        order = (1, 0) if len(shapes[matrix]) == 2 else (0, 2, 1)
        sides[matrix] = b(dl.TransposeOp, operands[matrix], permutation=order)
        return b(dl.MatmulOp, *sides)

    p = program(body, *randoms(*shapes)).apply(FoldTransposesIntoContractionsPass(), SimplifyPass(), tolerance=1e-5)
    assert [op for op in p.ops if op != "reshape"] == ["matmul"]


def test_transposed_weights_stay_weight_expressions() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.MatmulOp, x, b(dl.TransposeOp, b.weight(randoms((3, 4))[0]), permutation=(1, 0)))

    assert program(body, *randoms((2, 4))).apply(FoldTransposesIntoContractionsPass()).ops == ["transpose", "matmul"]


def test_reshape_sinks_below_elementwise_ops() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReshapeOp, b(dl.MatmulOp, x, b.weight(randoms((4, 6))[0])), shape=(2, 3, 6))
        y = b(dl.AddOp, y, b.weight(randoms((6,))[0]))
        return b(dl.MulOp, y, b(dl.SigmoidOp, y))

    p = program(body, *randoms((6, 4))).apply(SinkReshapesPass())
    assert p.ops == ["matmul", "add", "sigmoid", "mul", "reshape"]


@pytest.mark.parametrize(
    ("made", "seen", "low", "sinks"),
    [
        ((1, 5, 6, 1, 3), (1, 5, 6, 3), (0, 1, 2, 0), True),
        ((5, 6, 3), (1, 5, 6, 3), (0, 1, 2, 0), True),
        # The unit axis is ambiguous, or other axes change.
        ((5, 1, 6, 3), (1, 5, 6, 3), (1, 1, 2, 0), False),
        ((1, 30, 3), (1, 5, 6, 3), (0, 1, 2, 0), False),
    ],
)
def test_reshape_of_unit_axes_sinks_below_a_pad(
    made: tuple[int, ...], seen: tuple[int, ...], low: tuple[int, ...], sinks: bool
) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReshapeOp, b(dl.ExpOp, x), shape=seen)
        return b(dl.PadOp, y, b.scalar(0, like=y), low=low, high=(0, 0, 1, 0), pad_mode="constant")

    p = program(body, *randoms(made)).apply(SinkReshapesPass())
    assert p.ops == (["exp", "pad", "reshape"] if sinks else ["exp", "reshape", "pad"])


def test_op_on_two_reshaped_values_moves_once() -> None:
    def body(b: Writer, x: SSAValue, y: SSAValue) -> SSAValue:
        values = [b(dl.ReshapeOp, b(dl.ExpOp, v), shape=(12,)) for v in (x, y)]
        return b(dl.AddOp, *values)

    p = program(body, *randoms((3, 4), (2, 6))).apply(SinkReshapesPass(), SimplifyPass())
    assert p.ops == ["exp", "exp", "reshape", "add", "reshape"]


def test_diverging_consumers_keep_the_reshape() -> None:
    def body(b: Writer, x: SSAValue, mean: SSAValue) -> SSAValue:
        gradient = b(dl.ReshapeOp, b(dl.ReduceSumOp, x, axes=(0,), keepdims=True), shape=(4,))
        return b(dl.ConcatOp, b(dl.AddOp, mean, gradient), b(dl.MulOp, gradient, gradient), axis=0)

    p = program(body, *randoms((3, 4), (4,))).apply(SinkReshapesPass())
    assert p.ops == ["reduce_sum", "reshape", "add", "mul", "concat"]


def test_operand_broadcast_across_split_axes_keeps_the_reshape() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReshapeOp, b(dl.ExpOp, x), shape=(3, 4))
        return b(dl.AddOp, y, b.weight(randoms((4,))[0]))

    assert program(body, *randoms((12,))).apply(SinkReshapesPass()).ops == ["exp", "reshape", "add"]


@pytest.mark.parametrize(("before", "moves"), [((2, 1, 3, 1, 4), True), ((2, 12), False)])
def test_reshape_that_removes_unit_axes_sinks_below_a_pad(before: tuple[int, ...], moves: bool) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReshapeOp, b(dl.ExpOp, x), shape=(2, 3, 4))
        y = b(dl.ReluOp, b(dl.AddOp, y, b.weight(randoms((4,))[0])))
        return b(dl.PadOp, y, b.scalar(0.5, like=y), low=(0, 1, 2), high=(1, 0, 3), pad_mode="constant")

    p = program(body, *randoms(before)).apply(SinkReshapesPass())
    assert p.ops[-2:] == (["pad", "reshape"] if moves else ["relu", "pad"])
