"""`form-kernels`: which ops are fused, on minimal programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.cost_model import CostModel
from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.registry import make_context
from dlc.instrument.provenance import origins
from dlc.ir import Context, SSAValue, f32, memref, parse_module
from dlc.passes.dl.simplification.decompose_composites import DecomposeCompositesPass
from dlc.passes.fusion.assign_layouts import AssignLayoutsPass
from dlc.passes.fusion.dedupe_kernels import DedupeKernelsPass
from dlc.passes.fusion.form_kernels import FormKernelsPass, form_kernels
from dlc.passes.host.bufferize_host import BufferizeHostPass
from dlc.target import CPU_LEVELS
from dlc.weights import WeightStore
from tests.passes.programs import Array, Program, Writer, program, randoms


def formed(body: Callable[..., SSAValue | Sequence[SSAValue]], *inputs: Array) -> Program:
    return program(body, *inputs).apply(FormKernelsPass(), tolerance=1e-5)


def kernels(p: Program) -> list[list[str]]:
    """Return the ops of each kernel, in execution order."""
    by_name = {k.symbol: k for k in p.module.ops if isinstance(k, dl.KernelOp)}
    dispatches = [d for d in p.main.body.block.ops if isinstance(d, dl.DispatchOp)]
    return [
        [op.name.removeprefix("dl.") for op in by_name[d.symbol].body.block.ops if not isinstance(op, dl.ConstantOp)][:-1]
        for d in dispatches
    ]


def conv(b: Writer, x: SSAValue, kernel: int = 3) -> SSAValue:
    channels = x.type.get_shape()[-1]
    w = b.weight(randoms((kernel, kernel, channels, channels), seed=b.count)[0])
    return b(dl.ConvOp, x, w, strides=(1, 1), dilations=(1, 1), groups=1)


def pad(b: Writer, x: SSAValue) -> SSAValue:
    return b(dl.PadOp, x, b.scalar(0.0, like=x), low=(0, 1, 1, 0), high=(0, 1, 1, 0))


def bias(b: Writer, x: SSAValue) -> SSAValue:
    return b(dl.AddOp, x, b.weight(randoms((x.type.get_shape()[-1],), seed=b.count)[0]))


IMAGE = (1, 6, 7, 4)


@pytest.mark.parametrize("reads_contraction", [False, True])
def test_integers_are_stored_as_floats_for_a_contraction(reads_contraction: bool) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        integers = b(dl.CastOp, b(dl.ReluOp, x), to=element_type(np.uint8))
        floats = b(dl.CastOp, integers, to=f32)
        return conv(b, pad(b, floats)) if reads_contraction else b(dl.SoftmaxOp, floats, axis=3)

    first, *_ = kernels(formed(body, randoms(IMAGE)[0]))
    assert first == ["relu", "cast", *(["cast", "pad"] if reads_contraction else [])]


def test_a_contraction_fuses_its_epilogue_and_the_next_padding() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReluOp, bias(b, conv(b, pad(b, x))))
        return b(dl.ReluOp, b(dl.AddOp, conv(b, pad(b, y)), x))

    p = formed(body, *randoms(IMAGE))
    assert kernels(p) == [["pad"], ["conv", "add", "relu", "pad"], ["conv", "add", "relu"]]


@pytest.mark.parametrize(
    ("permutation", "groups"), [((0, 2, 1), [["gather", "neg"], ["transpose"]]), ((1, 0, 2), [["gather", "neg", "transpose"]])]
)
def test_a_gather_stores_its_result_transposed_if_the_last_axis_stays(
    permutation: tuple[int, ...], groups: list[list[str]]
) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        rows = b(dl.GatherOp, x, b.weight(np.array([2, 0, 1])), axis=1)
        return b(dl.TransposeOp, b(dl.NegOp, rows), permutation=permutation)

    assert kernels(formed(body, *randoms((4, 3, 5)))) == groups


def test_an_output_transform_stores_channels_last() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        matrix = np.array([[1, 1, 1, 0], [0, 1, -1, 1]], np.float32)
        image = b(dl.WinogradOutputOp, x, b.weight(matrix))
        return b(dl.TransposeOp, b(dl.ReluOp, image), permutation=(0, 3, 1, 2))

    assert kernels(formed(body, *randoms((4, 4, 1, 3, 2, 5)))) == [["winograd_output", "relu"], ["transpose"]]


def test_equal_groups_share_a_kernel_if_their_inputs_are_of_equal_kind() -> None:
    def body(b: Writer, x: SSAValue, y: SSAValue) -> SSAValue:
        first, second = (b(dl.MatmulOp, x, b.weight(randoms((4, 4), seed=k)[0])) for k in range(2))
        return b(dl.MatmulOp, b(dl.MatmulOp, first, second), y)

    p = formed(body, *randoms((4, 4), (4, 4)))
    dispatches = [d.symbol for d in p.main.body.block.ops if isinstance(d, dl.DispatchOp)]
    assert dispatches == ["matmul", "matmul", "matmul_1", "matmul_1"]
    p.apply(AssignLayoutsPass(CPU_LEVELS["cpu:avx2"]), tolerance=1e-5)
    packed = [any(isinstance(v.owner, dl.PackOp) for v in d.arguments) for d in p.main.walk() if isinstance(d, dl.DispatchOp)]
    assert packed == [True, True, False, False]


def test_the_refusal_reason_is_of_the_op_after_a_view() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.NegOp, b(dl.ReshapeOp, b(dl.ReluOp, conv(b, x, 1)), shape=(4, 4, 4)))

    first, second = form_kernels(program(body, *randoms((1, 4, 4, 4))).module, CPU_LEVELS["cpu:avx2"])
    view = "it is a view of a buffer and costs nothing"
    assert first.reason == f"{view}; dl.neg after it: its shape is 4×4×4, this kernel's is 1×4×4×4; fusion needs equal shapes"
    assert second.reason == "the program returns it"


def test_other_readers_of_a_padded_value_read_a_slice() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReluOp, conv(b, x, 1))
        z = b(dl.AddOp, conv(b, pad(b, y)), y)
        return b(dl.MatmulOp, z, conv(b, y, 1))

    p = formed(body, *randoms((1, 4, 4, 4)))
    assert kernels(p) == [["conv", "relu", "pad"], ["conv", "slice", "add"], ["slice", "conv"], ["matmul"]]


def test_a_reader_before_the_pad_finds_its_value() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReluOp, conv(b, x, 1))
        pooled = b(dl.MaxPoolOp, y, kernel=(2, 2), strides=(1, 1), dilations=(1, 1))
        return b(dl.MaximumOp, b(dl.ReluOp, pooled), conv(b, pad(b, y), 4))

    assert kernels(formed(body, *randoms(IMAGE))) == [
        ["conv", "relu", "pad"],
        ["conv"],
        ["slice", "max_pool", "relu", "maximum"],
    ]


def test_a_value_that_is_returned_is_not_padded() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        y = b(dl.ReluOp, x)
        return [y, conv(b, pad(b, y))]

    assert kernels(formed(body, *randoms(IMAGE))) == [["relu"], ["pad"], ["conv"]]


def test_a_gate_is_fused_into_its_contraction() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.MatmulOp, x, b.weight(randoms((4, 5))[0]))
        z = b(dl.MatmulOp, x, b.weight(randoms((4, 5), seed=1)[0]))
        return b(dl.MulOp, b(dl.MulOp, y, b(dl.SigmoidOp, y)), z)

    assert kernels(formed(body, *randoms((3, 4)))) == [["matmul"], ["matmul", "sigmoid", "mul", "mul"]]


def test_a_contraction_has_one_result() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        y = b(dl.MatmulOp, x, b.weight(randoms((4, 5))[0]))
        return [y, b(dl.ReluOp, y)]

    assert kernels(formed(body, *randoms((3, 4)))) == [["matmul"], ["relu"]]


def test_elementwise_ops_have_several_results() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        y = b(dl.ExpOp, x)
        return [y, b(dl.ReluOp, y)]

    assert kernels(formed(body, *randoms((3, 4)))) == [["exp", "relu"]]


def test_an_elementwise_op_leaves_its_user_to_a_contraction() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        early = b(dl.ExpOp, x)
        return b(dl.AddOp, early, b(dl.MatmulOp, x, b.weight(randoms((4, 4))[0])))

    assert kernels(formed(body, *randoms((3, 4)))) == [["exp", "matmul", "add"]]


def test_rows_share_a_kernel() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        sums = b(dl.ReduceSumOp, x, axes=(1,), keepdims=True)
        squares = b(dl.ReduceSumOp, b(dl.MulOp, x, x), axes=(1,), keepdims=True)
        norm = b(dl.SqrtOp, b(dl.SubOp, squares, sums))
        return b(dl.SoftmaxOp, b(dl.MulOp, x, norm), axis=1)

    x = np.abs(randoms((3, 4))[0]) + 2
    assert kernels(formed(body, x)) == [["reduce_sum", "mul", "reduce_sum", "sub", "sqrt", "mul", "softmax"]]


def test_a_kernel_of_rows_has_results_per_element_and_per_row() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        roots = b(dl.RsqrtOp, b(dl.ReduceSumOp, b(dl.MulOp, x, x), axes=(1,), keepdims=True))
        normal = b(dl.MulOp, x, roots)
        return [roots, normal, b(dl.ExpOp, normal)]

    assert kernels(formed(body, *randoms((3, 4)))) == [["mul", "reduce_sum", "rsqrt", "mul", "exp"]]


def test_rows_too_long_for_the_cache_do_not_stay_in_one_kernel() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.SoftmaxOp, x, axis=1)

    (x,) = randoms((2, CostModel().max_row_elements + 1))
    long = program(body, x).apply(DecomposeCompositesPass(), tolerance=1e-5).apply(FormKernelsPass(), tolerance=1e-5)
    assert [ops[0] for ops in kernels(long)] == ["reduce_max", "sub", "reduce_sum", "mul"]
    (short,) = randoms((2, CostModel().max_row_elements))
    assert kernels(program(body, short).apply(DecomposeCompositesPass()).apply(FormKernelsPass())) == [["softmax"]]


def test_returned_values_are_fused_into_their_readers() -> None:
    """An optimizer step: two moments of a gradient and values derived from both, in one kernel with three results."""

    def body(b: Writer, g: SSAValue, m: SSAValue, v: SSAValue, bias: SSAValue) -> Sequence[SSAValue]:
        mean = b(dl.AddOp, b(dl.MulOp, m, b.scalar(0.9, like=m)), g)
        square = b(dl.AddOp, b(dl.MulOp, v, b.scalar(0.99, like=v)), b(dl.MulOp, g, g))
        unbiased = b(dl.DivOp, square, b(dl.SqrtOp, bias))
        return mean, square, b(dl.DivOp, mean, unbiased)

    p = formed(body, *randoms((4, 8), (4, 8), (4, 8)), np.asarray(2, np.float32))
    assert kernels(p) == [["sqrt"], ["mul", "add", "mul", "mul", "add", "div", "div"]]


def test_paths_that_join_again_are_fused_where_they_join() -> None:
    def body(b: Writer, x: SSAValue, y: SSAValue) -> SSAValue:
        near = b(dl.SubOp, x, y)
        size = b(dl.AbsOp, y)
        limit = b(dl.ExpOp, size)
        inside = b(dl.LessOp, near, limit)
        return b(dl.AndOp, inside, b(dl.LessOp, size, x))

    p = formed(body, *randoms((5, 8), (5, 8)))
    assert kernels(p) == [["sub", "abs", "exp", "less", "less", "and"]]


def test_producers_with_other_readers_are_not_fused() -> None:
    def body(b: Writer, x: SSAValue, y: SSAValue) -> list[SSAValue]:
        near = b(dl.SubOp, x, y)
        size = b(dl.AbsOp, y)
        limit = b(dl.ExpOp, size)
        inside = b(dl.AddOp, near, limit)
        return [inside, b(dl.MatmulOp, size, b.weight(randoms((8, 3))[0]))]

    p = formed(body, *randoms((5, 8), (5, 8)))
    assert kernels(p) == [["abs", "exp"], ["sub", "add"], ["matmul"]]


def test_producers_of_a_reduction_may_join_again() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        size = b(dl.AbsOp, x)
        both = b(dl.MulOp, b(dl.ExpOp, size), b(dl.SinOp, size))
        return b(dl.ReduceSumOp, both, axes=(0,), keepdims=True)

    assert kernels(formed(body, *randoms((5, 8)))) == [["abs", "exp", "sin", "mul", "reduce_sum"]]


def test_a_reduction_of_other_axes_fuses_its_producers() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        total = b(dl.ReduceSumOp, b(dl.ExpOp, b(dl.MulOp, x, x)), axes=(0,), keepdims=True)
        return b(dl.MulOp, total, b.scalar(0.5, like=x))

    assert kernels(formed(body, *randoms((3, 4)))) == [["mul", "exp", "reduce_sum", "mul"]]


def test_a_transpose_is_written_by_its_producer() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReluOp, b(dl.MatmulOp, x, x))
        return b(dl.TransposeOp, y, permutation=(1, 0))

    assert kernels(formed(body, *randoms((4, 4)))) == [["matmul", "relu", "transpose"]]


def test_movements_are_read_through_where_vectors_stay_contiguous() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        part = b(dl.SliceOp, x, starts=(0, 1), limits=(4, 4), strides=(1, 1))
        turned = b(dl.TransposeOp, x, permutation=(1, 0))
        turned = b(dl.SliceOp, turned, starts=(1, 0), limits=(4, 4), strides=(1, 1))
        return b(dl.MatmulOp, part, turned)

    # A right operand with strided columns is copied first, including its slice.
    assert kernels(formed(body, *randoms((4, 4)))) == [["transpose", "slice"], ["slice", "matmul"]]


def test_concatenation_fuses_producers_of_its_operands() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        low = b(dl.SliceOp, x, starts=(0, 0), limits=(3, 2), strides=(1, 1))
        high = b(dl.SliceOp, x, starts=(0, 2), limits=(3, 4), strides=(1, 1))
        return b(dl.ReluOp, b(dl.ConcatOp, b(dl.NegOp, high), low, axis=1))

    assert kernels(formed(body, *randoms((3, 4)))) == [["slice", "neg", "slice", "concat"], ["relu"]]


def test_weight_expressions_and_reshapes_are_not_fused() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        w = b(dl.MulOp, b.weight(randoms((4, 5))[0]), b.weight(randoms((5,))[0]))
        return b(dl.ReluOp, b(dl.ReshapeOp, b(dl.MatmulOp, x, w), shape=(15,)))

    p = formed(body, *randoms((3, 4)))
    assert p.ops == ["mul", "dispatch", "reshape", "dispatch"]


def test_a_chain_through_another_kernel_is_no_cycle() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ExpOp, x)
        z = b(dl.MatmulOp, y, y)
        return b(dl.AddOp, b(dl.NegOp, y), z)

    # The sum reads a product of the first kernel's result: it belongs to the product's kernel.
    assert kernels(formed(body, *randoms((4, 4)))) == [["exp"], ["matmul", "neg", "add"]]


def test_origins_follow_the_ops() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.ReluOp, bias(b, b(dl.MatmulOp, x, b.weight(randoms((4, 4))[0]))))

    p = formed(body, *randoms((3, 4)))
    (dispatch,) = (op for op in p.main.body.block.ops if isinstance(op, dl.DispatchOp))
    (kernel,) = (op for op in p.module.ops if isinstance(op, dl.KernelOp))
    assert origins(dispatch.location) == ("op1", "op3", "op4")
    assert [origins(op.location) for op in kernel.body.block.ops][:-1] == [("#0",), ("#1",), ("#2",)]


def test_equal_kernels_are_merged() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReluOp, bias(b, conv(b, x, 1)))
        z = b(dl.ReluOp, bias(b, conv(b, y, 1)))
        return b(dl.ReluOp, conv(b, z, 1))

    p = formed(body, *randoms(IMAGE)).apply(AssignLayoutsPass(CPU_LEVELS["cpu:avx2"]), DedupeKernelsPass(), tolerance=1e-5)
    dispatches = [op.symbol for op in p.main.body.block.ops if isinstance(op, dl.DispatchOp)]
    assert dispatches == ["conv_add_relu", "conv_add_relu", "conv_relu"]


def test_weights_are_packed_and_data_is_not() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        w = b.weight(randoms((4, 20))[0])
        return [b(dl.MatmulOp, x, w), b(dl.MatmulOp, x, x)]

    p = formed(body, *randoms((4, 4))).apply(AssignLayoutsPass(CPU_LEVELS["cpu:avx2"]), tolerance=1e-5)
    assert p.ops == ["pack", "dispatch", "dispatch"]
    assert kernels(p) == [["unpack", "matmul"], ["matmul"]]
    (packed,) = (op for op in p.main.body.block.ops if isinstance(op, dl.PackOp))
    assert packed.result.type.get_shape() == (1, 4, 20)


RECURRENCE = """\
builtin.module {
  func.func @main(%h: tensor<5x40xf32>, %u: tensor<40x40xf32>) -> tensor<5x40xf32> {
    %0 = dl.scan %h {states = 1 : i64, length = array<i64: 9>} : (tensor<5x40xf32>) -> (tensor<5x40xf32>) {
    ^bb0(%state: tensor<5x40xf32>):
      %1 = dl.matmul %state, %u : (tensor<5x40xf32>, tensor<40x40xf32>) -> tensor<5x40xf32>
      %2 = dl.tanh %1 : (tensor<5x40xf32>) -> tensor<5x40xf32>
      dl.yield %2 : tensor<5x40xf32>
    }
    func.return %0 : tensor<5x40xf32>
  }
}
"""


def test_loop_invariant_operands_are_packed_before_the_loop() -> None:
    target = CPU_LEVELS["cpu:avx2"]
    p = Program(parse_module(make_context(), RECURRENCE), WeightStore(), randoms((5, 40), (40, 40)))
    p.apply(FormKernelsPass(target), AssignLayoutsPass(target), DedupeKernelsPass(), tolerance=1e-5)
    assert p.ops == ["dispatch", "scan"]
    assert kernels(p) == [["pack"]]


def test_weights_of_grouped_convolutions_are_not_packed() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.ConvOp, x, b.weight(randoms((3, 3, 1, 4))[0]), strides=(1, 1), dilations=(1, 1), groups=4)

    assert formed(body, *randoms(IMAGE)).apply(AssignLayoutsPass(CPU_LEVELS["cpu:avx2"])).ops == ["dispatch"]


def rows(b: Writer, x: SSAValue, start: int, limit: int) -> SSAValue:
    """Return some rows of a matrix."""
    return b(dl.SliceOp, x, starts=(start, 0), limits=(limit, x.type.get_shape()[1]), strides=(1, 1))


def test_contiguous_slices_are_views() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        y = b(dl.MatmulOp, x, b.weight(randoms((16, 16))[0]))
        return [b(dl.ExpOp, rows(b, y, k, k + 1)) for k in range(4)]

    p = formed(body, *randoms((4, 16))).apply(DedupeKernelsPass())
    assert kernels(p) == [["matmul"], ["exp"], ["exp"], ["exp"], ["exp"]]
    assert len({k.symbol for k in p.module.ops if isinstance(k, dl.KernelOp)}) == 2


def test_a_nested_concatenation_is_part_of_the_kernel_of_the_outer_one() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        rows = [b(dl.ConcatOp, x, b(dl.NegOp, x), axis=1) for _ in range(2)]
        return [b(dl.ConcatOp, *rows, axis=0)]

    p = formed(body, *randoms((3, 4)))
    assert kernels(p) == [["neg", "concat", "neg", "concat", "concat"]]


def test_a_concatenation_that_is_read_twice_is_a_kernel() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        inner = b(dl.ConcatOp, x, b(dl.NegOp, x), axis=1)
        return [b(dl.ConcatOp, inner, inner, axis=1)]

    assert kernels(formed(body, *randoms((3, 4)))) == [["neg", "concat"], ["concat"]]


def test_contiguous_concatenations_are_no_kernels() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        w = b.weight(randoms((16, 16))[0])
        pieces = [b(dl.ReluOp, b(dl.MatmulOp, rows(b, x, k, k + 2), w)) for k in (0, 2)]
        return b(dl.ExpOp, b(dl.ConcatOp, *pieces, axis=0))

    p = formed(body, *randoms((4, 16)))
    assert kernels(p) == [["slice", "matmul", "relu"]] * 2 + [["exp"]] and "concat" in p.ops


def test_strided_concatenations_are_kernels() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.ConcatOp, *(b(dl.MatmulOp, x, b.weight(randoms((16, 16))[0])) for _ in range(2)), axis=1)

    assert kernels(formed(body, *randoms((4, 16))))[-1] == ["concat"]


def test_returned_slices_are_copied() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        y = b(dl.MatmulOp, x, b.weight(randoms((16, 10))[0]))
        return [rows(b, x, 1, 2), y, rows(b, y, 1, 3), b(dl.ReshapeOp, rows(b, y, 3, 4), shape=(10,))]

    p = formed(body, *randoms((4, 16)))
    assert kernels(p) == [["matmul"]]
    # A value that is returned directly is not copied.
    BufferizeHostPass().apply(Context(), p.module)
    assert sum(isinstance(op, memref.CopyOp) for op in p.main.walk()) == 3


def test_long_chains_are_split_and_their_end_joins_a_reduction() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        for _ in range(300):
            x = b(dl.NegOp, x)
        return b(dl.ReduceSumOp, x, axes=(0,), keepdims=True)

    sizes = [len(k) for k in kernels(formed(body, *randoms((3, 4))))]
    assert sum(sizes) == 301 and max(sizes) <= 65 and len(sizes) <= 6


def test_other_slices_are_fused() -> None:
    def pieces(b: Writer, x: SSAValue) -> list[SSAValue]:
        y = b(dl.MatmulOp, x, b.weight(randoms((16, 16))[0]))
        columns = b(dl.SliceOp, y, starts=(0, 0), limits=(4, 8), strides=(1, 1))
        steps = b(dl.SliceOp, y, starts=(0, 0), limits=(4, 16), strides=(2, 1))
        return [b(dl.ExpOp, columns), b(dl.ExpOp, steps), b(dl.ExpOp, rows(b, x, 1, 2))]

    assert kernels(formed(pieces, *randoms((4, 16)))) == [["matmul"], *[["slice", "exp"]] * 3]

    def unaligned(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.MatmulOp, x, b.weight(randoms((16, 10))[0]))
        return b(dl.ExpOp, rows(b, y, 1, 2))

    assert kernels(formed(unaligned, *randoms((4, 16)))) == [["matmul"], ["slice", "exp"]]

    def moved(b: Writer, x: SSAValue) -> list[SSAValue]:
        y = b(dl.MatmulOp, x, b.weight(randoms((16, 16))[0]))
        turned = b(dl.TransposeOp, y, permutation=(1, 0))
        return [y, *(b(dl.ExpOp, rows(b, turned, k, k + 1)) for k in range(2))]

    assert kernels(formed(moved, *randoms((16, 16)))) == [["matmul"], *[["transpose", "slice", "exp"]] * 2]


@pytest.mark.parametrize("op", ["remainder", "floor_divide", "power"])
def test_integer_divisions_leave_products_of_dynamic_shape(op: str) -> None:
    """Each of the many tile sizes would have as many scalar divisions as lanes."""

    def count(**given: Any) -> int:
        function = dlc.jit(lambda x, y, z: getattr(dnp, op)(dnp.matmul(x, y), z), **given)
        module = function.lower(*(np.ones(shape, np.int8) for shape in ((3, 4), (4, 5), (5,)))).program.module
        FormKernelsPass().apply(make_context(), module)
        return sum(isinstance(kernel, dl.KernelOp) for kernel in module.ops)

    assert count() == 1
    assert count(dynamic={"x": {0: "N", 1: "M"}, "y": {0: "M", 1: "K"}, "z": {0: "K"}}) == 2
